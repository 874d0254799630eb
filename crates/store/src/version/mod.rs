//! State of an open store's files: manifest and view, their changes, and the merge of sources.

pub(crate) mod ends;
pub(crate) mod files;
pub(crate) mod kvs_bits;
pub(crate) mod merged;
pub(crate) mod sample;
pub(crate) mod source;
pub(crate) mod time;
pub(crate) mod transactions;
pub(crate) mod view;
