//! Requests of the classic text commands.

use crate::{Exptime, Key, Keys, MetaArithmetic, MetaDebug, MetaDelete, MetaGet, MetaSet};

/// A request. All its parts borrow from the receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// `get` and `gets`.
    Get {
        /// At least one key, each of legal length.
        keys: Keys<'a>,
        /// `gets`: the reply holds each item's CAS.
        cas: bool,
    },
    /// `gat` and `gats`.
    GetAndTouch {
        /// At least one key, each of legal length.
        keys: Keys<'a>,
        /// `gats`: the reply holds each item's CAS.
        cas: bool,
        /// New expiry of every item found.
        exptime: Exptime,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Store<'a>),
    /// `delete`.
    Delete(Delete<'a>),
    /// `incr` and `decr`.
    Arithmetic(Arithmetic<'a>),
    /// `touch`.
    Touch(Touch<'a>),
    /// `flush_all`.
    FlushAll {
        /// Time of the flush; now if zero or negative.
        delay: Exptime,
        /// True if the client wants no reply.
        noreply: bool,
    },
    /// `stats` and the rest of the line.
    Stats {
        /// Words after `stats`, without surrounding spaces; empty for the plain form.
        argument: &'a [u8],
    },
    /// `version`.
    Version,
    /// `config get cluster`, by which clients of a managed cache find its machines.
    ConfigGetCluster,
    /// `lru_crawler` and the rest of the line.
    LruCrawler {
        /// Words after `lru_crawler`, without surrounding spaces.
        argument: &'a [u8],
    },
    /// `verbosity`, accepted for the sake of old clients.
    Verbosity {
        /// True if the client wants no reply.
        noreply: bool,
    },
    /// `cache_memlimit`: a tenant asks for less memory, or for more again.
    MemoryLimit {
        /// Limit in mebibytes.
        megabytes: u32,
        /// True if the client wants no reply.
        noreply: bool,
    },
    /// `quit`.
    Quit,
    /// `shutdown`, which a server may refuse.
    Shutdown {
        /// `shutdown graceful`.
        graceful: bool,
    },
    /// `mg`.
    MetaGet(MetaGet<'a>),
    /// `ms`.
    MetaSet(MetaSet<'a>),
    /// `md`.
    MetaDelete(MetaDelete<'a>),
    /// `ma`.
    MetaArithmetic(MetaArithmetic<'a>),
    /// `mn`.
    MetaNoop,
    /// `me`.
    MetaDebug(MetaDebug<'a>),
}

/// A storage command with its data block, which has arrived whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// Storage command.
    pub verb: StoreVerb,
    /// Key of the item.
    pub key: &'a [u8],
    /// Client flags, 32 bits.
    pub flags: u32,
    /// Expiry of the item; ignored by append and prepend.
    pub exptime: Exptime,
    /// Value to store.
    pub data: &'a [u8],
    /// True if the client wants no reply.
    pub noreply: bool,
}

/// Condition and way of storing a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVerb {
    /// Store in any case.
    Set,
    /// Store only if there is no item.
    Add,
    /// Store only if there is an item.
    Replace,
    /// Append to the item's value.
    Append,
    /// Prepend to the item's value.
    Prepend,
    /// Store only over the version with this CAS.
    Cas(u64),
}

/// `delete KEY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delete<'a> {
    /// Key of the item.
    pub key: &'a [u8],
    /// True if the client wants no reply.
    pub noreply: bool,
}

/// `incr KEY DELTA` and `decr KEY DELTA`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// Key of the counter.
    pub key: &'a [u8],
    /// Number to add or subtract.
    pub delta: u64,
    /// True for `decr`.
    pub down: bool,
    /// True if the client wants no reply.
    pub noreply: bool,
}

/// `touch KEY EXPTIME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch<'a> {
    /// Key of the item.
    pub key: &'a [u8],
    /// New expiry of the item.
    pub exptime: Exptime,
    /// True if the client wants no reply.
    pub noreply: bool,
}

impl<'a> Request<'a> {
    /// Key of a request that names exactly one, for prefetching; `None` for the others.
    #[must_use]
    pub fn single_key(&self) -> Option<Key<'a>> {
        let text = match *self {
            Request::Get { keys, .. } | Request::GetAndTouch { keys, .. } => keys.single()?,
            Request::Store(store) => store.key,
            Request::Delete(delete) => delete.key,
            Request::Arithmetic(arithmetic) => arithmetic.key,
            Request::Touch(touch) => touch.key,
            Request::MetaGet(meta) => return Some(meta.key),
            Request::MetaSet(meta) => return Some(meta.key),
            Request::MetaDelete(meta) => return Some(meta.key),
            Request::MetaArithmetic(meta) => return Some(meta.key),
            Request::MetaDebug(meta) => return Some(meta.key),
            _ => return None,
        };
        Some(Key::Text(text))
    }
}
