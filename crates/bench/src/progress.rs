//! Progress on standard error, so that standard output holds results only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How far a measurement has come. Draws nothing where standard error is no terminal.
#[derive(Debug, Clone)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar of `total` steps.
    #[must_use]
    pub fn new(total: u64, what: &str) -> Progress {
        let bar = ProgressBar::new(total);
        let template = "{msg:30} {bar:40} {percent:>3}% {elapsed} left {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress { bar }
    }

    /// A bar of `total` steps, or a count of steps whose end is not known.
    #[must_use]
    pub fn counter(what: &str, total: Option<u64>) -> Progress {
        if let Some(total) = total {
            return Progress::new(total, what);
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{msg:30} {spinner} {human_pos} {elapsed}")
        {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress { bar }
    }

    /// A bar that is never drawn, for tests and callers with displays of their own.
    #[must_use]
    pub fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden() }
    }

    /// Adds to the steps that are to come.
    pub fn expect(&self, steps: u64) {
        self.bar.inc_length(steps);
    }

    /// Names the step that has begun.
    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Records that `steps` more are done.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// The step that is under way, and how many are done.
    #[must_use]
    pub fn state(&self) -> String {
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        format!("{}, {done} of {all} done", self.bar.message())
    }

    /// Takes the bar off the screen.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
