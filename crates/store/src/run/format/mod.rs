//! Encoding of a run: blocks, filters, lists and both ends.

pub(crate) mod block;
pub(crate) mod bytes;
pub(crate) mod ends;
pub(crate) mod filter;
pub(crate) mod list;
pub(crate) mod view;
