//! `WbTree`: the wB+-tree, a tree that lies wholly on the medium, with unsorted nodes.
//!
//! A node has a bitmap of its entries and an array of their slots in the order of their keys, so
//! that nothing is moved and a search is still binary. One bit tells if the array is valid. An
//! insert clears it, writes the entry and the array, and sets it together with the entry's own:
//! three times durable, four lines. A removal writes the first line three times. After a crash with
//! the bit clear the order is found from the keys (Chen and Jin, «Persistent B+-trees in
//! non-volatile main memory», PVLDB 8(7) 2015, section 4: nodes with bitmap and slot array, of 512
//! bytes).
//!
//! Changes of several nodes go through a redo log of a few words. Only one node is split at a time,
//! the highest full one on the way: its parent has room, so the log never grows with the tree. A
//! leaf is removed with its last record, and so are nodes that then have no child left. Leaves do
//! not lead to each other: a walk finds the next one from the root.
//!
//! Nothing is rebuilt when the tree is opened. One writer at a time, or many readers.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::sync::RwLock;
use entresol_media::Region;

use crate::index::{check_node_bytes, check_value};
use crate::root::{Tag, durable};
use crate::settled::Settled;
use crate::walk::in_batches;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics};

mod log;
mod node;

use log::{Changes, Log};
use node::{Entry, Node};

const TAG: Tag = Tag(*b"WB-TREE1");
/// Words of the root block.
const ENTRIES_WORD: usize = 1;
const LOG_WORD: usize = 2;
const ROOT_WORD: usize = 3;
const COUNT_WORD: usize = 4;

/// Options of a new [`WbTree`]. An existing one keeps those that it was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WbTreeOptions {
    /// Entries of a node, from 2 to 28; a node of 28 has 512 bytes.
    pub node_entries: usize,
}

impl Default for WbTreeOptions {
    fn default() -> WbTreeOptions {
        WbTreeOptions { node_entries: node::ENTRIES_MAX }
    }
}

impl WbTreeOptions {
    /// Returns the options for nodes of this size: a multiple of 64 from 128 to 512.
    ///
    /// # Errors
    /// If nodes cannot have this size.
    pub fn of_bytes(node_bytes: u64) -> Result<WbTreeOptions, IndexError> {
        check_node_bytes(node_bytes, 128..=512)?;
        Ok(WbTreeOptions { node_entries: Node::entries_in(node_bytes) })
    }
}

/// A wB+-tree; see the head of the module.
#[derive(Debug)]
pub struct WbTree<R> {
    pool: Arc<Pool<R>>,
    /// Offset of the root block.
    head: u64,
    log: Log,
    most: usize,
    /// Root node, behind a lock for one writer or many readers.
    root: RwLock<u64>,
    settled: Settled,
    splits: AtomicU64,
    merges: AtomicU64,
}

/// A node on the way to a key, and the number of its entries that are not after the key.
#[derive(Debug)]
struct Step {
    node: Node,
    not_after: usize,
}

impl<R: Region> WbTree<R> {
    fn region(&self) -> &R {
        self.pool.region()
    }

    fn load(&self, at: u64) -> Result<Node, IndexError> {
        self.pool.check(at, Node::bytes(self.most))?;
        if !self.settled.has(at) {
            self.settled.settle(self.region(), at)?;
        }
        let node = Node::load(self.region(), at, self.most);
        node.ok_or_else(|| IndexError::damaged(at, "this cannot be a node"))
    }

    /// Loads a node's child, which must be one level further down.
    fn load_child(&self, parent: &Node, at: u64) -> Result<Node, IndexError> {
        let child = self.load(at)?;
        if child.level + 1 != parent.level {
            let (below, above) = (child.level, parent.level);
            let what = format!("a node of level {below} is below one of level {above}");
            return Err(IndexError::damaged(at, what));
        }
        Ok(child)
    }

    /// Returns the leaf in which a key is or would be.
    fn leaf_of(&self, root: u64, key: u64) -> Result<Node, IndexError> {
        let mut node = self.load(root)?;
        while !node.is_leaf() {
            node = self.load_child(&node, node.child(self.region(), key).0)?;
        }
        Ok(node)
    }

    /// Returns the leaf of a key, and all nodes above it from the root on.
    fn way_to(&self, root: u64, key: u64) -> Result<(Vec<Step>, Node), IndexError> {
        let mut way = Vec::new();
        let mut node = self.load(root)?;
        while !node.is_leaf() {
            let (child, not_after) = node.child(self.region(), key);
            let child = self.load_child(&node, child)?;
            way.push(Step { node: std::mem::replace(&mut node, child), not_after });
        }
        Ok((way, node))
    }

    /// Adds a record that is not there.
    fn add(&self, root: &mut u64, entry: Entry) -> Result<(), IndexError> {
        loop {
            let (way, leaf) = self.way_to(*root, entry.key)?;
            if leaf.len() < self.most {
                let (rank, _) = leaf.rank(self.region(), entry.key);
                leaf.insert(self.region(), rank, entry);
                return durable(self.region());
            }
            let has_room = |step: &&Step| step.node.len() < self.most;
            let roomy = way.iter().rposition(|step| has_room(&step));
            let below = roomy.map_or(0, |roomy| roomy + 1);
            let full = way.get(below).map_or(&leaf, |step| &step.node);
            self.split(root, roomy.map(|roomy| &way[roomy]), full)?;
        }
    }

    /// Moves the upper half of a full node to a new one. Its parent has room; the root has none.
    fn split(&self, root: &mut u64, parent: Option<&Step>, full: &Node) -> Result<(), IndexError> {
        let region = self.region();
        debug_assert!(full.len() == self.most, "a node of {} records is split", full.len());
        debug_assert!(parent.is_none_or(|it| it.node.len() < self.most), "the parent has no room");
        let new = self.pool.allocate(Node::bytes(self.most))?;
        let entries = full.entries(region);
        let half = entries.len() / 2;
        let middle = entries[half];
        match full.is_leaf() {
            true => Node::write(region, new, 0, 0, &entries[half..]),
            false => Node::write(region, new, full.level, middle.value, &entries[half + 1..]),
        }
        self.settled.add(new);
        let separator = Entry { key: middle.key, value: new };
        let mut changes = Changes::default();
        let mut root_after = *root;
        match parent {
            Some(parent) => {
                parent.node.change_insert(parent.not_after, separator, &mut changes);
            }
            None => {
                root_after = self.pool.allocate(Node::bytes(self.most)).inspect_err(|_| {
                    self.pool.free(new);
                })?;
                Node::write(region, root_after, full.level + 1, full.at, &[separator]);
                self.settled.add(root_after);
                changes.set(self.root_at(), root_after);
            }
        }
        full.change_truncate(half, &mut changes);
        changes.commit(region, self.log)?;
        *root = root_after;
        self.splits.fetch_add(1, Relaxed);
        Ok(())
    }

    fn root_at(&self) -> u64 {
        self.head + 8 * ROOT_WORD as u64
    }

    /// Removes the last record of a leaf that is not the root, and all nodes left without a child.
    fn remove_leaf(&self, root: &mut u64, way: &[Step], leaf: u64) -> Result<(), IndexError> {
        let region = self.region();
        let Some(keeps) = way.iter().rposition(|step| step.node.len() > 0) else {
            return Err(IndexError::damaged(*root, "the root has one child only"));
        };
        let parent = &way[keeps];
        let mut gone = vec![leaf];
        gone.extend(way[keeps + 1..].iter().map(|step| step.node.at));
        let mut changes = Changes::default();
        let mut root_after = *root;
        if keeps == 0 && parent.node.len() == 1 {
            // One child is left of the root: it becomes the root, or the only node that it leads to
            // does.
            let other = match parent.not_after {
                0 => parent.node.entry(region, 0).value,
                _ => parent.node.leftmost,
            };
            gone.push(parent.node.at);
            let mut node = self.load_child(&parent.node, other)?;
            while !node.is_leaf() && node.len() == 0 {
                gone.push(node.at);
                node = self.load_child(&node, node.leftmost)?;
            }
            root_after = node.at;
            changes.set(self.root_at(), root_after);
        } else {
            parent.node.change_remove_child(region, parent.not_after, &mut changes);
        }
        debug_assert!(!gone.contains(&root_after), "the root {root_after} is freed");
        changes.commit(region, self.log)?;
        *root = root_after;
        self.merges.fetch_add(gone.len() as u64, Relaxed);
        gone.into_iter().for_each(|node| self.pool.free(node));
        Ok(())
    }

    /// Collects the records of the first leaf, in this direction, that has some from `from` on.
    fn batch(
        &self,
        mut from: u64,
        direction: Direction,
        batch: &mut Vec<(u64, u64)>,
    ) -> Result<(), IndexError> {
        let (region, root) = (self.region(), self.root.read());
        loop {
            let (way, leaf) = self.way_to(*root, from)?;
            let record = |entry: Entry| (entry.key, entry.value);
            let (rank, is_there) = leaf.rank(region, from);
            let next = match direction {
                Direction::Forward => {
                    batch.extend((rank..leaf.len()).map(|rank| record(leaf.entry(region, rank))));
                    // The least key of the next leaf.
                    let after = way.iter().rev().find(|step| step.not_after < step.node.len());
                    after.map(|step| step.node.entry(region, step.not_after).key)
                }
                Direction::Backward => {
                    let ranks = (0..rank + usize::from(is_there)).rev();
                    batch.extend(ranks.map(|rank| record(leaf.entry(region, rank))));
                    let before = way.iter().rev().find(|step| step.not_after > 0);
                    let low = before.map(|step| step.node.entry(region, step.not_after - 1).key);
                    low.and_then(|low| low.checked_sub(1))
                }
            };
            match next {
                Some(next) if batch.is_empty() => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// Passes a node and all nodes below it to `visit`.
    fn each(&self, node: &Node, visit: &mut dyn FnMut(&Node)) -> Result<(), IndexError> {
        visit(node);
        if node.is_leaf() {
            return Ok(());
        }
        let others = (0..node.len()).map(|rank| node.entry(self.region(), rank).value);
        for child in [node.leftmost].into_iter().chain(others) {
            self.each(&self.load_child(node, child)?, visit)?;
        }
        Ok(())
    }
}

impl<R: Region> Index for WbTree<R> {
    type Key = u64;

    fn insert(&self, &key: &u64, value: u64) -> Result<bool, IndexError> {
        check_value(value)?;
        let mut root = self.root.write();
        if self.leaf_of(*root, key)?.rank(self.region(), key).1 {
            return Ok(false);
        }
        self.add(&mut root, Entry { key, value })?;
        Ok(true)
    }

    fn upsert(&self, &key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        check_value(value)?;
        let mut root = self.root.write();
        let leaf = self.leaf_of(*root, key)?;
        let (rank, is_there) = leaf.rank(self.region(), key);
        if !is_there {
            self.add(&mut root, Entry { key, value })?;
            return Ok(None);
        }
        let old = leaf.entry(self.region(), rank).value;
        leaf.set_value(self.region(), rank, value);
        durable(self.region())?;
        Ok(Some(old))
    }

    fn get(&self, &key: &u64) -> Result<Option<u64>, IndexError> {
        let root = self.root.read();
        let leaf = self.leaf_of(*root, key)?;
        let (rank, is_there) = leaf.rank(self.region(), key);
        Ok(is_there.then(|| leaf.entry(self.region(), rank).value))
    }

    fn remove(&self, &key: &u64) -> Result<Option<u64>, IndexError> {
        let mut root = self.root.write();
        let (way, leaf) = self.way_to(*root, key)?;
        let (rank, is_there) = leaf.rank(self.region(), key);
        if !is_there {
            return Ok(None);
        }
        let old = leaf.entry(self.region(), rank).value;
        if leaf.len() == 1 && !way.is_empty() {
            self.remove_leaf(&mut root, &way, leaf.at)?;
        } else {
            leaf.remove(self.region(), rank);
            durable(self.region())?;
        }
        Ok(Some(old))
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        in_batches(from, direction, visit, |from, batch| self.batch(from, direction, batch))
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        let root = self.root.read();
        let node = self.load(*root)?;
        let (mut nodes, mut keys) = (0, 0);
        self.each(&node, &mut |node| {
            nodes += 1;
            keys += if node.is_leaf() { node.len() as u64 } else { 0 };
        })?;
        Ok(Statistics {
            nodes,
            bytes: nodes * Node::bytes(self.most) + log::LOG_BYTES + 64,
            height: node.level as u32 + 1,
            keys,
            splits: self.splits.load(Relaxed),
            merges: self.merges.load(Relaxed),
            ..Statistics::default()
        })
    }
}

impl<R: Region> Persistent<R> for WbTree<R> {
    type Options = WbTreeOptions;

    fn open(
        pool: &Arc<Pool<R>>,
        root: usize,
        options: &WbTreeOptions,
    ) -> Result<WbTree<R>, IndexError> {
        let (head, words) = match TAG.find(pool, root)? {
            Some(found) => found,
            None => make(pool, root, options)?,
        };
        let most = usize::try_from(words[ENTRIES_WORD])
            .ok()
            .filter(|most| (2..=node::ENTRIES_MAX).contains(most));
        let Some(most) = most else {
            return Err(IndexError::damaged(head, "the root block has an impossible node size"));
        };
        let log = Log { words: words[LOG_WORD], count: head + 8 * COUNT_WORD as u64 };
        log::recover(pool, log)?;
        let node = pool.region().load_u64(head + 8 * ROOT_WORD as u64, Relaxed);
        let tree = WbTree {
            pool: Arc::clone(pool),
            head,
            log,
            most,
            root: RwLock::new(node),
            settled: Settled::new(pool, Node::bytes(most))?,
            splits: AtomicU64::new(0),
            merges: AtomicU64::new(0),
        };
        tree.load(node)?;
        Ok(tree)
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        let root = self.root.read();
        visit(self.head);
        visit(self.log.words);
        self.each(&self.load(*root)?, &mut |node| visit(node.at))
    }
}

/// Makes an empty tree; returns its root block and the words in it.
fn make<R: Region>(
    pool: &Pool<R>,
    root: usize,
    options: &WbTreeOptions,
) -> Result<(u64, [u64; 8]), IndexError> {
    let (entries, most) = (options.node_entries, node::ENTRIES_MAX);
    if !(2..=most).contains(&entries) {
        let what = format!("nodes of {entries} entries are not supported: use 2 to {most}");
        return Err(IndexError::Options { what });
    }
    let log = pool.allocate(log::LOG_BYTES)?;
    let node = pool.allocate(Node::bytes(entries))?;
    Node::write(pool.region(), node, 0, 0, &[]);
    let mut words = [0; 8];
    (words[ENTRIES_WORD], words[LOG_WORD], words[ROOT_WORD]) = (entries as u64, log, node);
    Ok((TAG.make(pool, root, words)?, words))
}

#[cfg(test)]
mod tests;
