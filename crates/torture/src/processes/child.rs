//! The child: a process that writes to the store, and reports what was acknowledged by single
//! bytes on its standard output.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_measure::{BenchError, StorePlace};
use entresol_store::trial::{self, Change, NAMES, To};
use entresol_store::{Kvdb, KvdbOptions, StoreError};

use super::faults::{Faults, Lasting};
use super::{Harm, told, tracer};

/// Writing threads of a child.
pub(super) const THREADS: u8 = 3;
const KEYS: u64 = 150;
/// First of the bytes that report an acknowledged write, one for each thread.
pub(super) const WRITTEN: u8 = b'0';
/// First of the bytes that report the beginning of a sync.
pub(super) const SYNC_BEGUN: u8 = b'a';
/// First of the bytes that report the end of a sync.
pub(super) const SYNCED: u8 = b'A';
/// First of the bytes that report that the store takes no more writes of a thread.
pub(super) const ENDED: u8 = b'x';
/// Byte that reports a call of the store that was answered with an error.
pub(super) const REFUSED: u8 = b'e';
/// Byte that reports an opening that was answered with an error.
pub(super) const NOT_OPENED: u8 = b'o';

/// Pause before a refused call is tried again.
const PAUSE: Duration = Duration::from_millis(1);
/// Number of times that a refused write is tried while its calls fail for ever.
const TRIES_IN_VAIN: u32 = 20;
/// Number of times that a write is tried once its fault is over: a minute, against hanging.
const TRIES_MAX: u32 = 60_000;
/// Number of times that a child opens a store of which one call fails: for the opening or the store
/// that fails of it, and once more.
const OPENINGS_MAX: u32 = 2;

type Out<'a> = Mutex<&'a mut (dyn Write + Send)>;

/// Draws the next write of a thread: mostly one change, sometimes a batch.
pub(super) fn next(rng: &mut Rng, thread: u8) -> Vec<Change> {
    let changes = if rng.one_in(8) { 2 + rng.below(6) } else { 1 };
    (0..changes).map(|_| change(rng, thread)).collect()
}

fn change(rng: &mut Rng, thread: u8) -> Change {
    let kvs = rng.index(NAMES.len());
    let mut key = format!("{thread}-{:03}", rng.below(KEYS)).into_bytes();
    let to = match rng.below(40) {
        0 => {
            key.pop();
            To::RangeDelete
        }
        1..=6 => To::Gone,
        _ => {
            let bytes = [0, 20, 120, 700, 3000][rng.index(5)] + rng.index(30);
            To::Value(vec![rng.next_u64() as u8; bytes])
        }
    };
    Change { kvs, key, to }
}

/// Returns the generator that determines a thread's writes in a round.
pub(super) fn stream(seed: u64, round: u64, thread: u8) -> Rng {
    Rng::named(seed, &format!("round {round} thread {thread}"))
}

/// Returns the options of the store.
pub(super) fn options(place: &StorePlace) -> KvdbOptions {
    KvdbOptions {
        segment_bytes: 64 << 10,
        generation_bytes: 256 << 10,
        memory_bytes: 8 << 20,
        pmem: place.pmem,
        ..KvdbOptions::default()
    }
}

/// Runs the child: it opens the store and writes. It returns only on failure, or when its calls
/// fail for ever and the store has refused its writes.
///
/// # Errors
/// Fails if the store fails, or does so otherwise than the harm permits.
pub fn child(
    place: &StorePlace,
    seed: u64,
    round: u64,
    harm: Harm,
    out: &mut (dyn Write + Send),
) -> Result<(), BenchError> {
    end_at_a_panic();
    let faults = (harm == Harm::Faults).then(|| Faults::of(seed, round));
    if faults.is_some() {
        tracer::be_traced()?;
    }
    let out: &Out = &Mutex::new(out);
    let faults = faults.as_ref();
    let writer = |thread| Writer::of(stream(seed, round, thread), thread, harm, faults);
    let mut writers = Vec::from_iter((0..THREADS).map(writer));
    for opening in 1.. {
        match Kvdb::open_at(&place.path, options(place)) {
            Ok(store) => {
                write_all(&store, &mut writers, out)?;
                let closed = store.close();
                closed.or_else(|error| forgive(faults, &error))?;
            }
            Err(_) if harm == Harm::Shutdown => await_the_end(out)?,
            Err(error) => {
                forgive(faults, &error)?;
                report(out, NOT_OPENED)?;
            }
        }
        match faults.map(|it| it.lasting) {
            Some(Lasting::Once) if opening < OPENINGS_MAX => {}
            Some(Lasting::Once) => {
                let what = format!("one call failed, and {opening} openings ended in errors");
                return Err(BenchError::Failed(what));
            }
            _ => break,
        }
    }
    Ok(())
}

/// Makes a panic of any thread, also of the store's own, the end of the process by SIGABRT.
fn end_at_a_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

/// Passes an error over if failed calls explain it.
fn forgive(faults: Option<&Faults>, error: &StoreError) -> Result<(), BenchError> {
    match faults.map(|it| it.judge(error)) {
        None => Err(told(error)),
        Some(None) => Ok(()),
        Some(Some(what)) => Err(BenchError::Failed(format!("{what}: {error}"))),
    }
}

fn report(out: &Out, byte: u8) -> Result<(), BenchError> {
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    let put = out.write_all(&[byte]).and_then(|()| out.flush());
    put.map_err(|source| BenchError::System { what: "acknowledging", source })
}

/// Reports an error, and waits to be killed: the answers of a machine that goes down say nothing.
fn await_the_end(out: &Out) -> Result<(), BenchError> {
    report(out, REFUSED)?;
    loop {
        std::thread::park();
    }
}

/// Lets all threads write until the store takes no more.
fn write_all(store: &Kvdb, writers: &mut [Writer<'_>], out: &Out) -> Result<(), BenchError> {
    std::thread::scope(|scope| {
        let threads = writers.iter_mut().map(|it| scope.spawn(move || it.write_on(store, out)));
        let threads = Vec::from_iter(threads);
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(BenchError::Failed("a writer panicked".to_owned())))
        })
    })
}

/// A writing thread.
struct Writer<'a> {
    thread: u8,
    writes: Rng,
    other: Rng,
    /// Write that was refused, and may be there or not. It is tried again before any other.
    refused: Option<Vec<Change>>,
    harm: Harm,
    faults: Option<&'a Faults>,
}

impl<'a> Writer<'a> {
    fn of(mut writes: Rng, thread: u8, harm: Harm, faults: Option<&'a Faults>) -> Writer<'a> {
        let other = Rng::named(writes.next_u64(), "other");
        Writer { thread, writes, other, refused: None, harm, faults }
    }

    /// Writes until the store has failed, or its calls fail for ever.
    fn write_on(&mut self, store: &Kvdb, out: &Out) -> Result<(), BenchError> {
        loop {
            let changes = self.refused.take();
            let changes = changes.unwrap_or_else(|| next(&mut self.writes, self.thread));
            if !self.write(store, &changes, out)? {
                self.refused = Some(changes);
                return report(out, ENDED + self.thread);
            }
            report(out, WRITTEN + self.thread)?;
            let syncs = if self.harm == Harm::Shutdown { 20 } else { 200 };
            if self.other.one_in(syncs) {
                report(out, SYNC_BEGUN + self.thread)?;
                if self.is_done(store.sync(), out)? {
                    report(out, SYNCED + self.thread)?;
                }
            } else if self.thread == 0 && self.other.one_in(400) {
                self.is_done(store.compact(), out)?;
            }
        }
    }

    /// Tries a write until it is done, and returns true; or false if the store takes no more.
    fn write(&self, store: &Kvdb, changes: &[Change], out: &Out) -> Result<bool, BenchError> {
        for attempt in 1.. {
            let Err(error) = trial::write(store, changes) else { break };
            self.pass(&error, out)?;
            let lasting = self.faults.map(|it| it.lasting);
            let is_vain = lasting == Some(Lasting::ForEver) && attempt >= TRIES_IN_VAIN;
            if matches!(error, StoreError::Failed { .. }) || is_vain {
                return Ok(false);
            }
            if attempt >= TRIES_MAX {
                let what = format!("one call failed, and the store has refused since: {error}");
                return Err(BenchError::Failed(what));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(true)
    }

    fn is_done(&self, done: Result<(), StoreError>, out: &Out) -> Result<bool, BenchError> {
        match done {
            Ok(()) => Ok(true),
            Err(error) => self.pass(&error, out).map(|()| false),
        }
    }

    /// Reports an error and passes it over if the harm explains it.
    fn pass(&self, error: &StoreError, out: &Out) -> Result<(), BenchError> {
        if self.harm == Harm::Shutdown {
            return await_the_end(out);
        }
        forgive(self.faults, error)?;
        report(out, REFUSED)
    }
}
