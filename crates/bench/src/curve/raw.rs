//! Raw medium under load: a file of this machine or a drive, or a model of a drive.

use std::time::Duration;

use entresol_base::Stop;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::MediumSpec;
use entresol_media::probe::Order;

use super::{CurveOptions, Loaded, System};
use crate::profile::ProfileOptions;
use crate::profile::file::{Closed, FileSubject, Open, subject};

/// Requests in flight whose rate is the saturation: more than any drive here needs to be busy.
const DEPTH: usize = 128;
/// Requests of a load on a model, which has all the time: enough for the 99.999th percentile.
const REQUESTS_ON_MODEL: f64 = 1_100_000.0;

/// Medium with its requests.
pub(super) struct RawSystem {
    subject: Box<dyn FileSubject>,
    is_model: bool,
    bytes: usize,
    read_share: f64,
}

impl RawSystem {
    pub(super) fn open(
        medium: &MediumSpec,
        options: &CurveOptions,
        progress: &Progress,
    ) -> Result<RawSystem, BenchError> {
        let profile = ProfileOptions {
            medium: medium.clone(),
            against: None,
            full: true,
            threads: None,
            size: Some(options.file_size),
            huge_pages: false,
            keep: false,
            seed: options.seed,
        };
        let subject = subject(medium, &profile, progress)?;
        let bytes = usize::try_from(options.size.0).unwrap_or(usize::MAX);
        let sector = subject.sector_bytes();
        if bytes > 1 << 20 || !bytes.is_multiple_of(sector) {
            let what = format!("blocks of {bytes} B: use a multiple of {sector}, at most 1MiB");
            return Err(BenchError::Usage(what));
        }
        let is_model = matches!(medium, MediumSpec::Model(_));
        Ok(RawSystem { subject, is_model, bytes, read_share: options.read_share })
    }
}

impl System for RawSystem {
    fn saturation(&mut self, _: Duration, _: &Stop) -> Result<f64, BenchError> {
        let (reads, bytes) = (self.read_share, self.bytes);
        let load = Closed { reads, order: Order::Random, bytes, depth: DEPTH };
        let outcome = self.subject.closed(&load)?;
        Ok(outcome.requests as f64 * 1e9 / outcome.elapsed_ns.max(1.0))
    }

    fn load(&mut self, per_second: f64, time: Duration, stop: &Stop) -> Result<Loaded, BenchError> {
        let time = match self.is_model {
            true => Duration::from_secs_f64(REQUESTS_ON_MODEL / per_second.max(1.0)),
            false => time,
        };
        let load = Open { reads: self.read_share, bytes: self.bytes, per_second, time };
        let outcome = self.subject.open(&load, stop)?;
        Ok(Loaded {
            times: outcome.times,
            late_p99_us: outcome.late.percentile_us(99.0),
            due: outcome.due,
            time_s: time.as_secs_f64(),
            seconds: outcome.elapsed_ns / 1e9,
            ..Loaded::default()
        })
    }

    fn describe(&self) -> String {
        let facts = self.subject.facts().into_iter();
        let facts = facts.filter(|fact| matches!(fact.name, "file" | "virtual time" | "remark"));
        facts.map(|fact| fact.text).collect::<Vec<_>>().join("; ")
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
}
