//! Trees against a reference, with and without crashes.

use std::collections::BTreeMap;

use entresol_base::rng::Rng;
use entresol_media::Direct;

use super::*;
use crate::keys::Bytes;
use crate::testing::{self, pool};

mod counts;
mod crashes;
mod damage;
mod model;
mod posts;
mod threads;

/// Returns the contents of a tree forwards; backwards they must be equal.
fn all<R: Region, K: Keys<R>, const LINES: usize>(
    tree: &SvTree<R, K, LINES>,
) -> Vec<(<K::Key as ToOwned>::Owned, u64)>
where
    <K::Key as ToOwned>::Owned: PartialEq + std::fmt::Debug,
{
    let records = |direction| {
        let mut found = Vec::new();
        let ranged = tree.range(Bound::Unbounded, direction, &mut |key, value| {
            found.push((key.to_owned(), value));
            Flow::On
        });
        ranged.expect("no damage");
        found
    };
    let (forward, mut backward) = (records(Direction::Forward), records(Direction::Backward));
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}
