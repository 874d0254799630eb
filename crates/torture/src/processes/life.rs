//! The life of a child: it is started, harmed and killed, and what it reported is counted.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use entresol_base::Stop;
use entresol_base::rng::Rng;
use entresol_measure::BenchError;
use nix::libc::{SIGBUS, SIGKILL};
use nix::sys::wait::WaitStatus;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::child::{ENDED, NOT_OPENED, REFUSED, SYNC_BEGUN, SYNCED, THREADS, WRITTEN};
use super::faults::Faults;
use super::machine::Machine;
use super::{Harm, tracer};

/// Largest number of milliseconds from a child's first report until it is killed.
const LIFE_MS_MAX: u64 = 30;
/// Largest number of milliseconds for a child whose calls fail, or whose machine crashes.
const HARMED_LIFE_MS_MAX: u64 = 150;
/// Largest number of milliseconds until a child is killed while it opens the store.
const OPENING_MS_MAX: u64 = 15;
/// Writes of each thread that a child acknowledges, or ends, before it is killed, if it is known to
/// hang otherwise.
const WRITES_MIN: u64 = 3;
/// Time without a report after which a child has failed.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Interval at which a silent child is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A number for each thread.
pub(super) type Counts = [u64; THREADS as usize];

/// Reports of a child, counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    /// Acknowledged writes.
    pub(super) acknowledged: Counts,
    /// Acknowledged writes that a later sync covered, before the machine went down: while it does,
    /// ext4 answers syncs of data that it loses, which a machine that crashes cannot.
    pub(super) durable: Counts,
    /// Calls that were answered with an error.
    pub(super) refused: u64,
    /// Openings that were answered with an error.
    pub(super) not_opened: u64,
    /// Acknowledged writes when the current sync of each thread began.
    at_sync: [Counts; THREADS as usize],
}

/// Returns the thread of which `byte` reports something, if it does so from `first` on.
fn thread_of(byte: u8, first: u8) -> Option<usize> {
    let thread = byte.wrapping_sub(first);
    (thread < THREADS).then_some(usize::from(thread))
}

impl Told {
    fn hear(&mut self, byte: u8, goes_down: bool) {
        if let Some(thread) = thread_of(byte, WRITTEN) {
            self.acknowledged[thread] += 1;
        } else if let Some(thread) = thread_of(byte, SYNC_BEGUN) {
            self.at_sync[thread] = self.acknowledged;
        } else if let Some(thread) = thread_of(byte, SYNCED).filter(|_| !goes_down) {
            for (durable, then) in self.durable.iter_mut().zip(self.at_sync[thread]) {
                *durable = then.max(*durable);
            }
        }
        self.refused += u64::from(byte == REFUSED);
        self.not_opened += u64::from(byte == NOT_OPENED);
    }
}

/// A child that has ended.
pub(super) struct Ended {
    pub(super) told: Told,
    pub(super) faults: Option<Faults>,
    /// True if it was not killed.
    pub(super) by_itself: bool,
}

/// A child's life, before it begins.
pub(super) struct Life<'a> {
    pub(super) harm: Harm,
    pub(super) seed: u64,
    pub(super) round: u64,
    pub(super) store: &'a Path,
    pub(super) machine: Option<&'a Machine>,
    pub(super) stop: &'a Stop,
}

impl Life<'_> {
    /// Lets a child live for a while and kills it.
    pub(super) fn lead(&self, mut child: Child) -> Result<Ended, BenchError> {
        let mut rng = Rng::named(self.seed, &format!("life {}", self.round));
        let (tell, reports) = channel();
        let out = child.stdout.take();
        let goes_down = &AtomicBool::new(false);
        let mut faults = (self.harm == Harm::Faults).then(|| Faults::of(self.seed, self.round));
        let (lived, status, heard) = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                out.map_or((Told::default(), false), |it| hear_all(it, &tell, goes_down))
            });
            let ended = match (&mut faults, self.machine) {
                (Some(faults), _) => self.be_faulty(child, rng, reports, faults),
                (None, machine) => {
                    let lived = self.live(&mut rng, &reports);
                    if let Some(machine) = machine {
                        machine.write_back(&mut rng);
                    }
                    goes_down.store(true, SeqCst);
                    let crashed = machine.map_or(Ok(()), |it| it.shut_down(&mut rng));
                    kill(&mut child).and_then(|status| crashed.map(|()| (lived, status)))
                }
            };
            let heard = reader.join().unwrap_or_default();
            ended.map(|(lived, status)| (lived, status, heard))
        })?;
        let (told, is_refused_early) = heard;
        let failed = |what: String| {
            let faults = faults.as_ref().map(|it| format!("; {it}")).unwrap_or_default();
            let (round, store) = (self.round, self.store.display());
            Err(BenchError::Failed(format!(
                "round {round}: {what}{faults}; the store is in {store}"
            )))
        };
        if !lived {
            return failed(format!("a child reported nothing for {} s", SILENCE_MAX.as_secs()));
        }
        if self.harm == Harm::Shutdown && is_refused_early {
            return failed("a call of the store was refused before the machine crashed".to_owned());
        }
        if !self.may_end(status, faults.as_ref()) {
            return failed(format!("a child ended by itself ({status}); it said why above"));
        }
        Ok(Ended { told, faults, by_itself: status.signal().is_none() })
    }

    /// Returns true if a child may end like this.
    fn may_end(&self, status: ExitStatus, faults: Option<&Faults>) -> bool {
        match status.signal() {
            Some(SIGKILL) => true,
            // A store reads and writes its log through a mapping.
            Some(SIGBUS) => self.harm == Harm::Shutdown,
            Some(_) => false,
            None => status.success() && faults.is_some_and(|it| !it.struck.is_empty()),
        }
    }

    /// Lets calls of the child fail until it ends, or is killed.
    fn be_faulty(
        &self,
        mut child: Child,
        mut rng: Rng,
        reports: Receiver<Vec<u8>>,
        faults: &mut Faults,
    ) -> Result<(bool, ExitStatus), BenchError> {
        let seized = tracer::seize(child.id()).and_then(|pid| {
            let system = |errno: rustix::io::Errno| {
                let (what, source) = ("looking for a child", errno.into());
                BenchError::System { what, source }
            };
            let pidfd =
                Pid::from_raw(child.id() as i32).map(|it| pidfd_open(it, PidfdFlags::empty()));
            let pidfd: OwnedFd = pidfd.unwrap_or(Err(rustix::io::Errno::SRCH)).map_err(system)?;
            Ok((pid, pidfd))
        });
        let (pid, pidfd) = match seized {
            Ok(seized) => seized,
            Err(error) => return kill(&mut child).and(Err(error)),
        };
        // The end of its input tells it to go on.
        drop(child.stdin.take());
        std::thread::scope(|scope| {
            let killer = scope.spawn(move || {
                let lived = self.live(&mut rng, &reports);
                // It may have ended by itself.
                let _ = pidfd_send_signal(pidfd, Signal::KILL);
                lived
            });
            let status = match tracer::trace(pid, faults, self.store)? {
                WaitStatus::Exited(_, code) => ExitStatus::from_raw(code << 8),
                WaitStatus::Signaled(_, signal, _) => ExitStatus::from_raw(signal as i32),
                other => return Err(BenchError::Failed(format!("a child ended with {other:?}"))),
            };
            Ok((killer.join().unwrap_or_default(), status))
        })
    }

    /// Waits until the child is to be killed, at the latest until the run's time is up. Returns
    /// false if the child was silent for too long.
    fn live(&self, rng: &mut Rng, reports: &Receiver<Vec<u8>>) -> bool {
        // What is harmed is harmed while it opens the store as well.
        let (life_ms_max, in_opening) = match self.harm {
            Harm::Kill => (LIFE_MS_MAX, 4),
            Harm::Faults | Harm::Shutdown => (HARMED_LIFE_MS_MAX, 12),
        };
        if rng.one_in(in_opening) {
            std::thread::sleep(Duration::from_micros(rng.below(OPENING_MS_MAX * 1000)));
            return true;
        }
        let is_heard = self.wait_until(reports, |_| true);
        let mut left = Duration::from_micros(rng.below(life_ms_max * 1000));
        // A child that has ended need not be waited for.
        while is_heard == Some(true) && !left.is_zero() {
            let step = left.min(LOOK_EVERY);
            std::thread::sleep(step);
            left -= step;
            if self.stop.is_due() {
                return true;
            }
        }
        if self.harm == Harm::Faults && rng.one_in(2) && is_heard == Some(true) {
            return self.see_progress(reports);
        }
        is_heard.is_some()
    }

    /// Waits until each thread of a child has gone on or ended: one that hangs is silent for ever.
    fn see_progress(&self, reports: &Receiver<Vec<u8>>) -> bool {
        let mut threads = [Some(0); THREADS as usize];
        let is_over = |bytes: &[u8]| {
            for &byte in bytes {
                if let Some(thread) = thread_of(byte, WRITTEN) {
                    threads[thread] = Some(threads[thread].unwrap_or_default() + 1);
                } else if let Some(thread) = thread_of(byte, ENDED) {
                    threads[thread] = None;
                }
            }
            // Where all threads have ended, the process must end as well, or open the store again.
            threads.iter().any(Option::is_some)
                && threads.iter().all(|writes| writes.is_none_or(|it| it >= WRITES_MIN))
        };
        self.wait_until(reports, is_over).is_some()
    }

    /// Waits for the report that `is_it` accepts, until the child ends or the run's time is up.
    /// Returns true if the child has ended or may go on, and nothing if it was silent for too long.
    fn wait_until(
        &self,
        reports: &Receiver<Vec<u8>>,
        mut is_it: impl FnMut(&[u8]) -> bool,
    ) -> Option<bool> {
        let mut silence = Duration::ZERO;
        while silence < SILENCE_MAX {
            match reports.recv_timeout(LOOK_EVERY) {
                Ok(bytes) if is_it(&bytes) => return Some(true),
                Ok(_) => silence = Duration::ZERO,
                // The status of a child that ended early shows the failure.
                Err(RecvTimeoutError::Disconnected) => return Some(false),
                Err(RecvTimeoutError::Timeout) => silence += LOOK_EVERY,
            }
            if self.stop.is_due() {
                return Some(false);
            }
        }
        None
    }
}

fn kill(child: &mut Child) -> Result<ExitStatus, BenchError> {
    let system = |what| move |source| BenchError::System { what, source };
    child.kill().map_err(system("killing a child"))?;
    child.wait().map_err(system("waiting for a child"))
}

/// Hears what a child reports, up to the end of the pipe. Returns true as well if a call was
/// refused although the machine was not going down yet.
fn hear_all(mut out: impl Read, tell: &Sender<Vec<u8>>, goes_down: &AtomicBool) -> (Told, bool) {
    let (mut told, mut is_refused_early) = (Told::default(), false);
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = out.read(&mut bytes) {
        let bytes = &bytes[..len];
        let goes_down = goes_down.load(SeqCst);
        bytes.iter().for_each(|byte| told.hear(*byte, goes_down));
        is_refused_early |= told.refused > 0 && !goes_down;
        // The receiver may be gone already.
        let _ = tell.send(bytes.to_vec());
    }
    (told, is_refused_early)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_what_was_acknowledged_before_it_began() {
        let durable = |reports: &str| {
            let mut told = Told::default();
            reports.bytes().for_each(|byte| told.hear(byte, false));
            (told.acknowledged, told.durable)
        };
        assert_eq!(durable("001"), ([2, 1, 0], [0; 3]));
        assert_eq!(durable("001a02"), ([3, 1, 1], [0; 3]), "it did not end");
        assert_eq!(durable("001a02A"), ([3, 1, 1], [2, 1, 0]));
        // The one that began first ends last.
        assert_eq!(durable("0a0bBA"), ([2, 0, 0], [2, 0, 0]));
        assert_eq!(durable("0a0bAB"), ([2, 0, 0], [2, 0, 0]));
        assert_eq!(durable("0a1c0eA"), ([2, 1, 0], [1, 0, 0]), "the other failed");
    }

    #[test]
    fn a_call_that_is_refused_before_the_machine_goes_down_is_noticed() {
        let is_early = |goes_down: bool| {
            let (tell, _reports) = channel();
            hear_all(&b"012e"[..], &tell, &AtomicBool::new(goes_down)).1
        };
        assert!(is_early(false) && !is_early(true));
    }

    #[test]
    fn a_sync_that_is_answered_while_the_machine_goes_down_covers_nothing() {
        let durable = |goes_down: bool| {
            let (tell, _reports) = channel();
            hear_all(&b"001aA"[..], &tell, &AtomicBool::new(goes_down)).0.durable
        };
        assert_eq!((durable(false), durable(true)), ([2, 1, 0], [0; 3]));
    }
}
