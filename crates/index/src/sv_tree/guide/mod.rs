//! The guide: a B+-tree in DRAM from the leaves' lows to the leaves.
//!
//! It is a hint, and may lack leaves: it finds a leaf in use that lies at or before the right one,
//! from where links lead on. But a leaf is removed from the guide before it is freed.
//!
//! Rules of access:
//! 1. One thread at a time changes the guide, under `writer`, and takes no latch meanwhile.
//! 2. A node's version is odd while it changes. Readers take no locks: reads of a node are valid if
//!    the version was even before and is unchanged afterwards.
//! 3. Going down, a reader reads the child's version before it checks the parent's again: so the
//!    child was the child then.
//! 4. A bound in an upper node is raised before entries below it go, and a node is out of its
//!    parent before it is reused.
//! 5. A leaf is added under the latch of the leaf before it, and removed under that latch, so no
//!    thread adds one that was unlinked.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_media::{Direct, Region};

use super::ground::Ground;
use super::posts::Post;
use crate::IndexError;
use crate::keys::Keys;

mod node;

use node::{CAPACITY, Image, NodeKind};

/// More levels than there can be.
const LEVELS: usize = 16;

/// Entries of a node when the guide is built: few, since leaves in between will be met and added.
const BUILT: usize = CAPACITY / 2;

/// Bytes of the region from which on nodes lie in huge pages: then they outgrow the processor's
/// translations of small ones. A small tree would leave most of a huge page unused.
const HUGE_PAGES_FROM: u64 = 1 << 30;

/// Number of looks at a changing node after which a reader yields to the writer.
const LOOKS: u32 = 64;

/// Choice among the leaves around a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The leaf that has the key.
    At,
    /// The leaf that has the keys just below it.
    Below,
}

/// A leaf at or before the right one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub(super) leaf: u64,
    /// A later leaf, if known, otherwise 0. Its low, `high`, is above the key.
    pub(super) next: u64,
    pub(super) high: u64,
}

/// Guide of a tree; see the head of the file.
#[derive(Debug)]
pub(super) struct Guide<K> {
    nodes: NodeKind,
    root: AtomicU64,
    writer: Mutex<Free>,
    keys: PhantomData<fn() -> K>,
}

/// Nodes that are not in use.
#[derive(Debug)]
struct Free {
    nodes: Vec<u64>,
    /// Offset from which on no node has ever been used.
    end: u64,
}

/// A node on the way down, and the entry that was taken.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    node: u64,
    index: usize,
    /// Lower bound of the keys below that entry; 0 without one.
    low: u64,
    high: u64,
}

/// The way down to a leaf's entry.
struct Path {
    steps: [Step; LEVELS],
    len: usize,
}

impl Path {
    fn last(&self) -> Step {
        self.steps[self.len - 1]
    }

    /// Returns the bounds of the node at a level, counted from the root.
    fn bounds(&self, level: usize) -> (u64, u64) {
        match level.checked_sub(1) {
            Some(above) => (self.steps[above].low, self.steps[above].high),
            None => (0, 0),
        }
    }
}

/// Builds nodes, level by level, over entries whose lows rise from 0; returns the root.
fn build<R: Region, K: Keys<R>>(
    ground: &Ground<R, K>,
    nodes: &NodeKind,
    free: &mut Free,
    mut entries: Vec<Post>,
) -> Result<u64, IndexError> {
    for level in 0..LEVELS {
        let mut above = Vec::with_capacity(entries.len().div_ceil(BUILT));
        for (number, part) in entries.chunks(BUILT).enumerate() {
            let low = part[0].low;
            let high = entries.get((number + 1) * BUILT).map_or(0, |next| next.low);
            let mut image = Image::new(level, ground.common(low, high)?);
            for (index, &Post { low, leaf }) in part.iter().enumerate() {
                image.insert(index, ground.low_word(low, image.skip)?, low, leaf);
            }
            let at = nodes.take(free);
            nodes.at(at).store(&image);
            above.push(Post { low, leaf: at });
        }
        if let [root] = above[..] {
            return Ok(root.leaf);
        }
        entries = above;
    }
    Err(IndexError::Options { what: format!("a guide of more than {LEVELS} levels") })
}

impl<K> Guide<K> {
    /// Makes a guide to leaves that are `known` by their lows, which rise from 0, with room for
    /// entries of `leaves` in the worst case.
    pub(super) fn new<R>(
        ground: &Ground<R, K>,
        known: Vec<Post>,
        leaves: u64,
    ) -> Result<Guide<K>, IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        let node_bytes = node::bytes(K::WHOLE);
        // Address space only, until it is used.
        let is_large = ground.pool.region().len() >= HUGE_PAGES_FROM;
        let memory = Direct::anonymous((leaves + LEVELS as u64) * node_bytes, is_large);
        let memory = memory.map_err(|error| IndexError::Options { what: error.to_string() })?;
        let nodes = NodeKind::new(memory, K::WHOLE);
        let mut free = Free { nodes: Vec::new(), end: 0 };
        let root = AtomicU64::new(build(ground, &nodes, &mut free, known)?);
        Ok(Guide { nodes, root, writer: Mutex::new(free), keys: PhantomData })
    }

    /// Returns the bytes that the guide has used.
    pub(super) fn bytes(&self) -> u64 {
        self.writer.lock().end
    }

    /// Returns the number of levels.
    pub(super) fn height(&self) -> u32 {
        let _held = self.writer.lock();
        self.nodes.at(self.root.load(Relaxed)).meta().level as u32 + 1
    }

    /// Returns the leaf at which to begin a search for a key, or for the last leaf. The caller has
    /// pinned the pool.
    #[inline]
    pub(super) fn find<R>(
        &self,
        ground: &Ground<R, K>,
        key: Option<&K::Key>,
        side: Side,
    ) -> Result<Spot, IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        thread::step();
        let mut looks = 0;
        loop {
            if let Some(spot) = self.try_find(ground, key, side)? {
                return Ok(spot);
            }
            looks += 1;
            if looks < LOOKS { std::hint::spin_loop() } else { thread::yield_now() }
        }
    }

    /// Searches once; `None` if a change interfered.
    #[inline]
    fn try_find<R>(
        &self,
        ground: &Ground<R, K>,
        key: Option<&K::Key>,
        side: Side,
    ) -> Result<Option<Spot>, IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        let root = self.root.load(Acquire);
        let mut node = self.nodes.at(root);
        let Some(mut version) = node.begin_read() else { return Ok(None) };
        if self.root.load(Relaxed) != root {
            return Ok(None);
        }
        loop {
            let meta = node.meta();
            let found = match key {
                Some(key) => node.search(ground, meta, key, side),
                None => Ok(meta.count.saturating_sub(1)),
            };
            if meta.level == 0 {
                let spot = found.map(|index| {
                    let is_last = index + 1 >= meta.count;
                    let next = if is_last { 0 } else { node.child(index + 1) };
                    let high = if is_last { 0 } else { node.low(index + 1) };
                    Spot { leaf: node.child(index), next, high }
                });
                return if node.is_unchanged(version) { spot.map(Some) } else { Ok(None) };
            }
            let child = found.map(|index| node.child(index));
            if !node.is_unchanged(version) {
                return Ok(None);
            }
            let child = child?;
            self.nodes.prefetch(child);
            let below = self.nodes.at(child);
            let Some(version_below) = below.begin_read() else { return Ok(None) };
            if !node.is_unchanged(version) {
                return Ok(None);
            }
            (node, version) = (below, version_below);
        }
    }

    /// Returns the way down to a key, for changes.
    fn path<R>(&self, ground: &Ground<R, K>, key: &K::Key) -> Result<Path, IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        let mut path = Path { steps: [Step::default(); LEVELS], len: 0 };
        let (mut node, mut low, mut high) = (self.root.load(Relaxed), 0, 0);
        while path.len < LEVELS {
            let here = self.nodes.at(node);
            let meta = here.meta();
            let index = here.search(ground, meta, key, Side::At)?;
            if index > 0 {
                low = here.low(index);
            }
            if index + 1 < meta.count {
                high = here.low(index + 1);
            }
            path.steps[path.len] = Step { node, index, low, high };
            path.len += 1;
            node = here.child(index);
            if meta.level == 0 {
                break;
            }
        }
        Ok(path)
    }

    /// Adds a leaf with this key as its low, unless it is there. Returns true if a node was split:
    /// about once in half a node's entries. Without room the leaf is not added.
    pub(super) fn insert<R>(
        &self,
        ground: &Ground<R, K>,
        key: &K::Key,
        low: u64,
        leaf: u64,
    ) -> Result<bool, IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        let mut free = self.writer.lock();
        let path = self.path(ground, key)?;
        let last = path.last();
        let is_there = self.nodes.at(last.node).child(last.index) == leaf;
        if is_there || !self.nodes.has_room(&free, path.len + 1) {
            return Ok(false);
        }
        self.insert_at(ground, &mut free, &path, path.len - 1, low, leaf)
    }

    /// Adds an entry behind the one on the path, splitting nodes upwards. Returns true if it split.
    fn insert_at<R>(
        &self,
        ground: &Ground<R, K>,
        free: &mut Free,
        path: &Path,
        level: usize,
        low: u64,
        child: u64,
    ) -> Result<bool, IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        let Step { node, index, .. } = path.steps[level];
        let node = self.nodes.at(node);
        let word = ground.low_word(low, node.meta().skip)?;
        if node.insert(index + 1, word, low, child) {
            return Ok(false);
        }
        let mut image = node.load();
        image.insert(index + 1, word, low, child);
        // Entries at the very end are often added in order: then a split leaves a full node behind.
        let is_last = index + 2 == image.count;
        let mut right = image.split_off(if is_last { CAPACITY } else { CAPACITY / 2 });
        let (bound, (from, to)) = (right.lows[0], path.bounds(level));
        self.narrow(ground, &mut image, from, bound)?;
        self.narrow(ground, &mut right, bound, to)?;
        let at = self.nodes.take(free);
        self.nodes.at(at).store(&right);
        if level > 0 {
            // Until the entry is there, readers come to the leaf before.
            node.store(&image);
            self.insert_at(ground, free, path, level - 1, bound, at)?;
            return Ok(true);
        }
        let mut root = Image::new(image.level + 1, 0);
        root.insert(0, 0, 0, path.steps[level].node);
        root.insert(1, ground.low_word(bound, 0)?, bound, at);
        let root_at = self.nodes.take(free);
        self.nodes.at(root_at).store(&root);
        self.root.store(root_at, Release);
        node.store(&image);
        Ok(true)
    }

    /// Sets a node's words to the part of the keys that is not common to all between two bounds.
    fn narrow<R>(
        &self,
        ground: &Ground<R, K>,
        image: &mut Image,
        low: u64,
        high: u64,
    ) -> Result<(), IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        if K::WHOLE {
            return Ok(());
        }
        let skip = ground.common(low, high)?;
        if skip != image.skip {
            image.skip = skip;
            for entry in 0..image.count {
                image.words[entry] = ground.low_word(image.lows[entry], skip)?;
            }
        }
        Ok(())
    }

    /// Replaces the leaf with this low by another.
    pub(super) fn replace<R>(
        &self,
        ground: &Ground<R, K>,
        key: Option<&K::Key>,
        old: u64,
        new: u64,
    ) -> Result<(), IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        let _held = self.writer.lock();
        let (node, index) = match key {
            Some(key) => {
                let last = self.path(ground, key)?.last();
                (last.node, last.index)
            }
            None => (self.first_node(), 0),
        };
        let node = self.nodes.at(node);
        let mut image = node.load();
        if image.children[index] == old {
            image.children[index] = new;
            node.store(&image);
        }
        Ok(())
    }

    /// Returns the lowest-level node that has the first leaf.
    fn first_node(&self) -> u64 {
        let mut node = self.root.load(Relaxed);
        while self.nodes.at(node).meta().level > 0 {
            node = self.nodes.at(node).child(0);
        }
        node
    }

    /// Removes a leaf, other than the first; does nothing if it is not there.
    pub(super) fn remove<R>(
        &self,
        ground: &Ground<R, K>,
        key: &K::Key,
        leaf: u64,
    ) -> Result<(), IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        let mut free = self.writer.lock();
        let path = self.path(ground, key)?;
        let last = path.last();
        if self.nodes.at(last.node).child(last.index) != leaf {
            return Ok(());
        }
        self.remove_at(ground, &mut free, &path, path.len - 1)?;
        if last.index == 0 && !K::WHOLE {
            self.widen(ground, key)?;
        }
        Ok(())
    }

    fn remove_at<R>(
        &self,
        ground: &Ground<R, K>,
        free: &mut Free,
        path: &Path,
        level: usize,
    ) -> Result<(), IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        let Step { node, index, .. } = path.steps[level];
        let mut image = self.nodes.at(node).load();
        if image.count == 1 && level > 0 {
            self.remove_at(ground, free, path, level - 1)?;
            self.nodes.at(node).store(&Image::new(0, 0));
            free.nodes.push(node);
            return Ok(());
        }
        if index == 0 && level > 0 {
            self.raise(ground, path, level - 1, image.lows[1])?;
        }
        image.remove(index);
        self.nodes.at(node).store(&image);
        Ok(())
    }

    /// Raises the low of an entry on the path, uppermost first.
    fn raise<R>(
        &self,
        ground: &Ground<R, K>,
        path: &Path,
        level: usize,
        low: u64,
    ) -> Result<(), IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        let Step { node, index, .. } = path.steps[level];
        if index == 0 && level > 0 {
            self.raise(ground, path, level - 1, low)?;
        }
        let node = self.nodes.at(node);
        let mut image = node.load();
        image.words[index] = ground.low_word(low, image.skip)?;
        image.lows[index] = low;
        node.store(&image);
        Ok(())
    }

    /// Shortens the common prefix of nodes that now cover a wider range.
    fn widen<R>(&self, ground: &Ground<R, K>, key: &K::Key) -> Result<(), IndexError>
    where
        R: Region,
        K: Keys<R>,
    {
        let (mut node, mut low, mut high) = (self.root.load(Relaxed), 0, 0);
        loop {
            let here = self.nodes.at(node);
            let mut image = here.load();
            if image.skip > ground.common(low, high)? {
                self.narrow(ground, &mut image, low, high)?;
                here.store(&image);
            }
            let index = here.search(ground, here.meta(), key, Side::At)?;
            if index > 0 {
                low = image.lows[index];
            }
            if index + 1 < image.count {
                high = image.lows[index + 1];
            }
            if image.level == 0 {
                return Ok(());
            }
            node = image.children[index];
        }
    }
}
