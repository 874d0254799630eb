//! Counters of a tenant: one set for each thread, written by that thread alone and summed by
//! readers.
//!
//! Only the owning thread may call [`Counter::add`]; it loads and stores without a locked
//! instruction. Any thread may read.

use std::sync::atomic::{AtomicU64, Ordering};

use entresol_cache::Stored;

/// A number that one thread raises and all may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Raises the number.
    #[inline]
    pub fn add(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// Raises the number by one.
    #[inline]
    pub fn count(&self) {
        self.add(1);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one thread for one tenant.
        #[derive(Debug, Default)]
        #[repr(align(64))]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
        }

        /// Sum of [`Counters`] at one moment.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// Adds the counters of one thread.
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.get());)*
            }

            /// Counts since `earlier`.
            pub(crate) fn since(&self, earlier: &Counts) -> Counts {
                Counts { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }

            /// Lists every counter with its name.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Keys looked up by get, gets and mg.
    cmd_get,
    /// Keys looked up and found.
    get_hits,
    /// Keys looked up and not found.
    get_misses,
    /// Storage commands.
    cmd_set,
    /// Commands `flush_all`.
    cmd_flush,
    /// Touches: touch, gat, gats, mg with T.
    cmd_touch,
    /// Touches that found their item.
    touch_hits,
    /// Touches that did not find their item.
    touch_misses,
    /// Meta commands.
    cmd_meta,
    /// Deletes that found their item.
    delete_hits,
    /// Deletes that did not find their item.
    delete_misses,
    /// Increments that found their item.
    incr_hits,
    /// Increments that did not find their item.
    incr_misses,
    /// Decrements that found their item.
    decr_hits,
    /// Decrements that did not find their item.
    decr_misses,
    /// Compare-and-swaps that stored.
    cas_hits,
    /// Compare-and-swaps without an item.
    cas_misses,
    /// Compare-and-swaps with an old token.
    cas_badval,
    /// Stores refused because the value is too large.
    store_too_large,
    /// Stores refused because the quota is full.
    store_no_memory,
    /// Requests answered with an error.
    protocol_errors,
    /// Passwords that clients have sent.
    auth_cmds,
    /// Passwords that were wrong, and clients that did not send one in time.
    auth_errors,
    /// Bytes received.
    bytes_read,
    /// Bytes sent.
    bytes_written,
    /// Connections accepted.
    total_connections,
    /// Connections refused because the tenant had its maximum.
    rejected_connections,
    /// Connections closed because they were idle or made no progress.
    idle_kicks,
    /// Connections closed because the tenant's buffers were full and theirs did not move.
    buffer_kicks,
    /// Turns that ended early so that other connections could be served.
    conn_yields,
    /// Connections that had to wait because their tenant's account was empty or stopped.
    throttled,
    /// Refusals by the tenant's account.
    account_refusals,
    /// Turns put off because the tenant had made as many requests as it may in a time.
    request_waits,
    /// Connections parked because all write buffers were in flight.
    write_waits,
    /// Values read from a block file.
    medium_reads,
    /// Reads from a block file that failed and were answered as misses.
    medium_read_failures,
    /// Requests slower than the slow log's threshold.
    slow_requests,
}

impl Counters {
    /// Counts a lookup that needs no more reading.
    #[inline]
    pub(crate) fn count_lookup(&self, touch: bool, hit: bool) {
        let (commands, hits, misses) = if touch {
            (&self.cmd_touch, &self.touch_hits, &self.touch_misses)
        } else {
            (&self.cmd_get, &self.get_hits, &self.get_misses)
        };
        commands.count();
        if hit { hits.count() } else { misses.count() }
    }

    /// Counts a finished store.
    pub(crate) fn count_store(&self, stored: &Stored, compared: bool) {
        // A store that finds no room has not begun, to memcached.
        if !matches!(stored, Stored::TooLarge | Stored::NoMemory) {
            self.cmd_set.count();
        }
        match stored {
            Stored::Stored { .. } if compared => self.cas_hits.count(),
            Stored::Exists => self.cas_badval.count(),
            Stored::NotFound if compared => self.cas_misses.count(),
            Stored::TooLarge => self.store_too_large.count(),
            Stored::NoMemory => self.store_no_memory.count(),
            _ => {}
        }
    }

    /// Counts an incr or decr, and whether it found its item.
    pub(crate) fn count_arithmetic(&self, down: bool, hit: bool) {
        match (down, hit) {
            (false, true) => self.incr_hits.count(),
            (false, false) => self.incr_misses.count(),
            (true, true) => self.decr_hits.count(),
            (true, false) => self.decr_misses.count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_sums_over_threads_and_can_be_set_back() {
        let (one, two) = (Counters::default(), Counters::default());
        one.cmd_get.add(3);
        two.cmd_get.count();
        let mut sum = Counts::default();
        sum.add(&one);
        sum.add(&two);
        assert_eq!(sum.cmd_get, 4);
        let baseline = sum;
        one.cmd_get.count();
        let mut later = Counts::default();
        later.add(&one);
        later.add(&two);
        assert_eq!(later.since(&baseline).cmd_get, 1);
        assert!(later.list().contains(&("cmd_get", 5)));
    }
}
