//! What a parser step yields, and the answers to what cannot be served.

use crate::{Key, Request};

/// What the front of a receive buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// Not yet a whole request.
    Incomplete {
        /// The buffer must hold at least this many bytes in all before another try can help.
        /// Always more than it holds now, and never more than the limits allow for one request.
        needed: usize,
    },
    /// One request.
    Request {
        /// What is asked.
        request: Request<'a>,
        /// How many bytes of the buffer it took.
        consumed: usize,
    },
    /// Something that cannot be served.
    Refused {
        /// The answer; `None` where the client asked for silence or gets none.
        reply: Option<Refusal>,
        /// How many bytes of the buffer it took.
        consumed: usize,
        /// How to go on.
        then: AfterRefusal,
        /// A key whose item must go: the value meant to replace it was too large, and memcached
        /// would rather have nothing there than the old value.
        discard: Option<Key<'a>>,
    },
}

impl Step<'_> {
    /// Whether it can be the front of so many bytes: it takes some of them, or waits for more.
    pub(crate) fn is_of(&self, bytes: usize) -> bool {
        match *self {
            Step::Incomplete { needed } => needed > bytes,
            Step::Request { consumed, .. } | Step::Refused { consumed, .. } => {
                (1..=bytes).contains(&consumed)
            }
        }
    }
}

/// How a connection goes on after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRefusal {
    /// The next request begins right behind.
    Continue,
    /// The next so many bytes, some of which may lie in the buffer already, belong to the refused
    /// request: skip them.
    Swallow(u64),
    /// The stream cannot be trusted any more: send what is due and close.
    Close,
}

/// The error replies that the parser gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No such command.
    UnknownCommand,
    /// Words are missing, a number is malformed, or a key is too long or holds control bytes.
    BadLine,
    /// Flag arguments of a meta command that are no numbers.
    BadToken,
    /// A data block that does not end where it was said to end.
    BadDataChunk,
    /// A delta of incr or decr that is no unsigned 64-bit number.
    BadDelta,
    /// An exptime that is no number.
    BadExptime,
    /// A value longer than the limit.
    TooLarge,
    /// A mode of `shutdown` that does not exist.
    BadShutdownMode,
    /// A key that is no base64 although the `b` flag says so.
    BadBase64,
    /// A meta flag that stands twice.
    DuplicateFlag,
    /// A meta flag that does not exist.
    InvalidFlag,
    /// Either of the two, where memcached does not tell them apart (`ma`).
    InvalidOrDuplicateFlag,
    /// More flags than a meta command may have.
    TooManyFlags,
    /// An opaque of more than 32 bytes.
    OpaqueTooLong,
    /// A mode of `ms` that does not exist.
    BadStoreMode,
    /// A mode of `ma` that does not exist.
    BadArithmeticMode,
    /// An initial value of `ma` that is no number.
    BadInitialValue,
    /// A delta of `ma` that is no number.
    BadMetaDelta,
}

impl Refusal {
    /// The reply's bytes, line ending included.
    #[must_use]
    pub fn reply(self) -> &'static [u8] {
        match self {
            Refusal::UnknownCommand => b"ERROR\r\n",
            Refusal::BadLine => b"CLIENT_ERROR bad command line format\r\n",
            Refusal::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Refusal::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
            Refusal::BadDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Refusal::BadExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Refusal::TooLarge => b"SERVER_ERROR object too large for cache\r\n",
            Refusal::BadShutdownMode => b"CLIENT_ERROR invalid shutdown mode\r\n",
            Refusal::BadBase64 => b"CLIENT_ERROR error decoding key\r\n",
            Refusal::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Refusal::InvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
            Refusal::InvalidOrDuplicateFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Refusal::TooManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
            Refusal::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
            Refusal::BadStoreMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Refusal::BadArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            Refusal::BadInitialValue => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Refusal::BadMetaDelta => b"CLIENT_ERROR invalid numeric delta value\r\n",
        }
    }
}
