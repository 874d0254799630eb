//! Accounts: device time that one tenant has used of one medium, and its limit.
//!
//! Every access is charged with its cost (see [`crate::cost`]). A limit is a share of the medium's
//! time, kept by a token bucket. Threads borrow tokens in small grants, so that a charge touches
//! only the thread's own cache line.
//!
//! Access rules:
//! - a handle's credit: its owner alone;
//! - a slot's counters: written by the handle's owner alone (plain additions, no locked
//!   instruction), read by any thread;
//! - a slot's floor: written under the bucket's lock, read by the owner at each admission;
//! - everything else: under the bucket's lock.
//!
//! Guarantee of a limit: over any time t, the device time charged is at most share x (t + 10 ms),
//! plus one grant for each thread, plus for each thread the cost of the one access that exhausted
//! its credit (admission precedes execution, and the cost is settled after; an overdraft is paid
//! before the next admission). A handle that never asks for admission, such as that of background
//! work, pays when it settles: until then its charges are counted, but limit nothing.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::Nanos;

use crate::cost::{Access, CostTable, UNITS_PER_NS};

/// Maximum grant: a hundredth of the 10 ms of [`BURST_NS`].
pub const GRANT_NS: u64 = 100_000;
/// Bytes of the unit in which persistent memory is read and written.
const UNIT_BYTES: u64 = 256;
/// Time during which an idle tenant's share accumulates.
pub const BURST_NS: u64 = 10_000_000;
/// Minimum refill in wall time: a thread that must wait does so for this much of its tenant's
/// share, so that a small share does not wake it for single accesses.
const REFILL_NS: u64 = 1_000_000;
/// Minimum grant, however small the share.
const GRANT_NS_MIN: u64 = 1_000;

/// Credit of an unlimited tenant, which lasts for centuries.
const ENDLESS: i64 = i64::MAX / 2;
/// Maximum share, beyond which a limit has no effect. It keeps the arithmetic from overflowing.
const SHARE_MAX: f64 = 1000.0;
/// Bits of the fraction of a unit in the bucket, so that rounding does not add up.
const FRACTION_BITS: u32 = 32;

/// Limit on a tenant's use of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Limit {
    /// The whole medium.
    #[default]
    Unlimited,
    /// This fraction of the medium's time. Zero, a negative number or NaN means [`Limit::Stopped`].
    Share(f64),
    /// Nothing: no thread is admitted until another limit is set.
    Stopped,
}

/// Size of the whole access of which a part is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeBytes(pub usize);

/// Answer to a thread that asks for admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The thread may go on.
    Go,
    /// The thread must ask again at this time.
    Wait {
        /// Time at which the tenant's share will have grown enough.
        until: Nanos,
    },
    /// The tenant is stopped until its limit changes.
    Stopped,
}

/// Totals of a tenant's use of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Device time used.
    pub used_ns: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// One tenant's use of one medium, with its limit. Shared by its threads, each of which has an
/// [`AccountHandle`].
#[derive(Debug)]
pub struct Account {
    medium: String,
    costs: Arc<CostTable>,
    bucket: Mutex<Bucket>,
}

/// A thread's own part of an account. Two cache lines, since processors fetch pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot {
    units: AtomicU64,
    operations: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
    /// Credit that admission must exceed: 0, or the maximum to make the thread ask the bucket.
    floor: AtomicI64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    units: u64,
    operations: [u64; 2],
    bytes: [u64; 2],
}

#[derive(Debug, Default)]
struct Bucket {
    limit: Limit,
    /// Units that accrue in a nanosecond, times 2^32.
    rate: u64,
    /// Units, times 2^32. Negative while threads have reserved or overdrawn.
    tokens: i128,
    /// Time at which tokens were last added; none while nothing accrues.
    filled_at: Option<Nanos>,
    slots: Vec<Arc<Slot>>,
    /// Use by handles that were dropped.
    retired: Totals,
}

impl Account {
    /// Makes an account without a limit.
    #[must_use]
    pub fn new(medium: impl Into<String>, costs: Arc<CostTable>) -> Arc<Account> {
        Arc::new(Account { medium: medium.into(), costs, bucket: Mutex::default() })
    }

    /// Returns the medium's name.
    #[must_use]
    pub fn medium(&self) -> &str {
        &self.medium
    }

    /// Returns the costs by which accesses are charged.
    #[must_use]
    pub fn costs(&self) -> &Arc<CostTable> {
        &self.costs
    }

    /// Makes a handle for one thread.
    #[must_use]
    pub fn handle(self: &Arc<Self>) -> AccountHandle {
        let slot = Arc::new(Slot::default());
        slot.floor.store(i64::MAX, Ordering::Relaxed);
        self.bucket().slots.push(Arc::clone(&slot));
        let costs = Arc::clone(&self.costs);
        AccountHandle {
            account: Arc::clone(self),
            costs,
            slot,
            credit: 0,
            granted: 0,
            reserved: None,
        }
    }

    /// Sets the tenant's limit from now on: threads that hold credit under the old limit lose it at
    /// their next admission.
    pub fn set_limit(&self, limit: Limit) {
        let mut bucket = self.bucket();
        let limit = match limit {
            Limit::Share(share) if share.is_nan() || share <= 0.0 => Limit::Stopped,
            limit => limit,
        };
        if limit == bucket.limit {
            return;
        }
        bucket.set_limit(limit);
        for slot in &bucket.slots {
            slot.floor.store(i64::MAX, Ordering::Release);
        }
    }

    /// Returns the limit in force.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.bucket().limit
    }

    /// Returns the use so far, by all threads, including those of dropped handles.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let totals = self.bucket().totals();
        Usage {
            used_ns: totals.units / UNITS_PER_NS,
            reads: totals.operations[Access::Read as usize],
            writes: totals.operations[Access::Write as usize],
            read_bytes: totals.bytes[Access::Read as usize],
            written_bytes: totals.bytes[Access::Write as usize],
        }
    }

    /// Returns the device time used so far.
    #[must_use]
    pub fn used_ns(&self) -> u64 {
        self.usage().used_ns
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        // Nothing between a bucket's statements can panic, so it is always consistent.
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    fn totals(&self) -> Totals {
        self.slots.iter().fold(self.retired, |totals, slot| totals.plus(slot))
    }

    fn set_limit(&mut self, limit: Limit) {
        let was_share = matches!(self.limit, Limit::Share(_));
        match limit {
            Limit::Share(share) => {
                let rate = share.min(SHARE_MAX) * (UNITS_PER_NS << FRACTION_BITS) as f64;
                self.rate = (rate as u64).max(1);
                if !was_share {
                    self.tokens = self.tokens.min(0);
                    self.filled_at = None;
                }
                self.tokens = self.tokens.min(self.accrued(BURST_NS));
            }
            Limit::Unlimited => self.tokens = 0,
            Limit::Stopped => {}
        }
        self.limit = limit;
    }

    fn accrued(&self, wall_ns: u64) -> i128 {
        i128::from(self.rate) * i128::from(wall_ns)
    }

    fn fill(&mut self, now: Nanos) {
        let before = self.filled_at.unwrap_or(now);
        let elapsed = now.0.saturating_sub(before.0);
        // Threads pass times that they read a while ago, so time only moves forward.
        self.filled_at = Some(before.max(now));
        self.tokens = (self.tokens + self.accrued(elapsed)).min(self.accrued(BURST_NS));
    }

    /// Takes a grant from the bucket, or reserves one for the time at which it will be available.
    fn take(&mut self, now: Nanos) -> Reservation {
        self.fill(now);
        let largest = i128::from(GRANT_NS * UNITS_PER_NS) << FRACTION_BITS;
        let smallest = i128::from(GRANT_NS_MIN * UNITS_PER_NS) << FRACTION_BITS;
        let waited_for = self.accrued(REFILL_NS).clamp(smallest, largest);
        let grant = self.tokens.clamp(waited_for, largest) >> FRACTION_BITS;
        self.tokens -= grant << FRACTION_BITS;
        let missing = (-self.tokens).max(0) as u128;
        let wait_ns = missing.div_ceil(u128::from(self.rate));
        let until = self.filled_at.unwrap_or(now).0.saturating_add(wait_ns as u64);
        Reservation { units: grant as i64, until: Nanos(if missing == 0 { now.0 } else { until }) }
    }

    fn give_back(&mut self, units: i64) {
        if matches!(self.limit, Limit::Share(_) | Limit::Stopped) {
            self.tokens += i128::from(units) << FRACTION_BITS;
        }
    }
}

impl Totals {
    fn plus(self, slot: &Slot) -> Totals {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sum = |a: [u64; 2], b: &[AtomicU64; 2]| [a[0] + load(&b[0]), a[1] + load(&b[1])];
        Totals {
            units: self.units + load(&slot.units),
            operations: sum(self.operations, &slot.operations),
            bytes: sum(self.bytes, &slot.bytes),
        }
    }
}

/// Credit that will be available at a certain time.
#[derive(Debug, Clone, Copy)]
struct Reservation {
    units: i64,
    until: Nanos,
}

/// One thread's access to an account.
#[derive(Debug)]
pub struct AccountHandle {
    account: Arc<Account>,
    costs: Arc<CostTable>,
    slot: Arc<Slot>,
    /// Units that may be used before the bucket must be asked; negative once overdrawn.
    credit: i64,
    /// Credit at the time of the grant: no more can be left of it.
    granted: i64,
    reserved: Option<Reservation>,
}

impl AccountHandle {
    /// Returns the account.
    #[must_use]
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Charges an access of this kind and size.
    #[inline]
    pub fn charge(&mut self, access: Access, bytes: usize) {
        self.add(access, self.costs.cost_units(access, bytes), bytes);
    }

    /// Charges an access of persistent memory by the 256-byte units that it touches: two for 256
    /// bytes across a boundary, since the medium moves whole units. The byte counters get the true
    /// size.
    #[inline]
    pub fn charge_units(&mut self, access: Access, offset: u64, bytes: usize) {
        let touched = match bytes {
            0 => 0,
            bytes => (offset % UNIT_BYTES + bytes as u64).next_multiple_of(UNIT_BYTES),
        };
        self.add(access, self.costs.cost_units(access, touched as usize), bytes);
    }

    /// Charges a part of an access that will be made as a whole, such as a write buffer that is
    /// written once it is full.
    #[inline]
    pub fn charge_part(&mut self, access: Access, part_bytes: usize, of: WholeBytes) {
        let WholeBytes(whole) = of;
        // At most some 2^30 units for the largest write buffers, and as many bytes.
        let units = self.costs.cost_units(access, whole).saturating_mul(part_bytes as u64)
            / whole.max(1) as u64;
        self.add(access, units, part_bytes);
    }

    #[inline]
    fn add(&mut self, access: Access, units: u64, bytes: usize) {
        self.credit = self.credit.wrapping_sub(units as i64);
        add(&self.slot.units, units);
        add(&self.slot.operations[access as usize], 1);
        add(&self.slot.bytes[access as usize], bytes as u64);
    }

    /// Asks if the tenant may go on. Called before each request or small batch of requests.
    #[inline]
    pub fn admit(&mut self, now: Nanos) -> Admission {
        if self.credit > self.slot.floor.load(Ordering::Relaxed) {
            return Admission::Go;
        }
        self.ask(now)
    }

    /// Returns unused credit to the bucket, so that other threads can use it. A thread does this
    /// when it goes idle; dropping the handle does it too. Charges are visible at any time.
    pub fn settle(&mut self) {
        let account = Arc::clone(&self.account);
        self.hand_back(&mut account.bucket());
    }

    #[cold]
    fn ask(&mut self, now: Nanos) -> Admission {
        let account = Arc::clone(&self.account);
        let mut bucket = account.bucket();
        if self.slot.floor.load(Ordering::Relaxed) != 0 {
            // The limit has changed, or this is the first time.
            self.hand_back(&mut bucket);
        }
        match bucket.limit {
            Limit::Stopped => Admission::Stopped,
            Limit::Unlimited => {
                self.slot.floor.store(0, Ordering::Relaxed);
                (self.credit, self.granted) = (ENDLESS, ENDLESS);
                Admission::Go
            }
            Limit::Share(_) => {
                self.slot.floor.store(0, Ordering::Relaxed);
                self.draw(&mut bucket, now)
            }
        }
    }

    fn draw(&mut self, bucket: &mut Bucket, now: Nanos) -> Admission {
        let overdrawn = std::mem::take(&mut self.credit);
        assert!(overdrawn <= 0, "{overdrawn} units are left of a credit that is used up");
        self.granted = 0;
        bucket.give_back(overdrawn);
        let reserved = match self.reserved.take() {
            Some(reserved) => reserved,
            None => bucket.take(now),
        };
        if reserved.until > now {
            self.reserved = Some(reserved);
            return Admission::Wait { until: reserved.until };
        }
        (self.credit, self.granted) = (reserved.units, reserved.units);
        Admission::Go
    }

    fn hand_back(&mut self, bucket: &mut Bucket) {
        let credit = std::mem::take(&mut self.credit);
        let granted = std::mem::take(&mut self.granted);
        debug_assert!(credit <= granted, "{credit} units are left of {granted} that were granted");
        let reserved = self.reserved.take().map_or(0, |reserved| reserved.units);
        // Endless credit was never taken from the bucket.
        if granted != ENDLESS {
            bucket.give_back(credit + reserved);
        }
    }
}

impl Drop for AccountHandle {
    fn drop(&mut self) {
        let account = Arc::clone(&self.account);
        let mut bucket = account.bucket();
        self.hand_back(&mut bucket);
        bucket.retired = bucket.retired.plus(&self.slot);
        let before = bucket.slots.len();
        bucket.slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
        let gone = before - bucket.slots.len();
        debug_assert!(gone == 1, "a handle that goes had {gone} slots in its account, not one");
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
