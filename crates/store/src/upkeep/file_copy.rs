//! Copies of a store's files as they are, damage included: their contents carry checksums.

use std::sync::Arc;

use entresol_base::mutation_site;
use entresol_media::{BlockFile, BlockOptions, Directory, IoBuffer};

use crate::StoreError;
use crate::run::Run;
use crate::segment::Segment;

/// Bytes copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// File that can be copied from front to back.
pub(crate) trait Source {
    fn bytes(&self) -> u64;

    /// Fills a buffer with the bytes from an offset on.
    fn fill(&self, offset: u64, buffer: &mut IoBuffer) -> Result<(), StoreError>;
}

impl Source for Segment {
    fn bytes(&self) -> u64 {
        self.len()
    }

    fn fill(&self, offset: u64, buffer: &mut IoBuffer) -> Result<(), StoreError> {
        let mut bytes = Vec::with_capacity(buffer.len());
        self.read(offset, buffer.len(), &mut bytes)?;
        buffer.copy_from_slice(&bytes);
        Ok(())
    }
}

impl Source for Run {
    fn bytes(&self) -> u64 {
        self.summary().file_bytes
    }

    fn fill(&self, offset: u64, buffer: &mut IoBuffer) -> Result<(), StoreError> {
        self.read_raw(offset, buffer)
    }
}

/// Copies a file to a new one, and makes its bytes durable, but not its name. After each piece,
/// `go_on` receives the bytes of the piece and decides whether to continue. Returns false if the
/// copy ended early; the copied part then stays.
///
/// # Errors
/// Fails if a disk fails or has no room, or if a file of that name exists.
pub(crate) fn copy(
    from: &dyn Source,
    to: &dyn Directory,
    name: &str,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, StoreError> {
    let bytes = from.bytes();
    let create = Some(bytes);
    let options = BlockOptions { create, unsynced: true, ..BlockOptions::default() };
    let file = to.open_block_file(name, &options)?;
    let mut buffer = file.buffer(PIECE_BYTES);
    let mut offset = 0;
    while offset < bytes {
        let piece = (bytes - offset).min(PIECE_BYTES as u64);
        buffer.set_len(piece as usize);
        from.fill(offset, &mut buffer)?;
        let written = file.write_at(offset, &buffer);
        written.map_err(|cause| failed("write", &file, offset, cause))?;
        offset += piece;
        if !go_on(piece) {
            return Ok(false);
        }
    }
    if !mutation_site!("a copy is synced before it counts") {
        file.sync().map_err(|cause| failed("sync", &file, 0, cause))?;
    }
    Ok(true)
}

fn failed(
    doing: &'static str,
    file: &Arc<dyn BlockFile>,
    offset: u64,
    cause: std::io::Error,
) -> StoreError {
    StoreError::Io { doing, path: file.path().to_owned(), offset, cause }
}
