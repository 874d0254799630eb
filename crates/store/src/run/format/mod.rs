//! Bytes of a run: blocks, filters, the list of pages and its ends.

pub(crate) mod block;
pub(crate) mod ends;
pub(crate) mod filter;
pub(crate) mod list;
pub(crate) mod view;
