//! Clients of a store in a simulated machine: threads that each wait for a reply before the next
//! request, on a limited number of processors.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_base::Picos;
use entresol_base::histogram::Histogram;
use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_base::world::World;
use entresol_measure::values::ValueMaker;
use entresol_measure::ycsb::{Chooser, Kind, Names, Population, Workload};
use entresol_store::Kvs;
use fastrand::Rng;

/// Processor time of a put, from `docs/measuring.md` («What a put and a get take of a processor»).
///
/// The rule was fixed before the figures were measured, and both were replaced at once: keys and
/// values of 001's sizes, as many threads as processors, 1:1024 of 001's records in a group with
/// 1:1024 of its memory. A put takes what all threads of the process take for a load and the work
/// that it leaves, since flushes and compactions take no processor time here; a get what they take
/// for YCSB's C behind it. Both are medians of five rounds, less what the generator takes.
pub(super) const CPU_PUT: Picos = Picos::from_nanos(10_200);
/// Processor time of a get, measured with [`CPU_PUT`].
pub(super) const CPU_GET: Picos = Picos::from_nanos(8_100);

/// Explanation of both costs, for the scenarios.
pub(super) const CPU_SAID: &str = "A put takes 10.2 us of a processor, flushes and compactions \
                                   included, and a get 8.1 us: our store's with values of 1000 B, \
                                   of which an eighth is in memory (docs/measuring.md). Flushes \
                                   and compactions take no processor time beside.";

/// Processors of a machine. A thread that computes has one of them to itself and waits until one is
/// free.
pub(super) struct Processors {
    world: World,
    free_at: Mutex<BinaryHeap<Reverse<Picos>>>,
}

impl Processors {
    pub(super) fn new(world: &World, count: usize) -> Processors {
        let free_at = (0..count).map(|_| Reverse(Picos::ZERO)).collect();
        Processors { world: world.clone(), free_at: Mutex::new(free_at) }
    }

    /// Occupies a processor for `time`; the calling thread waits until its computation ends.
    pub(super) fn spend(&self, time: Picos) {
        let end = self.occupy(time);
        self.world.wait_until(end);
    }

    /// Occupies a processor for `time` with work for which the calling thread does not wait, and
    /// returns its end.
    pub(super) fn occupy(&self, time: Picos) -> Picos {
        let mut free_at = self.free_at.lock();
        let first = free_at.pop().map_or(Picos::ZERO, |Reverse(first)| first);
        let end = first.max(self.world.now()).after(time);
        free_at.push(Reverse(end));
        end
    }
}

/// State that the clients of a store share.
pub(super) struct Subject {
    pub(super) world: World,
    pub(super) processors: Arc<Processors>,
    pub(super) kvs: Kvs,
    pub(super) names: Names,
    pub(super) values: ValueMaker,
    pub(super) population: Arc<Population>,
}

/// Work for the clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) workload: Workload,
    pub(super) clients: u32,
    /// Operations of all clients together.
    pub(super) operations: u64,
}

/// Measurements of the clients.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Response times of reads, including the read of a read-modify-write.
    pub(super) reads: Histogram,
    /// Response times of updates and inserts.
    pub(super) writes: Histogram,
    pub(super) operations: u64,
    /// Bytes of keys and values that were put.
    pub(super) user_bytes: u64,
}

impl Seen {
    pub(super) fn merge(&mut self, other: &Seen) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.operations += other.operations;
        self.user_bytes += other.user_bytes;
    }
}

/// Runs the clients and waits until all of them are done.
pub(super) fn carry_out(subject: &Arc<Subject>, work: Work) -> Result<Seen, String> {
    let left = Arc::new(AtomicU64::new(work.operations));
    let clients = (0..work.clients).map(|number| {
        let client = Client::new(subject, work, number);
        let left = Arc::clone(&left);
        thread::spawn(&format!("client-{number}"), move || client.work(&left))
    });
    let clients: Vec<_> = clients.collect();
    let mut seen = Seen::default();
    for client in clients {
        seen.merge(&client.join().map_err(|_| "a client has panicked".to_owned())??);
    }
    Ok(seen)
}

struct Client {
    subject: Arc<Subject>,
    work: Work,
    chooser: Chooser,
    values: ValueMaker,
    rng: Rng,
    seen: Seen,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Client {
    fn new(subject: &Arc<Subject>, work: Work, number: u32) -> Client {
        let Work { workload, operations, .. } = work;
        let inserts = (operations as f64 * workload.insert_share() * 2.0) as u64;
        let seed = subject.world.rng(&format!("{workload} {number}")).next_u64();
        Client {
            chooser: Chooser::new(workload, subject.population.count(), inserts, seed),
            values: subject.values.clone(),
            rng: Rng::with_seed(seed),
            subject: Arc::clone(subject),
            work,
            seen: Seen::default(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    fn work(mut self, left: &AtomicU64) -> Result<Seen, String> {
        let take = |left: u64| left.checked_sub(1);
        while left.fetch_update(Relaxed, Relaxed, take).is_ok() {
            let kind = self.work.workload.kind(&mut self.rng);
            if kind == Kind::Insert {
                let number = self.subject.population.take();
                self.put(number)?;
                self.subject.population.inserted(number);
            } else {
                let present = self.subject.population.count();
                let number = self.chooser.next(present, &mut self.rng);
                if kind != Kind::Update {
                    self.get(number)?;
                }
                if kind != Kind::Read {
                    self.put(number)?;
                }
            }
            self.seen.operations += 1;
        }
        Ok(self.seen)
    }

    fn put(&mut self, number: u64) -> Result<(), String> {
        let Subject { world, processors, kvs, names, .. } = &*self.subject;
        self.key.clear();
        names.append(number, &mut self.key);
        self.value.clear();
        self.values.append(number, &mut self.value);
        let begun = world.now();
        processors.spend(CPU_PUT);
        kvs.put(&self.key, &self.value).map_err(|error| error.to_string())?;
        self.seen.writes.record(world.now().since(begun).into());
        self.seen.user_bytes += (self.key.len() + self.value.len()) as u64;
        Ok(())
    }

    fn get(&mut self, number: u64) -> Result<(), String> {
        let Subject { world, processors, kvs, names, .. } = &*self.subject;
        self.key.clear();
        names.append(number, &mut self.key);
        self.value.clear();
        let begun = world.now();
        processors.spend(CPU_GET);
        let found = kvs.get_into(&self.key, &mut self.value).map_err(|error| error.to_string())?;
        self.seen.reads.record(world.now().since(begun).into());
        if !found {
            return Err(format!("key {number} was put and is not there"));
        }
        self.values.check(number, &self.value).map_err(|fault| format!("key {number}: {fault}"))
    }
}
