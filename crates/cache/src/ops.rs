//! Requests to a cache and its answers, as plain data.

use entresol_base::Seconds;

/// Hash of a key under the cache's seed; computed once per request by `Worker::hash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(pub(crate) u64);

/// Time at which an item expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Never expires.
    Never,
    /// Expires when this second begins.
    At(Seconds),
    /// Expired already: the meaning of a negative expiry time.
    Immediately,
}

impl Expiry {
    /// Returns true if an item with this expiry has expired at `now`.
    #[must_use]
    pub fn is_past(self, now: Seconds) -> bool {
        match self {
            Expiry::Never => false,
            Expiry::At(second) => second <= now,
            Expiry::Immediately => true,
        }
    }
}

/// Right to fetch an item's value anew (meta protocol).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Win {
    /// The value need not be fetched.
    #[default]
    None,
    /// This caller is to fetch it.
    Won,
    /// Another caller has the right already.
    AlreadySent,
}

/// Metadata of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemMeta {
    /// Client's 32 bits.
    pub flags: u32,
    /// Bytes of the value.
    pub value_len: u32,
    /// Compare-and-swap token; 0 unless it was asked for.
    pub cas: u64,
    /// Expiry as it was before this request touched it.
    pub expiry: Expiry,
    /// Seconds since the item was last read or written.
    pub last_access_s: u32,
    /// True if it was read before this request.
    pub fetched: bool,
    /// True if an invalidation marked it stale.
    pub stale: bool,
    /// Right to fetch it anew, as far as this caller is concerned.
    pub win: Win,
}

/// Options of a read; the default is memcached's `get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetOptions {
    /// Appends the value's bytes to the output.
    pub value: bool,
    /// Leaves a large value that lies in DRAM or on a block file where it is: it is not appended,
    /// but `Worker::take_pinned` returns it. Without this, a read waits for the block file.
    pub pin: bool,
    /// Reports the compare-and-swap token.
    pub cas: bool,
    /// Sets a new expiry.
    pub touch: Option<Expiry>,
    /// Leaves the item's access time and frequency alone.
    pub no_bump: bool,
    /// Creates, on a miss, an empty item with this expiry, which the caller wins.
    pub vivify: Option<Expiry>,
    /// Competes for the right to fetch a stale item anew, as the meta protocol's readers do.
    pub win: bool,
    /// Wins the item if fewer than this many seconds are left to live.
    pub recache_below_s: Option<u32>,
    /// Token of an item created by `vivify`.
    pub explicit_cas: Option<u64>,
}

impl GetOptions {
    /// Returns true if the read leaves the item alone but for its frequency and time of access.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.cas && self.touch.is_none() && self.vivify.is_none() && self.recache_below_s.is_none()
    }
}

impl Default for GetOptions {
    fn default() -> Self {
        GetOptions {
            value: true,
            pin: false,
            cas: false,
            touch: None,
            no_bump: false,
            vivify: None,
            win: false,
            recache_below_s: None,
            explicit_cas: None,
        }
    }
}

/// Answer to a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The item was found; header and value are in the output.
    Hit(ItemMeta),
    /// The item does not exist.
    Miss,
    /// The item was found, but its value lies on a block file: the header is in the output, behind
    /// which the value belongs, and the caller must carry out the read.
    Pending(PendingRead),
}

/// A read for the caller to carry out: `length` bytes at `offset` of the cache's block file, both
/// aligned as the file wants. `Worker::complete_read` then finds the value in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRead {
    /// Offset in the block file.
    pub offset: u64,
    /// Bytes to read.
    pub length: usize,
    /// Metadata of the item.
    pub meta: ItemMeta,
    pub(crate) location: u64,
    pub(crate) segment: u32,
    pub(crate) sequence: u64,
    pub(crate) value_start: usize,
    pub(crate) checksum: u32,
    pub(crate) hash: KeyHash,
}

/// Reasons why a pending read gave no value; either is answered as a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFailure {
    /// The segment was recycled in the meantime.
    Recycled,
    /// The bytes are not those that were written: counted, and the item is dropped.
    Damaged,
}

/// Old value of an item, read from a block file for an operation that needs it.
#[derive(Debug, Clone)]
pub struct OldValue {
    pub(crate) location: u64,
    pub(crate) sequence: u64,
    pub(crate) bytes: Vec<u8>,
}

impl OldValue {
    /// Takes the value that a completed read found.
    #[must_use]
    pub fn new(read: &PendingRead, bytes: Vec<u8>) -> Self {
        OldValue { location: read.location, sequence: read.sequence, bytes }
    }
}

/// Treatment of an item that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreMode {
    /// Replaces the item or creates it.
    #[default]
    Set,
    /// Stores only if there is no item.
    Add,
    /// Stores only if there is an item.
    Replace,
    /// Appends to the old value; flags and expiry stay.
    Append,
    /// Prepends to the old value; flags and expiry stay.
    Prepend,
}

/// Request to store a value.
#[derive(Debug, Clone, Copy)]
pub struct Store<'a> {
    /// New bytes.
    pub value: &'a [u8],
    /// Client's 32 bits.
    pub flags: u32,
    /// Expiry of the item.
    pub expiry: Expiry,
    /// Treatment of an item that is there already.
    pub mode: StoreMode,
    /// Creates the item with `expiry` if an append or a prepend finds none.
    pub vivify: bool,
    /// Stores only if the item's token is this one.
    pub compare: Option<u64>,
    /// New token of the item.
    pub explicit_cas: Option<u64>,
    /// Changes `compare`: a token older than the item's stores too, but marks the item stale.
    pub invalidate: bool,
    /// True if a client will see the new token, so that it must stay valid even if the item moves.
    pub cas: bool,
}

impl<'a> Store<'a> {
    /// Returns true if it stores only where an item is there already.
    pub(crate) fn depends(&self) -> bool {
        self.mode == StoreMode::Replace || self.compare.is_some()
    }

    /// Returns a plain set that never expires.
    #[must_use]
    pub fn set(value: &'a [u8]) -> Self {
        Store {
            value,
            flags: 0,
            expiry: Expiry::Never,
            mode: StoreMode::Set,
            vivify: false,
            compare: None,
            explicit_cas: None,
            invalidate: false,
            cas: false,
        }
    }
}

/// Answer to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// The value was stored.
    Stored {
        /// New token of the item.
        cas: u64,
    },
    /// The mode's condition does not hold.
    NotStored,
    /// The item has another token.
    Exists,
    /// A token was given, but there is no item.
    NotFound,
    /// The key or the value exceeds its limit.
    TooLarge,
    /// The quota cannot hold the item.
    NoMemory,
    /// Every write buffer is being written to the medium: try again soon.
    Busy,
    /// The old value must be read first: call again with it.
    Pending(PendingRead),
    /// A large value is to be copied part by part: `Worker::take_unfinished` returns it, and
    /// `Worker::go_on` copies the next part. Only stores that do not wait answer so.
    Unfinished,
}

/// Options of a delete; the default deletes any item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeleteOptions {
    /// Deletes only if the item's token is this one.
    pub compare: Option<u64>,
    /// Marks the item stale with a new token instead of deleting it; the next reader wins it.
    pub invalidate: bool,
    /// New expiry, with `invalidate`.
    pub touch: Option<Expiry>,
    /// Keeps the item, but drops its value and flags.
    pub remove_value: bool,
    /// New token, with `invalidate` or `remove_value`.
    pub explicit_cas: Option<u64>,
}

/// Answer to a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// The item was deleted, emptied or marked stale, as was asked.
    Deleted,
    /// The item does not exist.
    NotFound,
    /// The item has another token.
    Exists,
    /// The quota cannot hold the changed item.
    NoMemory,
    /// Every write buffer is being written to the medium: try again soon.
    Busy,
    /// The value must be read first: call again with it.
    Pending(PendingRead),
}

/// An increment or decrement of a decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arithmetic {
    /// Amount to add or subtract.
    pub delta: u64,
    /// Decrements, never below 0; an increment wraps at 64 bits.
    pub down: bool,
    /// Counts only if the item's token is this one.
    pub compare: Option<u64>,
    /// New token of the item.
    pub explicit_cas: Option<u64>,
    /// Sets a new expiry.
    pub touch: Option<Expiry>,
    /// Creates, on a miss, the item with this number and expiry.
    pub vivify: Option<(u64, Expiry)>,
    /// True if a client will see the new token, so that it must stay valid even if the item moves.
    pub cas: bool,
}

/// Answer to an increment or decrement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    /// The number was changed.
    Value {
        /// New number.
        number: u64,
        /// Metadata of the changed item.
        meta: ItemMeta,
    },
    /// The item does not exist.
    NotFound,
    /// The value is no decimal number of 64 bits.
    NotNumeric,
    /// The item has another token.
    Exists,
    /// The quota cannot hold the item.
    NoMemory,
    /// Every write buffer is being written to the medium: try again soon.
    Busy,
    /// The old value must be read first: call again with it.
    Pending(PendingRead),
}
