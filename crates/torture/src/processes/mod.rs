//! Torture of a store by killing real processes. A child writes to a store in a real directory and
//! reports each acknowledged write, until SIGKILL ends it. The store must then hold exactly these
//! writes.
//!
//! Several threads of the child write, each to keys of its own. The expected contents are therefore
//! known for each thread: all acknowledged writes, and perhaps the one in flight.
//!
//! Before that, harm may come to a child. Its system calls for the store's files fail (`faults`,
//! `tracer`): the expected contents are the same. Or its file system is shut down, as a crash of
//! the machine would (`machine`): then a beginning of what was written is expected, with all that
//! was synced.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{Clock, SystemClock, suggest};
use entresol_measure::progress::Progress;
use entresol_measure::{BenchError, StorePlace};
use entresol_media::{Directory, LocalDirectory, files};
use entresol_store::trial::{self, NAMES, State};
use entresol_store::{CursorOptions, Kvdb, KvsOptions, StoreError, check_at};
use serde::Serialize;

mod child;
mod faults;
mod life;
mod machine;
mod tracer;

pub use child::child;
use child::{THREADS, next, options, stream};
use life::{Ended, Life, Told};
use machine::Machine;

/// Harm that comes to a child before it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// None.
    Kill,
    /// System calls for the store's files fail.
    Faults,
    /// The file system is shut down under the child, as a crash of the machine would.
    Shutdown,
}

impl Harm {
    const ALL: [Harm; 3] = [Harm::Kill, Harm::Faults, Harm::Shutdown];

    /// Returns the name on the command line of a child.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Harm::Kill => "kill",
            Harm::Faults => "faults",
            Harm::Shutdown => "shutdown",
        }
    }
}

impl FromStr for Harm {
    type Err = String;

    fn from_str(text: &str) -> Result<Harm, String> {
        let found = Harm::ALL.into_iter().find(|harm| harm.name() == text);
        found.ok_or_else(|| suggest::unknown("harm", text, &Harm::ALL.map(Harm::name)))
    }
}

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
    /// Location of the store, which must not exist yet; with [`Harm::Shutdown`] that of the file
    /// system that the store lies on.
    pub place: StorePlace,
    /// Harm that comes to the children.
    pub harm: Harm,
}

/// Result of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct KillOutcome {
    /// Subject of the run.
    pub subject: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// Children that were killed, or ended by themselves.
    pub kills: u64,
    /// Children that did so before their first acknowledged write, while they opened the store.
    pub kills_in_opening: u64,
    /// Children that ended by themselves, since calls failed for ever.
    pub ended: u64,
    /// Children killed per minute.
    pub kills_min: f64,
    /// Acknowledged writes.
    pub acknowledged: u64,
    /// Writes found that were in flight and not acknowledged.
    pub unacknowledged_found: u64,
    /// System calls that failed, by their kind.
    pub failed_calls: BTreeMap<&'static str, u64>,
    /// Calls of the store that were answered with an error.
    pub refused: u64,
    /// Openings of the store that were answered with an error.
    pub not_opened: u64,
    /// Acknowledged writes that a sync had made durable when the machine crashed.
    pub durable: u64,
    /// Acknowledged writes, later than those, that a crash of the machine took.
    pub taken: u64,
    /// Wall time in seconds.
    pub elapsed_s: f64,
    /// Description of the failure, if there is one.
    pub failure: Option<String>,
    /// True if there was no failure.
    pub pass: bool,
    /// True if the user interrupted the run.
    pub interrupted: bool,
}

fn told(error: &StoreError) -> BenchError {
    BenchError::Engine { engine: "the store", what: error.to_string() }
}

/// Starts children through `spawn`, which receives the location of the store and the round, and
/// harms and kills them until time is up or something is wrong. The directory then stays as it is.
///
/// # Errors
/// Fails if a child cannot be started or the store cannot be created.
pub fn torture(
    settings: &Settings,
    spawn: &dyn Fn(&StorePlace, u64) -> std::io::Result<Child>,
    progress: &Progress,
) -> Result<KillOutcome, BenchError> {
    let clock = SystemClock::new();
    let start = clock.now();
    let mut run = Run::begin(settings)?;
    let stop = progress.stop();
    let stop = settings.time.map_or_else(|| stop.clone(), |time| stop.after(time));
    for round in 0..settings.kills.unwrap_or(u64::MAX) {
        if stop.is_due() {
            break;
        }
        let child = spawn(&run.place, round);
        let child =
            child.map_err(|source| BenchError::System { what: "starting a child", source })?;
        let Settings { harm, seed, .. } = *settings;
        let (store, machine) = (&*run.place.path, run.machine.as_ref());
        let ended = Life { harm, seed, round, store, machine, stop: &stop }.lead(child)?;
        if let Some(machine) = machine {
            machine.restart()?;
        }
        run.count(&ended);
        if let Err(what) = run.look(round, &ended.told) {
            let faults = ended.faults.map(|it| format!("; {it}")).unwrap_or_default();
            run.outcome.failure = Some(format!("round {round}: {what}{faults}"));
            break;
        }
        progress.advance(1);
        progress.say(&format!("{} writes acknowledged", run.outcome.acknowledged));
    }
    if run.outcome.failure.is_none() {
        run.outcome.failure = run.go_on().err().map(|error| error.to_string());
    }
    let mut outcome = run.outcome;
    outcome.elapsed_s = clock.now().since(start).as_secs_f64();
    outcome.kills_min = outcome.kills as f64 * 60.0 / outcome.elapsed_s.max(1e-9);
    outcome.pass = outcome.failure.is_none();
    outcome.interrupted = stop.is_asked();
    Ok(outcome)
}

/// A store under torture, and what it must hold.
struct Run {
    harm: Harm,
    seed: u64,
    /// Location of the store, without symbolic links.
    place: StorePlace,
    machine: Option<Machine>,
    state: State,
    outcome: KillOutcome,
}

impl Run {
    fn begin(settings: &Settings) -> Result<Run, BenchError> {
        let Settings { harm, seed, ref place, .. } = *settings;
        let is_machine = harm == Harm::Shutdown;
        let machine = is_machine.then(|| Machine::start(&place.path)).transpose()?;
        let mut place = place.clone();
        if let Some(machine) = &machine {
            place.path = machine.store();
        }
        make(&place)?;
        let canonical = files::canonical(&place.path);
        let failed = |source| BenchError::File { path: place.path.clone(), source };
        place.path = canonical.map_err(failed)?;
        let outcome = KillOutcome { subject: "store processes", seed, ..KillOutcome::default() };
        Ok(Run { harm, seed, place, machine, state: State::new(), outcome })
    }

    fn count(&mut self, ended: &Ended) {
        let Told { acknowledged, durable, refused, not_opened, .. } = ended.told;
        let outcome = &mut self.outcome;
        outcome.kills += 1;
        outcome.ended += u64::from(ended.by_itself);
        outcome.kills_in_opening += u64::from(acknowledged.iter().all(|count| *count == 0));
        outcome.acknowledged += acknowledged.iter().sum::<u64>();
        if self.harm == Harm::Shutdown {
            outcome.durable += durable.iter().sum::<u64>();
        }
        outcome.refused += refused;
        outcome.not_opened += not_opened;
        for (call, count) in ended.faults.iter().flat_map(|it| &it.struck) {
            *outcome.failed_calls.entry(call).or_default() += count;
        }
    }

    /// Compares the contents of the store with the expected contents, thread by thread, and
    /// continues from the contents found.
    fn look(&mut self, round: u64, told: &Told) -> Result<(), String> {
        let found = contents(&self.place).map_err(|error| error.to_string())?;
        for (thread, acknowledged) in (0..THREADS).zip(told.acknowledged) {
            let least = match self.harm {
                Harm::Shutdown => told.durable[usize::from(thread)],
                _ => acknowledged,
            };
            let mut rng = stream(self.seed, round, thread);
            // The child draws one number for its other generator first.
            rng.next_u64();
            let (of, mut difference) = (of_thread(&found, thread), String::new());
            let mut count = 0;
            // The write in flight may be there, or not.
            while count < least || of != of_thread(&self.state, thread) {
                if count == acknowledged {
                    difference = trial::difference(&of, &of_thread(&self.state, thread));
                } else if count > acknowledged {
                    let place = &self.place;
                    return Err(format!(
                        "of {acknowledged} acknowledged writes of thread {thread}, {least} of them \
                         durable: {difference}; it lies in {place}"
                    ));
                }
                trial::apply(&mut self.state, &next(&mut rng, thread));
                count += 1;
            }
            self.outcome.unacknowledged_found += u64::from(count > acknowledged);
            self.outcome.taken += acknowledged.saturating_sub(count);
        }
        if self.harm == Harm::Kill { Ok(()) } else { self.check() }
    }

    /// Lets the store check itself.
    fn check(&self) -> Result<(), String> {
        let report = check_at(&self.place.path, &mut |_| {}).map_err(|error| error.to_string())?;
        match report.findings.first() {
            Some(finding) => Err(format!("{finding}; it lies in {}", self.place)),
            None => Ok(()),
        }
    }

    /// Opens the store, which no process harms any more, and writes to it.
    fn go_on(&self) -> Result<(), StoreError> {
        let store = Kvdb::open_at(&self.place.path, options(&self.place))?;
        store.kvs(NAMES[0])?.put(b"after all", b"this")?;
        store.sync()?;
        store.compact()?;
        store.close()
    }
}

fn make(place: &StorePlace) -> Result<(), BenchError> {
    let store = Kvdb::create_at(&place.path, options(place)).map_err(|it| told(&it))?;
    for name in NAMES {
        let kvs = KvsOptions { inline_bytes: 100, ..KvsOptions::default() };
        store.create_kvs(name, kvs).map_err(|it| told(&it))?;
    }
    store.close().map_err(|it| told(&it))
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

/// Configures the command of a child: a pipe for what it reports, and one whose end tells it that
/// it is traced. It has a process group of its own, since Ctrl-C ends all of a group.
pub fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0)
}

impl fmt::Display for KillOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, count: u64| writeln!(f, "{name:<28} {count:>14}");
        line("processes killed", self.kills - self.ended)?;
        line("  while opening the store", self.kills_in_opening)?;
        line("  in a minute", self.kills_min.round() as u64)?;
        line("writes acknowledged", self.acknowledged)?;
        line("others that were there", self.unacknowledged_found)?;
        if !self.failed_calls.is_empty() {
            line("system calls that failed", self.failed_calls.values().sum())?;
            for (call, count) in &self.failed_calls {
                line(&format!("  {call}"), *count)?;
            }
            line("errors told", self.refused + self.not_opened)?;
            line("  openings among them", self.not_opened)?;
            line("processes that ended then", self.ended)?;
        }
        if self.durable > 0 {
            line("writes that were synced", self.durable)?;
            line("later ones that were lost", self.taken)?;
        }
        self.failure.as_ref().map_or(Ok(()), |what| writeln!(f, "\nfailed: {what}"))
    }
}
