//! Persistent and hybrid indexes over a region, and the allocator they live in.
//!
//! An index finds the value, eight bytes, of a key, and keeps what it acknowledged: when an
//! operation returns, a crash no longer undoes it, and what a crash interrupts is found done or
//! not begun. All of them are used through one trait, [`Index`], and opened through another,
//! [`Persistent`]; they live in a [`Pool`] in a region, shipped code on
//! [`Direct`](entresol_media::Direct), observed code in the suites.
#![forbid(unsafe_code)]

mod error;
#[allow(dead_code, reason = "the trees come next")]
mod index;
#[allow(dead_code, reason = "the trees come next")]
mod latch;
pub mod pool;
pub mod trial;

pub use error::IndexError;
pub use index::{Direction, Flow, Index, Persistent, Statistics, VALUE_MAX};
pub use pool::{Pool, PoolOptions};
