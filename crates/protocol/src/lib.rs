//! The memcached text and meta protocol: bytes in, commands out, no I/O.
//!
//! - [`parse`] turns the front of a receive buffer into one [`Request`], which borrows from that
//!   buffer and allocates nothing. A request that it does not serve becomes a [`Refusal`], which
//!   says how to get the stream back in step.
//! - [`encode`] appends replies to a `Vec<u8>`, byte for byte as memcached 1.6 writes them.
//! - [`client`] is the other side: requests out, replies in.
//!
//! Sockets, items, tenants and the binary protocol are deliberately absent; this crate does not
//! know about caches.
#![forbid(unsafe_code)]

mod base64;
pub mod client;
pub mod encode;
mod exptime;
mod key;
mod limits;
mod meta;
mod parse;
mod refusal;
mod request;
mod scan;

pub use exptime::{Exptime, Lifetime};
pub use key::{Key, KeyBuffer, Keys};
pub use limits::Limits;
pub use meta::{
    FlagTokens, MetaArithmetic, MetaDebug, MetaDelete, MetaGet, MetaSet, MetaStoreMode,
};
pub use parse::{parse, parse_keys, parse_without_data};
pub use refusal::{AfterRefusal, KeyLine, Refusal, Step};
pub use request::{Arithmetic, Delete, Request, Store, StoreVerb, Touch};
