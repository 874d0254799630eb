//! Trees of sorted nodes that lie wholly on the medium: the common part of
//! [`FastFair`](crate::FastFair) and [`Ods`](crate::Ods).
//!
//! A B-link tree (Lehman & Yao 1981): every node has a low key and a link to the next node of its
//! level, whose low key is the first that is not here. So a node can be split by one store of eight
//! bytes, the link, before the level above knows of the new node. Records lie in slots in the order
//! of their keys; a slot is changed by three stores to one line, of which the first makes it a
//! hole. Before stores go on in another line, the last line is made durable.
//!
//! Remains of a crash, and their repair:
//! - a record in two slots: the first counts, and the first thread that touches the node in a new
//!   opening clears the other ([`settle`](Nodes::settle));
//! - records of the next node's keys in slots that were not overwritten since a split: keys from
//!   the next node's low key on are not here, whatever the slots hold, so that no terminator has to
//!   be durable;
//! - a node that the level above does not know: found by its link, and made known by the next
//!   writer that comes by it ([`adopt`](Tree::adopt));
//! - blocks that no link leads to: free, see [`Pool`].
//!
//! Keys have eight bytes and stand in the slots, or have any length and lie in records: `records`
//! has the differences, with `words` and `ranges`.
//!
//! Rules of access:
//! 1. A node's words are written only by the thread that holds its latch, with two exceptions: a
//!    node that no link leads to yet is written by its maker, and [`State::gone`] by the thread
//!    that merges (rule 6).
//! 2. A thread holds one latch at a time, and while it holds it waits for no other lock but the
//!    pool's.
//! 3. A latch is released when all stores under it are durable, except those that are made anew in
//!    every opening: the state, the keys of holes, words of keys that lie in records. Readers take
//!    no latch: they look again if the latch was held or taken meanwhile. So an operation's answer
//!    was durable before it answered, and was true when it last looked.
//! 4. The low key and the level of a node never change. A link goes to a node that is whole and
//!    durable.
//! 5. The state's word is valid only in the opening that wrote it. A thread that finds an older one
//!    settles the node first, under its latch.
//! 6. A merge moves the records of a node into the one before it. One merge goes on at a time. It
//!    marks the node as leaving, under its latch: from then on no thread writes to it or makes it
//!    known to the level above. The merge takes the node's key out of the level above. Then, under
//!    the latch of the node before, it copies the records to slots behind all others, where they do
//!    not count yet, stores the link that makes them count, and marks the node as gone before it
//!    releases the latch. A reader of a node that was leaving checks if it is gone, and if so
//!    begins again.
//! 7. A thread that follows links holds a guard of the pool, so that a node that is gone stays
//!    unchanged as long as a thread may look at it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use entresol_base::sync::Mutex;
use entresol_media::Region;

mod grow;
mod merge;
mod node;
mod nodes;
mod operations;
mod ranges;
mod records;
mod walk;
mod words;
mod write;

use node::{LINE_BYTES, Link, Node};
use nodes::{Nodes, Place};
use records::{Goal, Spot};

use crate::keys::{Inline, Keys};
use crate::{IndexError, Pool, root};

/// Way in which a tree keeps its nodes in order.
pub trait Style: fmt::Debug + Send + Sync + 'static {
    /// Options of the style.
    type Options: Clone + Default + Send + Sync;

    /// True if a removal leaves a hole; otherwise the records behind it move.
    const IN_PLACE: bool;

    /// Returns the options common to both styles.
    fn chosen(options: &Self::Options) -> Chosen;
}

/// Options that both styles have.
#[derive(Debug, Clone, Copy)]
pub struct Chosen {
    /// Bytes of a node.
    pub node_bytes: u32,
    /// Share of its records from which on a node without room is split; below it the node is
    /// compacted.
    pub split_from: f64,
}

/// A tree of sorted nodes; see the head of the module.
pub struct Tree<R, S, K = Inline> {
    nodes: Nodes<R, S, K>,
    /// Root of the pool: the root node's offset, with the number of a node's lines in its low six
    /// bits, plus 16 if keys lie in records.
    root: usize,
    /// Held while a root is put above the root, or removed.
    rooting: Mutex<()>,
    /// Held during a merge.
    merging: Mutex<()>,
    splits: AtomicU64,
    compactions: AtomicU64,
    merges: AtomicU64,
}

impl<R, S, K> fmt::Debug for Tree<R, S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tree { root, nodes: Nodes { shape, opening, .. }, .. } = self;
        let mut debug = f.debug_struct("Tree");
        debug.field("root", root).field("shape", shape).field("opening", opening).finish()
    }
}

impl<R: Region, S: Style, K: Keys<R>> Tree<R, S, K> {
    /// Checks at compile time that records lie in the pool. Others might be gone or replaced while
    /// a slot that a crash left twice still leads to them.
    const RECORDS_STAY: () = assert!(K::WHOLE || K::OWNS);
    /// Bit of the root that is set if keys lie in records, see [`Tree::root`].
    const KIND: u64 = if K::WHOLE { 0 } else { root::RECORDS_BIT };

    fn open_at(
        pool: &Arc<Pool<R>>,
        root: usize,
        chosen: Chosen,
        keys: K,
    ) -> Result<Self, IndexError> {
        let () = Self::RECORDS_STAY;
        let tree = Tree {
            nodes: Nodes::new(pool, keys, chosen)?,
            root,
            rooting: Mutex::new(()),
            merging: Mutex::new(()),
            splits: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            merges: AtomicU64::new(0),
        };
        let word = pool.root(root);
        if word == 0 {
            let first = tree.nodes.make(Link::new(0, 0), 0, 0, &[])?;
            tree.set_root(first);
            return Ok(tree);
        }
        tree.check_root(word)?;
        tree.root()?;
        Ok(tree)
    }

    /// Refuses the root of another index, and of a tree with other nodes.
    fn check_root(&self, word: u64) -> Result<(), IndexError> {
        let (root, asked) = (self.root, root::sorted(Self::KIND));
        match root::known(&self.nodes.pool, root) {
            None => {
                let what = format!("root {root} of the pool leads here, but this is not an index");
                return Err(IndexError::damaged(word, what));
            }
            Some(found) if found != asked => {
                return Err(IndexError::OtherIndex { root, found, asked });
            }
            Some(_) => {}
        }
        let made_with = word % root::RECORDS_BIT * LINE_BYTES;
        if made_with == self.nodes.shape.node_bytes {
            return Ok(());
        }
        let what = format!(
            "the tree was made with nodes of {made_with} bytes, not {}: open it with as many",
            self.nodes.shape.node_bytes
        );
        Err(IndexError::Options { what })
    }

    #[inline]
    fn root(&self) -> Result<Node<'_, R>, IndexError> {
        self.nodes.node(self.nodes.pool.root(self.root) & !(LINE_BYTES - 1))
    }

    fn set_root(&self, at: u64) {
        let lines = self.nodes.shape.node_bytes / LINE_BYTES;
        self.nodes.pool.set_root(self.root, at | Self::KIND | lines);
    }

    /// Finds the node of a level that has a goal; `None` if the tree is lower.
    #[inline]
    fn find(&self, goal: Goal<'_, K::Key>, level: u32) -> Result<Option<Place<'_, R>>, IndexError> {
        'root: loop {
            let mut node = self.root()?;
            let (mut expected, mut unknown) = (None, None);
            loop {
                node.prefetch(self.nodes.shape.node_bytes);
                let (seen, state) = self.nodes.look(node)?;
                if state.is_gone() {
                    entresol_base::thread::yield_now();
                    continue 'root;
                }
                let link = node.link();
                let Some(spot) = self.nodes.spot(node, link, (seen, state), goal)? else {
                    continue;
                };
                let Spot { position, found } = spot;
                let child = if link.level() > level {
                    self.nodes.child(node, state, spot, goal)
                } else {
                    0
                };
                if !self.nodes.is_true(node, seen, state) {
                    // Reads it again; then the state tells if it is gone.
                    continue;
                }
                if expected.is_some_and(|expected| expected != link.level()) {
                    let what =
                        format!("a node of level {} is not where it should be", link.level());
                    return Err(IndexError::damaged(node.at, what));
                }
                // Only a key above all that are here can be in a later node.
                if position >= state.tail() && self.nodes.is_later(node, link, goal)? {
                    expected = Some(link.level());
                    node = self.nodes.node(link.next())?;
                    unknown = Some(node.at);
                    continue;
                }
                if link.level() == level {
                    return Ok(Some(Place { node, seen, state, position, found, unknown }));
                }
                if link.level() < level {
                    return Ok(None);
                }
                node = self.nodes.node(child)?;
                expected = Some(link.level() - 1);
            }
        }
    }

    /// Finds the node of a level that has a low.
    fn find_low(&self, low: u64, level: u32) -> Result<Option<Place<'_, R>>, IndexError> {
        let mut scratch = K::Scratch::default();
        self.find(self.nodes.at_low(low, &mut scratch)?, level)
    }
}

#[cfg(test)]
mod tests;
