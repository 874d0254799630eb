//! Models of real devices: how long an access takes on a medium that this machine does not have.
//!
//! A model answers in virtual time, in whole picoseconds, from a few physical numbers, each with
//! its source beside it. Nothing in it depends on the machine that runs it.

pub mod block;
pub mod memory;
mod name;

pub use block::{BlockModel, BlockParameters};
pub use name::{ModelName, ParseModelNameError};
