//! The request parser: the front of a receive buffer in, one step out.
//!
//! It keeps no state. The same bytes in any division give the same requests and refusals, because
//! nothing is decided before a whole line has arrived, or before a line exceeds its limit. Every
//! refusal says how the stream goes on.

mod meta;
mod portions;
mod text;

pub use portions::parse_keys;

use crate::limits::KEY_BYTES_CEILING;
use crate::scan::{Words, has_control, word_end};
use crate::{AfterRefusal, Key, Keys, Limits, Refusal, Request, Step};

/// First byte of a request of the binary protocol, which this server does not speak.
const BINARY_MAGIC: u8 = 0x80;
/// First bytes of a TLS client on a plain port.
const TLS_HELLO: [u8; 2] = [0x16, 0x03];

/// Parses the request at the front of `input`.
///
/// ```
/// use entresol_protocol::{Limits, Request, Step, parse};
///
/// let Step::Request { request: Request::Get { mut keys, .. }, consumed } =
///     parse(b"get answer\r\nget question\r\n", &Limits::default())
/// else {
///     panic!("that was a get");
/// };
/// assert_eq!(keys.next(), Some(&b"answer"[..]));
/// assert_eq!(consumed, 12);
/// ```
#[inline]
#[must_use]
pub fn parse<'a>(input: &'a [u8], limits: &Limits) -> Step<'a> {
    let step = match single_get(input, limits) {
        Some(step) => step,
        None => parse_line(input, Block::Follows, limits),
    };
    debug_assert!(step.is_of(input.len()), "{step:?} of {} bytes", input.len());
    step
}

/// Parses the line of a storage command whose data block went elsewhere: the request has none. If
/// the block did not end with a line ending, it is refused as malformed.
#[must_use]
pub fn parse_without_data<'a>(line: &'a [u8], is_terminated: bool, limits: &Limits) -> Step<'a> {
    let block = if is_terminated { Block::Elsewhere } else { Block::Malformed };
    parse_line(line, block, limits)
}

/// Parses a `get` with one key, the commonest request, without searching for the line ending first.
/// `None` if it is anything else, or not obviously valid.
#[inline]
fn single_get<'a>(input: &'a [u8], limits: &Limits) -> Option<Step<'a>> {
    let rest = input.strip_prefix(b"get ")?;
    let len = word_end(rest);
    let (key, rest) = rest.split_at_checked(len)?;
    if key.is_empty() || len > key_bytes_max(limits) || !rest.starts_with(b"\r\n") {
        return None;
    }
    let keys = Keys::new(key, len);
    Some(Step::Request { request: Request::Get { keys, cas: false }, consumed: len + 6 })
}

fn parse_line<'a>(input: &'a [u8], block: Block, limits: &Limits) -> Step<'a> {
    if let Some(step) = foreign_protocol(input) {
        return step;
    }
    let line_bytes_max = line_bytes_max(input, limits);
    let window = input.get(..line_bytes_max).unwrap_or(input);
    let Some(newline) = memchr::memchr(b'\n', window) else {
        if input.len() < line_bytes_max {
            return Step::Incomplete { needed: input.len() + 1 };
        }
        if names_many_keys(input) {
            return portions::first(window, limits);
        }
        return refuse(None, input.len(), AfterRefusal::Close);
    };
    let text = input.get(..newline).unwrap_or_default();
    let mut line = Line {
        input,
        words: Words::new(text.strip_suffix(b"\r").unwrap_or(text)),
        consumed: newline + 1,
        block,
        limits,
    };
    // Leading spaces make an unknown command, as they do in memcached.
    if text.first() == Some(&b' ') { line.unknown() } else { line.step() }
}

/// Refuses other protocols on this port: the sooner the connection ends, the less is misread.
fn foreign_protocol(input: &[u8]) -> Option<Step<'_>> {
    let close = || Some(refuse(None, input.len(), AfterRefusal::Close));
    match *input {
        [BINARY_MAGIC, ..] => close(),
        [first, second, ..] if [first, second] == TLS_HELLO => close(),
        _ => None,
    }
}

/// Returns true if `input` begins with a command whose line may name many keys.
fn names_many_keys(input: &[u8]) -> bool {
    let commands: [&[u8]; 4] = [b"get ", b"gets ", b"gat ", b"gats "];
    commands.iter().any(|command| input.starts_with(command))
}

/// Longest line that `input` may begin with: only lines that may name many keys may be long.
fn line_bytes_max(input: &[u8], limits: &Limits) -> usize {
    if names_many_keys(input) {
        limits.multiget_line_bytes_max.max(limits.line_bytes_max)
    } else {
        limits.line_bytes_max
    }
}

fn key_bytes_max(limits: &Limits) -> usize {
    limits.key_bytes_max.min(KEY_BYTES_CEILING)
}

fn refuse<'a>(reply: Option<Refusal>, consumed: usize, then: AfterRefusal) -> Step<'a> {
    Step::Refused { reply, refusal: reply, consumed, then, discard: None }
}

/// A command's name of at most seven bytes as one number, so that finding the command takes a few
/// comparisons of integers; 0 for any longer word. The leading 1 tells lengths apart.
#[inline]
const fn name(word: &[u8]) -> u64 {
    let mut number = 1;
    let mut at = 0;
    while at < word.len() && at < 8 {
        number = number << 8 | word[at] as u64;
        at += 1;
    }
    if at > 7 { 0 } else { number }
}

const GET: u64 = name(b"get");
const GETS: u64 = name(b"gets");
const GAT: u64 = name(b"gat");
const GATS: u64 = name(b"gats");
const MG: u64 = name(b"mg");
const MS: u64 = name(b"ms");
const MD: u64 = name(b"md");
const MA: u64 = name(b"ma");
const MN: u64 = name(b"mn");
const ME: u64 = name(b"me");
const SET: u64 = name(b"set");
const ADD: u64 = name(b"add");
const REPLACE: u64 = name(b"replace");
const APPEND: u64 = name(b"append");
const PREPEND: u64 = name(b"prepend");
const CAS: u64 = name(b"cas");
const DELETE: u64 = name(b"delete");
const INCR: u64 = name(b"incr");
const DECR: u64 = name(b"decr");
const TOUCH: u64 = name(b"touch");
const STATS: u64 = name(b"stats");
const VERSION: u64 = name(b"version");
const QUIT: u64 = name(b"quit");

/// A whole line that is being parsed into a step.
struct Line<'a, 'l> {
    /// Receive buffer, for the data block behind the line.
    input: &'a [u8],
    /// Words that have not been read yet.
    words: Words<'a>,
    /// Bytes of the line, its ending included.
    consumed: usize,
    block: Block,
    limits: &'l Limits,
}

/// Place of the data block of a storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// Behind the line.
    Follows,
    /// Elsewhere, where it has arrived.
    Elsewhere,
    /// Elsewhere, and without a line ending behind it.
    Malformed,
}

/// State of a data block.
enum Data<'a> {
    /// The block is complete; `consumed` counts line and block.
    Whole { data: &'a [u8], consumed: usize },
    /// The block has not arrived completely.
    Missing { needed: usize },
    /// The block is complete, but does not end with a line ending.
    Malformed { consumed: usize },
}

impl<'a> Line<'a, '_> {
    fn step(&mut self) -> Step<'a> {
        let all = self.words;
        let command = self.words.next().unwrap_or_default();
        match name(command) {
            GET => self.get(false),
            GETS => self.get(true),
            GAT => self.get_and_touch(false),
            GATS => self.get_and_touch(true),
            MG => self.meta_get(),
            MS => self.meta_set(),
            MD => self.meta_delete(),
            MA => self.meta_arithmetic(),
            MN => self.request(Request::MetaNoop),
            ME => self.meta_debug(),
            SET => self.store(text::Verb::Set),
            ADD => self.store(text::Verb::Add),
            REPLACE => self.store(text::Verb::Replace),
            APPEND => self.store(text::Verb::Append),
            PREPEND => self.store(text::Verb::Prepend),
            CAS => self.store(text::Verb::Cas),
            DELETE => self.delete(),
            INCR => self.arithmetic(false),
            DECR => self.arithmetic(true),
            TOUCH => self.touch(),
            STATS => self.stats(),
            VERSION => self.request(Request::Version),
            QUIT => self.request(Request::Quit),
            _ if command == b"flush_all" => self.flush_all(),
            _ if command == b"shutdown" => self.shutdown(),
            _ if command == b"verbosity" => self.verbosity(),
            _ if command == b"config" && self.asks_for_cluster() => {
                self.request(Request::ConfigGetCluster)
            }
            _ if command == b"cache_memlimit" => self.memory_limit(),
            _ if command == b"lru_crawler" => self.lru_crawler(),
            _ => {
                self.words = all;
                self.unknown()
            }
        }
    }

    fn request(&self, request: Request<'a>) -> Step<'a> {
        Step::Request { request, consumed: self.consumed }
    }

    fn refuse(&self, refusal: Refusal) -> Step<'a> {
        refuse(Some(refusal), self.consumed, AfterRefusal::Continue)
    }

    /// Refuses a request; a client that asked for silence does not see the reply.
    fn refuse_unless(&self, noreply: bool, refusal: Refusal) -> Step<'a> {
        let reply = (!noreply).then_some(refusal);
        let (refusal, consumed) = (Some(refusal), self.consumed);
        Step::Refused { reply, refusal, consumed, then: AfterRefusal::Continue, discard: None }
    }

    /// Refuses an unknown command. An HTTP request of a web page or a tool ends the connection at
    /// once: the lines that follow could hold commands, a known way to smuggle them past a
    /// firewall.
    fn unknown(&self) -> Step<'a> {
        let mut words = self.words;
        let command = words.next();
        let http = words.last().is_some_and(|last| last.starts_with(b"HTTP/"));
        if http || command == Some(b"POST") {
            return refuse(None, self.input.len(), AfterRefusal::Close);
        }
        // memcached reads no line shorter than a command of two letters.
        let refusal = if self.consumed < 4 { Refusal::BadLine } else { Refusal::UnknownCommand };
        self.refuse(refusal)
    }

    /// Returns true if `key` may name an item.
    fn is_key(&self, key: &[u8]) -> bool {
        key.len() <= key_bytes_max(self.limits) && !has_control(key)
    }

    /// Data block of `len` bytes behind the line.
    fn data(&self, len: usize) -> Data<'a> {
        let consumed = self.consumed + len + 2;
        match self.block {
            Block::Follows => {}
            Block::Elsewhere => return Data::Whole { data: b"", consumed: self.consumed },
            Block::Malformed => return Data::Malformed { consumed: self.consumed },
        }
        match self.input.get(self.consumed..consumed) {
            None => Data::Missing { needed: consumed },
            Some(block) => match block.strip_suffix(b"\r\n") {
                Some(data) => Data::Whole { data, consumed },
                None => Data::Malformed { consumed },
            },
        }
    }

    /// Refuses a storage command whose data block of `len` bytes must be skipped.
    fn refuse_with_data(&self, len: usize, reply: Option<Refusal>) -> Step<'a> {
        refuse(reply, self.consumed, AfterRefusal::Swallow(len as u64 + 2))
    }

    /// Refuses a value that is too long, and drops the old value of `discard`.
    fn too_large(&self, len: usize, noreply: bool, discard: Option<Key<'a>>) -> Step<'a> {
        Step::Refused {
            reply: (!noreply).then_some(Refusal::TooLarge),
            refusal: Some(Refusal::TooLarge),
            consumed: self.consumed,
            then: AfterRefusal::Swallow(len as u64 + 2),
            discard,
        }
    }
}
