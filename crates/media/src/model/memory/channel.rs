//! The medium's time, shared by reads and writes.
//!
//! Accesses of one kind are served in the order in which they come. The time is divided between the
//! kinds: one that is alone has all of it; when both press, each has its share, so neither can push
//! the other below its floor. This is the fluid limit of weighted round robin.

use entresol_base::clock::Picos;

/// Kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// Time at which the medium will have served all accesses so far, by kind.
#[derive(Debug, Clone)]
pub(super) struct Channel {
    free: [u64; 2],
    share_milli: [u64; 2],
}

impl Channel {
    pub(super) fn new(read_share_milli: u64) -> Channel {
        assert!((1..1_000).contains(&read_share_milli), "both kinds need a share");
        Channel { free: [0; 2], share_milli: [read_share_milli, 1_000 - read_share_milli] }
    }

    /// Returns the time at which `demand` of the medium's time, asked for at `at`, has been given.
    pub(super) fn serve(&mut self, kind: Kind, at: Picos, demand: Picos) -> Picos {
        let (mine, other) = (kind as usize, 1 - kind as usize);
        let start = self.free[mine].max(at.0);
        let left = self.free[other].saturating_sub(start);
        let (share, others) = (self.share_milli[mine], self.share_milli[other]);
        // The other kind planned its time from `start` on as if it were alone; it is pushed back by
        // this access's use of it.
        if left == 0 {
            self.free[mine] = start + demand.0;
        } else if demand.0 * others <= left * share {
            self.free[mine] = start + demand.0 * 1_000 / share;
            self.free[other] += demand.0;
        } else {
            self.free[mine] = start + left + demand.0;
            self.free[other] = start + left * 1_000 / others;
        }
        let done = self.free[mine];
        debug_assert!(done >= start + demand.0, "{demand:?} from {start} ps is done at {done} ps");
        Picos(done)
    }

    /// Returns the time for which the medium is still busy with a kind.
    pub(super) fn backlog(&self, kind: Kind, at: Picos) -> Picos {
        Picos(self.free[kind as usize]).since(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_a_kind_has_all_of_the_time() {
        let mut channel = Channel::new(400);
        assert_eq!(channel.serve(Kind::Read, Picos(10), Picos(100)), Picos(110));
        assert_eq!(channel.serve(Kind::Read, Picos(20), Picos(100)), Picos(210));
        assert_eq!(channel.backlog(Kind::Read, Picos(200)), Picos(10));
    }

    #[test]
    fn pressed_by_the_other_a_kind_keeps_its_share_and_no_time_is_lost() {
        let mut channel = Channel::new(400);
        for _ in 0..100 {
            channel.serve(Kind::Write, Picos(0), Picos(100));
        }
        let mut read = Picos(0);
        for _ in 0..10 {
            read = channel.serve(Kind::Read, Picos(0), Picos(100));
        }
        assert_eq!(read, Picos(2_500), "1,000 of time at a share of 0.4");
        assert_eq!(channel.backlog(Kind::Write, Picos(0)), Picos(11_000));
        // What is longer than the other's backlog gets everything once that is over.
        let mut channel = Channel::new(400);
        channel.serve(Kind::Write, Picos(0), Picos(60));
        assert_eq!(channel.serve(Kind::Read, Picos(0), Picos(1_000)), Picos(1_060));
        assert_eq!(channel.backlog(Kind::Write, Picos(0)), Picos(100));
    }
}
