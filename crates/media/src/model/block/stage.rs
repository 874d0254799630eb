//! A stage of a drive: equal servers (dies, channels). Reads go first; background work fills the
//! time between them, but is not interrupted once begun.
//!
//! Background work is done lazily: a server catches up when it is looked at. So an operation costs
//! only the work it adds, and no event queue.

use std::collections::VecDeque;

/// Picoseconds inside a model.
pub(super) type Ps = u64;

/// A piece of background work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    /// Time for which it holds its server.
    pub(super) length: Ps,
    /// Bytes of the write buffer that it frees when it begins, since the server has them then.
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Default)]
struct Server {
    free_at: Ps,
    jobs: VecDeque<Job>,
}

#[derive(Debug, Clone)]
pub(super) struct Stage {
    servers: Vec<Server>,
    /// Bytes of the write buffer that wait for this stage; an upper bound, exact once all servers
    /// have caught up.
    buffered: u64,
}

impl Server {
    /// Does the background work that begins before `now`, and returns the bytes that it frees.
    #[inline]
    fn catch_up(&mut self, now: Ps) -> u64 {
        let mut freed = 0;
        while self.free_at < now
            && let Some(job) = self.jobs.pop_front()
        {
            self.free_at += job.length;
            freed += job.bytes;
        }
        freed
    }
}

impl Stage {
    pub(super) fn new(servers: usize) -> Stage {
        Stage { servers: vec![Server::default(); servers.max(1)], buffered: 0 }
    }

    /// Serves a read that comes at `now`, and returns its end. It waits for earlier reads and for
    /// the piece of background work that has begun.
    #[inline]
    pub(super) fn serve(&mut self, server: usize, now: Ps, length: Ps) -> Ps {
        let server = &mut self.servers[server];
        self.buffered = less(self.buffered, server.catch_up(now));
        server.free_at = server.free_at.max(now) + length;
        server.free_at
    }

    /// Queues background work at a server.
    #[inline]
    pub(super) fn queue(&mut self, server: usize, now: Ps, job: Job) {
        let server = &mut self.servers[server];
        self.buffered = less(self.buffered, server.catch_up(now));
        if server.jobs.is_empty() {
            // The time until now was idle and is lost.
            server.free_at = server.free_at.max(now);
        }
        server.jobs.push_back(job);
        self.buffered += job.bytes;
    }

    /// Returns the time, `now` at the earliest, at which the buffered bytes fit into `limit`. If
    /// that requires a wait, writes go before reads: the work that can begin first is done.
    pub(super) fn room(&mut self, now: Ps, limit: u64) -> Ps {
        if self.buffered <= limit {
            return now;
        }
        let mut at = now;
        for server in &mut self.servers {
            self.buffered = less(self.buffered, server.catch_up(now));
        }
        while self.buffered > limit {
            let waiting = self.servers.iter_mut().filter(|server| !server.jobs.is_empty());
            let Some(first) = waiting.min_by_key(|server| server.free_at) else { break };
            let Some(job) = first.jobs.pop_front() else { break };
            let begin = first.free_at.max(now);
            first.free_at = begin + job.length;
            self.buffered = less(self.buffered, job.bytes);
            at = at.max(begin);
        }
        at
    }
}

/// Bytes left in the buffer: no more leaves it than came.
#[inline]
fn less(buffered: u64, bytes: u64) -> u64 {
    debug_assert!(bytes <= buffered, "{bytes} bytes leave a buffer that holds {buffered}");
    buffered - bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 4096;

    fn job(length: Ps) -> Job {
        Job { length, bytes: BYTES }
    }

    #[test]
    fn a_read_goes_before_waiting_work_and_after_work_that_has_begun() {
        let mut stage = Stage::new(1);
        stage.queue(0, 100, job(50));
        stage.queue(0, 100, job(50));
        assert_eq!(stage.serve(0, 100, 10), 110, "nothing had begun before 100");
        assert_eq!(stage.serve(0, 120, 10), 170, "the first piece runs from 110 to 160");
        assert_eq!(stage.serve(0, 300, 10), 310, "the second ran from 170 to 220");
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut stage = Stage::new(1);
        stage.queue(0, 1_000, job(50));
        assert_eq!(stage.serve(0, 1_001, 10), 1_060);
    }

    #[test]
    fn a_full_buffer_waits_for_the_work_that_can_begin_first() {
        let mut stage = Stage::new(2);
        for length in [500, 300] {
            let server = usize::from(length == 300);
            stage.queue(server, 0, job(length));
            stage.queue(server, 0, job(length));
        }
        assert_eq!(stage.room(0, 4 * BYTES), 0, "all four fit");
        assert_eq!(stage.room(10, 2 * BYTES), 10, "two have begun, at 0");
        assert_eq!(stage.room(10, BYTES), 300, "the next begins when the shorter has ended");
        assert_eq!(stage.serve(1, 20, 1), 601, "which a read then has to wait for");
        assert_eq!(stage.room(10_000, 0), 10_000, "all was done long ago");
    }
}
