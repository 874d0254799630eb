//! Results of a parser step, and replies to requests that cannot be served.

use crate::{Exptime, Key, Request};

/// Command of a line of keys that is worked through in portions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLine {
    /// `gets` and `gats`: the reply holds each item's CAS.
    pub cas: bool,
    /// `gat` and `gats`: new expiry of every item found.
    pub exptime: Option<Exptime>,
}

/// Contents of the front of a receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// The request is not complete yet.
    Incomplete {
        /// Minimum number of bytes that the buffer must hold before another try can help. Always
        /// more than it holds now, and never more than the limits allow for one request.
        needed: usize,
    },
    /// One request.
    Request {
        /// Parsed request.
        request: Request<'a>,
        /// Bytes of the buffer that it took.
        consumed: usize,
    },
    /// The front of a line of keys that is longer than the limit. The rest of the line is read by
    /// [`crate::parse_keys`].
    Keys {
        /// Retrieval of the keys so far; there may be none.
        request: Request<'a>,
        /// Bytes of the buffer that they took.
        consumed: usize,
        /// Command to which the keys behind them belong.
        line: KeyLine,
    },
    /// A request that cannot be served.
    Refused {
        /// Reply; `None` if the client asked for silence or gets none.
        reply: Option<Refusal>,
        /// Reason, also where the client is not told.
        refusal: Option<Refusal>,
        /// Bytes of the buffer that it took.
        consumed: usize,
        /// State of the stream after it.
        then: AfterRefusal,
        /// Key of an item to drop: the value meant to replace it was too large, and memcached
        /// prefers no value to the old one.
        discard: Option<Key<'a>>,
    },
}

impl Step<'_> {
    /// Returns true if the step can result from parsing `bytes` bytes: it consumes some of them or
    /// waits for more.
    pub(crate) fn is_of(&self, bytes: usize) -> bool {
        match *self {
            Step::Incomplete { needed } => needed > bytes,
            Step::Request { consumed, .. }
            | Step::Keys { consumed, .. }
            | Step::Refused { consumed, .. } => (1..=bytes).contains(&consumed),
        }
    }
}

/// State of the stream after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRefusal {
    /// The next request follows immediately.
    Continue,
    /// This many further bytes belong to the refused request and must be skipped. Some may already
    /// lie in the buffer.
    Swallow(u64),
    /// Everything up to the next line ending belongs to the refused request and must be skipped.
    SwallowLine,
    /// The stream cannot be trusted any more: send what is due and close.
    Close,
}

/// Error replies of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The command does not exist.
    UnknownCommand,
    /// Words are missing, a number is malformed, or a key is too long or holds control bytes.
    BadLine,
    /// An argument of a meta flag is not a number.
    BadToken,
    /// A data block does not end where it was announced to end.
    BadDataChunk,
    /// The delta of incr or decr is not an unsigned 64-bit number.
    BadDelta,
    /// The exptime is not a number.
    BadExptime,
    /// The value is longer than the limit.
    TooLarge,
    /// The key is not base64 although the `b` flag says so.
    BadBase64,
    /// A meta flag occurs twice.
    DuplicateFlag,
    /// A meta flag does not exist.
    InvalidFlag,
    /// A flag of `ma` is invalid or occurs twice; memcached does not tell these apart.
    InvalidOrDuplicateFlag,
    /// The meta command has too many flags.
    TooManyFlags,
    /// The opaque has more than 32 bytes.
    OpaqueTooLong,
    /// The mode of `ms` does not exist.
    BadStoreMode,
    /// The mode of `ma` does not exist.
    BadArithmeticMode,
    /// The initial value of `ma` is not a number.
    BadInitialValue,
    /// The delta of `ma` is not a number.
    BadMetaDelta,
}

impl Refusal {
    /// Bytes of the reply, line ending included.
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
