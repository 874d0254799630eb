//! Commands without a key: stats, flush_all, version, verbosity, cache_memlimit, mn, quit and
//! shutdown.

use entresol_base::ByteSize;
use entresol_protocol::{Exptime, Lifetime, Request, encode};

use super::{Flow, Output, Then};
use crate::moment::Now;
use crate::stats::{self, Topic, VERSION};
use crate::tenant::Seat;

const MEMORY_LIMIT_TOO_SMALL: &[u8] = b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
const MEMORY_LIMIT_REFUSED: &[u8] = b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";

/// Context of executing a command without a key.
pub(super) struct Control<'c> {
    pub(super) seat: &'c Seat,
    pub(super) out: &'c mut Output,
    pub(super) now: Now,
}

impl Control<'_> {
    /// Executes a request without a key.
    pub(super) fn run(&mut self, request: &Request<'_>) -> Flow {
        match request {
            Request::FlushAll { delay, noreply } => self.flush_all(*delay, *noreply),
            Request::Stats { argument } => self.stats(argument),
            Request::Version => {
                encode::version(&mut self.out.bytes, VERSION);
                Flow::Done
            }
            Request::ConfigGetCluster => self.cluster(),
            Request::Verbosity { noreply } => self.out.reply(*noreply, encode::OK),
            Request::MemoryLimit { megabytes, noreply } => self.limit_memory(*megabytes, *noreply),
            Request::MetaNoop => self.out.reply(false, encode::META_NOOP),
            Request::Quit => Flow::Stop(Then::Close),
            // One tenant must not be able to stop the server of the others.
            Request::Shutdown { .. } => self.out.reply(false, encode::SHUTDOWN_DISABLED),
            // The parser guarantees that a request for keys has keys.
            _ => self.out.reply(false, encode::ERROR),
        }
    }

    fn flush_all(&mut self, delay: Exptime, noreply: bool) -> Flow {
        let now = self.now.seconds;
        let delay_s = match delay.lifetime(now) {
            Lifetime::Until(second) => second.0.saturating_sub(now.0),
            Lifetime::Forever | Lifetime::Over => 0,
        };
        self.seat.tenant.cache().flush_all(now, delay_s);
        self.seat.counters.cmd_flush.count();
        self.out.reply(noreply, encode::OK)
    }

    /// Changes the DRAM limit. A tenant may take less than its quota, but never more.
    fn limit_memory(&mut self, megabytes: u32, noreply: bool) -> Flow {
        const LEAST_MEGABYTES: u32 = 8;
        if megabytes < LEAST_MEGABYTES {
            return self.out.reply(noreply, MEMORY_LIMIT_TOO_SMALL);
        }
        let wanted = ByteSize::mib(u64::from(megabytes));
        let settings = self.seat.tenant.settings();
        let possible = wanted <= settings.dram_quota
            && self.seat.tenant.cache().resize(wanted, settings.medium_quota).is_ok();
        self.out.reply(noreply, if possible { encode::OK } else { MEMORY_LIMIT_REFUSED })
    }

    /// Names the machines of the cluster, if the configuration names any.
    fn cluster(&mut self) -> Flow {
        let Some(text) = self.seat.tenant.settings().cluster else {
            return self.out.reply(false, encode::ERROR);
        };
        let head = format!("CONFIG cluster 0 {}\r\n", text.len());
        self.out.bytes.extend_from_slice(head.as_bytes());
        self.out.bytes.extend_from_slice(text.as_bytes());
        self.out.bytes.extend_from_slice(encode::CRLF);
        self.out.reply(false, encode::END)
    }

    fn stats(&mut self, argument: &[u8]) -> Flow {
        match Topic::of(argument) {
            Ok(Topic::Reset) => {
                self.seat.tenant.reset_statistics();
                self.out.reply(false, encode::RESET)
            }
            Ok(Topic::Detail(Some(is_on))) => {
                self.seat.tenant.detail.set(is_on);
                self.out.reply(false, encode::OK)
            }
            Ok(Topic::Detail(None)) => {
                self.seat.tenant.detail.dump(&mut self.out.bytes);
                self.out.reply(false, encode::END)
            }
            Ok(topic) => {
                for (name, value) in stats::report(topic, &self.seat.tenant, self.now) {
                    encode::stat(&mut self.out.bytes, &name, &value);
                }
                self.out.reply(false, encode::END)
            }
            Err(refusal) => self.out.reply(false, refusal),
        }
    }
}
