//! Lists: consecutive blocks of entries that readers hold in memory as a whole.

use crate::error::StoreError;
use crate::types::{Expiry, Value};

use super::block::{BlockBuilder, BlockKind, Body, Record};
use super::bytes::common_prefix;
use super::ends::ListPlace;
use crate::run::write::output::Output;

/// An entry of a list.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct ListEntry<'a> {
    pub(in crate::run) key: &'a [u8],
    pub(in crate::run) delta: u64,
    pub(in crate::run) value: Value<'a>,
}

/// Writes a list of entries that are in order.
pub(in crate::run) fn write<'a>(
    output: &mut Output,
    kind: BlockKind,
    block_bytes: usize,
    entries: impl Iterator<Item = ListEntry<'a>>,
) -> Result<ListPlace, StoreError> {
    let first = output.address().page;
    let mut block = BlockBuilder::new(kind, 0, block_bytes);
    for entry in entries {
        let body = Body::Value(entry.value);
        let record = Record { key: entry.key, delta: entry.delta, expiry: Expiry(0), body };
        let shared = common_prefix(block.last_key(), entry.key);
        if !block.add(&record, shared) {
            output.append(block.finish(output.address()))?;
            block.clear();
            block.add(&record, shared);
        }
    }
    if !block.is_empty() {
        output.append(block.finish(output.address()))?;
    }
    let pages = output.address().page - first;
    Ok(if pages == 0 { ListPlace::default() } else { ListPlace { page: first, pages } })
}
