//! Figure 11: the largest multiple of ACT's load at which a drive keeps the response times.

use entresol_bench::act::Limits;
use entresol_measure::report::svg::{Bar, bars_beside};
use entresol_media::model::ModelName;

use super::{act, act_store};
use crate::{Check, Outcome, Settings, Side};

const DRIVES: [(&str, ModelName); 3] = [
    ("prototype", ModelName::OptaneSsd),
    ("P3700", ModelName::NandP3700),
    ("S3700", ModelName::NandS3700),
];

/// Search for the largest multiples on a drive that keep each of the limits.
type Search = fn(ModelName, [Limits; 2], u64) -> Result<[u32; 2], String>;

/// Largest multiples on each drive under the tool's limits and the tightened ones.
#[derive(Debug, Clone, Copy)]
struct Best {
    standard: [u32; 3],
    tight: [u32; 3],
}

impl Best {
    /// Searches on each drive: the drive itself, or a store on it.
    fn of(search: Search, seed: u64) -> Result<Best, String> {
        let mut best = Best { standard: [0; 3], tight: [0; 3] };
        for (drive, (_, model)) in DRIVES.into_iter().enumerate() {
            [best.standard[drive], best.tight[drive]] = search(model, Limits::ALL, seed)?;
        }
        Ok(best)
    }

    /// Returns a bar of each drive and limit. The text prints two multiples, both under the
    /// tightened limits.
    fn bars(self) -> Vec<(Bar, Option<f64>)> {
        let bar = |series, multiples: [u32; 3], papers: [Option<f64>; 3]| {
            DRIVES.iter().zip(multiples).zip(papers).map(move |(((drive, _), multiple), paper)| {
                let label = format!("{drive}, {}", ["standard", "p95 within 128 us"][series]);
                (Bar { label, value: f64::from(multiple), series }, paper)
            })
        };
        let papers = [Some(125.0), Some(8.0), None];
        bar(0, self.standard, [None; 3]).chain(bar(1, self.tight, papers)).collect()
    }
}

fn note([prototype, p3700, s3700]: [u32; 3]) -> String {
    format!("prototype {prototype}, P3700 {p3700}, S3700 {s3700}")
}

fn ratio([prototype, p3700, _]: [u32; 3]) -> f64 {
    f64::from(prototype) / f64::from(p3700)
}

fn checks_of_drives(best: Best) -> Vec<Check> {
    let [prototype, p3700, _] = best.tight.map(f64::from);
    vec![
        Check::about(
            "best multiple that passes, prototype over the P3700",
            "",
            3.75,
            ratio(best.standard),
            25,
        )
        .noting(note(best.standard)),
        Check::about("best multiple with p95 at most 128 us, prototype", "x", 125.0, prototype, 25),
        Check::about("best multiple with p95 at most 128 us, P3700", "x", 8.0, p3700, 25),
        Check::at_least("the same, prototype over the P3700", "", 12.0, ratio(best.tight))
            .beside(15.6)
            .noting(note(best.tight)),
    ]
}

/// Checks the store as the drives are checked, and the baseline on every drive.
fn checks_of_stores(best: Best) -> Vec<Check> {
    let all = format!("{}; p95 within 128 us: {}", note(best.standard), note(best.tight));
    let least = best.standard.into_iter().min().map_or(0.0, f64::from);
    let what = "the store's own ACT: the same with p95 at most 128 us";
    let tight = Check::at_least(what, "", 12.0, ratio(best.tight)).beside(15.6);
    // A drive that passes at no multiple has no ratio, and an infinite one is no result.
    let tight = match best.tight[1] {
        0 => tight.not_measured("the P3700 passes at no multiple"),
        _ => tight,
    };
    vec![
        Check::report("the store's own ACT beside", "", None, all, "no number in the text"),
        Check::limit(
            "the store's own ACT: best multiple that passes, the worst drive",
            "x",
            Side::AtLeast,
            1.0,
            least,
        ),
        Check::about(
            "the store's own ACT: best multiple that passes, prototype over the P3700",
            "",
            3.75,
            ratio(best.standard),
            25,
        ),
        tight,
    ]
}

fn outcome(seed: u64) -> Result<Outcome, String> {
    let drives = Best::of(act::best_multiples, seed)?;
    let stores = Best::of(act_store::best_multiples, seed)?;
    let mut checks = checks_of_drives(drives);
    checks.extend(checks_of_stores(stores));
    let limits = "Limits: 95% within 1 ms, 99% within 8 ms, 99.9% within 64 ms; tightened: 95% \
        within 128 us. The prototype is the Optane drive of figure 5, which is newer."
        .to_owned();
    let drawings = vec![
        bars_beside("Largest multiple of ACT's load (model)", "x", &drives.bars()),
        bars_beside("Largest multiple of ACT's load on our store (model)", "x", &stores.bars()),
    ];
    let mut said = vec![act::scenario(), limits];
    said.extend(act_store::scenario());
    Ok(Outcome { scenario: said, checks, drawings })
}

pub(super) fn fig11(settings: &Settings) -> Outcome {
    outcome(settings.seed).unwrap_or_else(Outcome::failed)
}
