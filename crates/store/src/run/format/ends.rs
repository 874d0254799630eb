//! The first and the last page of a run. The first identifies the file. The last proves that the
//! file is complete, and locates everything in it.

use crate::types::{KvsId, Mark, RunNumber, Sequence};

use super::block::{Address, Child, PAGE_BYTES, is_sealed, seal};
use super::bytes::{u32_at, u64_at};
use super::filter;

/// First bytes of a run's file.
pub(in crate::run) const MAGIC: [u8; 8] = *b"ENTSRUN\n";
/// First bytes of its last page.
const MAGIC_AT_END: [u8; 8] = *b"ENTSEND\n";
/// Format version that is written, and the only one that is read.
pub(in crate::run) const FORMAT_VERSION: u32 = 1;

/// Reason why an end of a run cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::run) enum EndError {
    /// The page has another format version.
    Version(u32),
    /// The page is damaged.
    Damaged(&'static str),
}

/// Consecutive blocks of one kind; no pages if there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::run) struct ListPlace {
    pub(in crate::run) page: u64,
    pub(in crate::run) pages: u64,
}

/// Contents of a run's last page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) struct Footer {
    pub(in crate::run) number: RunNumber,
    pub(in crate::run) kvs: KvsId,
    pub(in crate::run) entries: u64,
    pub(in crate::run) keys: u64,
    pub(in crate::run) gone: u64,
    pub(in crate::run) expiring: u64,
    pub(in crate::run) inline_bytes: u64,
    /// Base of the sequence numbers.
    pub(in crate::run) base: Sequence,
    pub(in crate::run) least: Sequence,
    pub(in crate::run) greatest: Sequence,
    /// Topmost block of the tree; no pages if the run has no entries.
    pub(in crate::run) root: Child,
    /// Number of levels of index blocks.
    pub(in crate::run) levels: u8,
    /// Bits of the filter that are set for a key; 0 if there is no filter.
    pub(in crate::run) probes: u32,
    pub(in crate::run) seed: u64,
    pub(in crate::run) groups: ListPlace,
    pub(in crate::run) prefixes: ListPlace,
    pub(in crate::run) live: ListPlace,
    /// Pages of the file, both ends included.
    pub(in crate::run) pages: u64,
    /// Identity of the contents, which tells the run from all others, even of its number.
    pub(in crate::run) mark: Mark,
}

/// Returns the mark of pages that follow those with the mark `before`.
///
/// It is not a CRC. Each block contains its own CRC, and a CRC over the whole block would then be
/// the same whatever the block holds.
pub(in crate::run) fn mark_behind(before: Mark, pages: &[u8]) -> Mark {
    let pages = pages.chunks(PAGE_BYTES);
    Mark(pages.fold(before.0, |mark, page| filter::hash(page, mark)))
}

/// Encodes the first page.
pub(in crate::run) fn header(number: RunNumber, kvs: KvsId) -> Vec<u8> {
    let mut page = Fields::new(MAGIC);
    page.u64(number.0);
    page.u32(kvs.0);
    page.seal(Address { run: number, page: 0 })
}

/// Verifies the first page, which must be that of this run, and returns its `Kvs`.
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
        // The version comes before the checksum, whose place another version may have changed. A
        // page that has this version can only be damaged.
        return Err(match version {
            FORMAT_VERSION => EndError::Damaged("the checksum of a page at its end is wrong"),
            _ => EndError::Version(version),
        });
    }
    if version != FORMAT_VERSION { Err(EndError::Version(version)) } else { Ok(()) }
}

impl Footer {
    /// Encodes the last page.
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

    /// Decodes the last page of a file, at its address.
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
