//! The balance of the two logs: the small log's share of the segments, the mean size of an item,
//! and whether items that the main log let go are worth more than new ones.
//!
//! The share follows the ghost tags: a log that lets go keys which are soon asked for again gets
//! more room.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use entresol_base::sync::{Mutex, MutexGuard};

use crate::segment::Log;

/// Share of the small log at the start.
const SHARE_START: f64 = 0.1;
const SHARE_MIN: f64 = 0.01;
const SHARE_MAX: f64 = 0.9;
/// Largest change of the share when a segment is opened, in a cache of `STEP_SEGMENTS`; with more
/// segments less, so that a whole turnover of the cache changes it as much.
const STEP: f64 = 0.0005;
const STEP_SEGMENTS: f64 = 128.0;
/// Part of the counts that is kept when a segment is opened.
const KEPT: f64 = 0.9;
/// Keys that have to come back before the share changes.
const RETURNS_MIN: f64 = 4.0;
/// Items of a trial above which its counts are halved.
const TRIAL_MAX: f64 = 1000.0;
/// Share of read items below which those that came back from the main log are not worth it.
const TRIAL_SHARE_MIN: f64 = 0.05;
/// The share is kept in parts of this.
const PARTS: f64 = 1e9;

/// Items that left the small log, and those of them that were read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trial {
    pub(crate) items: f64,
    pub(crate) read: f64,
}

impl Trial {
    /// Counts an item.
    pub(crate) fn count(&mut self, read: bool) {
        self.items += 1.0;
        self.read += f64::from(u8::from(read));
    }

    fn add(&mut self, other: &Trial) {
        self.items += other.items;
        self.read += other.read;
        while self.items > TRIAL_MAX {
            self.items /= 2.0;
            self.read /= 2.0;
        }
    }

    fn share(&self) -> f64 {
        self.read / self.items
    }
}

/// Counts behind their lock, which is taken once a segment.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Items let go by each log, weighed by their size in mean ones.
    let_go: [f64; 2],
    /// Keys that came back to each log.
    returned: [f64; 2],
    /// Trial of new items.
    new: Trial,
    /// Trial of items that came back from the main log to the small one.
    back: Trial,
    /// Next segment whose live items are counted for the mean size.
    pub(crate) next_sample: u32,
    pub(crate) sample_items: u64,
    pub(crate) sample_bytes: u64,
}

/// The balance of the two logs.
#[derive(Debug)]
pub(crate) struct Balance {
    counts: Mutex<Counts>,
    share: AtomicU64,
    /// Keys that came back since the counts last took them over, in 256ths.
    returned: [AtomicU64; 2],
    /// Bytes of a mean item; 0 as long as that is unknown.
    mean_bytes: AtomicU64,
    main_pays: AtomicBool,
}

impl Balance {
    pub(crate) fn new() -> Self {
        let counts = Counts {
            let_go: [0.0; 2],
            returned: [0.0; 2],
            new: Trial { items: 20.0, read: 1.0 },
            back: Trial { items: 20.0, read: 0.0 },
            next_sample: 0,
            sample_items: 0,
            sample_bytes: 0,
        };
        Balance {
            counts: Mutex::new(counts),
            share: AtomicU64::new((SHARE_START * PARTS) as u64),
            returned: [AtomicU64::new(0), AtomicU64::new(0)],
            mean_bytes: AtomicU64::new(0),
            main_pays: AtomicBool::new(false),
        }
    }

    /// Returns the share of the segments that the small log may take.
    pub(crate) fn share(&self) -> f64 {
        self.share.load(Ordering::Relaxed) as f64 / PARTS
    }

    /// Returns the share of this many segments, at least one.
    pub(crate) fn share_of(&self, segments: u32) -> u32 {
        ((self.share() * f64::from(segments)).round() as u32).max(1)
    }

    /// Returns the bytes of a mean item; 0 as long as that is unknown.
    pub(crate) fn mean_bytes(&self) -> u64 {
        self.mean_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_mean_bytes(&self, bytes: u64) {
        self.mean_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns true if an item that the main log let go is read more often than a new one.
    pub(crate) fn main_pays(&self) -> bool {
        self.main_pays.load(Ordering::Relaxed)
    }

    /// Counts a key that came back soon after this log had let it go, with a weight in mean items.
    pub(crate) fn came_back(&self, from: Log, weight: f64) {
        self.returned[from as usize].fetch_add((weight * 256.0) as u64, Ordering::Relaxed);
    }

    /// Locks the counts.
    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock()
    }

    /// Counts the items of an evicted segment.
    pub(crate) fn book(&self, log: Log, let_go_bytes: u64, new: &Trial, back: &Trial) {
        let mean = self.mean_bytes().max(1) as f64;
        let mut counts = self.counts.lock();
        counts.let_go[log as usize] += let_go_bytes as f64 / mean;
        counts.new.add(new);
        counts.back.add(back);
        let pays = counts.back.share() > counts.new.share().max(TRIAL_SHARE_MIN);
        self.main_pays.store(pays, Ordering::Relaxed);
    }

    /// Changes the share by what came back to either log; called whenever a segment of the small
    /// log is opened, in a cache of this many segments.
    pub(crate) fn adapt(&self, segments: u32) {
        let mut counts = self.counts.lock();
        for log in 0..2 {
            let returned = self.returned[log].swap(0, Ordering::Relaxed);
            counts.returned[log] += returned as f64 / 256.0;
        }
        if counts.returned.iter().sum::<f64>() >= RETURNS_MIN {
            let rate = |log: usize| (counts.returned[log] + 0.5) / (counts.let_go[log] + 1.0);
            let pull = (rate(0) / rate(1)).ln().clamp(-1.0, 1.0);
            let step = STEP * (STEP_SEGMENTS / f64::from(segments.max(1))).min(1.0);
            let share = (self.share() + step * pull).clamp(SHARE_MIN, SHARE_MAX);
            self.share.store((share * PARTS) as u64, Ordering::Relaxed);
        }
        for log in 0..2 {
            counts.returned[log] *= KEPT;
            counts.let_go[log] *= KEPT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Trial = Trial { items: 0.0, read: 0.0 };

    /// Returns the share after one log has let go what came back.
    fn share_after(from: Log) -> f64 {
        let balance = Balance::new();
        balance.set_mean_bytes(100);
        for _ in 0..2000 {
            balance.book(Log::Small, 10_000, &NONE, &NONE);
            balance.book(Log::Main, 10_000, &NONE, &NONE);
            (0..10).for_each(|_| balance.came_back(from, 1.0));
            balance.adapt(128);
        }
        balance.share()
    }

    #[test]
    fn the_log_whose_keys_come_back_gets_more_room() {
        assert!(share_after(Log::Small) > 0.5, "{}", share_after(Log::Small));
        assert!(share_after(Log::Main) < 0.02, "{}", share_after(Log::Main));
        let balance = Balance::new();
        (0..2000).for_each(|_| balance.adapt(128));
        assert!((balance.share() - SHARE_START).abs() < 1e-6, "{}", balance.share());
    }

    #[test]
    fn what_the_main_log_let_go_must_be_read_more_often_than_new_items() {
        let balance = Balance::new();
        assert!(!balance.main_pays());
        let read = |items, read| Trial { items, read };
        balance.book(Log::Small, 0, &read(500.0, 100.0), &read(500.0, 200.0));
        assert!(balance.main_pays());
        balance.book(Log::Small, 0, &read(5000.0, 4000.0), &NONE);
        assert!(!balance.main_pays());
    }
}
