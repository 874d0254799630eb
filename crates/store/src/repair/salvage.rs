//! Salvage: copies everything that can be read of a damaged store into a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::Clock;
use entresol_media::{BlockOptions, Directory, LocalDirectory};
use serde::Serialize;

use crate::StoreError;
use crate::api::kvdb::Kvdb;
use crate::api::kvs::Kvs;
use crate::cache::block::BlockCache;
use crate::manifest::{KvsState, Manifest, RunState};
use crate::names;
use crate::options::{KvdbOptions, KvsOptions};
use crate::repair::check::{
    CACHE_BYTES, CheckReport, Finding, guess, leads_there, load_or_guess, open_volumes, shown,
};
use crate::repair::source::Source;
use crate::repair::unfinished::{self, Unfinished};
use crate::run::read::scan::{Piece, scan};
use crate::segment::Segment;
use crate::segment::record::{Draft, Kind, Record};
use crate::types::{Entry, Expiry, KvsId, SegmentNumber, Value};
use crate::volumes::{MissingVolumeState, Volumes, check_apart, check_outside};
use crate::wal::scan as log_scan;

/// Report of a salvage: copied data and lost data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SalvageReport {
    /// Each `Kvs` of the new store.
    pub kvs: Vec<SalvagedKvs>,
    /// Damage that was found, up to a thousand findings.
    pub findings: Vec<Finding>,
    /// Number of further findings.
    pub findings_left_out: u64,
    /// Writes of the log that were copied.
    pub log_records: u64,
    /// True if writes of the log could not be read: keys may be missing or have an older value, and
    /// deleted keys may be back. Which ones is unknown.
    pub log_has_gaps: bool,
    /// Latest time that the damaged store has seen, in seconds since 1970; 0 if it is unknown. If
    /// the clock is far ahead of it and wrong, values with a time to live count as expired in the
    /// copy for ever.
    pub time_s: u32,
}

/// Progress of a salvage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SalvageProgress {
    /// Versions of keys and writes of the log that were read so far.
    pub records: u64,
}

/// Number of records between two reports of progress.
const RECORDS_A_LOOK: u64 = 64;

/// Report on a `Kvs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SalvagedKvs {
    /// Name of the `Kvs`. If its name is lost, it is `kvs-` and the number.
    pub name: String,
    /// Versions of keys that were copied. A key may have had several, of which the newest counts.
    pub versions: u64,
    /// Keys whose newest value could not be read. The new store lacks these keys, rather than
    /// having an older value.
    pub values_lost: u64,
    /// True if some pages could not be read: keys on them are missing, or have an older value.
    pub has_gaps: bool,
}

/// Copies everything that can be read of a store in a directory of this machine into a new one. See
/// [`salvage`].
///
/// ```
/// # fn main() -> Result<(), entresol_store::StoreError> {
/// # let scratch = tempfile::tempdir().expect("a directory");
/// # let (from, to) = (scratch.path().join("store"), scratch.path().join("new"));
/// use std::ops::ControlFlow;
///
/// use entresol_store::{Kvdb, KvdbOptions, KvsOptions, salvage_at};
///
/// let store = Kvdb::create_at(&from, KvdbOptions::default())?;
/// store.create_kvs("users", KvsOptions::default())?.put(b"ada", b"1815")?;
/// store.close()?;
/// let go_on = &mut |_| ControlFlow::Continue(());
/// let report = salvage_at(&from, &to, KvdbOptions::default(), go_on)?.expect("it went on");
/// assert!(report.findings.is_empty() && report.kvs[0].name == "users");
/// let store = Kvdb::open_at(&to, KvdbOptions::default())?;
/// assert_eq!(store.kvs("users")?.get(b"ada")?, Some(b"1815".to_vec()));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails as [`salvage`] does.
pub fn salvage_at(
    from: &Path,
    to: &Path,
    options: KvdbOptions,
    progress: &mut dyn FnMut(SalvageProgress) -> ControlFlow<()>,
) -> Result<Option<SalvageReport>, StoreError> {
    check_apart(to, from)?;
    check_outside(to)?;
    let from: Arc<dyn Directory> = Arc::new(LocalDirectory::open_existing(from)?);
    let to: Arc<dyn Directory> = Arc::new(LocalDirectory::open(to)?);
    salvage(&from, to, options, Arc::new(entresol_base::SystemClock::new()), progress)
}

/// Copies everything that can be read of a closed store into a new one in an empty directory. The
/// damaged store is not changed.
///
/// Each key gets the newest version that can be read. If the newest version is known and its value
/// cannot be read, the key is left out and counted. Where pages are lost, their keys are missing or
/// have an older value, and keys deleted there may be back: [`SalvagedKvs::has_gaps`] tells, and
/// [`SalvageReport::log_has_gaps`] of writes lost in the log. Writes of a damaged log are copied
/// one by one, so batches behind the damage may be there in part.
///
/// The copy is no store before it is complete and durable. Returns `None` if `progress` ended it
/// early; nothing is left of it then. What a crash leaves does not open, and the next copy to the
/// same directory replaces it.
///
/// # Errors
/// Fails if there is no store, another process has it open, its format is unknown, something around
/// it keeps it from being read (rights, a limit of open files, a renamed directory), or the new
/// store cannot be written. Nothing is left of the copy then.
pub fn salvage(
    from: &Arc<dyn Directory>,
    to: Arc<dyn Directory>,
    options: KvdbOptions,
    clock: Arc<dyn Clock>,
    progress: &mut dyn FnMut(SalvageProgress) -> ControlFlow<()>,
) -> Result<Option<SalvageReport>, StoreError> {
    let source = Source::over(from);
    let salvaged = salvage_source(&source, to, options, clock, progress);
    source.judge(salvaged, |_| true)
}

fn salvage_source(
    source: &Source,
    to: Arc<dyn Directory>,
    options: KvdbOptions,
    clock: Arc<dyn Clock>,
    progress: &mut dyn FnMut(SalvageProgress) -> ControlFlow<()>,
) -> Result<Option<SalvageReport>, StoreError> {
    let from = source.directory();
    let _lock = from.lock()?;
    let mut report = CheckReport::default();
    let manifest = load_or_guess(from, &mut report)?;
    // Of the copy as many may be open.
    source.needs(2 * manifest.descriptors());
    let volumes = open_volumes(from, &manifest)?;
    for MissingVolumeState { state, what } in volumes.missing() {
        let what = format!("the {} volume is missing: {what}", state.class);
        report.find(
            &state.path,
            0,
            what,
            "the files in it are missing; each follows below".to_owned(),
        );
    }
    report.find_labels(&volumes);
    let _lock_of_copy = to.lock()?;
    unfinished::begin(&*to)?;
    let mut is_stopped = false;
    let mut go_on = |it| {
        is_stopped |= progress(it).is_break();
        // The copy is removed, and the error is not shown.
        if is_stopped || source.has_failed() { Err(StoreError::Closed) } else { Ok(()) }
    };
    let target = Kvdb::create(Arc::new(Unfinished(to.clone())), options, clock);
    let copied = target.and_then(|it| copy(&volumes, &manifest, it, report, &mut go_on));
    match source.judge(copied, |report| report.findings.is_empty()) {
        Ok(report) => {
            unfinished::complete(&to)?;
            Ok(Some(report))
        }
        Err(error) => {
            unfinished::undo(&to);
            if is_stopped { Ok(None) } else { Err(error) }
        }
    }
}

/// Callback that fails once the copy is to end early.
type GoOn<'g> = dyn FnMut(SalvageProgress) -> Result<(), StoreError> + 'g;

/// Copies a store into a new one, which is closed in the end.
fn copy(
    volumes: &Volumes,
    manifest: &Manifest,
    target: Kvdb,
    report: CheckReport,
    go_on: &mut GoOn<'_>,
) -> Result<SalvageReport, StoreError> {
    let mut salvage = Salvage {
        from: volumes,
        target,
        pages: BlockCache::new(CACHE_BYTES),
        segments: BTreeMap::new(),
        missing: BTreeSet::new(),
        report,
        kvs: BTreeMap::new(),
        go_on,
        so_far: SalvageProgress::default(),
    };
    salvage.open_segments(manifest)?;
    for state in &manifest.kvs {
        (salvage.go_on)(salvage.so_far)?;
        salvage.make_kvs(state)?;
        // The oldest run comes first, so newer versions win.
        for &run in state.runs.iter().rev() {
            salvage.run(KvsId(state.id), run)?;
        }
    }
    let (log_records, log_has_gaps) = salvage.log(manifest)?;
    (salvage.go_on)(salvage.so_far)?;
    salvage.target.close()?;
    let CheckReport { findings, findings_left_out, .. } = salvage.report;
    let kvs = salvage.kvs.into_values().map(|(_, salvaged)| salvaged).collect();
    let time_s = manifest.seconds;
    Ok(SalvageReport { kvs, findings, findings_left_out, log_records, log_has_gaps, time_s })
}

struct Salvage<'a> {
    from: &'a Volumes,
    target: Kvdb,
    pages: Arc<BlockCache>,
    segments: BTreeMap<SegmentNumber, Segment>,
    missing: BTreeSet<SegmentNumber>,
    report: CheckReport,
    kvs: BTreeMap<KvsId, (Kvs, SalvagedKvs)>,
    go_on: &'a mut GoOn<'a>,
    so_far: SalvageProgress,
}

impl Salvage<'_> {
    /// Reports another version or write to `go_on`, now and then.
    fn advance(&mut self) -> Result<(), StoreError> {
        self.so_far.records += 1;
        match self.so_far.records % RECORDS_A_LOOK {
            0 => (self.go_on)(self.so_far),
            _ => Ok(()),
        }
    }

    fn open_segments(&mut self, manifest: &Manifest) -> Result<(), StoreError> {
        for number in manifest.segments() {
            let directory = self.from.directory_of(&names::of_segment(number));
            match Segment::open_blocks(&*directory, manifest.store, number) {
                Ok(segment) => drop(self.segments.insert(number, segment)),
                Err(error) if error.is_of_surroundings() => return Err(error),
                // Each version that refers to the segment reports its value as lost.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn make_kvs(&mut self, state: &KvsState) -> Result<(), StoreError> {
        let seconds = u64::from(state.time_to_live_s);
        let time_to_live = (seconds > 0).then(|| Duration::from_secs(seconds));
        let inline_bytes = state.inline_bytes.min(KvsOptions::INLINE_BYTES_MAX);
        // The new store may have other volumes than the old one.
        let policy = Some(state.policy)
            .filter(|it| self.target.core().files.volumes.check_policy(it).is_ok());
        let options = KvsOptions { inline_bytes, time_to_live, policy: policy.unwrap_or_default() };
        let mut name = state.name.clone();
        while self.kvs.values().any(|(_, it)| it.name == name) {
            // A name that was kept may be like the one for a name that is lost.
            name.push('-');
        }
        let kvs = self.target.create_kvs(&name, options)?;
        let salvaged = SalvagedKvs { name, ..SalvagedKvs::default() };
        self.kvs.insert(KvsId(state.id), (kvs, salvaged));
        Ok(())
    }

    fn run(&mut self, id: KvsId, state: RunState) -> Result<(), StoreError> {
        let name = names::of_run(state.number());
        let from = &self.from.directory_of(&name);
        let pages = self.pages.clone();
        // Range deletes come first: any version that the run still has under such a prefix is
        // newer.
        let removed = scan(from, state, &pages, &mut |piece| match piece {
            Piece::RangeDelete(prefix) => self.remove(id, Kind::RangeDelete, prefix),
            _ => Ok(()),
        });
        let copied = removed.and_then(|_| {
            scan(from, state, &pages, &mut |piece| match piece {
                Piece::Entry(entry) => self.entry(id, &entry),
                Piece::RangeDelete(_) => Ok(()),
                Piece::Damaged { offset, bytes, what } => {
                    let lost = format!("{bytes} bytes could not be read");
                    self.report.find(&name, offset, what, lost);
                    self.has_gaps(id);
                    Ok(())
                }
            })
        });
        match copied {
            Ok(_) => Ok(()),
            Err(error) => self.unreadable(id, &name, error),
        }
    }

    /// Reports a run that cannot be opened, or is another one, as a finding. A failure to write the
    /// new store is returned.
    fn unreadable(&mut self, id: KvsId, name: &str, error: StoreError) -> Result<(), StoreError> {
        let directory = self.from.directory_of(name);
        let options = BlockOptions { read_only: true, ..BlockOptions::default() };
        let is_there = || directory.open_block_file(name, &options).is_ok();
        if error.is_of_surroundings() || (!error.is_damage() && is_there()) {
            return Err(error);
        }
        let lost = "everything in it is lost".to_owned();
        self.report.find(name, error.offset(), error.reason(), lost);
        self.has_gaps(id);
        Ok(())
    }

    fn has_gaps(&mut self, id: KvsId) {
        if let Some((_, salvaged)) = self.kvs.get_mut(&id) {
            salvaged.has_gaps = true;
        }
    }

    fn entry(&mut self, id: KvsId, entry: &Entry<'_>) -> Result<(), StoreError> {
        self.advance()?;
        let Entry { key, expiry, value, .. } = *entry;
        let place = match value {
            Value::Inline(value) => return self.put(id, key, value, expiry),
            Value::Gone => return self.remove(id, Kind::Gone, key),
            Value::Apart(place) => place,
        };
        let mut bytes = Vec::new();
        let segment = self.segments.get(&place.segment);
        if segment.is_some_and(|segment| segment.has_left_out(place)) {
            // A newer run has the key, or has lost it, which is told of that run.
            return self.remove(id, Kind::Gone, key);
        }
        let record = segment.map(|segment| segment.record(place, &mut bytes));
        let what = match record {
            Some(Ok(record)) if leads_there(&record, id, entry) => {
                let value = record.value.to_vec();
                return self.put(id, key, &value, expiry);
            }
            Some(Ok(_)) => "it holds the record of another key".to_owned(),
            Some(Err(error)) => error.reason(),
            None => "it cannot be opened, or is no part of the store".to_owned(),
        };
        let is_new = segment.is_some() || self.missing.insert(place.segment);
        if is_new {
            let lost = format!("the value of key {} is lost", shown(key));
            self.report.find(&names::of_segment(place.segment), place.offset, what, lost);
        }
        if let Some((_, salvaged)) = self.kvs.get_mut(&id) {
            salvaged.values_lost += 1;
        }
        self.remove(id, Kind::Gone, key)
    }

    fn put(
        &mut self,
        id: KvsId,
        key: &[u8],
        value: &[u8],
        until: Expiry,
    ) -> Result<(), StoreError> {
        let Some((kvs, salvaged)) = self.kvs.get_mut(&id) else { return Ok(()) };
        salvaged.versions += 1;
        let draft = Draft::put(kvs.id(), key, value, until);
        kvs.core().append(&[draft], kvs.lock(key)).map(drop)
    }

    fn remove(&mut self, id: KvsId, kind: Kind, key: &[u8]) -> Result<(), StoreError> {
        let Some((kvs, _)) = self.kvs.get(&id) else { return Ok(()) };
        let held = match kind {
            Kind::RangeDelete => kvs.core().caches.entries.lock_every(),
            _ => kvs.lock(key),
        };
        kvs.core().append(&[Draft::gone(kvs.id(), kind, key)], held).map(drop)
    }

    /// Copies the writes of the log. Returns their number, and whether others are lost.
    fn log(&mut self, manifest: &Manifest) -> Result<(u64, bool), StoreError> {
        let is_guessed = self.report.is_manifest_lost();
        let found = log_scan::scan(self.from, manifest, &mut |record: &Record<'_>| {
            self.advance()?;
            let id = record.header.kvs;
            if is_guessed && !self.kvs.contains_key(&id) {
                self.make_kvs(&guess::state(id, Vec::new()))?;
            }
            match record.header.kind {
                Kind::Put | Kind::PutUntil => self.put(id, record.key, record.value, record.expiry),
                Kind::Gone | Kind::RangeDelete => self.remove(id, record.header.kind, record.key),
                Kind::Seal => Ok(()),
            }
        })?;
        let has_gaps = found.damage.is_some();
        if let Some((file, offset, what)) = found.damage {
            let lost = format!("{} writes after it were found again", found.behind);
            self.report.find(&file, offset, what, lost);
        }
        Ok((found.records + found.behind, has_gaps))
    }
}
