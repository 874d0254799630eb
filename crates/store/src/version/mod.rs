//! State of an open store: manifest, view, recovery, and the core that all handles share.

pub(crate) mod core;
pub(crate) mod recovery;
pub(crate) mod statistics;
pub(crate) mod view;
