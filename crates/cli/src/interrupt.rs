//! Ctrl-C during long work: what was found so far is shown, or it is said what is lost.

use std::io::Write;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use anyhow::Context;
use entresol_base::Stop;
use entresol_bench::progress::Progress;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Offset of exit statuses for signals: shells add it to the signal's number.
const BY_SIGNAL: i32 = 128;

/// Signal that interrupted the command.
static SIGNAL: AtomicI32 = AtomicI32::new(SIGINT);

/// Returns the exit status of an interrupted command that printed its partial results.
pub(crate) fn status() -> u8 {
    u8::try_from(BY_SIGNAL + SIGNAL.load(Relaxed)).unwrap_or(u8::MAX)
}

/// Makes the first SIGINT or SIGTERM stop the work, which then shows its partial results. A second
/// one ends the command at once.
pub(crate) fn watch(progress: &Progress) -> anyhow::Result<()> {
    let (shown, stop) = (progress.clone(), progress.stop().clone());
    on_signals(move |signal| {
        if stop.is_asked() {
            exit(signal);
        }
        ask(&stop, signal);
        let state = shown.state();
        shown.finish();
        tell(&format!("interrupted in {state}; press Ctrl-C again to exit at once"));
    })
}

/// Makes SIGINT and SIGTERM end the command with a message: the work under way, its progress, and
/// `left`, which says what the interruption leaves behind.
pub(crate) fn announce(progress: &Progress, left: &'static str) -> anyhow::Result<()> {
    let progress = progress.clone();
    on_signals(move |signal| {
        let state = progress.state();
        progress.finish();
        tell(&format!("interrupted in {state}; {left}"));
        exit(signal);
    })
}

fn ask(stop: &Stop, signal: i32) {
    SIGNAL.store(signal, Relaxed);
    stop.ask();
}

fn tell(what: &str) {
    // Who has no standard error any more is told nothing.
    let _ = writeln!(std::io::stderr(), "entresol: {what}");
}

fn exit(signal: i32) -> ! {
    std::process::exit(BY_SIGNAL + signal)
}

fn on_signals(mut act: impl FnMut(i32) + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
    let run = move || signals.forever().for_each(&mut act);
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(run);
    thread.context("cannot start the thread for signals")?;
    Ok(())
}
