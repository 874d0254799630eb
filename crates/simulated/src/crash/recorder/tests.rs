//! The recorder's images are exactly those of a machine that behaves, step by step, as its caches
//! please.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use entresol_base::rng::Rng;
use entresol_media::region::Region;

use super::*;

thread_local! {
    /// Thread to which accesses of this test are attributed.
    pub(super) static THREAD: Cell<Option<u32>> = const { Cell::new(None) };
}

const LINES: usize = 3;
const WORDS: usize = LINES * 8;

type Content = [u8; WORDS];

/// An action of a thread. Words hold small numbers; places are in words.
#[derive(Debug, Clone)]
enum Op {
    Store {
        thread: u32,
        word: usize,
        value: u8,
    },
    /// Some words of one line by one copy.
    Copy {
        thread: u32,
        word: usize,
        values: Vec<u8>,
    },
    /// A whole line past the caches, of whose words only these change.
    Stream {
        thread: u32,
        line: usize,
        values: Vec<(usize, u8)>,
    },
    Flush {
        thread: u32,
        line: usize,
        ordered: bool,
    },
    Drain {
        thread: u32,
    },
    Swap {
        thread: u32,
        word: usize,
        value: u8,
    },
}

fn recorded(options: RecorderOptions) -> (Power, RecordedRegion) {
    let power = Power::new();
    let region = Recorder::region(4096, options, &power).expect("memory");
    (power, region)
}

fn word_bytes(values: &[u8]) -> Vec<u8> {
    values.iter().flat_map(|&value| u64::from(value).to_le_bytes()).collect()
}

fn perform(region: &RecordedRegion, op: &Op) {
    let at = |word: usize| word as u64 * 8;
    match op {
        Op::Store { thread, word, value } => {
            THREAD.set(Some(*thread));
            region.store_u64(at(*word), (*value).into(), Relaxed);
        }
        Op::Copy { thread, word, values } => {
            THREAD.set(Some(*thread));
            region.write(at(*word), &word_bytes(values));
        }
        Op::Stream { thread, line, values } => {
            THREAD.set(Some(*thread));
            let mut words = [0; 8];
            for (word, target) in words.iter_mut().enumerate() {
                *target = region.bytes().load_u64(at(line * 8 + word), Relaxed) as u8;
            }
            values.iter().for_each(|&(word, value)| words[word] = value);
            region.write_streaming(at(line * 8), &word_bytes(&words));
        }
        Op::Flush { thread, line, ordered } => {
            THREAD.set(Some(*thread));
            let kind = if *ordered { FlushKind::Clflush } else { FlushKind::Clwb };
            region.observer().flush(at(line * 8), 64, kind, std::panic::Location::caller());
        }
        Op::Drain { thread } => {
            THREAD.set(Some(*thread));
            region.drain();
        }
        Op::Swap { thread, word, value } => {
            THREAD.set(Some(*thread));
            region.swap_u64(at(*word), (*value).into(), Relaxed);
        }
    }
}

fn content(region: &impl Region) -> Content {
    std::array::from_fn(|word| region.load_u64(word as u64 * 8, Relaxed) as u8)
}

/// Returns every image, by going through all choices; none twice once settled.
fn images(power: &Power) -> Vec<Content> {
    let medium = power.media().pop().expect("attached");
    let units = medium.units();
    let mut choices = vec![0; units.len()];
    let (mut settled, mut found) = (BTreeSet::new(), Vec::new());
    loop {
        let mut these = choices.clone();
        medium.settle(&mut these);
        let mut again = these.clone();
        medium.settle(&mut again);
        assert_eq!(these, again, "settling twice changes nothing more");
        if settled.insert(these.clone()) {
            let image = medium.image(&these, &Power::new());
            let image = image.downcast_ref::<RegionImage>().expect("a region");
            found.push(content(&**image.region()));
        }
        let Some(unit) = (0..units.len()).find(|&unit| choices[unit] < units[unit]) else {
            return found;
        };
        choices[..unit].fill(0);
        choices[unit] += 1;
    }
}

/// A machine by brute force: every state in which it might be at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Machine {
    visible: Content,
    durable: Content,
    /// Number of stores to each line so far, and of durable ones.
    stores: [u32; LINES],
    arrived: [u32; LINES],
    /// Stores to each line in order: (thread, time).
    authors: [Vec<(u32, u32)>; LINES],
    time: u32,
    /// (thread, line, stores of the line): must be durable at the thread's fence.
    flushed: Vec<(u32, usize, u32)>,
    /// (thread, time, line, stores of the line): must be durable before the thread's later stores.
    ordered: Vec<(u32, u32, usize, u32)>,
    /// Words past the caches on their way: (thread, word, value).
    streams: Vec<(u32, usize, u8)>,
}

impl Machine {
    fn store(&mut self, thread: u32, word: usize, value: u8) {
        self.time += 1;
        self.visible[word] = value;
        self.stores[word / 8] += 1;
        self.authors[word / 8].push((thread, self.time));
    }

    /// Returns true if the cache may write this line back now.
    fn may_write_back(&self, line: usize) -> bool {
        self.ordered.iter().all(|&(thread, time, before, stores)| {
            let later = |&(who, when): &(u32, u32)| who == thread && when > time;
            self.arrived[before] >= stores
                || before == line
                || !self.authors[line].iter().any(later)
        })
    }

    fn write_back(&mut self, line: usize) {
        let words = line * 8..line * 8 + 8;
        self.durable[words.clone()].copy_from_slice(&self.visible[words]);
        self.arrived[line] = self.stores[line];
    }

    fn fence(&self, thread: u32) -> Option<Machine> {
        let mine = |who: u32| who == thread;
        let late = self
            .flushed
            .iter()
            .any(|&(who, line, stores)| mine(who) && self.arrived[line] < stores);
        let late = late || self.streams.iter().any(|&(who, ..)| mine(who));
        let mut next = self.clone();
        next.flushed.retain(|&(who, ..)| !mine(who));
        (!late).then_some(next)
    }

    /// Returns the machines that may result from one step of its own.
    fn whims(&self) -> Vec<Machine> {
        let lines = (0..LINES).filter(|&line| self.may_write_back(line));
        let written = lines.map(|line| {
            let mut next = self.clone();
            next.write_back(line);
            next
        });
        // Stores of one word arrive in order.
        let first = |index: usize| {
            let (_, word, _) = self.streams[index];
            !self.streams[..index].iter().any(|&(_, other, _)| other == word)
        };
        let arrived = (0..self.streams.len()).filter(|&index| first(index)).map(|index| {
            let mut next = self.clone();
            let (_, word, value) = next.streams.remove(index);
            next.durable[word] = value;
            next
        });
        written.chain(arrived).collect()
    }
}

type Machines = BTreeSet<Machine>;

/// Returns all machines that may result from steps of their own.
fn wander(machines: Machines) -> Machines {
    let mut known = machines.clone();
    let mut fresh: Vec<Machine> = machines.into_iter().collect();
    while let Some(machine) = fresh.pop() {
        fresh.extend(machine.whims().into_iter().filter(|next| known.insert(next.clone())));
    }
    known
}

fn each(machines: &Machines, mut change: impl FnMut(&mut Machine)) -> Machines {
    let changed = machines.iter().map(|machine| {
        let mut next = machine.clone();
        change(&mut next);
        next
    });
    wander(changed.collect())
}

/// Returns the words of a copy, one after the other, in every order.
fn copied(machines: &Machines, thread: u32, missing: &[(usize, u8)]) -> Machines {
    if missing.is_empty() {
        return machines.clone();
    }
    let mut all = Machines::new();
    for index in 0..missing.len() {
        let (word, value) = missing[index];
        let next = each(machines, |machine| machine.store(thread, word, value));
        let rest = [&missing[..index], &missing[index + 1..]].concat();
        all.extend(copied(&next, thread, &rest));
    }
    // In which order a copy was made is forgotten once it is whole, but for what is durable.
    all
}

fn step(machines: &Machines, op: &Op) -> Machines {
    let fence = |thread: u32| machines.iter().filter_map(|m| m.fence(thread)).collect();
    match op {
        Op::Store { thread, word, value } => each(machines, |m| m.store(*thread, *word, *value)),
        Op::Copy { thread, word, values } => {
            let words = values.iter().enumerate().map(|(i, &value)| (word + i, value));
            copied(machines, *thread, &words.collect::<Vec<_>>())
        }
        Op::Stream { thread, line, values } => each(machines, |machine| {
            for &(word, value) in values {
                machine.visible[line * 8 + word] = value;
                machine.streams.push((*thread, line * 8 + word, value));
            }
        }),
        Op::Flush { thread, line, ordered } => each(machines, |machine| {
            let stores = machine.stores[*line];
            machine.flushed.push((*thread, *line, stores));
            if *ordered {
                machine.ordered.push((*thread, machine.time, *line, stores));
            }
        }),
        Op::Drain { thread } => fence(*thread),
        Op::Swap { thread, word, value } => {
            each(&fence(*thread), |m| m.store(*thread, *word, *value))
        }
    }
}

fn brute_force(ops: &[Op]) -> BTreeSet<Content> {
    let start = Machines::from([Machine::default()]);
    let end = ops.iter().fold(start, |machines, op| step(&machines, op));
    end.into_iter().map(|machine| machine.durable).collect()
}

fn compare(ops: &[Op]) -> usize {
    let (power, region) = recorded(RecorderOptions::default());
    ops.iter().for_each(|op| perform(&region, op));
    let before = content(&**region.bytes());
    let found = images(&power);
    assert_eq!(before, content(&**region.bytes()), "images leave no trace");
    let distinct: BTreeSet<Content> = found.iter().copied().collect();
    let expected = brute_force(ops);
    assert_eq!(distinct, expected, "{ops:?}");
    assert_eq!(found.len(), expected.len(), "no doubles: {ops:?}");
    found.len()
}

/// Makes a short random program; stores past the caches keep to a line of their own.
fn program(rng: &mut Rng) -> Vec<Op> {
    let mut value = 0;
    (0..rng.range(1..8)).map(|_| random_op(rng, &mut value)).collect()
}

fn random_op(rng: &mut Rng, value: &mut u8) -> Op {
    let thread = rng.below(2) as u32;
    let word = rng.index(2) * 8 + rng.index(3);
    // Sometimes a value comes back, so that states look the same.
    let mut fresh = |rng: &mut Rng| {
        *value += 1;
        if rng.one_in(2) { *value } else { rng.below(3) as u8 }
    };
    match rng.below(12) {
        0..=3 => Op::Store { thread, word, value: fresh(rng) },
        4 => {
            let word = rng.index(2) * 8;
            let values = (0..rng.range(2..4)).map(|_| fresh(rng) | 0x40).collect();
            Op::Copy { thread, word, values }
        }
        5 => {
            let first = rng.index(2);
            let values = (first..first + 1 + rng.index(2)).map(|word| (word, fresh(rng)));
            Op::Stream { thread, line: 2, values: values.collect() }
        }
        6..=8 => Op::Flush { thread, line: rng.index(2), ordered: rng.one_in(3) },
        9..=10 => Op::Drain { thread },
        _ => Op::Swap { thread, word, value: fresh(rng) },
    }
}

#[test]
fn images_are_those_that_brute_force_finds() {
    let mut rng = Rng::new(3);
    let counts: Vec<usize> = (0..400).map(|_| compare(&program(&mut rng))).collect();
    assert!(counts.iter().any(|&count| count > 20), "{counts:?}");
}

#[test]
fn a_copy_across_words_and_lines_may_be_torn_between_them() {
    let (power, region) = recorded(RecorderOptions::default());
    region.write(60, &[1; 8]);
    assert_eq!(images(&power).len(), 4, "one atom in each line");
    region.persist(60, 8);
    assert_eq!(images(&power).len(), 1);
    region.write(4, &[1; 8]);
    assert_eq!(images(&power).len(), 4, "two atoms in one line, in no order");
    region.write(4, &[1; 8]);
    assert_eq!(images(&power).len(), 4, "what changes nothing is no state");
}

#[test]
fn locked_instructions_wait_for_flushes_unless_told_not_to() {
    for (locked_fences, count) in [(true, 2), (false, 4)] {
        let (power, region) = recorded(RecorderOptions { locked_fences, ..Default::default() });
        region.store_u64(0, 1, Relaxed);
        region.flush(0, 8);
        assert_eq!(region.compare_exchange_u64(64, 0, 1, Relaxed, Relaxed), Ok(0));
        assert_eq!(images(&power).len(), count);
        let (power, region) = recorded(RecorderOptions { locked_fences, ..Default::default() });
        region.store_u64(0, 1, Relaxed);
        region.flush(0, 8);
        region.store_u64(64, 1, SeqCst);
        assert_eq!(images(&power).len(), count, "a sequentially consistent store is one");
    }
}

#[test]
fn a_flush_covers_what_the_line_had_and_only_for_its_own_thread() {
    let (power, region) = recorded(RecorderOptions::default());
    THREAD.set(Some(1));
    region.store_u64(0, 1, Relaxed);
    region.flush(0, 8);
    region.store_u64(8, 2, Relaxed);
    THREAD.set(Some(2));
    region.drain();
    assert_eq!(images(&power).len(), 3, "the other thread has not drained");
    THREAD.set(Some(1));
    region.drain();
    let found = images(&power);
    assert!(found.len() == 2 && found.iter().all(|words| words[0] == 1), "{found:?}");
}

#[test]
fn where_caches_survive_images_are_cuts_of_one_order() {
    let domain = Domain::Caches { every: 100 };
    let (power, region) = recorded(RecorderOptions { domain, ..Default::default() });
    for (at, value) in [(0, 1), (64, 2), (8, 3), (0, 4)] {
        region.store_u64(at, value, Relaxed);
    }
    let expected = [(0, 0, 0), (1, 0, 0), (1, 2, 0), (1, 2, 3), (4, 2, 3)];
    let seen = images(&power).into_iter().map(|words| (words[0], words[8], words[1]));
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    power.point(PointKind::Write, std::panic::Location::caller());
    assert_eq!(images(&power).len(), 1, "what was visible at a crash point is durable");
    region.store_u64(0, 5, Relaxed);
    assert_eq!(images(&power).len(), 2, "it may wait in the thread's store buffer");
    region.drain();
    assert_eq!(images(&power).len(), 1);
    region.write_streaming(128, &word_bytes(&[1, 1, 0, 0, 0, 0, 0, 0]));
    assert_eq!(images(&power).len(), 4, "past the caches, and waiting for a drain");
    region.drain();
    assert_eq!(images(&power).len(), 1);
}

#[test]
fn where_caches_survive_a_locked_instruction_is_durable_when_it_is_done() {
    let domain = Domain::Caches { every: 100 };
    for what in 0..6 {
        let (power, region) = recorded(RecorderOptions { domain, ..Default::default() });
        let seen = Arc::new(Mutex::new(Vec::new()));
        let saw = seen.clone();
        region.store_u64(64, 1, Relaxed);
        power.watch(Box::new(move |point, media| {
            saw.lock().expect("alive").push((point.kind, media[0].units()));
        }));
        match what {
            0 => drop(region.swap_u64(0, 2, Relaxed)),
            1 => drop(region.fetch_add_u64(0, 2, Relaxed)),
            2 => drop(region.compare_exchange_u64(0, 0, 2, Relaxed, Relaxed)),
            3 => drop(region.compare_exchange_u32(0, 0, 2, Relaxed, Relaxed)),
            4 => region.store_u64(0, 2, SeqCst),
            _ => drop(region.compare_exchange_u64(0, 7, 8, Relaxed, Relaxed)),
        }
        power.unwatch();
        let stores = if what < 5 { 2 } else { 1 };
        let seen = seen.lock().expect("alive");
        assert_eq!(*seen, [(PointKind::Stores, vec![stores])], "{what}: until then any cut");
        let found: Vec<(u8, u8)> = images(&power).iter().map(|all| (all[8], all[0])).collect();
        assert_eq!(found, [(1, if what < 5 { 2 } else { 0 })], "{what}");
    }
}

#[test]
fn where_caches_survive_a_point_is_taken_every_few_stores() {
    let domain = Domain::Caches { every: 16 };
    let (power, region) = recorded(RecorderOptions { domain, ..Default::default() });
    (0..100).for_each(|word| region.store_u64(word * 8, 1, Relaxed));
    assert!((5..=12).contains(&power.points()), "{}", power.points());
}

#[test]
fn poisoned_memory_faults_until_it_is_written() {
    let (power, region) = recorded(RecorderOptions::default());
    region.observer().poison(300);
    assert_eq!(region.observer().poisoned(), [256]);
    let faults = |region: &RecordedRegion, at: u64| {
        catch_unwind(AssertUnwindSafe(|| region.load_u64(at, Relaxed))).is_err()
    };
    assert!(faults(&region, 256) && faults(&region, 504));
    assert!(!faults(&region, 248) && !faults(&region, 512));
    let medium = power.media().pop().expect("attached");
    let image = medium.image(&[], &Power::new());
    let image = image.downcast_ref::<RegionImage>().expect("a region").region().clone();
    assert!(faults(&image, 256), "so does the image");
    image.write(256, &[0; 255]);
    assert!(faults(&image, 256));
    image.write(504, &[0; 8]);
    assert!(!faults(&image, 256) && faults(&region, 256));
}

/// Returns for every image if loads of the first 256 bytes fault.
fn poisoned_images(power: &Power) -> Vec<bool> {
    let medium = power.media().pop().expect("attached");
    let states = medium.units();
    let count: usize = states.iter().map(|&states| usize::from(states) + 1).product();
    let image = |mut number: usize| {
        let mut choices: Vec<u16> = Vec::new();
        for &states in &states {
            choices.push((number % (usize::from(states) + 1)) as u16);
            number /= usize::from(states) + 1;
        }
        medium.settle(&mut choices);
        let image = medium.image(&choices, &Power::new());
        let region = image.downcast_ref::<RegionImage>().expect("a region").region();
        !region.observer().poisoned().is_empty()
    };
    (0..count).map(image).collect()
}

#[test]
fn poison_is_gone_after_a_crash_only_where_what_overwrote_it_is_there() {
    let caches = Domain::Caches { every: 1000 };
    for (domain, streaming) in [(Domain::Memory, false), (Domain::Memory, true), (caches, false)] {
        let (power, region) = recorded(RecorderOptions { domain, ..Default::default() });
        region.observer().poison(0);
        assert_eq!(poisoned_images(&power), [true]);
        // What is written is what was there: only the poison makes a difference.
        for line in (0..256).step_by(64) {
            match streaming {
                true => region.write_streaming(line, &[0; 64]),
                false => region.write(line, &[0; 64]),
            }
            if line < 192 && domain == Domain::Memory {
                region.persist(line, 64);
            }
        }
        assert!(region.observer().poisoned().is_empty(), "programs can load it again");
        let found = poisoned_images(&power);
        let healed = found.iter().filter(|&&poisoned| !poisoned).count();
        assert!(found.len() > 1 && healed == 1, "{domain:?} {streaming}: {found:?}");
        region.store_u64(200, 0, Relaxed);
        assert!(poisoned_images(&power).contains(&true), "the same again is not more durable");
        region.persist(192, 64);
        assert_eq!(poisoned_images(&power), [false], "{domain:?} {streaming}");
        region.store_u64(200, 1, Relaxed);
        let later = poisoned_images(&power);
        assert!(later.len() == 2 && !later.contains(&true), "what comes later may be lost");
    }
}

#[test]
fn a_flipped_bit_is_there_in_every_state_and_gone_with_its_image() {
    let (power, region) = recorded(RecorderOptions::default());
    region.store_u64(8, 4, Relaxed);
    region.observer().flip(9, 3);
    assert_eq!(region.load_u64(8, Relaxed), 4 | 1 << 11);
    let medium = power.media().pop().expect("attached");
    for (choice, value) in [(0, 1 << 11), (1, 4 | 1 << 11)] {
        let image = medium.image(&[choice], &Power::new());
        let image = image.downcast_ref::<RegionImage>().expect("a region").region();
        assert_eq!(image.load_u64(8, Relaxed), value);
        image.observer().flip(0, 0);
        assert_eq!(image.load_u64(0, Relaxed), 1);
    }
    assert_eq!(region.load_u64(0, Relaxed), 0);
}

#[test]
fn cuts_in_the_order_of_the_program_are_states() {
    for domain in [Domain::Memory, Domain::Caches { every: 1000 }] {
        let (power, region) = recorded(RecorderOptions { domain, ..Default::default() });
        let mut ahead = vec![content(&**region.bytes())];
        for (word, value) in [(0, 1), (8, 2), (1, 3), (0, 4), (9, 5)] {
            region.store_u64(word * 8, value, Relaxed);
            ahead.push(content(&**region.bytes()));
        }
        region.write_streaming(128, &word_bytes(&[6; 8]));
        ahead.push(content(&**region.bytes()));
        let medium = power.media().pop().expect("attached");
        let mut moments = medium.moments();
        moments.sort_unstable();
        moments.dedup();
        let cut = |moment: u64| {
            let mut choices = medium.units();
            medium.cut(moment, &mut choices);
            medium.settle(&mut choices);
            let image = medium.image(&choices, &Power::new());
            content(&**image.downcast_ref::<RegionImage>().expect("a region").region())
        };
        let found: Vec<Content> = moments.into_iter().chain([u64::MAX]).map(cut).collect();
        assert_eq!(found, ahead, "{domain:?}");
    }
}

#[test]
fn a_line_with_too_many_states_is_seen_more_coarsely() {
    let (power, region) = recorded(RecorderOptions::default());
    for round in 1..=20_000_u64 {
        region.write(0, &round.to_le_bytes().repeat(8));
    }
    let medium = power.media().pop().expect("attached");
    assert_eq!(medium.units(), [u16::MAX]);
    let image = medium.image(&[u16::MAX], &Power::new());
    let image = image.downcast_ref::<RegionImage>().expect("a region").region();
    assert_eq!(image.load_line(0), [20_000; 8]);
}
