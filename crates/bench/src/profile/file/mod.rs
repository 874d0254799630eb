//! What is measured of files and drives, real or modelled: latency, operations and bandwidth by
//! size, response time over load in an open loop, and where the time of one read goes (Platform
//! storage performance with 3D XPoint, sections III and IV).

use std::time::Duration;

use entresol_base::histogram::Histogram;
use entresol_media::MediumSpec;
use entresol_media::cost::Access;
use entresol_media::probe::Order;

use super::costs::{self, Origin};
use super::figure::Figure;
use super::{Fact, MediumProfile, ProfileOptions, ROUNDS, advice};
use crate::error::BenchError;
use crate::progress::Progress;

mod figures;
mod model;
mod open_loop;
mod real;
mod split;

pub use split::TimeSplit;

/// The size of the requests in most figures.
const PAGE_BYTES: usize = 4096;
/// The share of reads among mixed requests (004, figures 5 to 8).
const MIXED_READS: f64 = 0.7;

/// A closed loop: so many requests are always in flight. It is judged on its own: what an earlier
/// load left to do is done before reads, and writes count from when they wait for one another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Closed {
    /// The share of reads; the rest are writes.
    pub(super) reads: f64,
    pub(super) order: Order,
    pub(super) bytes: usize,
    pub(super) depth: usize,
}

impl Closed {
    /// Whether a write buffer is filled before anything counts: as long as it has room, writes are
    /// as fast as it, and not as what lies behind it.
    fn fills_buffers(&self) -> bool {
        self.reads < 1.0 && self.depth > 1
    }
}

/// Requests that fall due at random moments, whatever became of earlier ones: random ones of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Open {
    pub(super) reads: f64,
    pub(super) per_second: f64,
    pub(super) time: Duration,
}

/// What became of a load.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// Requests that completed.
    pub(super) requests: u64,
    /// Requests that fell due, in an open loop.
    pub(super) due: u64,
    /// In how long.
    pub(super) elapsed_ns: f64,
    /// Closed: from submission; open: from when the request was due. Until completion.
    pub(super) times: Histogram,
    /// The share of requests that the generator itself submitted late.
    pub(super) late: f64,
}

/// A file or drive to be measured.
pub(super) trait FileSubject {
    /// The sizes that requests are multiples of.
    fn sector_bytes(&self) -> usize;
    /// Runs a closed loop for a while.
    fn closed(&mut self, load: &Closed) -> Result<Outcome, BenchError>;
    /// Runs an open loop.
    fn open(&mut self, load: &Open) -> Result<Outcome, BenchError>;
    /// Where the time of one read goes, for each way of learning of completions.
    fn splits(&mut self) -> Result<Vec<TimeSplit>, BenchError>;
    /// What is to be known about it.
    fn facts(&self) -> Vec<Fact>;
    /// What it is.
    fn kind(&self) -> String;
    /// The machine, and the day.
    fn origin(&self) -> [String; 2];
}

pub(super) fn profile(
    options: &ProfileOptions,
    media: &[&MediumSpec],
    progress: &Progress,
) -> Result<Vec<MediumProfile>, BenchError> {
    progress.say("preparing files");
    let mut subjects: Vec<Box<dyn FileSubject>> =
        media.iter().map(|medium| subject(medium, options)).collect::<Result<_, _>>()?;
    let modelled = media.iter().all(|medium| matches!(medium, MediumSpec::Model(_)));
    let rounds = if modelled { 1 } else { ROUNDS };
    let sector = subjects.iter().map(|subject| subject.sector_bytes()).max().unwrap_or(512);
    let plan = figures::plan(sector, options.full);
    progress.expect((plan.samples(rounds) + 1) * subjects.len() as u64);
    let all = plan.measure(subjects.len(), rounds, progress, |subject, load, takes| {
        let outcome = subjects[subject].closed(load)?;
        Ok(takes.iter().map(|take| take.of(load, &outcome)).collect())
    })?;
    let mut results = Vec::new();
    for ((medium, subject), figures) in media.iter().zip(&mut subjects).zip(all) {
        results.push(finished(medium, subject.as_mut(), options, figures, progress)?);
    }
    Ok(results)
}

fn subject(
    medium: &MediumSpec,
    options: &ProfileOptions,
) -> Result<Box<dyn FileSubject>, BenchError> {
    match medium {
        MediumSpec::File { path, model } => {
            Ok(Box::new(real::RealFile::open(path, *model, options)?))
        }
        MediumSpec::Model(name) => Ok(Box::new(model::ModelFile::new(*name, options)?)),
        _ => Err(BenchError::Usage(format!("{medium} is neither a file nor a drive"))),
    }
}

fn finished(
    medium: &MediumSpec,
    subject: &mut dyn FileSubject,
    options: &ProfileOptions,
    mut figures: Vec<Figure>,
    progress: &Progress,
) -> Result<MediumProfile, BenchError> {
    let most = figures::most_mixed(&figures);
    let open = open_loop::measure(subject, most, options.full, progress)?;
    let mut facts = subject.facts();
    facts.extend(open.facts);
    figures.push(open.figure);
    progress.say("where the time goes");
    let splits = subject.splits()?;
    progress.advance(1);
    let [machine, date] = subject.origin();
    let method = format!(
        "{}; random requests, {} in flight, {} beyond 64 KiB; sizes in between cost what the next \
         multiple of {} bytes costs; beyond 4 KiB a line from each power of two to the next",
        if options.full { "full" } else { "quick" },
        figures::COST_DEPTH,
        figures::COST_DEPTH_LARGE,
        subject.sector_bytes(),
    );
    let origin = Origin { medium: medium.to_string(), machine, date, method };
    let figure = figures.iter().find(|figure| figure.name == costs::FIGURE);
    let missing = || BenchError::Usage("no costs were measured".to_owned());
    let costs = costs::table(figure.ok_or_else(missing)?, origin).map_err(|error| {
        BenchError::Format { path: medium.to_string().into(), problem: error.to_string() }
    })?;
    Ok(MediumProfile {
        medium: medium.to_string(),
        kind: subject.kind(),
        facts,
        advice: advice::of_files(&figures),
        splits,
        figures,
        costs,
        unreliable: None,
    })
}

/// Which of the two a request is, drawn.
fn draw_access(rng: &mut fastrand::Rng, reads: f64) -> Access {
    if reads >= 1.0 || (reads > 0.0 && rng.f64() < reads) { Access::Read } else { Access::Write }
}
