//! Profile of byte-addressable media: from their names to figures, costs and advice.

use std::time::Duration;

use entresol_base::ByteSize;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::cost::CostTable;
use entresol_media::model::ModelName;
use entresol_media::probe::{Arena, ArenaSizes, StoreMethod};
use entresol_media::{MediumSpec, PmemMode, RegionError, RegionKind, files, machine};

use super::costs::{self, Origin};
use super::figure::Figure;
use super::memory::model::ModelMemory;
use super::memory::real::RealMemory;
use super::memory::{
    MemorySubject, ROUNDS, Samples, Scope, best_threads, cost_plan, measure, plan, saturating,
};
use super::{Fact, MediumProfile, ProfileOptions, advice, sample_time, thread_counts, today};

/// Default size of the area that is read, unless the caches require a larger one.
const SIZE_QUICK: ByteSize = ByteSize::gib(1);
const SIZE_FULL: ByteSize = ByteSize::gib(4);
/// Least size of that area in multiples of the largest cache: at most a quarter of random reads
/// then hits a cache.
const CACHES_MIN: u64 = 4;
/// Size assumed for the largest cache if it cannot be read.
const CACHE_ASSUMED: ByteSize = ByteSize::mib(128);
/// Largest share of disturbed cost samples: beyond it, medians no longer exclude them and costs are
/// wrong.
const DISTURBED_MAX: f64 = 0.5;

pub(super) fn profile(
    options: &ProfileOptions,
    media: &[&MediumSpec],
    progress: &Progress,
) -> Result<Vec<MediumProfile>, BenchError> {
    if media.iter().any(|medium| !matches!(medium, MediumSpec::Model(_))) {
        large_enough(options.size, machine::cache_bytes().map(ByteSize))?;
    }
    progress.say("preparing memory");
    let grounds: Vec<Ground> =
        media.iter().map(|medium| Ground::prepare(medium, options)).collect::<Result<_, _>>()?;
    let models: Vec<ModelName> = grounds.iter().filter_map(Ground::model).collect();
    let modelled = models.len() == grounds.len();
    // A model gives the same results in every round.
    let rounds = if modelled { 1 } else { ROUNDS };
    let scope = scope(options, modelled.then_some(&models))?;
    let time = sample_time(options.full);
    let mut subjects: Vec<Box<dyn MemorySubject + '_>> =
        grounds.iter().map(|ground| ground.subject(time)).collect::<Result<_, _>>()?;
    let plan = plan(&scope);
    progress.expect(plan.samples(rounds) * subjects.len() as u64);
    let mut figures = measure(&plan, &mut subjects, rounds, progress)?;
    let (readers, writers) = (
        best_threads(&figures[0], "read_bandwidth_random", &scope),
        best_threads(&figures[0], "write_bandwidth_random", &scope),
    );
    let cost_plan = cost_plan(&scope, [readers, writers]);
    progress.expect(cost_plan.samples(rounds) * subjects.len() as u64);
    let before: Vec<Samples> = subjects.iter().map(|subject| subject.samples()).collect();
    let costs = measure(&cost_plan, &mut subjects, rounds, progress)?;
    let remarks: Vec<_> = subjects
        .iter()
        .zip(before)
        .map(|(subject, before)| (subject.remarks(), unreliable(before, subject.samples())))
        .collect();
    drop(subjects);
    for (all, more) in figures.iter_mut().zip(costs) {
        all.extend(more);
    }
    let method = format!(
        "random accesses, reads by {readers} and writes (past the caches, a fence each) by \
         {writers} threads; beyond 4 KiB a line from each power of two to the next"
    );
    let result = media.iter().zip(&grounds).zip(figures.into_iter().zip(remarks));
    result
        .map(|((medium, ground), (figures, (remarks, unreliable)))| {
            let origin = Origin {
                medium: medium.to_string(),
                machine: ground.machine(),
                date: ground.date(),
                method: format!("{}; {method}", if options.full { "full" } else { "quick" }),
            };
            let mut profile = ground.finished(medium, options, figures, origin)?;
            let disturbed = remarks.map(|text| Fact { name: "disturbed", text });
            profile.facts.extend(disturbed);
            profile.say_unreliable(unreliable);
            Ok(profile)
        })
        .collect()
}

/// Returns the scope of the measurement; models alone use as many threads as keep them busy.
fn scope(options: &ProfileOptions, models: Option<&Vec<ModelName>>) -> Result<Scope, BenchError> {
    let most = match (options.threads, models) {
        (Some(threads), _) => threads,
        (None, Some(models)) => saturating(models)?,
        (None, None) => machine::processors(),
    };
    let methods = match models {
        Some(_) => vec![StoreMethod::Streaming, StoreMethod::Clwb],
        None => StoreMethod::available(),
    };
    Ok(Scope { full: options.full, threads: thread_counts(most), methods })
}

/// Returns the cost table that a profile of a memory model makes.
pub fn model_costs(name: ModelName) -> Result<CostTable, BenchError> {
    let threads = saturating(&[name])?;
    let methods = vec![StoreMethod::Streaming];
    let scope = Scope { full: false, threads: vec![threads], methods };
    let mut subjects: Vec<Box<dyn MemorySubject>> = vec![Box::new(ModelMemory::new(name)?)];
    let sweep = cost_plan(&scope, [threads, threads]);
    let figures = measure(&sweep, &mut subjects, 1, &Progress::hidden())?;
    let origin = Origin {
        medium: format!("model:{name}"),
        machine: machine::describe(),
        date: today(),
        method: format!("random accesses by {threads} threads"),
    };
    let figure = figures.first().and_then(|figures| figures.first());
    let figure = figure.ok_or_else(|| BenchError::Usage("no costs were measured".to_owned()))?;
    costs::table(figure, origin).map_err(|error| BenchError::Usage(error.to_string()))
}

/// Returns the least size at which reads show the medium. It is a power of two, since the arena
/// rounds the area that is read down to one.
fn least_size(cache: Option<ByteSize>) -> ByteSize {
    let bytes = cache.unwrap_or(CACHE_ASSUMED).0.saturating_mul(CACHES_MIN);
    ByteSize(bytes.checked_next_power_of_two().unwrap_or(1 << 63))
}

/// Refuses a size that would mostly be read from the processor's caches.
pub(super) fn large_enough(
    size: Option<ByteSize>,
    cache: Option<ByteSize>,
) -> Result<(), BenchError> {
    let least = least_size(cache);
    let Some(size) = size.filter(|&size| size < least) else { return Ok(()) };
    let why = match cache {
        Some(cache) => format!("the largest cache of this machine has {cache}"),
        None => format!(
            "the size of this machine's caches cannot be read, and {CACHE_ASSUMED} is taken for it"
        ),
    };
    Err(BenchError::Usage(format!(
        "--size {size} is too little to measure memory: use at least {least}; {why}, and reads \
         that fit into it would be measured instead"
    )))
}

fn size(options: &ProfileOptions) -> ByteSize {
    let usual = if options.full { SIZE_FULL } else { SIZE_QUICK };
    options.size.unwrap_or_else(|| usual.max(least_size(machine::cache_bytes().map(ByteSize))))
}

/// Returns the reason why costs from the samples between `before` and `after` would be wrong, if
/// they would.
pub(super) fn unreliable(before: Samples, after: Samples) -> Option<String> {
    let (disturbed, all) = (after.disturbed - before.disturbed, after.all - before.all);
    let share = disturbed as f64 / all.max(1) as f64;
    (share > DISTURBED_MAX).then(|| {
        format!(
            "in {:.0}% of the samples for the cost table a thread did not have a processor for \
             itself: other programs ran, or there are fewer processors than threads",
            share * 100.0
        )
    })
}

/// Medium prepared for measurement.
enum Ground {
    Real { arena: Box<Arena>, huge_bytes: u64, keep: bool, made: Option<std::path::PathBuf> },
    Model(ModelName),
}

impl Ground {
    fn prepare(medium: &MediumSpec, options: &ProfileOptions) -> Result<Ground, BenchError> {
        if let MediumSpec::Model(name) = medium {
            return Ok(Ground::Model(*name));
        }
        let size = size(options);
        let sizes = ArenaSizes { read_bytes: size.0, write_bytes: size.0 / 2 };
        let failed = |error: RegionError| BenchError::Usage(error.to_string());
        match medium {
            MediumSpec::Pmem { path, assume_dax } => {
                let keep = options.keep;
                let made = (!files::exists(path) && !keep).then(|| path.clone());
                let mode = PmemMode { assume_dax: *assume_dax };
                let arena = Box::new(Arena::open(path, sizes, mode).map_err(failed)?);
                Ok(Ground::Real { arena, huge_bytes: 0, keep, made })
            }
            _ => {
                let most = machine::memory_bytes() / 2;
                if size.0.saturating_add(size.0 / 2) > most {
                    let text = format!(
                        "--size {size} and half of it again is more than half of this machine's \
                         memory; the most is {}",
                        ByteSize((most / 3 * 2) >> 20 << 20)
                    );
                    return Err(BenchError::Usage(text));
                }
                let before = machine::huge_page_bytes().unwrap_or(0);
                let arena = Arena::anonymous(sizes, options.huge_pages).map_err(failed)?;
                let huge_bytes = machine::huge_page_bytes().unwrap_or(0).saturating_sub(before);
                Ok(Ground::Real { arena: Box::new(arena), huge_bytes, keep: true, made: None })
            }
        }
    }

    fn model(&self) -> Option<ModelName> {
        match self {
            Ground::Real { .. } => None,
            Ground::Model(name) => Some(*name),
        }
    }

    fn subject(&self, time: Duration) -> Result<Box<dyn MemorySubject + '_>, BenchError> {
        Ok(match self {
            Ground::Real { arena, .. } => Box::new(RealMemory::new(arena, time)),
            Ground::Model(name) => Box::new(ModelMemory::new(*name)?),
        })
    }

    fn machine(&self) -> String {
        match self {
            Ground::Real { .. } => machine::describe(),
            Ground::Model(_) => "a model, in virtual time".to_owned(),
        }
    }

    /// Returns the date of the measurement, which is empty for a model.
    fn date(&self) -> String {
        match self {
            Ground::Real { .. } => today(),
            Ground::Model(_) => String::new(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Ground::Model(_) => "model in virtual time",
            Ground::Real { arena, .. } => match arena.kind() {
                RegionKind::Anonymous => "dram",
                RegionKind::Dax => "persistent memory (DAX)",
                _ => "emulated persistent memory: a mapped file, flushed as persistent memory is",
            },
        }
    }

    fn finished(
        &self,
        medium: &MediumSpec,
        options: &ProfileOptions,
        figures: Vec<Figure>,
        origin: Origin,
    ) -> Result<MediumProfile, BenchError> {
        let missing = || BenchError::Usage("no costs were measured".to_owned());
        let figure = figures.iter().find(|figure| figure.name == costs::FIGURE);
        let costs = costs::table(figure.ok_or_else(missing)?, origin).map_err(|error| {
            BenchError::Format { path: medium.to_string().into(), problem: error.to_string() }
        })?;
        Ok(MediumProfile {
            medium: medium.to_string(),
            kind: self.kind().to_owned(),
            facts: self.facts(options),
            splits: Vec::new(),
            advice: advice::of_memory(&figures),
            figures,
            costs,
            unreliable: None,
        })
    }

    fn facts(&self, options: &ProfileOptions) -> Vec<Fact> {
        match self {
            Ground::Real { arena, huge_bytes, .. } => real_facts(arena, *huge_bytes, options),
            Ground::Model(_) => vec![Fact {
                name: "virtual time",
                text: "a model of a device answered, not a device: every figure is exact and the \
                       same on any machine, and as right as the model"
                    .to_owned(),
            }],
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let Ground::Real { arena, keep, made, .. } = self else { return };
        if !*keep {
            arena.vacate();
        }
        if let Some(path) = made {
            // If this fails, the file remains; its first bytes show that it may be removed.
            let _ = files::remove(path);
        }
    }
}

/// Runs the steps before and after a measurement.
#[cfg(test)]
pub(super) fn prepare_and_drop(options: &ProfileOptions) -> Result<(), BenchError> {
    Ground::prepare(&options.medium, options).map(drop)
}

fn real_facts(arena: &Arena, huge_bytes: u64, options: &ProfileOptions) -> Vec<Fact> {
    let sizes = arena.sizes();
    let set = ByteSize(sizes.read_bytes);
    let cache = match machine::cache_bytes() {
        Some(cache) => format!(
            "{:.1} times the largest cache of {}",
            sizes.read_bytes as f64 / cache as f64,
            ByteSize(cache)
        ),
        None => "the caches' size is not known".to_owned(),
    };
    let pages = match (arena.kind(), options.huge_pages) {
        (RegionKind::Anonymous, true) => format!(
            "2 MiB asked for, {:.0}% of the memory has them",
            huge_bytes as f64 * 100.0 / (sizes.read_bytes + sizes.write_bytes) as f64
        ),
        (RegionKind::Anonymous, false) => "4 KiB".to_owned(),
        _ => "as the file system or the device maps them".to_owned(),
    };
    vec![
        Fact {
            name: "working set",
            text: format!(
                "{set} read, {} written, all of it touched before; {cache}",
                ByteSize(sizes.write_bytes)
            ),
        },
        Fact { name: "pages", text: pages },
        Fact {
            name: "samples",
            text: format!(
                "median of {ROUNDS} rounds over all figures, samples of {} ms; ± is half the range",
                sample_time(options.full).as_millis()
            ),
        },
        Fact {
            name: "not controlled",
            text: "the processor's prefetching (on, as the system has it), its frequency, other \
                   programs and other machines on the same hardware"
                .to_owned(),
        },
    ]
}
