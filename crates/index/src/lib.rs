//! Persistent and hybrid indexes over a region, and the allocator they live in.
//!
//! An index finds the value, eight bytes, of a key, and keeps what it acknowledged: once an
//! operation has returned, no crash undoes it, and an operation that a crash interrupts is found
//! done or not begun. All indexes are used through one trait, [`Index`], and opened through
//! another, [`Persistent`]; they live in a [`Pool`] in a region, which is
//! [`Direct`](entresol_media::Direct) in shipped code and an observed one in tests.
#![forbid(unsafe_code)]

mod cached;
mod error;
mod fast_fair;
mod fp_tree;
mod hash_table;
mod hybrid_index;
mod hybrid_index_plus;
mod index;
pub mod keys;
mod latch;
mod mix;
mod ods;
pub mod pool;
pub mod published;
mod queue;
mod root;
mod settled;
mod skip_list;
mod sorted;
mod sv_tree;
mod switch;
#[cfg(test)]
mod testing;
pub mod trial;
mod walk;
mod wb_tree;

pub use cached::{CacheCounts, CacheKey, CacheOptions, Cached, Probing};
pub use error::IndexError;
pub use fast_fair::{FastFair, FastFairOptions};
pub use fp_tree::{FpTree, FpTreeOptions};
pub use hash_table::{HashTable, HashTableOptions};
pub use hybrid_index::{HybridIndex, HybridOptions};
pub use hybrid_index_plus::{HybridIndexPlus, HybridPlusOptions, Telling};
pub use index::{Direction, Flow, Index, Persistent, Statistics, VALUE_MAX};
pub use ods::{Ods, OdsOptions};
pub use pool::{Pool, PoolOptions};
pub use skip_list::SkipList;
pub use sv_tree::SvTree;
pub use wb_tree::{WbTree, WbTreeOptions};
