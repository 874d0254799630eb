//! Commands on a whole store: statistics, check, copies, compaction.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use entresol_base::list::{LIKE_LINES_MAX, shortened};
use entresol_base::{ByteSize, Clock, SystemClock, duration};
use entresol_measure::progress::Progress;
use entresol_measure::report::Table;
use entresol_measure::report::table::grouped;
use entresol_measure::{BenchError, StorePlace};
use entresol_media::files;
use entresol_store::{
    BudgetStatistics, CheckReport, Finding, Kvdb, KvdbOptions, MediumStatistics, SalvageReport,
    SalvagedKvs, Statistics, Unchecked, WrittenBytes, check_at, salvage_at,
};
use serde_json::json;

use super::{NewDirectory, look, options, told};
use crate::shell::quoted;
use crate::standard::{Out, Printed, after, judged, print, print_json};
use crate::{Incomplete, Interrupted, interrupt};

/// Arguments that name a store and the output.
#[derive(Debug, Args)]
pub(super) struct Whole {
    /// Directory of the store; pmem:PATH is persistent memory, pmem:PATH,assume-dax lets an
    /// ordinary file system stand in for it.
    #[arg(value_parser = OsStringValueParser::new().try_map(super::place))]
    pub(super) directory: StorePlace,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// Arguments for a copy of a store.
#[derive(Debug, Args)]
pub(super) struct Copy {
    #[command(flatten)]
    whole: Whole,
    /// An empty directory, or a path at which one is created.
    #[arg(value_parser = OsStringValueParser::new().try_map(of_copy))]
    to: PathBuf,
}

/// Parses the path of a copy, which is made of ordinary files.
fn of_copy(text: OsString) -> Result<PathBuf, String> {
    match text.to_str() {
        Some(shown) if shown.starts_with("pmem:") => Err(format!(
            "'{shown}' is not a path: give the path alone (a copy is opened with pmem: before it), \
             or ./{shown} for a directory of that name"
        )),
        _ => super::some_path(text),
    }
}

/// Progress bar whose length becomes known once work has begun.
pub(super) struct Bar {
    progress: Progress,
    done: u64,
    all: u64,
}

impl Bar {
    pub(super) fn new(what: &str) -> Bar {
        Bar { progress: Progress::new(0, what), done: 0, all: 0 }
    }

    /// Creates a bar for work that Ctrl-C ends in good order.
    pub(super) fn watched(what: &str) -> anyhow::Result<Bar> {
        let bar = Bar::new(what);
        interrupt::watch(&bar.progress)?;
        Ok(bar)
    }

    /// Returns whether the work is to continue.
    pub(super) fn flow(&self) -> ControlFlow<()> {
        match self.progress.is_stopped() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Fails with the message `left` if the work was interrupted.
    pub(super) fn check(&self, left: &'static str) -> anyhow::Result<()> {
        match self.progress.is_stopped() {
            true => Err(Interrupted(left).into()),
            false => Ok(()),
        }
    }

    pub(super) fn tell(&mut self, done: u64, all: u64) {
        self.progress.expect(all.saturating_sub(self.all));
        self.progress.advance(done.saturating_sub(self.done));
        (self.done, self.all) = (done.max(self.done), all.max(self.all));
    }

    pub(super) fn finish(&self) {
        self.progress.finish();
    }
}

/// Formats a size, rounded up to a whole number of the unit, of which there are at least ten.
pub(super) fn size(bytes: u64) -> String {
    let unit = match bytes {
        0..0xa0_0000 => 1 << 10,
        0xa0_0000..0x2_8000_0000 => 1 << 20,
        _ => 1 << 30,
    };
    ByteSize(bytes.next_multiple_of(unit)).to_string()
}

pub(super) fn stats(arguments: &Whole) -> anyhow::Result<()> {
    let store = look(&arguments.directory)?;
    let statistics = store.statistics().map_err(told)?;
    store.close().map_err(told)?;
    if arguments.json {
        return print_json(&statistics);
    }
    let tables = tables(&statistics).iter().map(Table::to_string).collect::<String>();
    let odd = ahead(statistics.seconds_ahead).map_or(String::new(), |it| format!("\nodd: {it}\n"));
    Ok(print(tables + &odd)?)
}

fn tables(statistics: &Statistics) -> Vec<Table> {
    let columns = ["volume", "class", "log", "runs", "values", "dead values", "free"];
    let mut media = Table::new("Space", &columns);
    for medium in &statistics.media {
        let space = &medium.space;
        let retiring = if medium.is_retiring { ", retiring" } else { "" };
        media.row(vec![
            medium.path.clone(),
            format!("{}{retiring}", medium.class),
            size(space.log_bytes),
            size(space.run_bytes),
            size(space.value_bytes),
            size(space.value_dead_bytes),
            space.free_bytes.map_or("-".to_owned(), size),
        ]);
    }
    for volume in &statistics.missing {
        media.row(vec![volume.path.clone(), format!("{}, missing", volume.class)]);
    }
    let columns = ["Kvs", "policy", "runs", "bytes", "versions", "tombstones", "values apart"];
    let mut all = Table::new("Flushed data; writes still in the log are not counted", &columns);
    for kvs in &statistics.kvs {
        all.row(vec![
            kvs.name.clone(),
            kvs.policy.clone(),
            grouped(kvs.runs as f64),
            size(kvs.run_bytes),
            grouped(kvs.versions as f64),
            grouped(kvs.versions_deleted as f64),
            size(kvs.value_bytes),
        ]);
    }
    let mut tables = vec![media, all];
    tables.extend(written("Bytes written since each volume was added", statistics, |medium| {
        medium.life.written
    }));
    tables.push(lives(statistics));
    if let Some(images) = &statistics.memtable_images {
        let columns = ["writes read at opening", "in no image", "failures", "last failure"];
        let mut table = Table::new("Memtable images", &columns);
        table.row(vec![
            grouped(statistics.log_records_read as f64),
            grouped(images.writes_missing as f64),
            grouped(images.failures as f64),
            images.failure.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
        tables.push(table);
    }
    tables
}

/// Tabulates what the drives beneath say and the budgets of writes.
fn lives(statistics: &Statistics) -> Table {
    let columns =
        ["volume", "drive", "it has written", "budget a day", "left", "rate a day", "used up in"];
    let mut table = Table::new("Life of the drives", &columns);
    let none = || "-".to_owned();
    for MediumStatistics { path, life, .. } in &statistics.media {
        let budget = life.budget;
        let bytes = |of: fn(BudgetStatistics) -> u64| budget.map_or_else(none, |it| size(of(it)));
        let end = budget.and_then(|it| it.used_up_in_s);
        table.row(vec![
            path.clone(),
            life.drive.clone(),
            life.drive_bytes.map_or_else(none, size),
            bytes(|it| it.bytes_per_day),
            bytes(|it| it.left_bytes),
            bytes(|it| it.recent_bytes_per_day),
            end.map_or_else(none, |s| duration::format(Duration::from_secs(s))),
        ]);
    }
    table
}

/// Tabulates the bytes written since the store was opened.
pub(super) fn written_now(statistics: &Statistics) -> Option<Table> {
    written("Bytes written since the store was opened", statistics, |medium| medium.written)
}

/// Tabulates bytes written by cause, those since the store was opened or others. Returns `None` if
/// there were none.
fn written(
    title: &str,
    statistics: &Statistics,
    of: impl Fn(&MediumStatistics) -> WrittenBytes,
) -> Option<Table> {
    let columns = [
        "volume",
        "log",
        "flushed",
        "compacted",
        "garbage",
        "demoted",
        "promoted",
        "misplaced",
        "hot",
        "manifest",
    ];
    let mut table = Table::new(title, &columns);
    for medium in statistics.media.iter().filter(|medium| of(medium).sum() > 0) {
        let written = of(medium);
        let bytes = [
            written.log_bytes,
            written.flush_bytes,
            written.compaction_bytes,
            written.collected_bytes,
            written.demoted_bytes,
            written.promoted_bytes,
            written.misplaced_bytes,
            written.hot_bytes,
            written.manifest_bytes,
        ];
        let cells = bytes.into_iter().map(size);
        table.row(std::iter::once(medium.path.clone()).chain(cells).collect());
    }
    (!table.rows.is_empty()).then_some(table)
}

pub(super) fn check(arguments: &Whole) -> anyhow::Result<()> {
    let Whole { directory: StorePlace { path: directory, .. }, json } = arguments;
    let mut bar = Bar::new("check");
    interrupt::announce(&bar.progress, "no findings were printed, nothing was changed")?;
    let report = check_at(directory, &mut |it| bar.tell(it.files_done, it.files));
    bar.finish();
    let report = report.map_err(told)?;
    let printed = match json {
        true => print_json(&report),
        false => show(&report).map_err(Into::into),
    };
    judged(printed, verdict(&report, directory))
}

/// Fails if there is damage, or not everything was checked.
fn verdict(report: &CheckReport, directory: &Path) -> anyhow::Result<()> {
    let (at, word) = (directory.display(), quoted(&directory.display()));
    complain_of(&report.findings, report.findings_left_out, |count| {
        format!(
            "{at} is damaged (findings: {count}); the rest can be read, and `entresol store \
             salvage {word} NEW` copies it"
        )
    })?;
    match report.missing.first() {
        None => Ok(()),
        Some(volume) => Err(Incomplete(format!(
            "{at} was checked in part, and no damage was found: its {} volume {} is missing. \
             Mount it there, or give its path with `entresol store volume found {word} PATH`, \
             and check again",
            volume.class, volume.path
        ))
        .into()),
    }
}

fn show(report: &CheckReport) -> Printed {
    let CheckReport { files, bytes, versions, values, log_records, time_s, .. } = report;
    let mut out = Out::default();
    show_findings(&mut out, &report.findings, report.findings_left_out)?;
    for volume in &report.missing {
        let (class, path, what) = (volume.class, &volume.path, &volume.what);
        out.put(format_args!("missing: the {class} volume {path}: {what}\n"))?;
    }
    if !report.missing.is_empty() {
        out.put(format_args!("not checked: {}\n", unchecked(&report.unchecked)))?;
    }
    for line in shortened(report.remarks.iter().map(|remark| format!("odd: {remark}"))) {
        out.put(format_args!("{line}\n"))?;
    }
    if let Some(what) = ahead(time_s.saturating_sub(SystemClock::new().seconds().0)) {
        out.put(format_args!("odd: {what}\n"))?;
    }
    let bytes = size(*bytes);
    out.put(format_args!(
        "{files} files, {bytes}: {versions} versions in runs, {values} values in segments, \
         {log_records} writes in the log\n"
    ))?;
    out.flush()
}

/// Seconds for which a store may have been closed before a salvage without a word: a year.
const BEHIND_S_MAX: u32 = 366 * 24 * 3600;

/// Seconds by which a store's time may be ahead of the clock without a word, since clocks are
/// corrected by a few now and then.
const AHEAD_S_MAX: u32 = 60;

/// Describes a store's time that is ahead of the clock, if it is.
fn ahead(seconds: u32) -> Option<String> {
    (seconds > AHEAD_S_MAX).then(|| {
        let time = duration::format(Duration::from_secs(seconds.into()));
        format!(
            "the store's time is {time} ahead of this machine's clock, which was wrong then or is \
             wrong now; the store's time never goes back, so values that were written with a time \
             to live before that have expired, and later ones expire when they should"
        )
    })
}

/// Prints the first findings and the number of further ones, which `--json` lists.
fn show_findings(out: &mut Out, findings: &[Finding], left_out: u64) -> Printed {
    for finding in findings.iter().take(LIKE_LINES_MAX) {
        out.put(format_args!("damaged: {finding}\n"))?;
    }
    match findings.len().saturating_sub(LIKE_LINES_MAX) as u64 + left_out {
        0 => Ok(()),
        more => out.put(format_args!("and {more} more; --json lists {}\n", findings.len())),
    }
}

/// Describes the data on missing volumes.
fn unchecked(it: &Unchecked) -> String {
    let Unchecked { runs, kvs, segments, values, value_bytes, log_behind } = it;
    let of = match kvs.is_empty() {
        true => String::new(),
        false => format!(", of the Kvs {}", kvs.join(", ")),
    };
    let log = match log_behind {
        Some(last) => format!("; writes of the log after number {last}, if there are any"),
        None => String::new(),
    };
    let bytes = size(*value_bytes);
    format!(
        "runs: {runs}{of}; segments: {segments}, with values of other runs: {values}, {bytes}{log}"
    )
}

/// Fails with status 1 if there are findings.
fn complain_of(
    findings: &[Finding],
    left_out: u64,
    text: impl FnOnce(u64) -> String,
) -> anyhow::Result<()> {
    match findings.len() as u64 + left_out {
        0 => Ok(()),
        count => Err(BenchError::Failed(text(count)).into()),
    }
}

pub(super) fn salvage(arguments: &Copy) -> anyhow::Result<()> {
    let Copy { whole: Whole { directory, json }, to } = arguments;
    let new = NewDirectory::at(to);
    let progress = Progress::counter("salvage", None);
    interrupt::leaves(incomplete("salvage", to));
    interrupt::watch(&progress)?;
    let report = salvage_at(&directory.path, to, KvdbOptions::default(), &mut |it| {
        progress.reach(it.records);
        if progress.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.finish();
    let report = report.inspect_err(|_| new.undo()).map_err(told)?;
    let Some(report) = report else {
        new.undo();
        return Err(Interrupted("interrupted; no copy was made").into());
    };
    let printed = match json {
        true => print_json(&report),
        false => show_salvaged(&report).map_err(Into::into),
    };
    let verdict = complain_of(&report.findings, report.findings_left_out, |count| {
        format!("parts that could not be read: {count}; {} has the rest", to.display())
    });
    judged(after("the copy was made", printed), verdict)
}

/// Describes what a copy leaves that ends at once.
fn incomplete(command: &str, to: &Path) -> String {
    format!("left: an incomplete copy in {}, which `store {command}` replaces", to.display())
}

fn show_salvaged(report: &SalvageReport) -> Printed {
    let mut out = Out::default();
    show_findings(&mut out, &report.findings, report.findings_left_out)?;
    for kvs in &report.kvs {
        let gaps = if kvs.has_gaps { ", and pages are missing" } else { "" };
        let SalvagedKvs { name, versions, values_lost, .. } = kvs;
        out.put(format_args!(
            "{name}: {versions} versions copied, {values_lost} values lost{gaps}\n"
        ))?;
    }
    let gaps = match report.log_has_gaps {
        true => ", and others are lost: keys may be missing, older, or deleted and back",
        false => "",
    };
    out.put(format_args!("{} writes of the log copied{gaps}\n", report.log_records))?;
    let passed = SystemClock::new().seconds().0.saturating_sub(report.time_s);
    if report.time_s > 0 && passed > BEHIND_S_MAX {
        let time = duration::format(Duration::from_secs(passed.into()));
        out.put(format_args!(
            "odd: this machine's clock is {time} ahead of the latest time that the store has seen; \
             if it is wrong, values with a time to live are expired in the copy for ever: set it \
             right, remove the copy and make it again\n"
        ))?;
    }
    out.flush()
}

pub(super) fn checkpoint(arguments: &Copy) -> anyhow::Result<()> {
    let Copy { whole: Whole { directory, json }, to } = arguments;
    let store = Kvdb::open_at(&directory.path, options(directory)).map_err(told)?;
    let new = NewDirectory::at(to);
    interrupt::leaves(incomplete("checkpoint", to));
    let mut bar = Bar::watched("checkpoint")?;
    let made = store.checkpoint_at(to, &mut |it| {
        bar.tell(it.bytes_done, it.bytes);
        bar.flow()
    });
    bar.finish();
    let made = made.inspect_err(|_| new.undo()).map_err(told)?;
    store.close().map_err(told)?;
    // The copy may have been completed before the interruption took effect.
    let Some(made) = made else {
        new.undo();
        return bar.check("interrupted; no copy was made");
    };
    let printed = match json {
        true => print_json(&made),
        false => {
            let (files, bytes, check) = (made.files, size(made.bytes), quoted(&to.display()));
            let to = to.display();
            print(format!(
                "{to}: {files} files, {bytes}, a complete store; damage is copied as it is, and \
                 `entresol store check {check}` finds it\n"
            ))
            .map_err(Into::into)
        }
    };
    after("the copy was made", printed)
}

pub(super) fn compact(arguments: &Whole) -> anyhow::Result<()> {
    let Whole { directory, json } = arguments;
    let store = Kvdb::open_at(&directory.path, options(directory)).map_err(told)?;
    let volumes: Vec<PathBuf> =
        store.volumes().iter().map(|volume| volume.directory.path().to_owned()).collect();
    let before = bytes_of(&volumes)?;
    let mut bar = Bar::watched("compact")?;
    let done = store.compact_with(&mut |it| {
        bar.tell(it.bytes_done, it.bytes);
        bar.flow()
    });
    bar.finish();
    let is_done = done.map_err(told)?;
    let statistics = store.statistics().map_err(told)?;
    store.close().map_err(told)?;
    if !is_done {
        bar.check("interrupted; finished compactions are kept: run the command again to finish")?;
    }
    let now = bytes_of(&volumes)?;
    let printed = match json {
        true => print_json(&json!({ "bytes_before": before, "bytes_after": now })),
        false => {
            let moved = written_now(&statistics).filter(|_| volumes.len() > 1);
            let moved = moved.map_or(String::new(), |table| table.to_string());
            let text = format!("{} before, {} now\n{moved}", size(before), size(now));
            print(text).map_err(Into::into)
        }
    };
    after("the store was compacted", printed)
}

fn bytes_of(volumes: &[PathBuf]) -> anyhow::Result<u64> {
    let bytes =
        |path: &PathBuf| files::tree_bytes(path).with_context(|| path.display().to_string());
    volumes.iter().map(bytes).sum()
}
