//! Progress on standard error, so that standard output holds results only.

use std::fmt::Write;
use std::time::Duration;

use entresol_base::Stop;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Interval between two drawings of a bar.
const TICK: Duration = Duration::from_millis(250);
/// Characters of a bar that shows elapsed time.
const WIDTH: u32 = 40;

/// Progress of a measurement, together with the signal that ends it early. Nothing is drawn if
/// standard error is not a terminal.
#[derive(Debug, Clone)]
pub struct Progress {
    bar: ProgressBar,
    stop: Stop,
}

impl Progress {
    /// Creates a bar of `total` steps.
    #[must_use]
    pub fn new(total: u64, what: &str) -> Progress {
        let template = "{msg:30} {bar:40} {percent:>3}% {elapsed} left {eta}";
        Progress::drawn(ProgressBar::new(total), ProgressStyle::with_template(template), what)
    }

    /// Creates a bar of `total` steps, or a counter if the total is unknown.
    #[must_use]
    pub fn counter(what: &str, total: Option<u64>) -> Progress {
        if let Some(total) = total {
            return Progress::new(total, what);
        }
        let template = "{msg:30} {spinner} {human_pos} {elapsed}";
        Progress::drawn(ProgressBar::new_spinner(), ProgressStyle::with_template(template), what)
    }

    /// Creates a bar that grows with elapsed time and is full after `time`.
    #[must_use]
    pub fn timed(what: &str, time: Duration) -> Progress {
        let bar = move |state: &ProgressState, out: &mut dyn Write| {
            let part = state.elapsed().as_secs_f64() / time.as_secs_f64().max(1e-9);
            let full = (part.min(1.0) * f64::from(WIDTH)) as usize;
            let left = (WIDTH as usize).saturating_sub(full);
            // A display that cannot be written to shows nothing.
            let _ = write!(out, "{}{}", "█".repeat(full), "░".repeat(left));
        };
        let template = "{msg:30} {time_bar} {elapsed}";
        let style = ProgressStyle::with_template(template);
        let style = style.map(|style| style.with_key("time_bar", bar));
        Progress::drawn(ProgressBar::new_spinner(), style, what)
    }

    fn drawn<E>(bar: ProgressBar, style: Result<ProgressStyle, E>, what: &str) -> Progress {
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        // It starts a thread, and panics if the system refuses one.
        if !bar.is_hidden() && std::thread::Builder::new().spawn(|| ()).is_ok() {
            bar.enable_steady_tick(TICK);
        }
        Progress { bar, stop: Stop::new() }
    }

    /// Creates a bar that is never drawn, for tests and for callers with a display of their own.
    #[must_use]
    pub fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden(), stop: Stop::new() }
    }

    /// Creates a bar that is never drawn, for a part of a measurement that `stop` ends.
    #[must_use]
    pub fn quiet(stop: &Stop) -> Progress {
        Progress { bar: ProgressBar::hidden(), stop: stop.clone() }
    }

    /// Adds `steps` to the number of steps to come.
    pub fn expect(&self, steps: u64) {
        self.bar.inc_length(steps);
    }

    /// Names the step that has begun.
    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Records that `steps` more steps are done.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// Records that `steps` steps are done in all.
    pub fn reach(&self, steps: u64) {
        self.bar.set_position(steps);
    }

    /// Returns the name of the current step and the number of steps done.
    #[must_use]
    pub fn state(&self) -> String {
        match (self.bar.position(), self.bar.length()) {
            (_, Some(0)) | (0, None) => self.bar.message(),
            (done, Some(all)) => format!("{}, {done} of {all} done", self.bar.message()),
            (done, None) => format!("{}, {done} done", self.bar.message()),
        }
    }

    /// Returns the signal that ends the measurement early, with the results it has.
    #[must_use]
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Returns true if the measurement is to end early, with the results it has.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_due()
    }

    /// Removes the bar from the screen.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
