//! Models of devices that this machine does not have: the time that an access takes on them.
//!
//! A model computes in virtual time, in whole picoseconds, from a few physical numbers, each with
//! its source beside it. Nothing in it depends on the machine that runs it.

pub mod block;
pub mod memory;
mod name;

pub use block::{BlockModel, BlockParameters};
pub use name::{ModelName, ParseModelNameError};
