//! layerlet-tests
