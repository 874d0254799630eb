//! A node of the guide: words, children, and, where words are not whole keys, the lows themselves.
//!
//! The version, then count, level and skip in one word, then 30 words, so that a search looks at
//! four lines at once; then the children, then the lows. Words that are not used are the greatest.

use std::hint::select_unpredictable;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use entresol_media::{Direct, Region};

use super::{Free, Side};
use crate::IndexError;
use crate::keys::Keys;
use crate::sv_tree::Ground;

/// The most entries that a node has.
pub(super) const CAPACITY: usize = 30;

const META_AT: u64 = 8;
const WORDS_AT: u64 = 16;
const CHILDREN_AT: u64 = 256;
const LOWS_AT: u64 = 512;

/// The bytes of a node.
pub(super) fn bytes(whole: bool) -> u64 {
    if whole { LOWS_AT } else { LOWS_AT + 256 }
}

/// The second word of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meta {
    pub(super) count: usize,
    /// 0 at the bottom.
    pub(super) level: usize,
    /// How many bytes all keys below have in common.
    pub(super) skip: usize,
}

/// A node in the hands of who changes it. It may have one entry too many.
#[derive(Debug, Clone)]
pub(super) struct Image {
    pub(super) level: usize,
    pub(super) skip: usize,
    pub(super) count: usize,
    pub(super) words: [u64; CAPACITY + 1],
    pub(super) lows: [u64; CAPACITY + 1],
    pub(super) children: [u64; CAPACITY + 1],
}

impl Image {
    pub(super) fn new(level: usize, skip: usize) -> Image {
        let none = [0; CAPACITY + 1];
        let words = [u64::MAX; CAPACITY + 1];
        Image { level, skip, count: 0, words, lows: none, children: none }
    }

    pub(super) fn insert(&mut self, index: usize, word: u64, low: u64, child: u64) {
        let behind = index..self.count;
        self.words.copy_within(behind.clone(), index + 1);
        self.lows.copy_within(behind.clone(), index + 1);
        self.children.copy_within(behind, index + 1);
        (self.words[index], self.lows[index], self.children[index]) = (word, low, child);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, index: usize) {
        let behind = index + 1..self.count;
        self.words.copy_within(behind.clone(), index);
        self.lows.copy_within(behind.clone(), index);
        self.children.copy_within(behind, index);
        self.count -= 1;
        self.words[self.count] = u64::MAX;
    }

    /// Takes the entries from `at` on away.
    pub(super) fn split_off(&mut self, at: usize) -> Image {
        let mut right = Image::new(self.level, self.skip);
        for entry in at..self.count {
            right.insert(entry - at, self.words[entry], self.lows[entry], self.children[entry]);
        }
        self.words[at..].fill(u64::MAX);
        self.count = at;
        right
    }
}

/// The memory that nodes lie in, and of which kind they are.
#[derive(Debug)]
pub(super) struct NodeKind {
    memory: Direct,
    whole: bool,
}

impl NodeKind {
    pub(super) fn new(memory: Direct, whole: bool) -> NodeKind {
        NodeKind { memory, whole }
    }

    /// Whether so many nodes more can be had.
    pub(super) fn has_room(&self, free: &Free, nodes: usize) -> bool {
        let never = (self.memory.len() - free.end) / bytes(self.whole);
        free.nodes.len() as u64 + never >= nodes as u64
    }

    pub(super) fn take(&self, free: &mut Free) -> u64 {
        free.nodes.pop().unwrap_or_else(|| {
            free.end += bytes(self.whole);
            free.end - bytes(self.whole)
        })
    }

    #[inline]
    fn word(&self, at: u64) -> u64 {
        self.memory.load_u64(at, Relaxed)
    }

    /// The version, unless the node is being changed.
    #[inline]
    pub(super) fn begin_read(&self, node: u64) -> Option<u64> {
        let version = self.memory.load_u64(node, Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    #[inline]
    pub(super) fn is_unchanged(&self, node: u64, version: u64) -> bool {
        fence(Acquire);
        self.word(node) == version
    }

    #[inline]
    pub(super) fn meta(&self, node: u64) -> Meta {
        let meta = self.word(node + META_AT);
        Meta {
            count: (meta as u8 as usize).min(CAPACITY),
            level: (meta >> 8) as u8 as usize,
            skip: (meta >> 16) as usize,
        }
    }

    pub(super) fn level(&self, node: u64) -> usize {
        self.meta(node).level
    }

    #[inline]
    pub(super) fn child(&self, node: u64, index: usize) -> u64 {
        self.word(node + CHILDREN_AT + 8 * index as u64)
    }

    #[inline]
    pub(super) fn low(&self, node: u64, index: usize) -> u64 {
        let lows = if self.whole { WORDS_AT } else { LOWS_AT };
        self.word(node + lows + 8 * index as u64)
    }

    #[inline]
    pub(super) fn prefetch(&self, node: u64) {
        for line in 0..LOWS_AT / 64 {
            self.memory.prefetch(node + 64 * line);
        }
    }

    /// The entry that a key belongs to: the last one at or below it, or below it.
    #[inline]
    pub(super) fn search<R: Region, K: Keys<R>>(
        &self,
        ground: &Ground<R, K>,
        node: u64,
        meta: Meta,
        key: &K::Key,
        side: Side,
    ) -> Result<usize, IndexError> {
        let word = K::word(key, meta.skip);
        let below = || self.count(node, |it| it < word);
        let up_to = || self.count(node, |it| it <= word).min(meta.count);
        let entries = match side {
            _ if !K::WHOLE => self.settle(ground, node, below()..up_to(), key, side)?,
            Side::At => up_to(),
            Side::Below => below(),
        };
        Ok(entries.saturating_sub(1))
    }

    /// How many words are such, which are the first ones. The range is halved without a branch, so
    /// that no guess goes wrong; the lines are on their way already.
    #[inline(always)]
    fn count(&self, node: u64, is_such: impl Fn(u64) -> bool) -> usize {
        const { assert!(CAPACITY == 15 + 8 + 4 + 2 + 1) };
        let mut found = 0;
        for step in [15, 8, 4, 2, 1] {
            let last = self.word(node + WORDS_AT + 8 * (found + step - 1));
            found = select_unpredictable(is_such(last), found + step, found);
        }
        found as usize
    }

    /// How many entries are at or below a key, or below it, those in the range having equal words.
    fn settle<R: Region, K: Keys<R>>(
        &self,
        ground: &Ground<R, K>,
        node: u64,
        equal: std::ops::Range<usize>,
        key: &K::Key,
        side: Side,
    ) -> Result<usize, IndexError> {
        let (mut first, mut end) = (equal.start, equal.end);
        while first < end {
            let middle = first.midpoint(end);
            let order = ground.compare_low(self.low(node, middle), key)?;
            if order.is_lt() || order.is_eq() && side == Side::At {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(first)
    }

    /// A node as it is, for who alone changes it.
    pub(super) fn load(&self, node: u64) -> Image {
        let Meta { count, level, skip } = self.meta(node);
        let mut image = Image::new(level, skip);
        for entry in 0..count {
            let word = self.word(node + WORDS_AT + 8 * entry as u64);
            image.insert(entry, word, self.low(node, entry), self.child(node, entry));
        }
        image
    }

    /// Changes a node.
    pub(super) fn store(&self, node: u64, image: &Image) {
        let put = |at: u64, value: u64| self.memory.store_u64(node + at, value, Relaxed);
        let version = self.word(node);
        put(0, version + 1);
        fence(Release);
        let Image { level, skip, count, .. } = *image;
        put(META_AT, count as u64 | (level as u64) << 8 | (skip as u64) << 16);
        for (number, entry) in (0..CAPACITY).enumerate() {
            let at = 8 * number as u64;
            put(WORDS_AT + at, image.words[entry]);
            put(CHILDREN_AT + at, image.children[entry]);
            if !self.whole {
                put(LOWS_AT + at, image.lows[entry]);
            }
        }
        self.memory.store_u64(node, version + 2, Release);
    }
}
