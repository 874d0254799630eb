//! Server of memcached's protocol under load.

use std::time::Duration;

use entresol_base::{Stop, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;

use super::threads::KEY_BYTES;
use super::{CurveOptions, Loaded, System};
use crate::load::{Address, LoadOptions, measure_tally, preload};

/// Requests in flight per connection at most. In an open loop more are rarely needed, and a
/// saturated server answers many at once.
const DEPTH: usize = 32;
/// Warm-up before each load.
const WARM_UP: Duration = Duration::from_millis(200);

/// Server with the options of its load.
pub(super) struct ServerSystem {
    options: LoadOptions,
}

impl ServerSystem {
    pub(super) fn open(
        address: &Address,
        options: &CurveOptions,
        progress: &Progress,
    ) -> Result<ServerSystem, BenchError> {
        let options = LoadOptions {
            keys: options.keys,
            key_bytes: KEY_BYTES,
            value_bytes: usize::try_from(options.size.0).unwrap_or(usize::MAX),
            get_share: options.read_share,
            connections: options.clients,
            depth: DEPTH,
            warm_up: WARM_UP,
            seed: options.seed,
            ..LoadOptions::new(address.clone())
        };
        options.check()?;
        preload(&options, &SystemClock::new(), progress.stop())?;
        Ok(ServerSystem { options })
    }

    fn run(
        &self,
        rate_ops_s: Option<f64>,
        duration: Duration,
        stop: &Stop,
    ) -> Result<Loaded, BenchError> {
        let options = LoadOptions { rate_ops_s, duration, ..self.options.clone() };
        let clock = SystemClock::new();
        let progress = Progress::quiet(stop);
        let measured = measure_tally(&options, &clock, &progress)?;
        let mut times = measured.tally.get_times.clone();
        times.merge(&measured.tally.set_times);
        Ok(Loaded {
            late_p99_us: measured.tally.generator_late.percentile_us(99.0),
            // Each request that falls due is answered in the end.
            due: times.count(),
            time_s: duration.as_secs_f64(),
            seconds: measured.tally.ended.since(measured.began).as_secs_f64(),
            times,
            ..Loaded::default()
        })
    }
}

impl System for ServerSystem {
    fn saturation(&mut self, time: Duration, stop: &Stop) -> Result<f64, BenchError> {
        // Batches of a closed loop cost a server less than requests that fall due one by one.
        let rate = |loaded: &Loaded| loaded.times.count() as f64 / loaded.seconds.max(1e-9);
        let closed = rate(&self.run(None, time, stop)?);
        let open = rate(&self.run(Some(closed), time, stop)?);
        Ok(open.min(closed))
    }

    fn load(&mut self, per_second: f64, time: Duration, stop: &Stop) -> Result<Loaded, BenchError> {
        self.run(Some(per_second), time, stop)
    }

    fn describe(&self) -> String {
        format!(
            "server {}, {} connections with at most {DEPTH} requests in flight each, one thread of \
             the generator",
            self.options.address, self.options.connections
        )
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
}
