//! Sizes of blocks: four to each doubling, so that at most a fifth of a block is unused.

/// Sizes of a pool's blocks.
#[derive(Debug)]
pub(super) struct Classes {
    bytes: Vec<u64>,
    chunk_bytes: u64,
}

/// Bytes of the smallest block.
const LEAST_BYTES: u64 = 32;

impl Classes {
    /// Returns the classes of a pool with chunks of this size: up to a quarter of a chunk.
    pub(super) fn of(chunk_bytes: u64) -> Classes {
        let mut bytes = Vec::new();
        let mut doubled = LEAST_BYTES;
        while doubled <= chunk_bytes / 4 {
            let quarters = (4..8).map(|quarter| doubled / 4 * quarter);
            bytes.extend(quarters.filter(|&it| it.is_multiple_of(16) && it <= chunk_bytes / 4));
            doubled *= 2;
        }
        Classes { bytes, chunk_bytes }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the class of blocks that hold these bytes, unless only whole chunks do. Multiples of
    /// 64 get a class of whole lines.
    pub(super) fn holding(&self, bytes: u64) -> Option<usize> {
        let first = self.bytes.partition_point(|&it| it < bytes);
        let whole_lines = bytes.is_multiple_of(64);
        let fits = |&class: &usize| !whole_lines || self.bytes[class].is_multiple_of(64);
        (first..self.bytes.len()).find(fits)
    }

    /// Returns the bytes of a class's blocks.
    pub(super) fn bytes(&self, class: usize) -> Option<u64> {
        self.bytes.get(class).copied()
    }

    /// Returns the number of a class's blocks in a chunk.
    pub(super) fn blocks(&self, class: usize) -> u64 {
        self.bytes.get(class).map_or(0, |bytes| self.chunk_bytes / bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_at_most_a_half_at_first_and_a_quarter_later() {
        let classes = Classes::of(64 << 10);
        assert_eq!(classes.bytes[..8], [32, 48, 64, 80, 96, 112, 128, 160]);
        assert_eq!(classes.bytes.last(), Some(&(16 << 10)));
        for pair in classes.bytes.windows(2).filter(|pair| pair[0] >= 64) {
            assert!(pair[1] * 4 <= pair[0] * 5, "{pair:?}");
        }
    }

    #[test]
    fn nodes_lie_on_whole_lines() {
        let classes = Classes::of(64 << 10);
        for bytes in (64..=16 << 10).step_by(64) {
            let class = classes.holding(bytes).expect("a class");
            let found = classes.bytes(class).expect("its size");
            assert!(found >= bytes && found.is_multiple_of(64), "{bytes}: {found}");
        }
        assert_eq!(classes.holding(1 << 15), None);
        assert_eq!(classes.holding(33).and_then(|class| classes.bytes(class)), Some(48));
    }
}
