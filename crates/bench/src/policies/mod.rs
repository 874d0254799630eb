//! Published eviction policies, simulated object by object, to hold a cache's misses against.
//!
//! A simulator keeps no values and counts bytes exactly, so it shows what the policy can do and not
//! what an implementation of it does.

mod queues;
mod ranked;
mod s3_fifo;
mod simple;
mod w_tinylfu;

use std::fmt;
use std::str::FromStr;

/// One request to a simulated cache.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// Dense number of the object: its first request's place among first requests.
    pub object: u32,
    /// Bytes that the object takes of the capacity.
    pub bytes: u64,
    /// Number of this request.
    pub number: u64,
    /// Number of the next request for the object, `u64::MAX` if there is none.
    pub next: u64,
}

/// A cache of a fixed capacity that holds sizes instead of values.
pub trait Policy: fmt::Debug + Send {
    /// Looks an object up and notes the read; returns true if it is held.
    fn hit(&mut self, access: Access) -> bool;
    /// Stores an object that is not held, if the policy admits it, and evicts others for it. The
    /// `hit` of the same access came before and returned false.
    fn admit(&mut self, access: Access);
    /// Removes an object: it was deleted, has expired or changes its size.
    fn remove(&mut self, object: u32);
}

/// Name of a policy that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyName {
    /// First in, first out.
    Fifo,
    /// Least recently used.
    Lru,
    /// FIFO with a second chance for objects that were read.
    Clock,
    /// SIEVE.
    Sieve,
    /// S3-FIFO.
    S3Fifo,
    /// W-TinyLFU.
    WTinyLfu,
    /// Greedy dual size frequency.
    Gdsf,
    /// Belady's MIN, which knows the future.
    Belady,
}

impl PolicyName {
    /// All policies, the simplest first and the bound last.
    pub const ALL: [PolicyName; 8] = [
        PolicyName::Fifo,
        PolicyName::Lru,
        PolicyName::Clock,
        PolicyName::Sieve,
        PolicyName::S3Fifo,
        PolicyName::WTinyLfu,
        PolicyName::Gdsf,
        PolicyName::Belady,
    ];

    /// Builds a cache of `capacity` bytes with this policy.
    #[must_use]
    pub fn build(self, capacity: u64) -> Box<dyn Policy> {
        match self {
            PolicyName::Fifo => Box::new(simple::Fifo::new(capacity)),
            PolicyName::Lru => Box::new(simple::Lru::new(capacity)),
            PolicyName::Clock => Box::new(simple::Clock::new(capacity)),
            PolicyName::Sieve => Box::new(simple::Sieve::new(capacity)),
            PolicyName::S3Fifo => Box::new(s3_fifo::S3Fifo::new(capacity)),
            PolicyName::WTinyLfu => Box::new(w_tinylfu::WTinyLfu::new(capacity)),
            PolicyName::Gdsf => Box::new(ranked::Gdsf::new(capacity)),
            PolicyName::Belady => Box::new(ranked::Belady::new(capacity)),
        }
    }

    /// Name as commands and reports have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyName::Fifo => "fifo",
            PolicyName::Lru => "lru",
            PolicyName::Clock => "clock",
            PolicyName::Sieve => "sieve",
            PolicyName::S3Fifo => "s3-fifo",
            PolicyName::WTinyLfu => "w-tinylfu",
            PolicyName::Gdsf => "gdsf",
            PolicyName::Belady => "belady",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<PolicyName, String> {
        let found = PolicyName::ALL.into_iter().find(|name| name.as_str() == text);
        found.ok_or_else(|| {
            let names = PolicyName::ALL.map(PolicyName::as_str).join(", ");
            format!("'{text}' is no policy that can be simulated: write {names}")
        })
    }
}

#[cfg(test)]
mod tests;
