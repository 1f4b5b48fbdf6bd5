//! The checks: what is run, against what, and what counts as a failure.

mod carried;
pub mod encoded;
mod failure;
pub mod fixtures;
pub mod model;
pub mod routes;

pub use failure::{Failure, agree, verdict};
