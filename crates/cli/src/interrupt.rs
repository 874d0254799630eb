//! Ctrl-C and other signals that end a command: long work ends with its results so far, or states
//! what is lost.

use std::io;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use entresol_base::Stop;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::{files, lacks_descriptors};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXCPU, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::standard::tell;

/// Offset of exit statuses for signals: shells add it to the signal's number.
const BY_SIGNAL: i32 = 128;

/// Signal that requested an end.
static SIGNAL: AtomicI32 = AtomicI32::new(SIGINT);
/// Number of the process that ends with the command, or 0.
static CHILD: AtomicU32 = AtomicU32::new(0);
/// Description of what stays behind if the command ends at once.
static LEFT: Mutex<String> = Mutex::new(String::new());

/// Runs a measurement under `progress` and returns its result, also after an interruption.
pub(crate) fn measured<T>(
    progress: &Progress,
    measure: impl FnOnce(&Progress) -> Result<T, BenchError>,
) -> anyhow::Result<T> {
    watch(progress)?;
    let result = measure(progress);
    progress.finish();
    Ok(result?)
}

/// Returns the exit status of a command that was interrupted after it had shown its results.
pub(crate) fn status() -> u8 {
    u8::try_from(BY_SIGNAL + SIGNAL.load(Relaxed)).unwrap_or(u8::MAX)
}

/// Makes a write beyond the limit of a file's size (`ulimit -f`) an error of that write, which can
/// be told, instead of the end of the process.
pub(crate) fn outlive_file_size_limit() -> io::Result<()> {
    // Nothing reads the flag: a signal that is caught does not kill.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Notes what the command makes and removes in the end. A command that ends at once names it.
pub(crate) fn leaves(left: String) {
    *LEFT.lock().unwrap_or_else(PoisonError::into_inner) = left;
}

/// Notes a process that the command has started in another group. It is killed if the command ends
/// at once.
pub(crate) fn ends_with_us(process: &Child) {
    CHILD.store(process.id(), Relaxed);
}

/// Makes signals request an end of the work with its results so far. A second signal ends the
/// command at once.
pub(crate) fn watch(progress: &Progress) -> anyhow::Result<()> {
    let (shown, stop) = (progress.clone(), progress.stop().clone());
    on_signals(move |signal| {
        if stop.is_asked() {
            let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if !left.is_empty() {
                tell(&left);
            }
            exit(signal);
        }
        ask(&stop, signal);
        let state = shown.state();
        shown.finish();
        tell(&format!("interrupted in {state}; press Ctrl-C again to exit at once"));
    })
}

/// Makes signals end the command with a sentence: the current work, its progress, and `left`, which
/// states what is lost.
pub(crate) fn announce(progress: &Progress, left: &'static str) -> anyhow::Result<()> {
    let progress = progress.clone();
    on_signals(move |signal| {
        let state = progress.state();
        progress.finish();
        tell(&format!("interrupted in {state}; {left}"));
        exit(signal);
    })
}

/// Makes a signal wait until short work is done that is not to be left half done. A second signal
/// ends the command at once. Returns the wish to end.
pub(crate) fn defer() -> anyhow::Result<Stop> {
    let stop = Stop::new();
    let asked = stop.clone();
    on_signals(move |signal| {
        if asked.is_asked() {
            exit(signal);
        }
        ask(&asked, signal);
    })?;
    Ok(stop)
}

fn ask(stop: &Stop, signal: i32) {
    SIGNAL.store(signal, Relaxed);
    stop.ask();
}

fn exit(signal: i32) -> ! {
    let child = i32::try_from(CHILD.load(Relaxed)).ok().and_then(Pid::from_raw);
    // It may have ended.
    let _ = child.map(|child| kill_process(child, Signal::KILL));
    std::process::exit(BY_SIGNAL + signal)
}

/// Returns true if the process was started with a signal ignored, as by `nohup`.
fn is_ignored(signal: i32) -> bool {
    let status = files::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal - 1) & 1 == 1
}

/// Calls `act` on each signal that asks the command to end: Ctrl-C, `kill`, the terminal's end, and
/// the limit of processor time (`ulimit -St`).
pub(crate) fn on_signals(mut act: impl FnMut(i32) + Send + 'static) -> anyhow::Result<()> {
    let mut wanted = vec![SIGINT, SIGTERM, SIGXCPU];
    if !is_ignored(SIGHUP) {
        wanted.push(SIGHUP);
    }
    let mut signals = Signals::new(wanted).map_err(|error| {
        let advice = match lacks_descriptors(&error) {
            true => ": raise the limit of open files (`ulimit -n`)",
            false => "",
        };
        BenchError::Failed(format!("cannot listen to signals: {error}{advice}"))
    })?;
    let run = move || signals.forever().for_each(&mut act);
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(run);
    thread.map(drop).map_err(|error| {
        let what = "cannot start the thread for signals";
        let advice = "raise the limit of processes and threads (`ulimit -u`, or of the service)";
        BenchError::Failed(format!("{what}: {error}: {advice}")).into()
    })
}
