//! The handles that programs hold: stores, `Kvs`, batches, cursors, snapshots, transactions.

pub(crate) mod batch;
pub(crate) mod completions;
pub(crate) mod cursor;
pub(crate) mod kvdb;
pub(crate) mod kvs;
pub(crate) mod multi_get;
pub(crate) mod snapshot;
pub(crate) mod transaction;
pub(crate) mod volume_admin;

#[cfg(test)]
mod first_walk_tests;
