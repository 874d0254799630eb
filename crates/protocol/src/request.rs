//! What a client can ask for, in the classic text commands.

use crate::{Exptime, Key, Keys, MetaArithmetic, MetaDebug, MetaDelete, MetaGet, MetaSet};

/// One request. Everything in it borrows from the receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// `get` and `gets`.
    Get {
        /// At least one key, each of legal length.
        keys: Keys<'a>,
        /// `gets`: the reply bears each item's CAS.
        cas: bool,
    },
    /// `gat` and `gats`.
    GetAndTouch {
        /// At least one key, each of legal length.
        keys: Keys<'a>,
        /// `gats`: the reply bears each item's CAS.
        cas: bool,
        /// The new expiry of every item found.
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
        /// Now if zero or negative; else when.
        delay: Exptime,
        /// No reply is wanted.
        noreply: bool,
    },
    /// `stats`, with what follows it on the line; empty for the plain form.
    Stats {
        /// The words after `stats`, without surrounding spaces.
        argument: &'a [u8],
    },
    /// `version`.
    Version,
    /// `verbosity`: accepted for the sake of old clients.
    Verbosity {
        /// No reply is wanted.
        noreply: bool,
    },
    /// `cache_memlimit`: a tenant's wish for less memory, or for more again.
    MemoryLimit {
        /// Mebibytes.
        megabytes: u32,
        /// No reply is wanted.
        noreply: bool,
    },
    /// `quit`.
    Quit,
    /// `shutdown`, which a server may well refuse.
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
    /// Which of the six.
    pub verb: StoreVerb,
    /// Where to.
    pub key: &'a [u8],
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it expires. Ignored by append and prepend.
    pub exptime: Exptime,
    /// The value.
    pub data: &'a [u8],
    /// No reply is wanted.
    pub noreply: bool,
}

/// On which condition and in which way a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVerb {
    /// In any case.
    Set,
    /// Only where nothing is.
    Add,
    /// Only where something is.
    Replace,
    /// Behind the value that is there.
    Append,
    /// Before the value that is there.
    Prepend,
    /// Only over the version with this CAS.
    Cas(u64),
}

/// `delete KEY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delete<'a> {
    /// What to delete.
    pub key: &'a [u8],
    /// No reply is wanted.
    pub noreply: bool,
}

/// `incr KEY DELTA` and `decr KEY DELTA`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// Which counter.
    pub key: &'a [u8],
    /// By how much.
    pub delta: u64,
    /// `decr`.
    pub down: bool,
    /// No reply is wanted.
    pub noreply: bool,
}

/// `touch KEY EXPTIME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch<'a> {
    /// Which item.
    pub key: &'a [u8],
    /// Its new expiry.
    pub exptime: Exptime,
    /// No reply is wanted.
    pub noreply: bool,
}

impl<'a> Request<'a> {
    /// The only key of a request that names exactly one, for prefetching; `None` for the others.
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
