//! Records: an item's header, key and, in DRAM, value, one behind the other in a segment.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | value length (24 bits), key length (8 bits) |
//! | 4 | last access in seconds modulo 2^24 (24 bits), marks (8 bits) |
//! | 0 or 4 | client flags, if not zero |
//! | 0 or 4 | expiry in Unix seconds, 0 for never; absent only in DRAM |
//! | 0 or 8 | compare-and-swap token, if it is not the one its place implies |
//! | 0 or 8 | elsewhere: the value's offset in its segment, and its CRC-32C |
//! | key length | key |
//! | value length | the value, if it lies here |
//!
//! The marks say which of these are there. Under the mark `PIECES` the value lies in pieces: their
//! list ([`crate::pieces`]) is here, with the value's rest behind it if values lie here, and the
//! length above is that of both. If values lie elsewhere, the offset and checksum are the rest's.
//!
//! Records start at multiples of four bytes. Everything but the second word, the expiry, and the
//! token and the list of a value in pieces is written before the record is published and never
//! again.

use std::sync::atomic::Ordering;

use entresol_base::Seconds;
use entresol_media::Direct;

use crate::ops::Expiry;

/// Bytes that records are aligned to; locations count in this unit.
pub(crate) const UNIT: u64 = 4;
/// Longest key.
pub const KEY_BYTES_MAX: usize = 250;
const TIME_MASK: u32 = 0xFF_FFFF;

/// Marks of a record, bits of its second word.
pub(crate) mod mark {
    pub(crate) const CLIENT_FLAGS: u32 = 1 << 24;
    pub(crate) const EXPIRY: u32 = 1 << 25;
    pub(crate) const CAS: u32 = 1 << 26;
    /// Invalidated, but served until a reader has fetched the value anew.
    pub(crate) const STALE: u32 = 1 << 27;
    /// A reader was told to fetch the value anew.
    pub(crate) const WIN_SENT: u32 = 1 << 28;
    /// A client may know its token, so its place must not be used again under that token.
    pub(crate) const CAS_SEEN: u32 = 1 << 29;
    /// The value lies in pieces, and their list takes its place in the record.
    pub(crate) const PIECES: u32 = 1 << 30;
    /// Dead: the index's slots no longer name the record.
    pub(crate) const DEAD: u32 = 1 << 31;
}

/// First two words of a record, and the layout that follows from them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) key_len: usize,
    /// Bytes of the value, or of the list of its pieces and a rest that lies in the record.
    pub(crate) value_len: usize,
    pub(crate) marks: u32,
    at: u64,
    elsewhere: bool,
}

impl Head {
    /// Reads the head of the record at byte `at`; `elsewhere` is true if values do not lie in
    /// records.
    #[inline(always)]
    pub(crate) fn load(arena: &Direct, at: u64, elsewhere: bool) -> Head {
        let [lengths, marks] = arena.load_u32_pair(at, Ordering::Relaxed);
        Head {
            key_len: (lengths >> 24) as usize,
            value_len: (lengths & 0xFF_FFFF) as usize,
            marks,
            at,
            elsewhere,
        }
    }

    /// Returns true if the value lies elsewhere as a whole.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere && !self.has(mark::PIECES)
    }

    /// Returns true if the value, or the rest of one in pieces, lies elsewhere.
    #[inline]
    pub(crate) fn has_place(&self) -> bool {
        self.elsewhere
    }

    #[inline(always)]
    pub(crate) fn has(&self, mark: u32) -> bool {
        self.marks & mark != 0
    }

    #[inline]
    fn expiry_at(&self) -> u64 {
        self.at + 8 + 4 * u64::from(self.has(mark::CLIENT_FLAGS))
    }

    #[inline]
    fn cas_at(&self) -> u64 {
        self.expiry_at() + 4 * u64::from(self.has(mark::EXPIRY))
    }

    /// Returns the offset behind the optional fields that the marks name: a look into a table of
    /// eight bytes, one for each combination.
    #[inline]
    fn place_at(&self) -> u64 {
        const BYTES: u64 = 0x100C_0C08_0804_0400;
        let fields = self.marks >> mark::CLIENT_FLAGS.trailing_zeros() & 7;
        self.at + 8 + (BYTES >> (8 * fields) & 0xFF)
    }

    /// Returns the offset of the key.
    #[inline]
    pub(crate) fn key_at(&self) -> u64 {
        self.place_at() + 8 * u64::from(self.elsewhere)
    }

    /// Returns the offset of an inline value, or of the list of its pieces.
    #[inline]
    pub(crate) fn value_at(&self) -> u64 {
        self.key_at() + self.key_len as u64
    }

    /// Returns the offset of the list of a value's pieces.
    pub(crate) fn list_at(&self) -> u64 {
        self.value_at()
    }

    /// Returns the bytes of the record, rounded up to the start of the next.
    #[inline]
    pub(crate) fn record_bytes(&self) -> u64 {
        let value = if self.is_elsewhere() { 0 } else { self.value_len as u64 };
        (self.value_at() - self.at + value).next_multiple_of(UNIT)
    }

    /// Returns the client's flags.
    #[inline]
    pub(crate) fn client_flags(&self, arena: &Direct) -> u32 {
        if self.has(mark::CLIENT_FLAGS) {
            arena.load_u32(self.at + 8, Ordering::Relaxed)
        } else {
            0
        }
    }

    #[inline]
    pub(crate) fn expiry(&self, arena: &Direct) -> Expiry {
        if !self.has(mark::EXPIRY) {
            return Expiry::Never;
        }
        match arena.load_u32(self.expiry_at(), Ordering::Relaxed) {
            0 => Expiry::Never,
            second => Expiry::At(Seconds(second)),
        }
    }

    /// Changes the explicit token of a record that carries one, under its bucket's lock.
    pub(crate) fn set_cas(&self, arena: &Direct, cas: u64) {
        debug_assert!(self.has(mark::CAS), "a token is changed that the record does not carry");
        arena.store_u32(self.cas_at(), cas as u32, Ordering::Relaxed);
        arena.store_u32(self.cas_at() + 4, (cas >> 32) as u32, Ordering::Relaxed);
    }

    /// Changes the expiry of a record that has one, under its bucket's lock.
    pub(crate) fn set_expiry(&self, arena: &Direct, expiry: Option<Seconds>) {
        debug_assert!(self.has(mark::EXPIRY));
        arena.store_u32(self.expiry_at(), expiry.map_or(0, |second| second.0), Ordering::Relaxed);
    }

    /// Returns the explicit token, if the record carries one.
    pub(crate) fn explicit_cas(&self, arena: &Direct) -> Option<u64> {
        self.has(mark::CAS).then(|| {
            let low = arena.load_u32(self.cas_at(), Ordering::Relaxed);
            let high = arena.load_u32(self.cas_at() + 4, Ordering::Relaxed);
            u64::from(low) | u64::from(high) << 32
        })
    }

    /// Returns the offset in its segment and the checksum of a value that lies elsewhere, or of the
    /// rest of one in pieces.
    pub(crate) fn place(&self, arena: &Direct) -> (u32, u32) {
        debug_assert!(self.has_place());
        let at = self.place_at();
        (arena.load_u32(at, Ordering::Relaxed), arena.load_u32(at + 4, Ordering::Relaxed))
    }

    /// Returns the seconds since the last access.
    #[inline]
    pub(crate) fn last_access_s(&self, now: Seconds) -> u32 {
        now.0.wrapping_sub(self.marks) & TIME_MASK
    }

    /// Sets and clears marks in the second word and keeps its time, under the bucket's lock.
    pub(crate) fn set_marks(&self, arena: &Direct, set: u32, clear: u32) {
        let word = arena.load_u32(self.at + 4, Ordering::Relaxed);
        // Release: a thread that sees the mark of a dead record must see all stores before it.
        arena.store_u32(self.at + 4, (word & !clear) | set, Ordering::Release);
    }

    /// Records an access at `now`, under the bucket's lock.
    pub(crate) fn set_access(&self, arena: &Direct, now: Seconds) {
        let word = arena.load_u32(self.at + 4, Ordering::Relaxed);
        let word = (word & !TIME_MASK) | (now.0 & TIME_MASK);
        arena.store_u32(self.at + 4, word, Ordering::Relaxed);
    }
}

/// Returns dead records, of values elsewhere, that take so many bytes; `None` if none can.
pub(crate) fn filler(bytes: u64) -> Option<Vec<u8>> {
    if bytes == 0 {
        return Some(Vec::new());
    }
    // Two words, a place, and a key of one byte; a list of pieces takes what is left.
    let list = bytes.checked_sub(17).filter(|list| *list < 1 << 24)?;
    let mut record = vec![0; bytes as usize];
    record[..4].copy_from_slice(&(list as u32 | 1 << 24).to_le_bytes());
    record[4..8].copy_from_slice(&(mark::DEAD | mark::PIECES).to_le_bytes());
    bytes.is_multiple_of(UNIT).then_some(record)
}

/// Writes a dead record of so many bytes, of a value that lies here, to byte `at`.
pub(crate) fn write_skipped(arena: &Direct, at: u64, bytes: u64) {
    // Two words and a key of one byte.
    debug_assert!(bytes >= 9 && bytes.is_multiple_of(UNIT), "{bytes} bytes are no record");
    arena.store_u32(at, (bytes as u32 - 9) | 1 << 24, Ordering::Relaxed);
    arena.store_u32(at + 4, mark::DEAD, Ordering::Relaxed);
}

/// Fields of a new record, except the value's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRecord<'a> {
    pub(crate) key: &'a [u8],
    /// Bytes of the value, or of the list of its pieces and a rest that lies in the record.
    pub(crate) value_len: usize,
    pub(crate) client_flags: u32,
    pub(crate) expiry: Option<Seconds>,
    pub(crate) cas: Option<u64>,
    /// Marks beyond those that the fields imply; with `EXPIRY` there is room for one in any case.
    pub(crate) marks: u32,
    pub(crate) last_access: Seconds,
}

impl NewRecord<'_> {
    fn all_marks(&self, elsewhere: bool) -> u32 {
        let mut marks = self.marks & !(mark::CLIENT_FLAGS | mark::CAS);
        if self.client_flags != 0 {
            marks |= mark::CLIENT_FLAGS;
        }
        // A record whose value lies elsewhere always has room for an expiry: moving it for a touch
        // would cost a read of the medium.
        if self.expiry.is_some() || elsewhere {
            marks |= mark::EXPIRY;
        }
        if self.cas.is_some() {
            marks |= mark::CAS;
        }
        marks
    }

    /// Returns the bytes of header and key, of a value that lies `elsewhere` or not.
    #[inline]
    pub(crate) fn head_bytes(&self, elsewhere: bool) -> usize {
        let marks = self.all_marks(elsewhere);
        let optional = 4 * usize::from(marks & mark::CLIENT_FLAGS != 0)
            + 4 * usize::from(marks & mark::EXPIRY != 0)
            + 8 * usize::from(marks & mark::CAS != 0)
            + 8 * usize::from(elsewhere);
        8 + optional + self.key.len()
    }

    /// Returns the bytes of the record, rounded up to the start of the next; `elsewhere` is true if
    /// the value lies elsewhere.
    pub(crate) fn record_bytes(&self, elsewhere: bool) -> u64 {
        if self.marks & mark::PIECES == 0 {
            return self.whole_record_bytes(elsewhere);
        }
        ((self.head_bytes(elsewhere) + self.value_len) as u64).next_multiple_of(UNIT)
    }

    /// Returns the bytes of the record like `record_bytes`, of a value that does not lie in pieces.
    #[inline]
    pub(crate) fn whole_record_bytes(&self, elsewhere: bool) -> u64 {
        let value = if elsewhere { 0 } else { self.value_len };
        ((self.head_bytes(elsewhere) + value) as u64).next_multiple_of(UNIT)
    }

    /// Writes header and key at byte `at`; `place` is the offset and checksum of a value that lies
    /// elsewhere. Returns the offset at which an inline value belongs.
    #[inline]
    pub(crate) fn write(&self, arena: &Direct, at: u64, place: Option<(u32, u32)>) -> u64 {
        let marks = self.all_marks(place.is_some());
        let mut next = at;
        let mut put = |word: u32| {
            arena.store_u32(next, word, Ordering::Relaxed);
            next += 4;
        };
        put((self.value_len as u32) | (self.key.len() as u32) << 24);
        put((self.last_access.0 & TIME_MASK) | marks);
        if self.client_flags != 0 {
            put(self.client_flags);
        }
        if marks & mark::EXPIRY != 0 {
            put(self.expiry.map_or(0, |second| second.0));
        }
        if let Some(cas) = self.cas {
            put(cas as u32);
            put((cas >> 32) as u32);
        }
        if let Some((offset, checksum)) = place {
            put(offset);
            put(checksum);
        }
        arena.write(next, self.key);
        next + self.key.len() as u64
    }
}
