//! Several stores as one, each in a directory of its own: a key belongs to one of them by its hash.

use std::hash::BuildHasher;

use entresol_measure::BenchError;
use entresol_media::files;
use foldhash::fast::FixedState;

use super::{Engine, Open, Opening, SpaceHeld, VolumeWritten, YcsbOptions};

struct Shards(Vec<Box<dyn Engine>>);

/// Opens the store, or all shards of it.
pub(super) fn open(
    options: &YcsbOptions,
    open: Open<'_>,
    create: bool,
) -> Result<Box<dyn Engine>, BenchError> {
    if options.shards == 1 {
        return open(&Opening { directory: &options.directory, create, options });
    }
    let directory = |number: usize| options.directory.join(format!("shard-{number}"));
    if !create && files::exists(&directory(options.shards)) {
        let (there, given) = (options.directory.display(), options.shards);
        return Err(BenchError::Usage(format!(
            "{there} has more than {given} shards: give --shards as it was when they were loaded"
        )));
    }
    let of_shard = options.of_shard();
    let shard = |number: usize| {
        open(&Opening { directory: &directory(number), create, options: &of_shard })
    };
    let shards: Result<Vec<_>, BenchError> = (0..options.shards).map(shard).collect();
    Ok(Box::new(Shards(shards?)))
}

impl Shards {
    fn of(&self, key: &[u8]) -> &dyn Engine {
        let hash = FixedState::with_seed(0).hash_one(key);
        &*self.0[(hash % self.0.len() as u64) as usize]
    }
}

impl Engine for Shards {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.of(key).put(key, value)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError> {
        self.of(key).get(key, out)
    }

    fn scan(
        &self,
        _from: &[u8],
        _most: usize,
        _show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError> {
        Err(BenchError::Usage("keys of several shards are in no order".to_owned()))
    }

    fn sync(&self) -> Result<(), BenchError> {
        self.0.iter().try_for_each(|shard| shard.sync())
    }

    fn medium(&self) -> &'static str {
        self.0.first().map_or("file", |shard| shard.medium())
    }

    fn written(&self) -> Result<Vec<VolumeWritten>, BenchError> {
        let mut all = Vec::new();
        for shard in &self.0 {
            all.extend(shard.written()?);
        }
        Ok(all)
    }

    fn space(&self) -> Result<Option<SpaceHeld>, BenchError> {
        let mut all = SpaceHeld::default();
        for shard in &self.0 {
            let Some(SpaceHeld { value_bytes, slowed }) = shard.space()? else { return Ok(None) };
            all.value_bytes += value_bytes;
            all.slowed += slowed;
        }
        Ok(Some(all))
    }

    fn finish_flushes(&self, is_stopped: &dyn Fn() -> bool) -> Result<(), BenchError> {
        self.0.iter().try_for_each(|shard| shard.finish_flushes(is_stopped))
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.0.iter().try_for_each(|shard| shard.settle())
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        self.0.into_iter().try_for_each(|shard| shard.close())
    }
}
