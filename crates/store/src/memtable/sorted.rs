//! The records of a generation in the order of their keys, for a flush: the [chunks](super::chunk)
//! that were sorted while it was written, and chunks of what they lack.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Generation;
use super::chunk::Chunk;
use super::merge::Merge;
pub(crate) use super::merge::Merged;
use crate::StoreError;
use crate::types::{KvsId, Sequence};

/// The records of a generation, sorted.
#[derive(Debug)]
pub(crate) struct InOrder<'a> {
    generation: &'a Generation,
    chunks: BTreeMap<KvsId, Vec<Arc<Chunk>>>,
}

/// A `Kvs`'s records in the order of their keys, and of one key with the newest first.
pub(crate) struct RecordsInOrder<'a>(Option<Merge<'a>>);

impl Generation {
    /// Sorts the records up to `last`, as far as they are not sorted. It calls `give_way` now and
    /// then.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(crate) fn in_order(
        &self,
        last: Sequence,
        give_way: &dyn Fn(),
    ) -> Result<InOrder<'_>, StoreError> {
        Ok(InOrder { generation: self, chunks: self.ordered.complete(last, give_way)? })
    }
}

impl InOrder<'_> {
    /// Returns the records of a `Kvs`.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(crate) fn records(&self, kvs: KvsId) -> Result<RecordsInOrder<'_>, StoreError> {
        let Some(chunks) = self.chunks.get(&kvs) else { return Ok(RecordsInOrder(None)) };
        let chunks = chunks.iter().map(|chunk| (chunk.clone(), 0)).collect();
        let merge = Merge::new(&self.generation.segments, chunks, false)?;
        Ok(RecordsInOrder(Some(merge)))
    }
}

impl RecordsInOrder<'_> {
    /// Returns the next record.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(crate) fn next(&mut self) -> Result<Option<Merged<'_>>, StoreError> {
        self.0.as_mut().map_or(Ok(None), Merge::next)
    }
}
