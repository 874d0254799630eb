//! Checking, salvaging and copying stores.

pub(crate) mod check;
pub(crate) mod checkpoint;
pub(crate) mod file_copy;
pub(crate) mod salvage;
