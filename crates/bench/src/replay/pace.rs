//! Times at which the requests of a trace are due: its own, faster or slower, and through a day.

use std::f64::consts::TAU;
use std::time::Duration;

use entresol_measure::BenchError;
use entresol_measure::trace::Recorded;

/// Pace of a replay that keeps the trace's own times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Speed relative to the trace's own times.
    pub speed: f64,
    /// Day that the rate follows, if any.
    pub day: Option<Day>,
}

/// Day in whose course the rate rises from its night to full speed and falls again, as a cosine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Day {
    /// Length of the day, which begins in the middle of the night.
    pub length: Duration,
    /// Rate in the middle of the night, relative to full speed; above 0.
    pub night_share: f64,
}

impl Pace {
    /// Computes the time from the beginning at which each request is due. Requests of one second
    /// are spread over it, since traces record whole seconds.
    ///
    /// # Errors
    /// Fails if the trace records no times.
    pub(super) fn due_times(&self, recorded: &Recorded) -> Result<Vec<Duration>, BenchError> {
        let requests = recorded.requests();
        if requests.last().is_none_or(|last| last.at_s == 0) {
            let what = "the trace records no times: leave --speed out";
            return Err(BenchError::Usage(what.to_owned()));
        }
        let mut due = Vec::with_capacity(requests.len());
        let mut at_s = 0.0;
        for second in requests.chunk_by(|a, b| a.at_s == b.at_s) {
            for number in 0..second.len() {
                let within = number as f64 / second.len() as f64;
                let full_speed_s = (f64::from(second[0].at_s) + within) / self.speed;
                at_s = self.day.map_or(full_speed_s, |day| day.reach(full_speed_s, at_s));
                due.push(Duration::from_secs_f64(at_s));
            }
        }
        Ok(due)
    }
}

impl Day {
    /// Returns the seconds at full speed that send as many requests as the first `at_s` seconds of
    /// days do: the integral of the rate.
    fn sent(&self, at_s: f64) -> f64 {
        let (length_s, night) = (self.length.as_secs_f64(), self.night_share);
        let swing = at_s - length_s / TAU * (TAU * at_s / length_s).sin();
        night * at_s + (1.0 - night) / 2.0 * swing
    }

    /// Returns the time, not before `from_s`, at which as many requests are sent as at full speed
    /// in `full_speed_s` seconds.
    fn reach(&self, full_speed_s: f64, from_s: f64) -> f64 {
        /// Halvings that bring an interval below the resolution of a nanosecond in any replay.
        const HALVINGS: u32 = 64;
        let (mut low, mut high) = (from_s, full_speed_s / self.night_share);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if self.sent(middle) < full_speed_s { low = middle } else { high = middle }
        }
        high.max(from_s)
    }
}

#[cfg(test)]
mod tests {
    use entresol_measure::progress::Progress;
    use entresol_measure::trace::{TraceFormat, ValueSizes};

    use super::*;

    fn recorded(text: &str) -> Recorded {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        entresol_media::files::write_atomically(&path, text.as_bytes()).unwrap();
        let file = (path.as_path(), TraceFormat::Csv);
        Recorded::read(file, &ValueSizes::Trace(None), None, &Progress::hidden()).unwrap()
    }

    #[test]
    fn requests_of_a_second_are_spread_over_it_and_speed_divides_time() {
        let recorded = recorded("time,key,size\n5,a,1\n5,b,1\n7,a,1\n");
        let due = Pace { speed: 4.0, day: None }.due_times(&recorded).unwrap();
        assert_eq!(due, [0, 125, 500].map(Duration::from_millis));
        let looped = Pace { speed: 1.0, day: None }.due_times(&recorded.repeated(2)).unwrap();
        assert_eq!(looped[3], Duration::from_secs(3));
    }

    #[test]
    fn a_day_is_quiet_at_its_ends_and_at_full_speed_in_its_middle() {
        let lines: String = (0..5500).map(|at| format!("{at},k,1\n")).collect();
        let recorded = recorded(&format!("time,key,size\n{lines}"));
        let day = Day { length: Duration::from_secs(100), night_share: 0.1 };
        let due = Pace { speed: 10.0, day: Some(day) }.due_times(&recorded).unwrap();
        assert!(due.is_sorted());
        let between = |from: u64, to: u64| {
            let range = Duration::from_secs(from)..Duration::from_secs(to);
            due.iter().filter(|at| range.contains(at)).count()
        };
        // 10 requests a second at noon, 1 at midnight, 5.5 in the mean of the day.
        for day in 0..10 {
            assert!(between(100 * day, 100 * day + 100).abs_diff(550) <= 1, "day {day}");
            assert!(between(100 * day + 49, 100 * day + 51).abs_diff(20) <= 1, "noon {day}");
            assert!(between(100 * day, 100 * day + 2) <= 3, "midnight {day}");
        }
    }

    #[test]
    fn the_shortest_nights_and_longest_traces_keep_their_order() {
        let day = Day { length: Duration::from_millis(1), night_share: 1e-3 };
        let mut at_s = 0.0;
        for number in 0..10_000 {
            let full_speed_s = f64::from(number) * 1e4;
            let next = day.reach(full_speed_s, at_s);
            assert!(next >= at_s, "{next} after {at_s}");
            assert!((day.sent(next) - full_speed_s).abs() < 1e-3, "{next} at {full_speed_s}");
            at_s = next;
        }
    }
}
