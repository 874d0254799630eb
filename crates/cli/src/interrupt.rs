//! Ctrl-C during long work: it ends the work with its results so far, or states what is lost.

use std::io::Write;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use anyhow::Context;
use entresol_base::Stop;
use entresol_measure::progress::Progress;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Offset of exit statuses for signals: shells add it to the signal's number.
const BY_SIGNAL: i32 = 128;

/// Signal that requested an end.
static SIGNAL: AtomicI32 = AtomicI32::new(SIGINT);

/// Returns the exit status of a command that was interrupted after it had shown its results.
pub(crate) fn status() -> u8 {
    u8::try_from(BY_SIGNAL + SIGNAL.load(Relaxed)).unwrap_or(u8::MAX)
}

/// Makes SIGINT and SIGTERM request an end of the work with its results so far. A second signal
/// ends the command at once.
pub(crate) fn watch(progress: &Progress) -> anyhow::Result<()> {
    let (shown, stop) = (progress.clone(), progress.stop().clone());
    on_signals(move |signal| {
        if stop.is_asked() {
            exit(signal);
        }
        ask(&stop, signal);
        let state = shown.state();
        shown.finish();
        tell(&format!("interrupted in {state}; again to end at once"));
    })
}

/// Makes SIGINT and SIGTERM end the command with a sentence: the current work, its progress, and
/// `left`, which states what is lost.
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
    // A closed standard error cannot receive the message.
    let _ = writeln!(std::io::stderr(), "entresol: {what}");
}

fn exit(signal: i32) -> ! {
    std::process::exit(BY_SIGNAL + signal)
}

fn on_signals(mut act: impl FnMut(i32) + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
    let run = move || signals.forever().for_each(&mut act);
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(run);
    thread.context("a thread that waits for signals")?;
    Ok(())
}
