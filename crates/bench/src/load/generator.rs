//! Generator of load for one thread. In a closed loop, a batch follows the replies to the previous
//! one. In an open loop, requests are due at times drawn in advance, and late ones stay late.

use std::io;
use std::time::Duration;

use entresol_base::histogram::Histogram;
use entresol_base::{Clock, Nanos, Stop, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::arrivals::PoissonArrivals;
use entresol_measure::popularity::KeyChooser;
use entresol_measure::process::thread_cpu_ns;
use entresol_measure::trace::Operation;
use entresol_measure::values::{KeyMaker, ValueMaker};
use fastrand::Rng;
use mio::{Events, Poll, Token};

use super::LoadOptions;
use super::connection::{Broken, Connection, InFlight};
use super::wire::{Outcome, StoreRequest};

/// Time without a reply, while requests are in flight, after which a server has failed.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Largest number of requests in one generator that are due and not sent; beyond it, the rate is
/// too high for the server.
const WAITING_MAX: usize = 4 << 20;
const POLL_MAX: Duration = Duration::from_millis(100);
/// Gap below which the generator polls without sleeping, since the system's timers are coarser.
const SPIN_BELOW: Duration = Duration::from_millis(2);

/// Counts and times of one phase of one generator.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) sets: u64,
    pub(crate) refused: u64,
    pub(crate) get_times: Histogram,
    pub(crate) set_times: Histogram,
    /// Delays from the due time of each request until the generator noticed it (open loop).
    pub(crate) generator_late: Histogram,
    pub(crate) ended: Nanos,
    pub(crate) client_cpu_ns: u64,
}

impl Tally {
    pub(crate) fn requests(&self) -> u64 {
        self.gets + self.sets
    }

    pub(crate) fn merge(&mut self, other: &Tally) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.sets += other.sets;
        self.refused += other.refused;
        self.get_times.merge(&other.get_times);
        self.set_times.merge(&other.set_times);
        self.generator_late.merge(&other.generator_late);
        self.ended = self.ended.max(other.ended);
        self.client_cpu_ns += other.client_cpu_ns;
    }

    #[inline]
    fn count(&mut self, request: InFlight, outcome: Outcome<'_>, now: Nanos) {
        let time = now.since(request.due);
        if request.is_get {
            self.gets += 1;
            self.hits += u64::from(matches!(outcome, Outcome::Value { .. }));
            self.get_times.record(time);
        } else {
            self.sets += 1;
            self.refused += u64::from(!matches!(outcome, Outcome::Done));
            self.set_times.record(time);
        }
    }
}

/// Draws and encodes requests, and checks the values in replies.
#[derive(Debug)]
struct Source<'a> {
    options: &'a LoadOptions,
    chooser: KeyChooser,
    rng: Rng,
    keys: KeyMaker,
    values: ValueMaker,
    gets_below: u32,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Source<'a> {
    fn new(options: &'a LoadOptions, seed: u64) -> Result<Source<'a>, BenchError> {
        let (keys, values) = options.makers(seed)?;
        Ok(Source {
            options,
            chooser: KeyChooser::new(options.popularity, options.keys),
            rng: Rng::with_seed(seed),
            keys,
            values,
            gets_below: (options.get_share * f64::from(u32::MAX)) as u32,
            key: Vec::new(),
            value: Vec::new(),
        })
    }

    #[inline]
    fn append_drawn(&mut self, connection: &mut Connection, due: Nanos) {
        let number = self.chooser.next(&mut self.rng);
        if self.rng.u32(..) <= self.gets_below {
            self.key.clear();
            self.keys.append(number, &mut self.key);
            let get = Operation::Get;
            self.options.dialect.append_request(get, &self.key, &mut connection.out);
            connection.in_flight.push_back(InFlight { due, number, is_get: true });
        } else {
            self.append_set(connection, due, number);
        }
    }

    #[inline]
    fn append_set(&mut self, connection: &mut Connection, due: Nanos, number: u64) {
        self.key.clear();
        self.keys.append(number, &mut self.key);
        self.value.clear();
        self.values.append(number, &mut self.value);
        let (key, value, ttl_s) = (&self.key, &self.value, self.options.ttl_s);
        let store = StoreRequest { operation: Operation::Set, key, ttl_s, value };
        self.options.dialect.append_store(store, &mut connection.out);
        connection.in_flight.push_back(InFlight { due, number, is_get: false });
    }

    fn check(&mut self, number: u64, outcome: Outcome<'_>) -> Result<(), BenchError> {
        let Outcome::Value { key, data } = outcome else { return Ok(()) };
        self.key.clear();
        self.keys.append(number, &mut self.key);
        let wrong = |problem: String| BenchError::WrongValue {
            key: String::from_utf8_lossy(&self.key).into_owned(),
            problem,
        };
        if key.is_some_and(|key| key != self.key) {
            return Err(wrong("the reply names another key".to_owned()));
        }
        self.values.check(number, data).map_err(|fault| wrong(fault.to_string()))
    }
}

/// Connections of one thread, with their requests.
pub(crate) struct Generator<'a> {
    options: &'a LoadOptions,
    clock: &'a SystemClock,
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    source: Source<'a>,
    tally: Tally,
    /// Signal after which no request is begun.
    stop: &'a Stop,
}

/// Failure that ends a phase.
enum Failure {
    Broken(Broken),
    Wrong(BenchError),
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        Failure::Broken(broken)
    }
}

impl<'a> Generator<'a> {
    /// Opens `connections` connections.
    pub(crate) fn connect(
        options: &'a LoadOptions,
        clock: &'a SystemClock,
        connections: usize,
        seed: u64,
        stop: &'a Stop,
    ) -> Result<Generator<'a>, BenchError> {
        let error = |source| BenchError::Server { address: options.address.to_string(), source };
        let poll = Poll::new().map_err(error)?;
        let mut connected = Vec::with_capacity(connections);
        for number in 0..connections {
            let mut stream = options.address.connect().map_err(error)?;
            stream.register(poll.registry(), Token(number)).map_err(error)?;
            connected.push(Connection::new(stream));
        }
        Ok(Generator {
            options,
            clock,
            poll,
            events: Events::with_capacity(connections.max(16)),
            connections: connected,
            source: Source::new(options, seed)?,
            tally: Tally::default(),
            stop,
        })
    }

    /// Sets the keys of `numbers` once each, as fast as the server accepts them.
    pub(crate) fn preload(&mut self, numbers: std::ops::Range<u64>) -> Result<Tally, BenchError> {
        let (mut numbers, stop) = (numbers, self.stop);
        self.batches(move |source, connection, now, depth| {
            if stop.is_due() {
                return;
            }
            for number in numbers.by_ref().take(depth) {
                source.append_set(connection, now, number);
            }
        })
    }

    /// Sends batch after batch until `until`, then waits for the last replies.
    pub(crate) fn closed_loop(&mut self, until: Nanos) -> Result<Tally, BenchError> {
        let stop = self.stop;
        self.batches(move |source, connection, now, depth| {
            if now < until && !stop.is_due() {
                for _ in 0..depth {
                    source.append_drawn(connection, now);
                }
            }
        })
    }

    /// Runs batches on all connections: each sends the requests that `fill` adds, waits for all
    /// replies, and calls `fill` again. A connection without new requests rests.
    fn batches(
        &mut self,
        mut fill: impl FnMut(&mut Source<'a>, &mut Connection, Nanos, usize),
    ) -> Result<Tally, BenchError> {
        let cpu_before = thread_cpu_ns();
        let depth = self.options.depth;
        let mut now = self.clock.now();
        let mut busy = 0;
        for at in 0..self.connections.len() {
            let connection = &mut self.connections[at];
            fill(&mut self.source, connection, now, depth);
            connection.resting = connection.is_idle();
            busy += usize::from(!connection.resting);
            self.flush(at)?;
        }
        let mut heard = now;
        while busy > 0 {
            self.wait(Some(POLL_MAX))?;
            now = self.clock.now();
            let tokens: Vec<usize> = self.events.iter().map(|event| event.token().0).collect();
            for at in tokens {
                self.receive(at, now)?;
                let connection = &mut self.connections[at];
                if connection.resting {
                    continue;
                }
                if connection.is_idle() {
                    fill(&mut self.source, connection, now, depth);
                    connection.resting = connection.is_idle();
                    busy -= usize::from(connection.resting);
                }
                self.flush(at)?;
                heard = now;
            }
            self.check_silence(heard, now)?;
        }
        Ok(self.close_tally(now, cpu_before))
    }

    /// Sends requests as they fall due until `until`, then waits for the last replies. Requests
    /// wait while the pipeline is full, and this time counts.
    pub(crate) fn open_loop(
        &mut self,
        mut until: Nanos,
        per_second: f64,
        seed: u64,
    ) -> Result<Tally, BenchError> {
        let cpu_before = thread_cpu_ns();
        let mut now = self.clock.now();
        let mut arrivals = PoissonArrivals::new(now, per_second, seed);
        let (mut waiting, mut heard) = (0, now);
        loop {
            if self.stop.is_due() {
                until = until.min(now);
            }
            while let Some(due) = arrivals.take(now.min(until)) {
                self.tally.generator_late.record(now.since(due));
                let at = self.source.rng.usize(..self.connections.len());
                self.connections[at].waiting.push_back(due);
                waiting += 1;
            }
            if waiting > WAITING_MAX {
                let problem = "the server is far too slow for this rate: lower --rate";
                return Err(BenchError::Usage(problem.to_owned()));
            }
            for at in 0..self.connections.len() {
                waiting -= self.send_waiting(at)?;
            }
            if now >= until && self.connections.iter().all(Connection::is_idle) {
                break;
            }
            self.wait(Some(pause(now, until, arrivals.due())))?;
            now = self.clock.now();
            let tokens: Vec<usize> = self.events.iter().map(|event| event.token().0).collect();
            for at in tokens {
                self.receive(at, now)?;
                self.flush(at)?;
                heard = now;
            }
            if self.connections.iter().all(|connection| connection.in_flight.is_empty()) {
                heard = now;
            }
            self.check_silence(heard, now)?;
        }
        Ok(self.close_tally(now, cpu_before))
    }

    /// Encodes and sends waiting requests up to the pipeline's depth, and returns their number.
    fn send_waiting(&mut self, at: usize) -> Result<usize, BenchError> {
        let connection = &mut self.connections[at];
        let room = self.options.depth.saturating_sub(connection.in_flight.len());
        let going = room.min(connection.waiting.len());
        if going == 0 {
            return Ok(0);
        }
        for _ in 0..going {
            if let Some(due) = connection.waiting.pop_front() {
                self.source.append_drawn(connection, due);
            }
        }
        self.flush(at)?;
        Ok(going)
    }

    fn receive(&mut self, at: usize, now: Nanos) -> Result<(), BenchError> {
        let Generator { connections, source, tally, .. } = self;
        let verify = source.options.verify;
        let received = connections[at].receive(|request, outcome| {
            if verify && request.is_get {
                source.check(request.number, outcome).map_err(Failure::Wrong)?;
            }
            tally.count(request, outcome, now);
            Ok(())
        });
        received.map_err(|failure| match failure {
            Failure::Broken(broken) => self.broken(broken),
            Failure::Wrong(error) => error,
        })
    }

    fn flush(&mut self, at: usize) -> Result<(), BenchError> {
        self.connections[at].flush().map_err(|broken| self.broken(broken))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BenchError> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(self.broken(Broken::Io(error)))
            }
            _ => Ok(()),
        }
    }

    fn check_silence(&self, heard: Nanos, now: Nanos) -> Result<(), BenchError> {
        if now.since(heard) < SILENCE_MAX {
            return Ok(());
        }
        Err(self.broken(Broken::Io(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no reply for {} s", SILENCE_MAX.as_secs()),
        ))))
    }

    fn broken(&self, broken: Broken) -> BenchError {
        let address = self.options.address.to_string();
        match broken {
            Broken::Io(source) => BenchError::Server { address, source },
            Broken::Reply(reply) => BenchError::Reply { address, reply },
        }
    }

    fn close_tally(&mut self, ended: Nanos, cpu_before: u64) -> Tally {
        self.tally.ended = ended;
        self.tally.client_cpu_ns = thread_cpu_ns() - cpu_before;
        std::mem::take(&mut self.tally)
    }
}

/// Returns the time to wait for events before the next request is due, zero if it is near.
fn pause(now: Nanos, until: Nanos, due: Nanos) -> Duration {
    if now >= until || due > until {
        return Duration::from_millis(1);
    }
    let gap = due.since(now);
    if gap < SPIN_BELOW { Duration::ZERO } else { (gap - SPIN_BELOW).min(POLL_MAX) }
}
