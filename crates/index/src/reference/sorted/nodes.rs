//! Nodes of a tree, each by itself: read, latched, made, and settled after an opening. This file
//! does not know how nodes are found: that takes the root.

use std::marker::PhantomData;
use std::sync::Arc;

use entresol_base::thread;
use entresol_media::Region;

use super::node::{Contents, Link, Node, State};
use super::{Chosen, Style};
use crate::index::check_node_bytes;
use crate::keys::Keys;
use crate::latch::{Latched, Latches, Seen};
use crate::{IndexError, Pool};

/// Bytes of a node's header.
const HEADER_BYTES: u32 = 32;
/// Bytes of a record.
const RECORD_BYTES: u32 = 16;
/// Possible sizes of nodes: whole lines, with no more records than the state's word has bits.
const NODE_BYTES: std::ops::RangeInclusive<u64> = 128..=512;

/// Numbers that follow from the options.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) node_bytes: u64,
    /// Most records of a node. One more slot would fit: the published trees need it for their
    /// terminator, and their numbers hold for as many.
    pub(super) records: usize,
    /// Number of records below which a node is merged with a neighbour.
    pub(super) merge_below: usize,
    /// Number of records below which a node takes some of a neighbour that has too many for a
    /// merge: that costs about ten lines and frees no node, so it is put off.
    pub(super) share_below: usize,
    /// Number of records below which a node without room is compacted, not split.
    pub(super) compact_below: usize,
}

impl Shape {
    pub(super) fn new<S: Style>(chosen: Chosen) -> Result<Shape, IndexError> {
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

/// A node that was found and read.
pub(super) struct Place<'a, R> {
    pub(super) node: Node<'a, R>,
    pub(super) seen: Seen,
    pub(super) state: State,
    /// Position in the node, see [`Node::position`].
    pub(super) position: usize,
    /// Slot that has the key, where words do not tell.
    pub(super) found: Option<usize>,
    /// Set if the node was reached by a link of another: the level above may not know it.
    pub(super) unknown: Option<u64>,
}

/// Nodes of one tree, and the meaning of the words in them; see the head of the file.
pub(super) struct Nodes<R, S, K> {
    pub(super) pool: Arc<Pool<R>>,
    pub(super) keys: K,
    pub(super) shape: Shape,
    pub(super) opening: u32,
    pub(super) latches: Latches,
    style: PhantomData<S>,
}

impl<R: Region, S: Style, K: Keys<R>> Nodes<R, S, K> {
    pub(super) fn new(pool: &Arc<Pool<R>>, keys: K, chosen: Chosen) -> Result<Self, IndexError> {
        Ok(Nodes {
            pool: Arc::clone(pool),
            keys,
            shape: Shape::new::<S>(chosen)?,
            opening: pool.openings(),
            latches: Latches::new(),
            style: PhantomData,
        })
    }

    #[inline]
    pub(super) fn region(&self) -> &R {
        self.pool.region()
    }

    /// Returns the node at an offset, if one can be there.
    #[inline]
    pub(super) fn node(&self, at: u64) -> Result<Node<'_, R>, IndexError> {
        self.pool.check(at, self.shape.node_bytes)?;
        Ok(Node::new(self.region(), at))
    }

    /// Makes a node that no link leads to yet, durably. The low becomes the node's, or is freed on
    /// failure.
    pub(super) fn make(
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
    pub(super) fn high(&self, node: Node<'_, R>, link: Link) -> Result<Option<u64>, IndexError> {
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
    pub(super) fn look(&self, node: Node<'_, R>) -> Result<(Seen, State), IndexError> {
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
    pub(super) fn is_true(&self, node: Node<'_, R>, seen: Seen, state: State) -> bool {
        self.latches.is_unchanged(node.at, seen) && !(state.is_leaving() && node.state().is_gone())
    }

    /// Prepares a node from an earlier opening for use: finds its records, clears second copies
    /// that an interrupted change left, and makes all of it durable, since a killed process leaves
    /// visible stores that are not.
    #[cold]
    fn settle(&self, at: u64) -> Result<(), IndexError> {
        let node = self.node(at)?;
        let _held = self.latches.lock(at);
        if node.state().is_of(self.opening) {
            return Ok(());
        }
        if !K::WHOLE {
            return self.settle_records(node);
        }
        let high = self.high(node, node.link())?;
        let low = node.low();
        let (mut bits, mut twice, mut greatest) = (0u32, 0u32, None);
        for slot in 0..self.shape.records {
            let key = node.key(slot);
            let is_here = key >= low && high.is_none_or(|high| key < high);
            if node.is_hole(slot) || !is_here {
                continue;
            }
            if greatest.is_none_or(|greatest| key > greatest) {
                (bits, greatest) = (bits | 1 << slot, Some(key));
            } else {
                // A second copy of a record that was being moved.
                twice |= 1 << slot;
            }
        }
        let state = State::new(self.opening, bits);
        node.clear_settled(&self.shape, state, |slot| {
            twice >> slot & 1 == 1 || slot < state.tail()
        });
        let mut before = low;
        for slot in 0..state.tail() {
            // Searches rely on the order of all keys. Those of holes need not be durable.
            if state.has(slot) {
                before = node.key(slot);
            } else {
                node.set_word(slot, before);
            }
        }
        if !S::IN_PLACE && state.count() < state.tail() {
            node.compact(state);
        } else {
            node.set_state(state);
        }
        Ok(())
    }

    /// Latches a node that was found, if it is unchanged and not about to leave.
    #[inline]
    pub(super) fn latch(&self, place: &Place<'_, R>) -> Option<Latched<'_>> {
        let latched = self.latches.lock_unchanged(place.node.at, place.seen);
        if latched.is_none() || !place.node.state().is_leaving() {
            return latched;
        }
        drop(latched);
        thread::yield_now();
        None
    }
}
