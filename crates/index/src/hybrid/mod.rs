//! Indexes that keep a part in DRAM: HybridIndex, HybridIndex+, and a cache over any index, all of
//! «Rethinking Index Design Based on PM Device».

pub(crate) mod cached;
pub(crate) mod hash_table;
pub(crate) mod hybrid_index;
pub(crate) mod hybrid_index_plus;
pub(crate) mod queue;
pub(crate) mod switch;
