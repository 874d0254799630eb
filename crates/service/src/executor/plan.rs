//! Parses a batch of pipelined requests and starts the memory accesses of all of them.

use entresol_cache::KeyHash;
use entresol_protocol::{AfterRefusal, Key, KeyBuffer, KeyLine, Limits, Request, Step};

use crate::tenant::Seat;

/// Keys that are prefetched at a time. More would evict each other from the processor's line-fill
/// buffers and first-level cache before they are used.
const KEYS_AHEAD: usize = 32;

/// A request of the batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned<'a> {
    pub(super) step: Step<'a>,
    /// End of the request, counted from the start of the batch.
    pub(super) end: usize,
    /// Number of the batch's hashes that belong to its keys.
    pub(super) keys: usize,
    /// Command of the line that goes on behind it.
    pub(super) line: Option<KeyLine>,
}

/// End of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// The rest is no whole request yet.
    Incomplete { needed: usize },
    /// The input may hold further requests.
    Full,
}

/// Parses at most `requests_max` requests of `input` into `planned`. The first keys may belong to
/// the command of `line`.
pub(super) fn plan<'a>(
    input: &'a [u8],
    mut line: Option<KeyLine>,
    seat: &Seat,
    limits: &Limits,
    requests_max: usize,
    planned: &mut Vec<Planned<'a>>,
    hashes: &mut Vec<KeyHash>,
) -> Tail {
    planned.clear();
    hashes.clear();
    let mut end = 0;
    let tail = loop {
        if planned.len() >= requests_max || hashes.len() >= KEYS_AHEAD {
            break Tail::Full;
        }
        let rest = input.get(end..).unwrap_or_default();
        if rest.is_empty() {
            break Tail::Incomplete { needed: 1 };
        }
        let step = match line {
            None => entresol_protocol::parse(rest, limits),
            Some(line) => entresol_protocol::parse_keys(line, rest, limits),
        };
        line = None;
        let before = hashes.len();
        match step {
            Step::Incomplete { needed } => break Tail::Incomplete { needed },
            Step::Request { consumed, ref request } => {
                end += consumed;
                hash_keys(request, seat, hashes);
                planned.push(Planned { step, end, keys: hashes.len() - before, line });
            }
            Step::Keys { consumed, ref request, line: command } => {
                end += consumed;
                line = Some(command);
                hash_keys(request, seat, hashes);
                planned.push(Planned { step, end, keys: hashes.len() - before, line });
            }
            Step::Refused { consumed, then, .. } => {
                end += consumed;
                planned.push(Planned { step, end, keys: 0, line });
                if then != AfterRefusal::Continue {
                    break Tail::Full;
                }
            }
        }
    };
    fetch_ahead(seat, hashes);
    tail
}

/// Hashes the keys of a request and starts fetching their index buckets.
#[inline]
pub(super) fn hash_keys(request: &Request<'_>, seat: &Seat, hashes: &mut Vec<KeyHash>) {
    let mut push = |key: &[u8]| {
        if let Some(null_store) = &seat.null_store {
            return hashes.push(null_store.hash);
        }
        let hash = seat.worker.hash(key);
        seat.worker.prefetch(hash);
        hashes.push(hash);
    };
    match request {
        Request::Get { keys, .. } | Request::GetAndTouch { keys, .. } => keys.for_each(push),
        other => match other.single_key() {
            Some(Key::Text(key)) => push(key),
            Some(key) => push(key.resolve(&mut KeyBuffer::default())),
            None => {}
        },
    }
}

/// Starts fetching the records that the buckets name. A lone request gains nothing by it.
#[inline]
fn fetch_ahead(seat: &Seat, hashes: &[KeyHash]) {
    if hashes.len() > 1 && seat.null_store.is_none() {
        for hash in hashes {
            seat.worker.prefetch_record(*hash);
        }
    }
}

/// Empties the vector and keeps its allocation for requests that borrow from another input.
pub(super) fn recycle<'a>(mut planned: Vec<Planned<'_>>) -> Vec<Planned<'a>> {
    planned.clear();
    // Collecting an emptied vector into one of the same layout keeps its memory.
    planned.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
