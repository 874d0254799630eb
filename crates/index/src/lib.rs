//! Persistent and hybrid indexes over a region, and the allocator they live in.
//!
//! An index finds the value, eight bytes, of a key, and keeps what it acknowledged: once an
//! operation has returned, no crash undoes it, and an operation that a crash interrupts is found
//! done or not begun. All indexes are used through one trait, [`Index`], and opened through
//! another, [`Persistent`]; they live in a [`Pool`] in a region, which is
//! [`Direct`](entresol_media::Direct) in shipped code and an observed one in tests.
#![forbid(unsafe_code)]

mod error;
mod hybrid;
mod index;
pub mod keys;
mod latch;
mod mix;
pub mod pool;
mod reference;
mod root;
mod settled;
mod sv_tree;
#[cfg(test)]
mod testing;
#[cfg(any(test, feature = "trial"))]
pub mod trial;
mod walk;

pub use error::IndexError;
pub use hybrid::cached::{CacheCounts, CacheKey, CacheOptions, Cached, Probing};
pub use hybrid::hash_table::{HashTable, HashTableOptions};
pub use hybrid::hybrid_index::{HybridIndex, HybridOptions};
pub use hybrid::hybrid_index_plus::{HybridIndexPlus, HybridPlusOptions, Telling};
pub use index::{Direction, Flow, Index, Persistent, Statistics, VALUE_MAX};
pub use pool::{Pool, PoolOptions};
pub use reference::fast_fair::{FastFair, FastFairOptions};
pub use reference::fp_tree::{FpTree, FpTreeOptions};
pub use reference::ods::{Ods, OdsOptions};
pub use reference::published;
pub use reference::skip_list::SkipList;
pub use reference::wb_tree::{WbTree, WbTreeOptions};
pub use sv_tree::SvTree;
