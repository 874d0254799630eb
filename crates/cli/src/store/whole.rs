//! Commands on a whole store: statistics, check, copies, compaction.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use entresol_base::ByteSize;
use entresol_base::list::{LIKE_LINES_MAX, shortened};
use entresol_measure::progress::Progress;
use entresol_measure::report::Table;
use entresol_measure::report::table::grouped;
use entresol_measure::{BenchError, StorePlace};
use entresol_media::files;
use entresol_store::{
    CheckReport, Finding, Kvdb, KvdbOptions, SalvageReport, Statistics, Unchecked, check_at,
    salvage_at,
};
use serde_json::json;

use super::{look, options, print, told};
use crate::{Incomplete, Interrupted, interrupt};

/// Arguments that name a store and the output.
#[derive(Debug, Args)]
pub(super) struct Whole {
    /// Directory of the store; pmem:PATH is persistent memory, pmem:PATH,assume-dax lets an
    /// ordinary file system stand in for it.
    #[arg(value_parser = OsStringValueParser::new().try_map(StorePlace::parse))]
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
    /// A directory to be made, or an empty one.
    to: PathBuf,
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

pub(super) fn out() -> io::StdoutLock<'static> {
    io::stdout().lock()
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
        return print(&serde_json::to_value(&statistics).context("the answer as JSON")?);
    }
    for table in tables(&statistics) {
        write!(out(), "{table}").context("standard output")?;
    }
    Ok(())
}

fn tables(statistics: &Statistics) -> Vec<Table> {
    let columns = ["medium", "class", "log", "runs", "values", "of it dead", "free"];
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
    for place in &statistics.missing {
        media.row(vec![place.path.clone(), format!("{}, missing", place.class)]);
    }
    let columns = ["Kvs", "policy", "runs", "bytes", "versions", "gone", "values apart"];
    let mut all = Table::new("What is frozen; the log's writes are not counted", &columns);
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
    if let Some(images) = &statistics.images {
        let columns = ["writes read to open it", "in no image", "failures", "the last"];
        let mut table = Table::new("Images of what is not frozen", &columns);
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

/// Tabulates the bytes written since the store was opened, by cause. Returns `None` if there were
/// none.
pub(super) fn written(statistics: &Statistics) -> Option<Table> {
    let columns = [
        "medium",
        "log",
        "frozen",
        "merged",
        "garbage",
        "aged",
        "returned",
        "misplaced",
        "hot",
        "manifest",
    ];
    let mut table = Table::new("Written since it was opened", &columns);
    for medium in statistics.media.iter().filter(|medium| medium.written.sum() > 0) {
        let written = &medium.written;
        let bytes = [
            written.log_bytes,
            written.flush_bytes,
            written.compaction_bytes,
            written.moved_bytes,
            written.aged_bytes,
            written.returned_bytes,
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
    interrupt::announce(&bar.progress, "no findings were printed, and nothing was changed")?;
    let report = check_at(directory, &mut |it| bar.tell(it.files_done, it.files));
    bar.finish();
    let report = report.map_err(told)?;
    if *json {
        print(&serde_json::to_value(&report).context("the answer as JSON")?)?;
    } else {
        show(&report).context("standard output")?;
    }
    let at = directory.display();
    complain_of(&report.findings, report.findings_left_out, |count| {
        format!(
            "{at} is damaged, places: {count}; what is whole can be read, and `entresol store \
             salvage {at} NEW` copies it"
        )
    })?;
    match report.missing.first() {
        None => Ok(()),
        Some(place) => Err(Incomplete(format!(
            "{at} was looked at in part, and no damage was found: its {} place {} is missing. \
             Mount it there, or say with `entresol store place found {at} PATH` where it is, and \
             check again",
            place.class, place.path
        ))
        .into()),
    }
}

fn show(report: &CheckReport) -> io::Result<()> {
    let CheckReport { files, bytes, versions, values, log_records, .. } = report;
    show_findings(&report.findings, report.findings_left_out)?;
    for place in &report.missing {
        writeln!(out(), "missing: the {} place {}: {}", place.class, place.path, place.what)?;
    }
    if !report.missing.is_empty() {
        writeln!(out(), "not looked at: {}", unchecked(&report.unchecked))?;
    }
    for line in shortened(report.remarks.iter().map(|remark| format!("odd: {remark}"))) {
        writeln!(out(), "{line}")?;
    }
    let bytes = size(*bytes);
    writeln!(
        out(),
        "{files} files, {bytes}: {versions} versions in runs, {values} values apart, {log_records} \
         writes in the log"
    )
}

/// Prints the first findings and the number of further ones, which `--json` lists.
fn show_findings(findings: &[Finding], left_out: u64) -> io::Result<()> {
    for finding in findings.iter().take(LIKE_LINES_MAX) {
        writeln!(out(), "damaged: {finding}")?;
    }
    match findings.len().saturating_sub(LIKE_LINES_MAX) as u64 + left_out {
        0 => Ok(()),
        more => writeln!(out(), "and {more} more; --json lists {}", findings.len()),
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
        Some(last) => format!("; writes of the log behind the {last}th, if there are any"),
        None => String::new(),
    };
    let bytes = size(*value_bytes);
    format!(
        "runs: {runs}{of}; segments: {segments}, values of other runs there: {values}, {bytes}{log}"
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
    let progress = Progress::counter("salvage", None);
    let left = "the copy is no store yet: remove it";
    interrupt::announce(&progress, left)?;
    let report = salvage_at(&directory.path, to, KvdbOptions::default());
    progress.finish();
    let report = report.map_err(told)?;
    if *json {
        print(&serde_json::to_value(&report).context("the answer as JSON")?)?;
    } else {
        show_salvaged(&report).context("standard output")?;
    }
    complain_of(&report.findings, report.findings_left_out, |count| {
        format!("places that could not be read: {count}; {} has the rest", to.display())
    })
}

fn show_salvaged(report: &SalvageReport) -> io::Result<()> {
    show_findings(&report.findings, report.findings_left_out)?;
    for kvs in &report.kvs {
        let gaps = if kvs.has_gaps { ", and pages are missing" } else { "" };
        writeln!(
            out(),
            "{}: {} versions copied, {} values lost{gaps}",
            kvs.name,
            kvs.versions,
            kvs.values_lost
        )?;
    }
    writeln!(out(), "{} writes of the log copied", report.log_records)
}

pub(super) fn checkpoint(arguments: &Copy) -> anyhow::Result<()> {
    let Copy { whole: Whole { directory, json }, to } = arguments;
    let store = Kvdb::open_at(&directory.path, options(directory)).map_err(told)?;
    let mut bar = Bar::watched("checkpoint")?;
    let made = store.checkpoint_at(to, &mut |it| {
        bar.tell(it.bytes_done, it.bytes);
        bar.flow()
    });
    bar.finish();
    let made = made.map_err(told)?;
    store.close().map_err(told)?;
    // The copy may have been completed before the interruption took effect.
    let Some(made) = made else { return bar.check("interrupted; there is no copy") };
    if *json {
        return print(&serde_json::to_value(made).context("the answer as JSON")?);
    }
    let bytes = size(made.bytes);
    writeln!(out(), "{}: {} files, {bytes}, a store of its own", to.display(), made.files)
        .context("standard output")
}

pub(super) fn compact(arguments: &Whole) -> anyhow::Result<()> {
    let Whole { directory, json } = arguments;
    let store = Kvdb::open_at(&directory.path, options(directory)).map_err(told)?;
    let volumes: Vec<PathBuf> =
        store.volumes().iter().map(|place| place.directory.path().to_owned()).collect();
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
        bar.check("interrupted; what was merged stays so, and the same command goes on")?;
    }
    let after = bytes_of(&volumes)?;
    if *json {
        return print(&json!({ "bytes_before": before, "bytes_after": after }));
    }
    writeln!(out(), "{} before, {} now", size(before), size(after)).context("standard output")?;
    match written(&statistics).filter(|_| volumes.len() > 1) {
        Some(table) => write!(out(), "{table}").context("standard output"),
        None => Ok(()),
    }
}

fn bytes_of(volumes: &[PathBuf]) -> anyhow::Result<u64> {
    let bytes =
        |path: &PathBuf| files::tree_bytes(path).with_context(|| path.display().to_string());
    volumes.iter().map(bytes).sum()
}
