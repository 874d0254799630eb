//! Torture of a store by killing real processes. A child writes to a store in a real directory and
//! reports each acknowledged write, until SIGKILL ends it. The store must then hold exactly these
//! writes.
//!
//! Several threads of the child write, each to keys of its own. The expected contents are therefore
//! known for each thread: all acknowledged writes, and perhaps the one in flight. The kernel keeps
//! running, which means that this says nothing about a power cut.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::{Clock, Stop, SystemClock};
use entresol_measure::progress::Progress;
use entresol_measure::{BenchError, StorePlace};
use entresol_media::{Directory, LocalDirectory};
use entresol_store::trial::{self, Change, NAMES, State, To};
use entresol_store::{CursorOptions, Kvdb, KvdbOptions, KvsOptions, StoreError};
use serde::Serialize;

/// Writing threads of a child.
const THREADS: u8 = 3;
const KEYS: u64 = 150;
/// Largest number of milliseconds from a child's first acknowledged write until it is killed.
const LIFE_MS_MAX: u64 = 30;
/// Largest number of milliseconds until a child is killed while it opens the store.
const OPENING_MS_MAX: u64 = 15;
/// Time without an acknowledged write after which a child has failed.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Interval at which a silent child is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Seed of the writes and of the children's lives; the kernel's scheduling is not determined by
    /// it.
    pub seed: u64,
    /// Time limit, if there is one.
    pub time: Option<Duration>,
    /// Number of kills, if it is limited.
    pub kills: Option<u64>,
    /// Location of the store, which must not exist yet.
    pub place: StorePlace,
}

/// Result of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct KillOutcome {
    /// Subject of the run.
    pub subject: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// Children killed.
    pub kills: u64,
    /// Children killed before their first acknowledged write, while they opened the store.
    pub kills_in_opening: u64,
    /// Children killed per minute.
    pub kills_min: f64,
    /// Acknowledged writes.
    pub acknowledged: u64,
    /// Writes found that were in flight and not acknowledged.
    pub unacknowledged_found: u64,
    /// Wall time in seconds.
    pub elapsed_s: f64,
    /// Description of the failure, if there is one.
    pub failure: Option<String>,
    /// True if there was no failure.
    pub pass: bool,
    /// True if the user interrupted the run.
    pub interrupted: bool,
}

/// Draws the next write of a thread: mostly one change, sometimes a batch.
fn next(rng: &mut Rng, thread: u8) -> Vec<Change> {
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
fn stream(seed: u64, round: u64, thread: u8) -> Rng {
    Rng::named(seed, &format!("round {round} thread {thread}"))
}

fn options(place: &StorePlace) -> KvdbOptions {
    KvdbOptions {
        segment_bytes: 64 << 10,
        generation_bytes: 256 << 10,
        memory_bytes: 8 << 20,
        pmem: place.pmem,
        ..KvdbOptions::default()
    }
}

fn told(error: &StoreError) -> BenchError {
    BenchError::Engine { engine: "the store", what: error.to_string() }
}

/// Runs the child: it opens the store, writes, and prints the number of a thread to `out` for each
/// acknowledged write of that thread. It returns only on failure.
///
/// # Errors
/// Fails if the store fails.
pub fn child(
    place: &StorePlace,
    seed: u64,
    round: u64,
    out: &mut (dyn Write + Send),
) -> Result<(), BenchError> {
    let store = Kvdb::open_at(&place.path, options(place)).map_err(|it| told(&it))?;
    let (store, out) = (&store, &Mutex::new(out));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || write_on(store, thread, stream(seed, round, thread), out))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(BenchError::Failed("a writer panicked".to_owned())))
        })
    })
}

fn write_on(
    store: &Kvdb,
    thread: u8,
    mut rng: Rng,
    out: &Mutex<&mut (dyn Write + Send)>,
) -> Result<(), BenchError> {
    let mut other = Rng::named(rng.next_u64(), "other");
    loop {
        trial::write(store, &next(&mut rng, thread)).map_err(|it| told(&it))?;
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        let put = out.write_all(&[b'0' + thread]).and_then(|()| out.flush());
        put.map_err(|source| BenchError::System { what: "acknowledging", source })?;
        drop(out);
        if other.one_in(200) {
            store.sync().map_err(|it| told(&it))?;
        } else if thread == 0 && other.one_in(400) {
            store.compact().map_err(|it| told(&it))?;
        }
    }
}

/// Starts children through `spawn`, which receives the round, and kills them until time is up or
/// something is wrong. The directory then stays as it is.
///
/// # Errors
/// Fails if a child cannot be started or the store cannot be created.
pub fn torture(
    settings: &Settings,
    spawn: &dyn Fn(u64) -> std::io::Result<Child>,
    progress: &Progress,
) -> Result<KillOutcome, BenchError> {
    make(&settings.place)?;
    let clock = SystemClock::new();
    let start = clock.now();
    let mut outcome =
        KillOutcome { subject: "store processes", seed: settings.seed, ..KillOutcome::default() };
    let mut state = State::new();
    let stop = progress.stop();
    let stop = settings.time.map_or_else(|| stop.clone(), |time| stop.after(time));
    for round in 0..settings.kills.unwrap_or(u64::MAX) {
        if stop.is_due() {
            break;
        }
        let counts = live_and_die(settings, round, spawn, &stop)?;
        outcome.kills += 1;
        outcome.kills_in_opening += u64::from(counts.iter().all(|count| *count == 0));
        outcome.acknowledged += counts.iter().sum::<u64>();
        match look(settings, round, counts, &mut state) {
            Ok(more) => outcome.unacknowledged_found += more,
            Err(what) => {
                outcome.failure = Some(format!("round {round}: {what}"));
                break;
            }
        }
        progress.advance(1);
        progress.say(&format!("{} writes acknowledged", outcome.acknowledged));
    }
    outcome.elapsed_s = clock.now().since(start).as_secs_f64();
    outcome.kills_min = outcome.kills as f64 * 60.0 / outcome.elapsed_s.max(1e-9);
    outcome.pass = outcome.failure.is_none();
    outcome.interrupted = stop.is_asked();
    Ok(outcome)
}

fn make(place: &StorePlace) -> Result<(), BenchError> {
    let store = Kvdb::create_at(&place.path, options(place)).map_err(|it| told(&it))?;
    for name in NAMES {
        let kvs = KvsOptions { inline_bytes: 100, ..KvsOptions::default() };
        store.create_kvs(name, kvs).map_err(|it| told(&it))?;
    }
    store.close().map_err(|it| told(&it))
}

/// Acknowledged writes of each thread.
type Counts = [u64; THREADS as usize];

/// Starts a child, lets it live for a while and kills it.
fn live_and_die(
    settings: &Settings,
    round: u64,
    spawn: &dyn Fn(u64) -> std::io::Result<Child>,
    stop: &Stop,
) -> Result<Counts, BenchError> {
    let system = |what| move |source| BenchError::System { what, source };
    let mut rng = Rng::named(settings.seed, &format!("life {round}"));
    let mut child = spawn(round).map_err(system("starting a child"))?;
    let (tell, first) = channel();
    let out = child.stdout.take();
    let reader =
        std::thread::spawn(move || out.map_or([0; THREADS as usize], |it| count(it, &tell)));
    let lived = live(&mut rng, &first, stop);
    let killed = child.kill().map_err(system("killing a child"));
    let status = child.wait().map_err(system("waiting for a child"))?;
    let counts = reader.join().unwrap_or_default();
    killed?;
    // A status without a code means that a signal ended the child.
    match (lived, status.code()) {
        (true, None) => Ok(counts),
        (false, None) => {
            let silence = SILENCE_MAX.as_secs();
            Err(BenchError::Failed(format!("a child wrote nothing for {silence} s")))
        }
        (_, Some(_)) => Err(BenchError::Failed(format!(
            "a child ended by itself in round {round} ({status}); it said why above; the store is \
             in {}",
            settings.place
        ))),
    }
}

/// Waits until the child is to be killed, at the latest until `stop` is due. Returns false if the
/// child wrote nothing at all.
fn live(rng: &mut Rng, first: &Receiver<()>, stop: &Stop) -> bool {
    if rng.one_in(4) {
        std::thread::sleep(Duration::from_micros(rng.below(OPENING_MS_MAX * 1000)));
        return true;
    }
    let mut silence = Duration::ZERO;
    // A child that ended early disconnects the channel; its status shows the failure.
    while first.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        silence += LOOK_EVERY;
        if stop.is_due() {
            return true;
        }
        if silence >= SILENCE_MAX {
            return false;
        }
    }
    std::thread::sleep(Duration::from_micros(rng.below(LIFE_MS_MAX * 1000)));
    true
}

/// Counts the acknowledged writes up to the end of the pipe.
fn count(mut out: impl Read, first: &Sender<()>) -> Counts {
    let mut counts = Counts::default();
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = out.read(&mut bytes) {
        // The receiver may be gone already.
        let _ = first.send(());
        for byte in bytes.iter().take(len) {
            if let Some(count) = counts.get_mut(usize::from(byte.wrapping_sub(b'0'))) {
                *count += 1;
            }
        }
    }
    counts
}

/// Compares the contents of the store with the expected contents, thread by thread. Returns the
/// number of writes found without acknowledgement, and continues from the contents found.
fn look(settings: &Settings, round: u64, counts: Counts, state: &mut State) -> Result<u64, String> {
    let found = contents(&settings.place).map_err(|error| error.to_string())?;
    let mut more = 0;
    for (thread, count) in (0..THREADS).zip(counts) {
        let mut rng = stream(settings.seed, round, thread);
        // The child draws one number for its other generator first.
        rng.next_u64();
        for _ in 0..count {
            trial::apply(state, &next(&mut rng, thread));
        }
        if of_thread(&found, thread) == of_thread(state, thread) {
            continue;
        }
        let before = trial::difference(&of_thread(&found, thread), &of_thread(state, thread));
        trial::apply(state, &next(&mut rng, thread));
        if of_thread(&found, thread) != of_thread(state, thread) {
            return Err(format!(
                "after {count} acknowledged writes of thread {thread}: {before}; it lies in {}",
                settings.place
            ));
        }
        more += 1;
    }
    Ok(more)
}

fn of_thread(state: &State, thread: u8) -> State {
    let own = state.iter().filter(|((_, key), _)| key.first() == Some(&(b'0' + thread)));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Reads the whole content of the store, which no process changes meanwhile.
fn contents(place: &StorePlace) -> Result<State, StoreError> {
    let directory: Arc<dyn Directory> = Arc::new(LocalDirectory::open_existing(&place.path)?);
    let store = Kvdb::open_read_only(directory, options(place), Arc::new(SystemClock::new()))?;
    let mut state = State::new();
    for (number, name) in NAMES.into_iter().enumerate() {
        let kvs = store.kvs(name)?;
        let mut cursor = kvs.cursor(CursorOptions::default())?;
        while let Some((key, value)) = cursor.next()? {
            state.insert((number, key.to_vec()), value.to_vec());
        }
        for ((_, key), value) in state.iter().filter(|((of, _), _)| *of == number) {
            if kvs.get(key)?.as_ref() != Some(value) {
                let what = format!("{} is read otherwise", String::from_utf8_lossy(key));
                return Err(StoreError::Internal { what });
            }
        }
    }
    Ok(state)
}

/// Configures the command of a child with a pipe for its acknowledgements.
pub fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped())
}

impl std::fmt::Display for KillOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:<28} {:>14}", "processes killed", self.kills)?;
        writeln!(f, "{:<28} {:>14}", "  while opening the store", self.kills_in_opening)?;
        writeln!(f, "{:<28} {:>14.0}", "  in a minute", self.kills_min)?;
        writeln!(f, "{:<28} {:>14}", "writes acknowledged", self.acknowledged)?;
        writeln!(f, "{:<28} {:>14}", "others that were there", self.unacknowledged_found)?;
        self.failure.as_ref().map_or(Ok(()), |what| writeln!(f, "\nfailed: {what}"))
    }
}
