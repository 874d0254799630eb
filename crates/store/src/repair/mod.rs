//! Checking, salvaging and copying stores.

pub(crate) mod check;
pub(crate) mod checkpoint;
pub(crate) mod salvage;
mod source;
pub(crate) mod unfinished;
