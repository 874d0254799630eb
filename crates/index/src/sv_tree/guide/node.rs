//! A node of the guide: words, children, and, where words are not whole keys, the lows themselves.
//!
//! The version, then count, level and skip in one word, then 30 words, so that a search looks at
//! four lines at once; then the children, then the lows. Unused words have the greatest value.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use entresol_media::{Direct, Region};

use super::{Free, Side};
use crate::IndexError;
use crate::keys::Keys;
use crate::sv_tree::ground::Ground;

/// Most entries of a node.
pub(super) const CAPACITY: usize = 30;

const META_AT: usize = 1;
const WORDS_AT: usize = 2;
const CHILDREN_AT: usize = 32;
/// Words of a node, without the lows behind them.
const NODE_WORDS: usize = 64;
const LOWS_BYTES: u64 = 256;

/// Returns the bytes of a node.
pub(super) fn bytes(whole: bool) -> u64 {
    let bytes = 8 * NODE_WORDS as u64;
    if whole { bytes } else { bytes + LOWS_BYTES }
}

/// Second word of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meta {
    pub(super) count: usize,
    /// Level of the node; 0 at the bottom.
    pub(super) level: usize,
    /// Number of bytes that all keys below have in common.
    pub(super) skip: usize,
}

/// A writer's copy of a node. It may have one entry too many.
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
        debug_assert!(
            index <= self.count && self.count < self.words.len(),
            "an entry goes to {index} of a node that has {}",
            self.count,
        );
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

    /// Splits off the entries from `at` on.
    pub(super) fn split_off(&mut self, at: usize) -> Image {
        debug_assert!(at < self.count, "a node of {} entries is split at {at}", self.count);
        let mut right = Image::new(self.level, self.skip);
        for entry in at..self.count {
            right.insert(entry - at, self.words[entry], self.lows[entry], self.children[entry]);
        }
        self.words[at..].fill(u64::MAX);
        self.count = at;
        right
    }
}

/// Memory of the nodes, and their kind.
#[derive(Debug)]
pub(super) struct NodeKind {
    memory: Direct,
    whole: bool,
}

impl NodeKind {
    pub(super) fn new(memory: Direct, whole: bool) -> NodeKind {
        NodeKind { memory, whole }
    }

    /// Returns true if there is room for `nodes` more.
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

    /// Returns the node at an offset.
    #[inline]
    pub(super) fn at(&self, at: u64) -> Node<'_> {
        Node { kind: self, at, words: self.memory.words(at) }
    }

    #[inline]
    pub(super) fn prefetch(&self, node: u64) {
        for word in (0..NODE_WORDS as u64).step_by(8) {
            self.memory.prefetch(node + 8 * word);
        }
    }
}

/// A node in its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    kind: &'a NodeKind,
    at: u64,
    words: &'a [AtomicU64; NODE_WORDS],
}

impl Node<'_> {
    /// Returns the version, unless the node is being changed.
    #[inline]
    pub(super) fn begin_read(self) -> Option<u64> {
        let version = self.words[0].load(Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    #[inline]
    pub(super) fn is_unchanged(self, version: u64) -> bool {
        fence(Acquire);
        self.words[0].load(Relaxed) == version
    }

    #[inline]
    pub(super) fn meta(self) -> Meta {
        let meta = self.words[META_AT].load(Relaxed);
        Meta {
            count: (meta as u8 as usize).min(CAPACITY),
            level: (meta >> 8) as u8 as usize,
            skip: (meta >> 16) as usize,
        }
    }

    /// Returns the word of an entry; there are [`CAPACITY`].
    #[inline]
    fn word(self, entry: usize) -> u64 {
        self.words[(WORDS_AT + entry) % NODE_WORDS].load(Relaxed)
    }

    #[inline]
    pub(super) fn child(self, entry: usize) -> u64 {
        self.words[(CHILDREN_AT + entry) % NODE_WORDS].load(Relaxed)
    }

    #[inline]
    pub(super) fn low(self, entry: usize) -> u64 {
        match self.kind.whole {
            true => self.word(entry),
            false => self.kind.memory.load_u64(self.low_at(entry), Relaxed),
        }
    }

    #[inline]
    fn low_at(self, entry: usize) -> u64 {
        self.at + 8 * (NODE_WORDS + entry) as u64
    }

    /// Returns the entry of a key: the last one at or below it, or, by `side`, below it.
    #[inline]
    pub(super) fn search<R: Region, K: Keys<R>>(
        self,
        ground: &Ground<R, K>,
        meta: Meta,
        key: &K::Key,
        side: Side,
    ) -> Result<usize, IndexError> {
        let word = K::word(key, meta.skip);
        let below = || self.count(|it| it < word);
        let up_to = || self.count(|it| it <= word).min(meta.count);
        let entries = match side {
            _ if !K::WHOLE => self.settle(ground, below()..up_to(), key, side)?,
            Side::At => up_to(),
            Side::Below => below(),
        };
        Ok(entries.saturating_sub(1))
    }

    /// Counts the words that satisfy `is_such`, which are the first ones: whole groups by their
    /// last words, then within one group. No word waits for another one of its round, and there is
    /// no branch to mispredict; the lines are on their way already.
    #[inline(always)]
    fn count(self, is_such: impl Fn(u64) -> bool) -> usize {
        const GROUP: usize = 5;
        const { assert!(CAPACITY.is_multiple_of(GROUP)) };
        let lasts = (1..CAPACITY / GROUP).map(|group| self.word(group * GROUP - 1));
        let first = GROUP * lasts.map(|it| usize::from(is_such(it))).sum::<usize>();
        first + (first..first + GROUP).map(|it| usize::from(is_such(self.word(it)))).sum::<usize>()
    }

    /// Counts the entries at or below a key, or below it; the words of those in the range are
    /// equal.
    fn settle<R: Region, K: Keys<R>>(
        self,
        ground: &Ground<R, K>,
        equal: std::ops::Range<usize>,
        key: &K::Key,
        side: Side,
    ) -> Result<usize, IndexError> {
        let (mut first, mut end) = (equal.start, equal.end);
        while first < end {
            let middle = first.midpoint(end);
            let order = ground.compare_low(self.low(middle), key)?;
            if order.is_lt() || order.is_eq() && side == Side::At {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(first)
    }

    /// Copies a node, for the only thread that changes it.
    pub(super) fn load(self) -> Image {
        let Meta { count, level, skip } = self.meta();
        let mut image = Image::new(level, skip);
        image.count = count;
        for entry in 0..count {
            image.words[entry] = self.word(entry);
            image.lows[entry] = self.low(entry);
            image.children[entry] = self.child(entry);
        }
        image
    }

    /// Replaces a node's contents.
    pub(super) fn store(self, image: &Image) {
        self.change(|| {
            self.put_meta(Meta { count: image.count, level: image.level, skip: image.skip });
            for entry in 0..CAPACITY {
                self.put(entry, image.words[entry], image.lows[entry], image.children[entry]);
            }
        });
    }

    /// Adds an entry in its place without a copy of the node, if there is room.
    pub(super) fn insert(self, index: usize, word: u64, low: u64, child: u64) -> bool {
        let meta = self.meta();
        if meta.count == CAPACITY {
            return false;
        }
        self.change(|| {
            for entry in (index..meta.count).rev() {
                self.put(entry + 1, self.word(entry), self.low(entry), self.child(entry));
            }
            self.put(index, word, low, child);
            self.put_meta(Meta { count: meta.count + 1, ..meta });
        });
        true
    }

    fn change(self, stores: impl FnOnce()) {
        let version = self.words[0].load(Relaxed);
        self.words[0].store(version + 1, Relaxed);
        fence(Release);
        stores();
        self.words[0].store(version + 2, Release);
    }

    fn put_meta(self, Meta { count, level, skip }: Meta) {
        let meta = count as u64 | (level as u64) << 8 | (skip as u64) << 16;
        self.words[META_AT].store(meta, Relaxed);
    }

    fn put(self, entry: usize, word: u64, low: u64, child: u64) {
        self.words[(WORDS_AT + entry) % NODE_WORDS].store(word, Relaxed);
        self.words[(CHILDREN_AT + entry) % NODE_WORDS].store(child, Relaxed);
        if !self.kind.whole {
            self.kind.memory.store_u64(self.low_at(entry), low, Relaxed);
        }
    }
}
