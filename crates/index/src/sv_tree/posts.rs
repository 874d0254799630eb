//! Posts: names of some leaves on the medium, so that a guide can be built at once.
//!
//! Blocks of 1 KiB in a list: the next one, a spare word, then pairs of a leaf's low and its
//! offset, 0 if the pair is free. A leaf is named once it is linked, and its name is durably gone
//! before it is unlinked. There is one for each node of the guide's lowest level that was split:
//! about one line in two hundred inserts.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::Ordering::{Acquire, Release};

use entresol_base::sync::Mutex;
use entresol_media::Region;

use crate::mix::Mixed;
use crate::{IndexError, Pool};

pub(super) const BLOCK_BYTES: u64 = 1024;
const PAIRS_AT: u64 = 16;
const PAIR_BYTES: u64 = 16;

/// A named leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Post {
    pub(super) low: u64,
    pub(super) leaf: u64,
}

/// Used and free pairs.
#[derive(Debug)]
pub(super) struct Posts {
    /// Offset of the word that leads to the first block.
    first_at: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<u64>,
    by_leaf: HashMap<u64, u64, BuildHasherDefault<Mixed>>,
}

impl Posts {
    /// Returns the bytes in DRAM, with the control byte that a map has for each place.
    pub(super) fn volatile_bytes(&self) -> u64 {
        let state = self.state.lock();
        (state.by_leaf.capacity() * 17 + state.free.capacity() * 8) as u64
    }

    /// Loads the posts behind the word at `first_at`.
    pub(super) fn load<R: Region>(
        pool: &Pool<R>,
        first_at: u64,
    ) -> Result<(Posts, Vec<Post>), IndexError> {
        let (mut state, mut posts) = (State::default(), Vec::new());
        each_block(pool, first_at, &mut |block| {
            let mut bytes = [0; BLOCK_BYTES as usize];
            pool.region().read(block, &mut bytes);
            pool.region().flush(block, BLOCK_BYTES as usize);
            let (words, _) = bytes.as_chunks::<8>();
            let pairs = words.as_chunks::<2>().0;
            for (number, &[low, leaf]) in pairs.iter().enumerate().skip(1) {
                let at = block + PAIR_BYTES * number as u64;
                match u64::from_le_bytes(leaf) {
                    0 => state.free.push(at),
                    leaf => {
                        posts.push(Post { low: u64::from_le_bytes(low), leaf });
                        state.by_leaf.insert(leaf, at);
                    }
                }
            }
        })?;
        // A name that is visibly but not durably gone would lead to an unlinked leaf after a crash.
        pool.region().drain();
        Ok((Posts { first_at, state: Mutex::new(state) }, posts))
    }

    /// Returns the number of named leaves.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state.lock().by_leaf.len()
    }

    /// Names a leaf, if there is room. The name need not be durable when this returns, since a leaf
    /// without one is found by links.
    pub(super) fn add<R: Region>(&self, pool: &Pool<R>, post: Post) {
        let mut state = self.state.lock();
        if state.free.is_empty() && !self.grow(pool, &mut state) {
            return;
        }
        let Some(at) = state.free.pop() else { return };
        let region = pool.region();
        region.store_u64(at, post.low, Release);
        region.store_u64(at + 8, post.leaf, Release);
        region.flush(at, PAIR_BYTES as usize);
        state.by_leaf.insert(post.leaf, at);
    }

    fn grow<R: Region>(&self, pool: &Pool<R>, state: &mut State) -> bool {
        let Ok(block) = pool.allocate(BLOCK_BYTES) else { return false };
        let region = pool.region();
        region.zero(block, BLOCK_BYTES);
        region.store_u64(block, region.load_u64(self.first_at, Acquire), Release);
        region.persist(block, BLOCK_BYTES as usize);
        region.store_u64(self.first_at, block, Release);
        region.flush(self.first_at, 8);
        let pairs = (BLOCK_BYTES - PAIRS_AT) / PAIR_BYTES;
        state.free.extend((0..pairs).rev().map(|pair| block + PAIRS_AT + PAIR_BYTES * pair));
        true
    }

    /// Removes a leaf's name, durably; returns true if it had one.
    pub(super) fn remove<R: Region>(&self, pool: &Pool<R>, leaf: u64) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.by_leaf.remove(&leaf) else { return false };
        pool.region().store_u64(at + 8, 0, Release);
        pool.region().persist(at + 8, 8);
        state.free.push(at);
        true
    }

    /// Passes the blocks to `visit`.
    pub(super) fn blocks<R: Region>(
        &self,
        pool: &Pool<R>,
        visit: &mut dyn FnMut(u64),
    ) -> Result<(), IndexError> {
        each_block(pool, self.first_at, visit)
    }
}

fn each_block<R: Region>(
    pool: &Pool<R>,
    first_at: u64,
    visit: &mut dyn FnMut(u64),
) -> Result<(), IndexError> {
    let mut block = pool.region().load_u64(first_at, Acquire);
    let mut left = pool.region().len() / BLOCK_BYTES;
    while block != 0 {
        pool.check(block, BLOCK_BYTES)?;
        left = left.checked_sub(1).ok_or_else(|| IndexError::damaged(block, "posts in a ring"))?;
        visit(block);
        block = pool.region().load_u64(block, Acquire);
    }
    Ok(())
}
