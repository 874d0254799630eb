//! The two pages at the ends of a run: the first, which says what the file is, and the last, which
//! says that it is whole and where everything lies in it.

use crate::types::{KvsId, Mark, RunNumber, Sequence};

use super::block::{Address, Child, PAGE_BYTES, is_sealed, seal};
use super::bytes::{u32_at, u64_at};
use super::filter;

/// What a run's file begins with.
pub(in crate::run) const MAGIC: [u8; 8] = *b"ENTSRUN\n";
/// What its last page begins with.
const MAGIC_AT_END: [u8; 8] = *b"ENTSEND\n";
/// The format that is written, and the only one that is read.
pub(in crate::run) const FORMAT_VERSION: u32 = 1;

/// Why an end of a run cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::run) enum EndError {
    /// It is of another format.
    Version(u32),
    /// It is not what it should be.
    Damaged(&'static str),
}

/// Blocks of one kind that lie one behind the other; no pages if there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::run) struct ListPlace {
    pub(in crate::run) page: u64,
    pub(in crate::run) pages: u64,
}

/// What a run says of itself at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) struct Footer {
    pub(in crate::run) number: RunNumber,
    pub(in crate::run) kvs: KvsId,
    pub(in crate::run) entries: u64,
    pub(in crate::run) keys: u64,
    pub(in crate::run) gone: u64,
    pub(in crate::run) expiring: u64,
    pub(in crate::run) inline_bytes: u64,
    /// What sequences are counted from.
    pub(in crate::run) base: Sequence,
    pub(in crate::run) least: Sequence,
    pub(in crate::run) greatest: Sequence,
    /// The tree's topmost block; no pages if the run has no entries.
    pub(in crate::run) root: Child,
    /// How many levels of index blocks there are.
    pub(in crate::run) levels: u8,
    /// How many bits of the filter are set for a key; 0: there is no filter.
    pub(in crate::run) probes: u32,
    pub(in crate::run) seed: u64,
    pub(in crate::run) groups: ListPlace,
    pub(in crate::run) prefixes: ListPlace,
    pub(in crate::run) live: ListPlace,
    /// The pages of the file, both ends included.
    pub(in crate::run) pages: u64,
    /// What tells it from all other runs, of this number too.
    pub(in crate::run) mark: Mark,
}

/// The mark of pages that follow those with the mark `before`.
///
/// It is no CRC: each block has its own in it, and behind that a CRC over all of it would be the
/// same whatever lies in the block.
pub(in crate::run) fn mark_behind(before: Mark, pages: &[u8]) -> Mark {
    let pages = pages.chunks(PAGE_BYTES);
    Mark(pages.fold(before.0, |mark, page| filter::hash(page, mark)))
}

/// The first page.
pub(in crate::run) fn header(number: RunNumber, kvs: KvsId) -> Vec<u8> {
    let mut page = Fields::new(MAGIC);
    page.u64(number.0);
    page.u32(kvs.0);
    page.seal(Address { run: number, page: 0 })
}

/// Checks the first page, which must be that of this run, and answers whose it is.
pub(in crate::run) fn check_header(page: &[u8], number: RunNumber) -> Result<KvsId, EndError> {
    check(page, MAGIC, Address { run: number, page: 0 })?;
    let damaged = EndError::Damaged("its first page is of another run");
    match (u64_at(page, 16), u32_at(page, 24)) {
        (Some(found), Some(kvs)) if found == number.0 => Ok(KvsId(kvs)),
        _ => Err(damaged),
    }
}

#[track_caller]
fn check(page: &[u8], magic: [u8; 8], address: Address) -> Result<(), EndError> {
    if page.get(..8) != Some(magic.as_slice()) {
        return Err(EndError::Damaged(
            "it does not begin and end as a run does: the run is incomplete",
        ));
    }
    let version = u32_at(page, 8).unwrap_or_default();
    if !is_sealed(address, page) {
        // The version comes before the checksum, whose place another version may have changed;
        // what is known to be of this one can only be damaged.
        return Err(match version {
            FORMAT_VERSION => EndError::Damaged("the checksum of a page at its end is wrong"),
            _ => EndError::Version(version),
        });
    }
    if version != FORMAT_VERSION { Err(EndError::Version(version)) } else { Ok(()) }
}

impl Footer {
    /// The last page.
    pub(in crate::run) fn encode(&self) -> Vec<u8> {
        let mut page = Fields::new(MAGIC_AT_END);
        page.u64(self.number.0);
        page.u32(self.kvs.0);
        page.u32(u32::from(self.levels));
        for count in [self.entries, self.keys, self.gone, self.expiring, self.inline_bytes] {
            page.u64(count);
        }
        for sequence in [self.base, self.least, self.greatest] {
            page.u64(sequence.0);
        }
        page.u64(self.root.page);
        page.u32(self.root.pages);
        page.u32(self.probes);
        page.u64(self.seed);
        for list in [self.groups, self.prefixes, self.live] {
            page.u64(list.page);
            page.u64(list.pages);
        }
        page.u64(self.pages);
        page.u64(self.mark.0);
        page.seal(Address { run: self.number, page: self.pages.saturating_sub(1) })
    }

    /// Reads the last page of a file of so many pages.
    pub(in crate::run) fn decode(page: &[u8], address: Address) -> Result<Footer, EndError> {
        check(page, MAGIC_AT_END, address)?;
        let damaged = EndError::Damaged("its last page is of another run");
        let footer = Footer::fields(page).ok_or(damaged.clone())?;
        let is_its = footer.number == address.run && footer.pages == address.page + 1;
        if is_its { Ok(footer) } else { Err(damaged) }
    }

    fn fields(page: &[u8]) -> Option<Footer> {
        let word = |at: usize| u64_at(page, at);
        let half = |at: usize| u32_at(page, at);
        let list = |at| Some(ListPlace { page: word(at)?, pages: word(at + 8)? });
        Some(Footer {
            number: RunNumber(word(16)?),
            kvs: KvsId(half(24)?),
            levels: u8::try_from(half(28)?).ok()?,
            entries: word(32)?,
            keys: word(40)?,
            gone: word(48)?,
            expiring: word(56)?,
            inline_bytes: word(64)?,
            base: Sequence(word(72)?),
            least: Sequence(word(80)?),
            greatest: Sequence(word(88)?),
            root: Child { page: word(96)?, pages: half(104)? },
            probes: half(108)?,
            seed: word(112)?,
            groups: list(120)?,
            prefixes: list(136)?,
            live: list(152)?,
            pages: word(168)?,
            mark: Mark(word(176)?),
        })
    }
}

/// A page that is being written field by field.
struct Fields(Vec<u8>);

impl Fields {
    fn new(magic: [u8; 8]) -> Fields {
        let mut page = Fields(magic.to_vec());
        page.u32(FORMAT_VERSION);
        page.u32(0);
        page
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn seal(self, address: Address) -> Vec<u8> {
        let mut page = self.0;
        page.resize(PAGE_BYTES, 0);
        seal(address, &mut page);
        page
    }
}
