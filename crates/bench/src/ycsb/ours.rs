//! This project's own store, measured like any other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::SystemClock;
use entresol_measure::BenchError;
use entresol_media::{Directory, LocalDirectory, ModelName};
use entresol_store::{
    CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, MediaClass, MediumStatistics,
    StallStatistics, Statistics, StoreError, Volume,
};

use super::{Engine, Opening, SpaceHeld, VolumeWritten, YcsbOptions};

const NAME: &str = "ycsb";
/// Memory that a store needs in addition to its caches, however small they are.
const APART_BYTES: u64 = 13 << 20;
/// Interval between looks at memtables that are being flushed.
const FLUSH_POLL: Duration = Duration::from_millis(2);

/// Store with one `Kvs`.
#[derive(Debug)]
pub struct Entresol {
    store: Kvdb,
    kvs: Kvs,
}

impl Entresol {
    /// Name in reports.
    pub const NAME: &'static str = "entresol";

    /// Creates or opens the store.
    ///
    /// # Errors
    /// Fails if the directory is not available or the options do not fit.
    pub fn open(opening: &Opening<'_>) -> Result<Entresol, BenchError> {
        let options = options(opening);
        let YcsbOptions { model, capacity, policy, .. } = opening.options;
        let home = open_directory(opening.directory, opening.create, *model)?;
        let capacity = match capacity {
            Some(it) => Some((open_directory(&it.directory, opening.create, it.model)?, it)),
            None => None,
        };
        let clock = Arc::new(SystemClock::new());
        let store = if opening.create {
            let class = opening.options.fast_class();
            let bytes_max = capacity.as_ref().and_then(|(_, it)| it.fast_bytes_max);
            let bytes_max = bytes_max.map(|bytes| bytes.0);
            let mut volumes = vec![Volume { class, directory: home, bytes_max }];
            volumes.extend(capacity.map(|(directory, _)| Volume {
                class: MediaClass::Capacity,
                directory,
                bytes_max: None,
            }));
            Kvdb::create_on(&volumes, options, clock)
        } else {
            let given: Vec<_> = capacity.map(|(directory, _)| directory).into_iter().collect();
            Kvdb::open_on(home, &given, options, clock)
        };
        let store = store.map_err(|it| failed(&it))?;
        let kvs = match (opening.create, policy) {
            (true, policy) => {
                let policy = policy.unwrap_or_default();
                store.create_kvs(NAME, KvsOptions { policy, ..KvsOptions::default() })
            }
            (false, None) => store.kvs(NAME),
            (false, Some(policy)) => store.set_policy(NAME, *policy).and_then(|()| store.kvs(NAME)),
        };
        Ok(Entresol { kvs: kvs.map_err(|it| failed(&it))?, store })
    }
}

fn open_directory(
    path: &Path,
    create: bool,
    model: Option<ModelName>,
) -> Result<Arc<dyn Directory>, BenchError> {
    let directory = match create {
        true => LocalDirectory::open(path),
        false => LocalDirectory::open_existing(path),
    };
    let directory = match model {
        Some(model) => directory.and_then(|directory| directory.slowed(model)),
        None => directory,
    };
    Ok(Arc::new(directory.map_err(|it| failed(&it.into()))?))
}

fn options(opening: &Opening<'_>) -> KvdbOptions {
    let mut options = KvdbOptions { pmem: opening.options.pmem, ..KvdbOptions::default() };
    if let Some(cache) = opening.options.cache_bytes {
        // The row cache gets half. The block cache gets the remainder of the memory, which is half
        // or more.
        options.row_cache_bytes = (cache.0 / 2).max(128 << 10);
        options.memory_bytes = 2 * cache.0 + APART_BYTES;
    }
    if let Some(memory) = opening.options.memory_bytes {
        options.memory_bytes = memory.0;
    }
    if let Some(bound) = opening.options.space_bound {
        options.space_amplification_max = Some(bound);
        options.space_amplification_target = bound;
    }
    options.hot_share = opening.options.hot_share.unwrap_or(options.hot_share);
    if let Some(generation) = opening.options.generation_bytes {
        options.generation_bytes = generation.0;
        options.segment_bytes = options.segment_bytes.min(generation.0);
    }
    options
}

fn failed(error: &StoreError) -> BenchError {
    use StoreError::{NoKvs, NoStore, Options, Policy};
    use std::io::ErrorKind::{NotADirectory, NotFound};
    let is_wrong_path = match error {
        StoreError::File(error) => matches!(error.kind(), NotFound | NotADirectory),
        _ => false,
    };
    let is_usage = matches!(error, Policy { .. } | Options { .. } | NoStore { .. } | NoKvs { .. });
    if is_usage || is_wrong_path {
        return BenchError::Usage(error.to_string());
    }
    BenchError::Engine { engine: Entresol::NAME, what: error.to_string() }
}

impl Engine for Entresol {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.kvs.put(key, value).map(drop).map_err(|it| failed(&it))
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError> {
        self.kvs.get_into(key, out).map_err(|it| failed(&it))
    }

    fn scan(
        &self,
        from: &[u8],
        most: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError> {
        let options = CursorOptions { limit: Some(most as u64), ..CursorOptions::default() };
        let mut cursor = self.kvs.cursor(options).map_err(|it| failed(&it))?;
        cursor.seek(from);
        for _ in 0..most {
            match cursor.next().map_err(|it| failed(&it))? {
                Some((key, value)) => show(key, value),
                None => break,
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BenchError> {
        self.store.sync().map_err(|it| failed(&it))
    }

    fn medium(&self) -> &'static str {
        let of = |statistics: Statistics| statistics.media.first()?.kind;
        self.store.statistics().ok().and_then(of).unwrap_or("file")
    }

    fn written(&self) -> Result<Vec<VolumeWritten>, BenchError> {
        let media = self.store.statistics().map_err(|it| failed(&it))?.media;
        let written = |medium: MediumStatistics| VolumeWritten {
            class: medium.class,
            directory: medium.path.into(),
            written: medium.written,
        };
        Ok(media.into_iter().map(written).collect())
    }

    fn space(&self) -> Result<Option<SpaceHeld>, BenchError> {
        let Statistics { media, stalls, .. } = self.store.statistics().map_err(|it| failed(&it))?;
        let StallStatistics { slope, wall, late_sync, space, memtable_image, .. } = stalls;
        let delays = [slope, wall, late_sync, space, memtable_image];
        Ok(Some(SpaceHeld {
            value_bytes: media.iter().map(|medium| medium.space.value_bytes).sum(),
            slowed: Duration::from_micros(delays.iter().map(|stall| stall.total_us).sum()),
        }))
    }

    fn finish_flushes(&self, is_stopped: &dyn Fn() -> bool) -> Result<(), BenchError> {
        let waiting = || Ok(self.store.statistics()?.debt.generations_waiting);
        while waiting().map_err(|it| failed(&it))? > 0 && !is_stopped() {
            // It reports that flushing has failed.
            self.sync()?;
            std::thread::sleep(FLUSH_POLL);
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.store.compact().map_err(|it| failed(&it))
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        self.store.close().map_err(|it| failed(&it))
    }
}
