//! The redo log: words that are to change together.
//!
//! The words and their destinations are made durable, then their number is; from then on they
//! change, after a crash as well. When all of them are durable in their places the number is 0
//! again.

use std::sync::atomic::Ordering::{Relaxed, Release};

use entresol_media::Region;

use crate::root::durable;
use crate::{IndexError, Pool};

/// Most words of a log. A split changes a node's bitmap and slots, its parent's and an entry of it:
/// at most 12 words.
const WORDS_MAX: usize = 16;
/// Bytes of the block with the words.
pub(super) const LOG_BYTES: u64 = 16 * WORDS_MAX as u64;

/// Offsets of a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    /// Block with the words, each behind its destination.
    pub(super) words: u64,
    /// Word that holds the number of words to change, 0 for none.
    pub(super) count: u64,
}

/// Words that are to change together.
#[derive(Debug, Default)]
pub(super) struct Changes {
    words: [(u64, u64); WORDS_MAX],
    len: usize,
}

impl Changes {
    /// Adds a change of the word at `at` to `word`.
    pub(super) fn set(&mut self, at: u64, word: u64) {
        self.words[self.len] = (at, word);
        self.len += 1;
    }

    /// Changes all words, or none. Earlier flushes are durable before any is changed.
    pub(super) fn commit<R: Region>(&self, region: &R, log: Log) -> Result<(), IndexError> {
        let words = &self.words[..self.len];
        for (number, &(at, word)) in (0..).zip(words) {
            region.store_u64(log.words + 16 * number, at, Relaxed);
            region.store_u64(log.words + 16 * number + 8, word, Relaxed);
        }
        region.persist(log.words, 16 * self.len);
        region.store_u64(log.count, self.len as u64, Release);
        region.persist(log.count, 8);
        self.apply(region, log);
        durable(region)
    }

    fn apply<R: Region>(&self, region: &R, log: Log) {
        let words = &self.words[..self.len];
        let mut flushed = None;
        for (number, &(at, word)) in words.iter().enumerate() {
            region.store_u64(at, word, Release);
            // Neighbours in a line stand one behind the other.
            let is_last = words.get(number + 1).is_none_or(|next| next.0 / 64 != at / 64);
            if is_last && flushed != Some(at / 64) {
                region.flush(at, 8);
                flushed = Some(at / 64);
            }
        }
        region.drain();
        region.store_u64(log.count, 0, Release);
        region.persist(log.count, 8);
    }
}

/// Completes a commit that a crash interrupted. Nothing may change before it is certain that all of
/// it will: the number must be durable, even if a killed process has not flushed it. The caller
/// that found its block has seen to that; the words were durable before it was stored.
pub(super) fn recover<R: Region>(pool: &Pool<R>, log: Log) -> Result<(), IndexError> {
    let region = pool.region();
    pool.check(log.words, LOG_BYTES)?;
    let count = region.load_u64(log.count, Relaxed);
    if count == 0 {
        return Ok(());
    }
    if count > WORDS_MAX as u64 {
        return Err(IndexError::damaged(log.count, format!("a log of {count} words")));
    }
    let mut changes = Changes::default();
    for number in 0..count {
        let at = region.load_u64(log.words + 16 * number, Relaxed);
        pool.check(at / 64 * 64, 64)?;
        if !at.is_multiple_of(8) {
            return Err(IndexError::damaged(log.words, format!("the log changes a word at {at}")));
        }
        changes.set(at, region.load_u64(log.words + 16 * number + 8, Relaxed));
    }
    changes.apply(region, log);
    durable(region)
}
