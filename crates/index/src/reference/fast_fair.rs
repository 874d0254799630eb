//! FAST and FAIR: a tree of sorted nodes on the medium whose records are moved by stores of eight
//! bytes that readers and crashes may interrupt (Hwang, Kim, Won & Nam, FAST 2018).
//!
//! A record is inserted by moving all greater ones of the node to the right, and removed by moving
//! them to the left; each line is flushed once. A node with less than half of its records is
//! merged with a neighbour, or shares its records. Nodes, latches and recovery are those of the
//! private module `sorted`.

use crate::reference::sorted::{Chosen, Style, Tree};

/// A tree whose records move when one is removed. See the head of the module.
pub type FastFair<R> = Tree<R, Moving>;

/// The style of [`FastFair`].
#[derive(Debug, Clone, Copy)]
pub struct Moving;

/// Options of a new [`FastFair`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastFairOptions {
    /// Bytes of a node: a multiple of 64 from 128 to 512.
    pub node_bytes: u32,
}

impl Default for FastFairOptions {
    fn default() -> FastFairOptions {
        FastFairOptions { node_bytes: 256 }
    }
}

impl Style for Moving {
    type Options = FastFairOptions;

    const IN_PLACE: bool = false;

    fn chosen(options: &FastFairOptions) -> Chosen {
        Chosen { node_bytes: options.node_bytes, split_from: 0.0 }
    }
}
