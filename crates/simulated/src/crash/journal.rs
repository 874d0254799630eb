//! An undo journal of a region's lines.

use std::sync::atomic::Ordering;

use entresol_media::observe::LINE_BYTES;
use entresol_media::region::Direct;

use super::lines::Words;

/// Old contents of lines.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: Vec<(u64, Words)>,
    /// Number of the use in which each line was last noted.
    noted: Vec<u32>,
    uses: u32,
}

impl Journal {
    /// Prepares it for a region of this many bytes.
    pub(super) fn reset(&mut self, region_bytes: u64) {
        self.entries.clear();
        let lines = (region_bytes / LINE_BYTES) as usize;
        if self.noted.len() != lines || self.uses == u32::MAX {
            self.noted = vec![0; lines];
            self.uses = 0;
        }
        self.uses += 1;
    }

    /// Notes a line before its first change.
    #[inline]
    pub(super) fn note(&mut self, bytes: &Direct, line: u64) {
        let noted = &mut self.noted[line as usize];
        if *noted != self.uses {
            *noted = self.uses;
            self.entries.push((line, bytes.load_line(line * LINE_BYTES)));
        }
    }

    /// Undoes all changes.
    pub(super) fn undo(&mut self, bytes: &Direct) {
        for (line, words) in self.entries.drain(..) {
            put_line(bytes, line, &words);
        }
    }
}

/// Writes a line.
#[inline]
pub(super) fn put_line(bytes: &Direct, line: u64, words: &Words) {
    let target = bytes.line(line * LINE_BYTES).words();
    for (target, word) in target.iter().zip(words) {
        target.store(*word, Ordering::Relaxed);
    }
}
