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
//!   opening clears the other ([`settle`](Tree::settle));
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
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use entresol_base::sync::Mutex;
use entresol_media::Region;

mod grow;
mod merge;
mod node;
mod operations;
mod ranges;
mod records;
mod walk;
mod words;
mod write;

use node::{Contents, LINE_BYTES, Link, Node, State};
use records::{Goal, Spot};

use crate::index::check_node_bytes;
use crate::keys::{Inline, Keys};
use crate::latch::{Latched, Latches, Seen};
use crate::{IndexError, Pool, root};

/// Bytes of a node's header.
const HEADER_BYTES: u32 = 32;
/// Bytes of a record.
const RECORD_BYTES: u32 = 16;
/// Possible sizes of nodes: whole lines, with no more records than the state's word has bits.
const NODE_BYTES: std::ops::RangeInclusive<u64> = 128..=512;

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

/// Numbers that follow from the options.
#[derive(Debug, Clone, Copy)]
struct Shape {
    node_bytes: u64,
    /// Most records of a node. One more slot would fit: the published trees need it for their
    /// terminator, and their numbers hold for as many.
    records: usize,
    /// Number of records below which a node is merged with a neighbour.
    merge_below: usize,
    /// Number of records below which a node takes some of a neighbour that has too many for a
    /// merge: that costs about ten lines and frees no node, so it is put off.
    share_below: usize,
    /// Number of records below which a node without room is compacted, not split.
    compact_below: usize,
}

impl Shape {
    fn new<S: Style>(chosen: Chosen) -> Result<Shape, IndexError> {
        let Chosen { node_bytes, split_from } = chosen;
        check_node_bytes(node_bytes.into(), NODE_BYTES)?;
        if !(0.0..=1.0).contains(&split_from) {
            let what = format!("a node cannot be {split_from} full: use a number from 0 to 1");
            return Err(IndexError::Options { what });
        }
        let records = ((node_bytes - HEADER_BYTES) / RECORD_BYTES - 1) as usize;
        Ok(Shape {
            node_bytes: node_bytes.into(),
            records,
            merge_below: if S::IN_PLACE { 1 } else { records / 2 },
            share_below: if S::IN_PLACE { 1 } else { (records / 4).max(1) },
            // Half of two records is one at least, so that nodes have different low keys.
            compact_below: ((split_from * records as f64).ceil() as usize).max(2),
        })
    }
}

/// A tree of sorted nodes; see the head of the module.
pub struct Tree<R, S, K = Inline> {
    pool: Arc<Pool<R>>,
    keys: K,
    /// Root of the pool: the root node's offset, with the number of a node's lines in its low six
    /// bits, plus 16 if keys lie in records.
    root: usize,
    shape: Shape,
    opening: u32,
    latches: Latches,
    /// Held while a root is put above the root, or removed.
    rooting: Mutex<()>,
    /// Held during a merge.
    merging: Mutex<()>,
    splits: AtomicU64,
    compactions: AtomicU64,
    merges: AtomicU64,
    style: PhantomData<S>,
}

impl<R, S, K> fmt::Debug for Tree<R, S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tree { root, shape, opening, .. } = self;
        let mut debug = f.debug_struct("Tree");
        debug.field("root", root).field("shape", shape).field("opening", opening).finish()
    }
}

/// A node that was found and read.
struct Place<'a, R> {
    node: Node<'a, R>,
    seen: Seen,
    state: State,
    /// Position in the node, see [`Node::position`].
    position: usize,
    /// Slot that has the key, where words do not tell.
    found: Option<usize>,
    /// Set if the node was reached by a link of another: the level above may not know it.
    unknown: Option<u64>,
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
            pool: Arc::clone(pool),
            keys,
            root,
            shape: Shape::new::<S>(chosen)?,
            opening: pool.openings(),
            latches: Latches::new(),
            rooting: Mutex::new(()),
            merging: Mutex::new(()),
            splits: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            merges: AtomicU64::new(0),
            style: PhantomData,
        };
        let word = pool.root(root);
        if word == 0 {
            let first = tree.make(Link::new(0, 0), 0, 0, &[])?;
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
        match root::known(&self.pool, root) {
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
        if made_with == self.shape.node_bytes {
            return Ok(());
        }
        let what = format!(
            "the tree was made with nodes of {made_with} bytes, not {}: open it with as many",
            self.shape.node_bytes
        );
        Err(IndexError::Options { what })
    }

    #[inline]
    fn region(&self) -> &R {
        self.pool.region()
    }

    /// Returns the node at an offset, if one can be there.
    #[inline]
    fn node(&self, at: u64) -> Result<Node<'_, R>, IndexError> {
        self.pool.check(at, self.shape.node_bytes)?;
        Ok(Node::new(self.region(), at))
    }

    #[inline]
    fn root(&self) -> Result<Node<'_, R>, IndexError> {
        self.node(self.pool.root(self.root) & !(LINE_BYTES - 1))
    }

    fn set_root(&self, at: u64) {
        let lines = self.shape.node_bytes / LINE_BYTES;
        self.pool.set_root(self.root, at | Self::KIND | lines);
    }

    /// Makes a node that no link leads to yet, durably. The low becomes the node's, or is freed on
    /// failure.
    fn make(
        &self,
        link: Link,
        leftmost: u64,
        low: u64,
        records: &[(u64, u64)],
    ) -> Result<u64, IndexError> {
        if !K::WHOLE {
            return self.make_of_records(link, leftmost, low, records);
        }
        let at = self.pool.allocate(self.shape.node_bytes)?;
        let contents = Contents { opening: self.opening, link, leftmost, low, records };
        contents.write(self.region(), at, self.shape.node_bytes);
        Ok(at)
    }

    /// Returns the first key that is not in a node with this link: the low key of the next. `None`
    /// if there is no next.
    #[inline]
    fn high(&self, node: Node<'_, R>, link: Link) -> Result<Option<u64>, IndexError> {
        match link.next() {
            0 => Ok(None),
            next => {
                let high = self.node(next)?.low();
                if high <= node.low() {
                    let what = format!("its low key {high} is not above that of the one before");
                    return Err(IndexError::damaged(next, what));
                }
                Ok(Some(high))
            }
        }
    }

    /// Begins to read a node. The returned state is of this opening.
    #[inline]
    fn look(&self, node: Node<'_, R>) -> Result<(Seen, State), IndexError> {
        loop {
            let seen = self.latches.read(node.at);
            let state = node.state();
            if state.is_of(self.opening) {
                return Ok((seen, state));
            }
            self.settle(node.at)?;
        }
    }

    /// Returns true if the reads since `seen` are of one time, and the node's records have not
    /// moved elsewhere.
    #[inline]
    fn is_true(&self, node: Node<'_, R>, seen: Seen, state: State) -> bool {
        self.latches.is_unchanged(node.at, seen) && !(state.is_leaving() && node.state().is_gone())
    }

    /// Finds the node of a level that has a goal; `None` if the tree is lower.
    #[inline]
    fn find(&self, goal: Goal<'_, K::Key>, level: u32) -> Result<Option<Place<'_, R>>, IndexError> {
        'root: loop {
            let mut node = self.root()?;
            let (mut expected, mut unknown) = (None, None);
            loop {
                node.prefetch(self.shape.node_bytes);
                let (seen, state) = self.look(node)?;
                if state.is_gone() {
                    entresol_base::thread::yield_now();
                    continue 'root;
                }
                let link = node.link();
                let Some(spot) = self.spot(node, link, (seen, state), goal)? else { continue };
                let Spot { position, found } = spot;
                let child =
                    if link.level() > level { self.child(node, state, spot, goal) } else { 0 };
                if !self.is_true(node, seen, state) {
                    // Reads it again; then the state tells if it is gone.
                    continue;
                }
                if expected.is_some_and(|expected| expected != link.level()) {
                    let what =
                        format!("a node of level {} is not where it should be", link.level());
                    return Err(IndexError::damaged(node.at, what));
                }
                // Only a key above all that are here can be in a later node.
                if position >= state.tail() && self.is_later(node, link, goal)? {
                    expected = Some(link.level());
                    node = self.node(link.next())?;
                    unknown = Some(node.at);
                    continue;
                }
                if link.level() == level {
                    return Ok(Some(Place { node, seen, state, position, found, unknown }));
                }
                if link.level() < level {
                    return Ok(None);
                }
                node = self.node(child)?;
                expected = Some(link.level() - 1);
            }
        }
    }

    /// Latches a node that was found, if it is unchanged and not about to leave.
    #[inline]
    fn latch(&self, place: &Place<'_, R>) -> Option<Latched<'_>> {
        let latched = self.latches.lock_unchanged(place.node.at, place.seen);
        if latched.is_none() || !place.node.state().is_leaving() {
            return latched;
        }
        drop(latched);
        entresol_base::thread::yield_now();
        None
    }
}

#[cfg(test)]
mod tests;
