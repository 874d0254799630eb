//! State shared by all threads of a cache, in rooms that stand one above the other: `writers`;
//! `items` with `evict` and `key_limit`; `append`; `space` with `seal` and `pieces`; then
//! `vacancy`, `logs`, `flushes`, `budget` and `records`.

pub(crate) mod append;
mod balance;
pub(crate) mod budget;
mod evict;
mod flushes;
mod ghost;
pub(crate) mod items;
mod key_limit;
mod logs;
mod pieces;
pub(crate) mod records;
mod seal;
pub(crate) mod space;
mod vacancy;
pub(crate) mod writers;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use entresol_base::Clock;
use entresol_base::hash::KeyHasher;
use entresol_base::sync::Mutex;
use entresol_media::Account;

use crate::config::Config;
use crate::config::plan::Plan;
use crate::error::OpenError;
use crate::index::Index;
use crate::media::{LocalFiles, Medium, RestartFiles};
use crate::restart::Restart;
use crate::shared::items::Items;
use crate::shared::key_limit::KeyLimit;
use crate::shared::records::Records;
use crate::shared::space::Space;
use crate::shared::writers::Writers;
use crate::statistics::Counters;
use crate::values::Values;

/// Names the files of a tenant in its restart directory.
fn local_files(dir: &Path, config: &Config) -> Result<Arc<dyn RestartFiles>, OpenError> {
    let files = LocalFiles::in_directory(dir, &config.name);
    let files = files.map_err(|cause| OpenError::RestartDir {
        tenant: config.name.clone(),
        path: dir.to_owned(),
        cause,
    })?;
    Ok(Arc::new(files))
}

/// State shared by all threads of a cache.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) items: Items,
    pub(crate) writers: Writers,
    pub(crate) account: Arc<Account>,
    pub(crate) worker_counters: Mutex<Vec<Arc<Counters>>>,
    pub(crate) next_worker: AtomicUsize,
    /// Segments of values that are still arriving.
    pub(crate) arriving_segments: AtomicU64,
    /// Places that are reserved for values that are still to arrive, and how many may be.
    pub(crate) reservations: AtomicU64,
    pub(crate) reservations_max: u64,
    pub(crate) clock: Arc<dyn Clock>,
    /// Set once the cache was closed; locked by upkeep and by saving.
    pub(crate) closed: Mutex<bool>,
}

impl Shared {
    /// Opens the medium and makes the state of an empty cache; the restart directory's remains wait
    /// to be restored.
    pub(crate) fn open(config: &Config, clock: Arc<dyn Clock>) -> Result<Arc<Self>, OpenError> {
        let files = match &config.restart_dir {
            Some(dir) => Some(local_files(dir, config)?),
            None => None,
        };
        let saved = files.as_deref().and_then(Restart::saved_segment_bytes);
        let plan = Plan::make(config, saved)?;
        let (values, account) = Values::open(config, &plan)?;
        Shared::with(config, &plan, values, account, files, clock)
    }

    /// Makes the state of an empty cache on a medium that the caller has opened.
    pub(crate) fn open_on(
        config: &Config,
        medium: Medium,
        files: Option<Arc<dyn RestartFiles>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, OpenError> {
        let saved = files.as_deref().and_then(Restart::saved_segment_bytes);
        let plan = Plan::make(config, saved)?;
        let (values, account) = Values::over(medium, config, &plan)?;
        Shared::with(config, &plan, values, account, files, clock)
    }

    fn with(
        config: &Config,
        plan: &Plan,
        values: Values,
        account: Arc<Account>,
        files: Option<Arc<dyn RestartFiles>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, OpenError> {
        let restart = match files {
            Some(files) => Some(Restart::open(files, config, plan, &values, clock.seconds())?),
            None => None,
        };
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let hasher = config.seed.map_or_else(KeyHasher::random, KeyHasher::seeded);
        let records = Records::new(plan, values, hasher)?;
        let index = Index::new(plan.table_bytes_max, config.huge_pages)?;
        let space = Space::new(plan, config.favour, records, restart, index.bytes())?;
        let key_limit = KeyLimit::none();
        let items = Items { index, space, key_limit, counters: Counters::default() };
        let shared = Arc::new(Shared {
            name: config.name.clone(),
            items,
            writers: Writers::new(plan, seed, &account),
            account,
            worker_counters: Mutex::new(Vec::new()),
            next_worker: AtomicUsize::new(0),
            arriving_segments: AtomicU64::new(0),
            reservations: AtomicU64::new(0),
            reservations_max: plan.reservations,
            clock,
            closed: Mutex::new(false),
        });
        seal::start_writer(&shared)?;
        Ok(shared)
    }

    /// Frees segments of a value that was arriving. They are counted until they are free, since
    /// others that lack room wait for those that arrive.
    pub(crate) fn free_arriving(&self, segments: &[u32]) {
        self.space().free_pieces(segments);
        self.arriving_segments.fetch_sub(segments.len() as u64, Ordering::Relaxed);
    }

    /// Returns the space that items take.
    #[inline(always)]
    pub(crate) fn space(&self) -> &Space {
        &self.items.space
    }

    /// Returns the bytes of records and values.
    #[inline(always)]
    pub(crate) fn records(&self) -> &Records {
        &self.items.space.records
    }
}
