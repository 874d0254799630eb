//! Ctrl-C during a long measurement: names the work that was interrupted before the command ends.

use std::io::Write;

use anyhow::Context;
use entresol_bench::progress::Progress;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Offset of exit statuses for signals: shells add it to the signal's number.
const BY_SIGNAL: i32 = 128;

/// Makes SIGINT and SIGTERM end the command with a sentence: the work under way, its progress, and,
/// as `left` says, the results that are lost.
pub(crate) fn announce(progress: &Progress, left: &'static str) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
    let progress = progress.clone();
    let run = move || {
        if let Some(signal) = signals.forever().next() {
            let state = progress.state();
            progress.finish();
            let _ = writeln!(std::io::stderr(), "entresol: interrupted in {state}; {left}");
            std::process::exit(BY_SIGNAL + signal);
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(run);
    thread.context("a thread that waits for signals")?;
    Ok(())
}
