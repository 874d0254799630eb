//! Measurements of files and drives, real or modelled: latency, operations and bandwidth by size,
//! response time over load in an open loop, and the breakdown of the time of one read (Platform
//! storage performance with 3D XPoint, sections III and IV).

use std::time::Duration;

use entresol_base::Stop;
use entresol_base::histogram::Histogram;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::MediumSpec;
use entresol_media::cost::Access;
use entresol_media::probe::Order;

use super::costs::{self, Origin};
use super::figure::Figure;
use super::{Fact, MediumProfile, ProfileOptions, ROUNDS, advice};

mod figures;
mod model;
mod open_loop;
mod real;
mod split;

pub use split::{SplitRound, TimeSplit, split_rounds};

/// Size of the requests in most figures.
const PAGE_BYTES: usize = 4096;
/// Share of reads among mixed requests (004, figures 5 to 8).
const MIXED_READS: f64 = 0.7;

/// Closed loop with a constant number of requests in flight. It is measured independently of
/// earlier loads: reads begin after the drive has completed those, and writes count once buffers
/// are full.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Closed {
    /// Share of reads; the remaining requests are writes.
    pub(crate) reads: f64,
    pub(crate) order: Order,
    pub(crate) bytes: usize,
    pub(crate) depth: usize,
}

impl Closed {
    /// Returns true if a write buffer is filled before requests count. While it has room, writes
    /// are as fast as the buffer and not as the medium behind it.
    fn fills_buffers(&self) -> bool {
        self.reads < 1.0 && self.depth > 1
    }
}

/// Open loop of random requests that fall due at random times, independent of earlier
/// ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Open {
    pub(crate) reads: f64,
    pub(crate) bytes: usize,
    pub(crate) per_second: f64,
    pub(crate) time: Duration,
}

/// Results of a load.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Completed requests.
    pub(crate) requests: u64,
    /// Requests that fell due, in an open loop.
    pub(crate) due: u64,
    /// Length of the measurement in nanoseconds.
    pub(crate) elapsed_ns: f64,
    /// Times until completion: from submission in a closed loop, from the due time in an open one.
    pub(crate) times: Histogram,
    /// Delays by which the generator itself submitted requests, in an open loop.
    pub(crate) late: Histogram,
}

/// File or drive to measure.
pub(crate) trait FileSubject {
    /// Returns the size of which requests are multiples.
    fn sector_bytes(&self) -> usize;
    /// Runs a closed loop for a while.
    fn closed(&mut self, load: &Closed) -> Result<Outcome, BenchError>;
    /// Runs an open loop.
    fn open(&mut self, load: &Open, stop: &Stop) -> Result<Outcome, BenchError>;
    /// Returns the breakdown of the time of one read, for each kind of completion.
    fn splits(&mut self) -> Result<Vec<TimeSplit>, BenchError>;
    /// Returns the facts about the measurement.
    fn facts(&self) -> Vec<Fact>;
    /// Returns the kind of the medium.
    fn kind(&self) -> String;
    /// Returns the machine and the date.
    fn origin(&self) -> [String; 2];
}

pub(super) fn profile(
    options: &ProfileOptions,
    media: &[&MediumSpec],
    progress: &Progress,
) -> Result<Vec<MediumProfile>, BenchError> {
    progress.say("preparing files");
    let mut subjects: Vec<Box<dyn FileSubject>> =
        media.iter().map(|medium| subject(medium, options, progress)).collect::<Result<_, _>>()?;
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

pub(crate) fn subject(
    medium: &MediumSpec,
    options: &ProfileOptions,
    progress: &Progress,
) -> Result<Box<dyn FileSubject>, BenchError> {
    match medium {
        MediumSpec::File { path, model } => {
            Ok(Box::new(real::RealFile::open(path, *model, options, progress.stop())?))
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

/// Draws the kind of a request.
fn draw_access(rng: &mut fastrand::Rng, reads: f64) -> Access {
    if reads >= 1.0 || (reads > 0.0 && rng.f64() < reads) { Access::Read } else { Access::Write }
}
