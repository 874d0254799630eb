//! The block that a root leads to: a word that identifies the type of index, then the index's own
//! words.

use std::sync::atomic::Ordering::Relaxed;

use entresol_media::Region;

use crate::{IndexError, Pool};

/// Words of a root block: one line.
pub(crate) const WORDS: usize = 8;
const BYTES: u64 = 8 * WORDS as u64;

/// Bit in the low six of a root word that is set if keys lie in records, of any length. The bits
/// below it hold the number of lines of a node.
pub(crate) const RECORDS_BIT: u64 = 16;

/// First word of an index's root block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) [u8; 8]);

impl Tag {
    /// Returns the name of the index with this tag; `None` if no index has it.
    pub(crate) fn meaning(self) -> Option<String> {
        let name = match &self.0 {
            b"WB-TREE1" => "a wb-tree",
            b"FP-TREE1" => "an fp-tree",
            b"SKIPLIST" => "a skip-list",
            b"HASHTAB1" => "a hash table (of a hybrid-index)",
            [b's', b'v', b't', b'r', b'e', b'e', keys, lines] => {
                let keys = match keys {
                    b'w' => "keys of eight bytes",
                    b'r' => "keys of any length",
                    b'o' => "keys that lie outside of the pool",
                    _ => return None,
                };
                let lines = lines.checked_sub(b'0').filter(|it| matches!(it, 2 | 4 | 8 | 16))?;
                let node_bytes = 64 * u64::from(lines);
                return Some(format!("an sv-tree with {keys} and nodes of {node_bytes} bytes"));
            }
            _ => return None,
        };
        Some(name.to_owned())
    }

    /// Returns the root block at this root and its words; `None` if the root is 0.
    pub(crate) fn find<R: Region>(
        self,
        pool: &Pool<R>,
        slot: usize,
    ) -> Result<Option<(u64, [u64; WORDS])>, IndexError> {
        let at = pool.root(slot);
        if at == 0 {
            return Ok(None);
        }
        let asked = self.meaning().unwrap_or_else(|| String::from_utf8_lossy(&self.0).into());
        if let Some(found) = known(pool, slot)
            && found != asked
        {
            return Err(IndexError::OtherIndex { root: slot, found, asked });
        }
        // Visible, but perhaps not durable: a process may have been killed just before.
        pool.region().persist(pool.check(at, BYTES)?, BYTES as usize);
        let words = pool.region().load_line(at);
        if words[0].to_le_bytes() != self.0 {
            let what = format!("root {slot} of the pool leads here, but this is not an index");
            return Err(IndexError::damaged(at, what));
        }
        Ok(Some((at, words)))
    }

    /// Makes a root block, durably, and points the root at it. The first word is the tag.
    pub(crate) fn make<R: Region>(
        self,
        pool: &Pool<R>,
        slot: usize,
        mut words: [u64; WORDS],
    ) -> Result<u64, IndexError> {
        let at = pool.allocate(BYTES)?;
        words[0] = u64::from_le_bytes(self.0);
        pool.region().write(at, words.map(u64::to_le_bytes).as_flattened());
        pool.region().persist(at, BYTES as usize);
        pool.set_root(slot, at);
        durable(pool.region())?;
        Ok(at)
    }
}

/// Names the index that a root leads to, if it is one. Sorted trees have no root block: the root
/// leads to their root node, and its low six bits identify them.
pub(crate) fn known<R: Region>(pool: &Pool<R>, slot: usize) -> Option<String> {
    let word = pool.root(slot);
    let (at, kind) = (word & !63, word & 63);
    pool.check(at, BYTES).ok()?;
    match kind {
        0 => Tag(pool.region().load_u64(at, Relaxed).to_le_bytes()).meaning(),
        _ if (2..=8).contains(&(kind & !RECORDS_BIT)) => Some(sorted(kind & RECORDS_BIT)),
        _ => None,
    }
}

/// Names a tree of sorted nodes by the records bit of its root. The name covers both styles: each
/// opens the other's trees.
pub(crate) fn sorted(records_bit: u64) -> String {
    let keys = if records_bit == 0 { "eight bytes" } else { "any length" };
    format!("an ods or fast-fair tree with keys of {keys}")
}

/// Checks that everything flushed is durable.
#[inline]
pub(crate) fn durable<R: Region>(region: &R) -> Result<(), IndexError> {
    match region.sync_failure() {
        None => Ok(()),
        Some(error) => Err(IndexError::NotDurable(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use entresol_media::Direct;

    use super::*;
    use crate::keys::{Bytes, Inline};
    use crate::reference::published::PublishedOds;
    use crate::testing::pool;
    use crate::{FastFair, FpTree, HybridIndex, Ods, Persistent, SkipList, SvTree, WbTree};

    type On = Arc<Pool<Direct>>;

    /// Opens an index with its defaults; returns the reason if it cannot be opened.
    fn open<I: Persistent<Direct>>(pool: &On, slot: usize) -> Result<(), IndexError> {
        I::open(pool, slot, &I::Options::default()).map(drop)
    }

    type Open = fn(&On, usize) -> Result<(), IndexError>;

    const ALL: [(&str, Open); 9] = [
        ("an ods or fast-fair tree with keys of eight bytes", open::<FastFair<Direct>>),
        ("an ods or fast-fair tree with keys of any length", open::<Ods<Direct, Bytes>>),
        ("an sv-tree with keys of eight bytes and nodes of 256", open::<SvTree<Direct>>),
        ("an sv-tree with keys of any length", open::<SvTree<Direct, Bytes>>),
        ("keys of eight bytes and nodes of 1024 bytes", open::<SvTree<Direct, Inline, 16>>),
        ("a wb-tree", open::<WbTree<Direct>>),
        ("an fp-tree", open::<FpTree<Direct>>),
        ("a skip-list", open::<SkipList<Direct>>),
        ("of a hybrid-index", open::<HybridIndex<Direct>>),
    ];

    /// Every refused opening leaves the index that is there unchanged.
    #[test]
    fn an_index_of_another_type_is_named_beside_the_one_that_was_asked_for() {
        for (found, make) in ALL {
            let pool = pool(4 << 20);
            make(&pool, 3).expect("room");
            let refused = |asked: &str, open: Open| {
                let error = open(&pool, 3).expect_err("another type");
                assert!(matches!(error, IndexError::OtherIndex { root: 3, .. }), "{error}");
                let said = error.to_string();
                let (is, was_asked) = said.split_once(", but ").expect("both");
                assert!(is.contains(found) && was_asked.contains(asked), "{said}");
                assert!(said.ends_with("open it by its own type, or give another root"), "{said}");
            };
            ALL.iter().filter(|(name, _)| *name != found).for_each(|(name, it)| refused(name, *it));
            refused("as it was published", open::<PublishedOds<Direct>>);
            make(&pool, 3).expect("it is whole");
        }
    }

    #[test]
    fn a_root_that_leads_to_nothing_known_is_damage() {
        let pool = pool(1 << 20);
        let block = pool.allocate(64).expect("room");
        for word in [block, block + 1, block + 9, block + 33, 7] {
            pool.region()
                .write(block, b"svtreew\0and nothing more than this is in here, no index's");
            pool.set_root(0, word);
            for (name, open) in ALL {
                let error = open(&pool, 0).expect_err("nothing");
                assert!(matches!(error, IndexError::Damaged { .. }), "{name}: {error}");
            }
        }
    }
}
