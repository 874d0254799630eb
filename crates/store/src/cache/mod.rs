//! Memory of a store: the row cache, the block cache, and the budget that both share.

pub(crate) mod block;
pub(crate) mod budget;
pub(crate) mod row;
