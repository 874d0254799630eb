//! Figure 11: the largest multiple of ACT's load at which a drive keeps the response times.

use entresol_measure::report::svg::{Bar, bars};
use entresol_media::model::ModelName;

use super::act::{Limits, best_multiple, scenario};
use crate::{Check, Outcome, Settings};

const DRIVES: [(&str, ModelName); 3] = [
    ("prototype", ModelName::OptaneSsd),
    ("P3700", ModelName::NandP3700),
    ("S3700", ModelName::NandS3700),
];

pub(super) fn fig11(settings: &Settings) -> Outcome {
    let of = |limits| DRIVES.map(|(_, model)| best_multiple(model, limits, settings.seed));
    let (standard, tight) = (of(Limits::STANDARD), of(Limits::TIGHT));
    let [prototype, p3700, _] = tight.map(f64::from);
    let note = |[prototype, p3700, s3700]: [u32; 3]| {
        format!("prototype {prototype}, P3700 {p3700}, S3700 {s3700}")
    };
    let ratio = |[prototype, p3700, _]: [u32; 3]| f64::from(prototype) / f64::from(p3700);
    let checks = vec![
        Check::about(
            "best multiple that passes, prototype over the P3700",
            "",
            3.75,
            ratio(standard),
            25,
        )
        .noting(note(standard)),
        Check::about("best multiple with p95 at most 128 us, prototype", "x", 125.0, prototype, 25),
        Check::about("best multiple with p95 at most 128 us, P3700", "x", 8.0, p3700, 25),
        Check::at_least("the same, prototype over the P3700", "", 12.0, ratio(tight))
            .beside(15.6)
            .noting(note(tight)),
    ];
    let bar = |series, multiples: [u32; 3]| {
        DRIVES.iter().zip(multiples).map(move |((drive, _), multiple)| Bar {
            label: format!("{drive}, {}", ["standard", "p95 within 128 us"][series]),
            value: f64::from(multiple),
            series,
        })
    };
    let all: Vec<Bar> = bar(0, standard).chain(bar(1, tight)).collect();
    let limits = "Limits: 95% within 1 ms, 99% within 8 ms, 99.9% within 64 ms; tightened: 95% \
        within 128 us. The prototype is the Optane drive of figure 5, which is newer."
        .to_owned();
    let drawing = bars("Largest multiple of ACT's load (model)", "x", &all);
    Outcome { scenario: vec![scenario(), limits], checks, drawings: vec![drawing] }
}
