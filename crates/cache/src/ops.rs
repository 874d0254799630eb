//! What one asks of a cache and what it answers: plain data, no behaviour.

use std::ops::Range;

use entresol_base::Seconds;

/// A key's hash under the cache's seed; computed once per request by `Worker::hash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(pub(crate) u64);

/// When an item ceases to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Not by time.
    Never,
    /// From this second on it is gone.
    At(Seconds),
    /// It is gone at once: what a negative expiry time means.
    Immediately,
}

impl Expiry {
    /// Whether an item with this expiry is gone at `now`.
    #[must_use]
    pub fn is_past(self, now: Seconds) -> bool {
        match self {
            Expiry::Never => false,
            Expiry::At(second) => second <= now,
            Expiry::Immediately => true,
        }
    }
}

/// Whether the caller holds the right to fetch the item's value anew (meta protocol).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Win {
    /// Nobody need fetch it anew.
    #[default]
    None,
    /// This caller is the one to fetch it anew.
    Won,
    /// Another caller has already won.
    AlreadySent,
}

/// All that is known of an item besides its key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemMeta {
    /// The client's 32 bits.
    pub flags: u32,
    /// Bytes of the value.
    pub value_len: u32,
    /// The compare-and-swap token; 0 unless it was asked for.
    pub cas: u64,
    /// When it expires, as it was before this request touched it.
    pub expiry: Expiry,
    /// Seconds since it was last read or written.
    pub last_access_s: u32,
    /// Whether it was read before this request.
    pub fetched: bool,
    /// Whether it was marked stale by an invalidation.
    pub stale: bool,
    /// Whether this caller should fetch it anew.
    pub win: Win,
}

/// What a read wants; the default is memcached's `get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetOptions {
    /// Append the value's bytes to the output.
    pub value: bool,
    /// Report the compare-and-swap token.
    pub cas: bool,
    /// Set a new expiry.
    pub touch: Option<Expiry>,
    /// Leave the item's access time and frequency alone.
    pub no_bump: bool,
    /// On a miss, create an empty item with this expiry and win.
    pub vivify: Option<Expiry>,
    /// Take part in who fetches a stale item anew, as the meta protocol's readers do.
    pub win: bool,
    /// Win if less than this many seconds are left to live.
    pub recache_below_s: Option<u32>,
    /// The token of an item created by `vivify`.
    pub explicit_cas: Option<u64>,
}

impl GetOptions {
    /// Whether the item stays as it is, but for its heat and its time of access.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.cas && self.touch.is_none() && self.vivify.is_none() && self.recache_below_s.is_none()
    }
}

impl Default for GetOptions {
    fn default() -> Self {
        GetOptions {
            value: true,
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

/// The answer to a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// Found; header and value are in the output.
    Hit(ItemMeta),
    /// Not there.
    Miss,
    /// Found, but the value lies on a block file: the header is in the output, room for the value
    /// is reserved in it, and the read must be carried out.
    Pending(PendingRead),
}

/// A read that the caller must carry out: `length` bytes at `offset` of the cache's block file,
/// both aligned as the file wants. `Worker::complete_read` then finds the value in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRead {
    /// Where to read in the block file.
    pub offset: u64,
    /// How much to read.
    pub length: usize,
    /// Where in the output the value's room was reserved; empty if no value was wanted.
    pub room: Range<usize>,
    /// What is known of the item.
    pub meta: ItemMeta,
    pub(crate) location: u64,
    pub(crate) segment: u32,
    pub(crate) sequence: u64,
    pub(crate) value_start: usize,
    pub(crate) checksum: u32,
    pub(crate) hash: KeyHash,
}

/// Why a pending read came to nothing; either is answered as a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFailure {
    /// The segment was given up in the meantime.
    Recycled,
    /// The bytes are not what was written: counted, and the item is dropped.
    Damaged,
}

/// The old value of an item, read from a block file for an operation that needs it.
#[derive(Debug, Clone)]
pub struct OldValue {
    pub(crate) location: u64,
    pub(crate) sequence: u64,
    pub(crate) bytes: Vec<u8>,
}

impl OldValue {
    /// The value that a completed read found.
    #[must_use]
    pub fn new(read: &PendingRead, bytes: Vec<u8>) -> Self {
        OldValue { location: read.location, sequence: read.sequence, bytes }
    }
}

/// How a store treats what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreMode {
    /// Replace it or create it.
    #[default]
    Set,
    /// Only if there is none.
    Add,
    /// Only if there is one.
    Replace,
    /// Behind the old value; flags and expiry stay.
    Append,
    /// Before the old value; flags and expiry stay.
    Prepend,
}

/// A store.
#[derive(Debug, Clone, Copy)]
pub struct Store<'a> {
    /// The new bytes.
    pub value: &'a [u8],
    /// The client's 32 bits.
    pub flags: u32,
    /// When it expires.
    pub expiry: Expiry,
    /// How what is there is treated.
    pub mode: StoreMode,
    /// Append and prepend: create the item with `expiry` if there is none.
    pub vivify: bool,
    /// Only if the item's token is this.
    pub compare: Option<u64>,
    /// The item's new token.
    pub explicit_cas: Option<u64>,
    /// With `compare`: if the given token is older than the item's, store, but mark stale.
    pub invalidate: bool,
    /// The new token will be told to somebody, so it has to stay valid wherever the item goes.
    pub cas: bool,
}

impl<'a> Store<'a> {
    /// A plain set that never expires.
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

/// The answer to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// Done; the item's token.
    Stored {
        /// The new token.
        cas: u64,
    },
    /// The mode's condition does not hold.
    NotStored,
    /// The token is another.
    Exists,
    /// A token was given, but there is no item.
    NotFound,
    /// Key and value are larger than an item may be.
    TooLarge,
    /// The quota cannot hold it.
    NoMemory,
    /// All write buffers are on their way to the medium: try again soon.
    Busy,
    /// The old value must be read first; then call again with it.
    Pending(PendingRead),
}

/// How to delete; the default deletes whatever is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeleteOptions {
    /// Only if the item's token is this.
    pub compare: Option<u64>,
    /// Do not delete: mark stale, with a new token, and let the next reader win.
    pub invalidate: bool,
    /// With `invalidate`: the new expiry.
    pub touch: Option<Expiry>,
    /// Keep the item, drop its value and flags.
    pub remove_value: bool,
    /// With `invalidate` or `remove_value`: the new token.
    pub explicit_cas: Option<u64>,
}

/// The answer to a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone, or its value is, or it is stale, as was asked.
    Deleted,
    /// There was none.
    NotFound,
    /// The token is another.
    Exists,
    /// The quota cannot hold the changed item.
    NoMemory,
    /// All write buffers are on their way to the medium: try again soon.
    Busy,
    /// The value must be read first; then call again with it.
    Pending(PendingRead),
}

/// An increment or decrement of a decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arithmetic {
    /// By how much.
    pub delta: u64,
    /// Decrement, never below 0; an increment wraps at 64 bits.
    pub down: bool,
    /// Only if the item's token is this.
    pub compare: Option<u64>,
    /// The item's new token.
    pub explicit_cas: Option<u64>,
    /// Set a new expiry.
    pub touch: Option<Expiry>,
    /// On a miss, create the item with this number and expiry.
    pub vivify: Option<(u64, Expiry)>,
    /// The new token will be told to somebody, so it has to stay valid wherever the item goes.
    pub cas: bool,
}

/// The answer to an increment or decrement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    /// The new number, and the item as it now is.
    Value {
        /// The new number.
        number: u64,
        /// The item as it now is.
        meta: ItemMeta,
    },
    /// There is none.
    NotFound,
    /// Its value is no decimal number of 64 bits.
    NotNumeric,
    /// The token is another.
    Exists,
    /// The quota cannot hold it.
    NoMemory,
    /// All write buffers are on their way to the medium: try again soon.
    Busy,
    /// The old value must be read first; then call again with it.
    Pending(PendingRead),
}
