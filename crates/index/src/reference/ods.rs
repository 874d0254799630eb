//! The one-direction shift tree: a tree of sorted nodes on the medium whose records are removed in
//! place, and inserted into the nearest hole («ODS-tree», Journal of Computer Research and
//! Development 58(2), 2021).
//!
//! A removal is one store of eight bytes and one flushed line. A word in the node that is not
//! durable holds the set of used slots: it is built anew when a node is first read in an opening. A
//! node in which no room can be made to the right is compacted if it has less than 0.7 of its
//! records, otherwise split. An empty node is freed. Nodes, latches and recovery are those of the
//! private module `sorted`.

use crate::keys::Inline;
use crate::reference::sorted::{Chosen, Style, Tree};

/// A tree whose records are removed in place. See the head of the module. Keys have eight bytes, or
/// with [`Bytes`](crate::keys::Bytes) any length.
pub type Ods<R, K = Inline> = Tree<R, InPlace, K>;

/// The style of [`Ods`].
#[derive(Debug, Clone, Copy)]
pub struct InPlace;

/// Options of a new [`Ods`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OdsOptions {
    /// Bytes of a node: a multiple of 64 from 128 to 512.
    pub node_bytes: u32,
    /// Share of its records, from 0 to 1, from which on a node without room is split; below it the
    /// node is compacted (the paper's T).
    pub split_from: f64,
}

impl Default for OdsOptions {
    fn default() -> OdsOptions {
        OdsOptions { node_bytes: 256, split_from: 0.7 }
    }
}

impl Style for InPlace {
    type Options = OdsOptions;

    const IN_PLACE: bool = true;

    fn chosen(options: &OdsOptions) -> Chosen {
        Chosen { node_bytes: options.node_bytes, split_from: options.split_from }
    }
}
