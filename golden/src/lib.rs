//! layerlet-golden
