//! Making a tree, and opening it.
//!
//! The root leads to an anchor: the type of the tree, the first leaf, the first block of posts.
//! Opening reads only the posts and builds the guide from them, node by node. About every twentieth
//! leaf has one, so from the first answer on a key is a few links away. Threads that walk over
//! other leaves add them to the guide, and [blocks](crate::Persistent::blocks), as a sweep of the
//! pool calls it in the background, adds all.

use std::cmp::Ordering;
use std::sync::Arc;

use entresol_media::Region;

use super::ground::Ground;
use super::leaf::{Leaf, Link};
use super::leaves::{HEAD_AT, Leaves};
use super::posts::{Post, Posts};
use crate::keys::Keys;
use crate::latch::Latches;
use crate::root::{Tag, WORDS, durable};
use crate::settled::Settled;
use crate::{IndexError, Pool};

pub(super) const ANCHOR_BYTES: u64 = 8 * WORDS as u64;
const POSTS_AT: u64 = 16;

/// Returns the first word of an anchor.
fn tag<R: Region, K: Keys<R>>(lines: usize) -> Tag {
    let keys = match (K::WHOLE, K::OWNS) {
        (true, _) => b'w',
        (false, true) => b'r',
        (false, false) => b'o',
    };
    Tag([b's', b'v', b't', b'r', b'e', b'e', keys, b'0' + lines as u8])
}

/// Opens the leaves at this root of the pool, or makes the first if the root is 0. Also returns the
/// posts, and a first guide: leaves with their lows, in order.
#[expect(clippy::type_complexity, reason = "three parts of one tree, taken apart at once")]
pub(super) fn open<R: Region, K: Keys<R>, const LINES: usize>(
    pool: &Arc<Pool<R>>,
    root: usize,
    keys: K,
) -> Result<(Leaves<R, K, LINES>, Posts, Vec<Post>), IndexError> {
    let (anchor, head) = match tag::<R, K>(LINES).find(pool, root)? {
        Some((anchor, words)) => (anchor, words[HEAD_AT as usize / 8]),
        None => make::<R, K, LINES>(pool, root)?,
    };
    pool.check(head, Leaf::<LINES>::BYTES)?;
    let (posts, named) = Posts::load(pool, anchor + POSTS_AT)?;
    durable(pool.region())?;
    let ground = Ground { pool: pool.clone(), keys };
    let known = in_order::<R, K, LINES>(&ground, head, named)?;
    let settled = Settled::new(pool, Leaf::<LINES>::BYTES)?;
    Ok((Leaves { ground, anchor, latches: Latches::new(), settled }, posts, known))
}

/// Returns the first leaf and the named ones, in the order of their lows.
fn in_order<R: Region, K: Keys<R>, const LINES: usize>(
    ground: &Ground<R, K>,
    head: u64,
    named: Vec<Post>,
) -> Result<Vec<Post>, IndexError> {
    let mut posts = Vec::with_capacity(named.len());
    for post in named {
        ground.check(post.leaf, LINES)?;
        posts.push((ground.low_word(post.low, 0)?, post));
    }
    let compare = |one: u64, other: u64| {
        let mut scratch = K::Scratch::default();
        ground.compare_low(one, ground.low_key(other, &mut scratch)?)
    };
    let mut damage = Ok(());
    posts.sort_unstable_by(|(one_word, one), (other_word, other)| {
        one_word.cmp(other_word).then_with(|| match compare(one.low, other.low) {
            _ if K::WHOLE => Ordering::Equal,
            Ok(order) => order,
            Err(error) => {
                damage = Err(error);
                Ordering::Equal
            }
        })
    });
    damage?;
    let mut known: Vec<Post> = Vec::with_capacity(posts.len() + 1);
    known.push(Post { low: 0, leaf: head });
    for (_, post) in posts {
        // A post whose low does not rise is useless; its leaf is found by links.
        let last = known[known.len() - 1].low;
        let rises = match (last, post.low) {
            _ if K::WHOLE => last < post.low,
            (_, 0) => false,
            (0, _) => true,
            _ => compare(last, post.low)?.is_lt(),
        };
        if rises {
            known.push(post);
        }
    }
    Ok(known)
}

/// Makes an empty tree; returns the offsets of its anchor and its first leaf.
fn make<R: Region, K: Keys<R>, const LINES: usize>(
    pool: &Pool<R>,
    root: usize,
) -> Result<(u64, u64), IndexError> {
    let head = pool.allocate(Leaf::<LINES>::BYTES)?;
    // The anchor's drain, before the root leads to it, covers this.
    Leaf::<LINES>::new(head, Link::new(0, 0), 0).write(pool.region());
    let mut words = [0; WORDS];
    words[HEAD_AT as usize / 8] = head;
    let anchor = tag::<R, K>(LINES).make(pool, root, words);
    Ok((anchor.inspect_err(|_| pool.free(head))?, head))
}
