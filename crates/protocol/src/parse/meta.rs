//! Parser of the meta commands: a key, and flags of one letter with an optional argument each.
//!
//! Like memcached, every meta command accepts the flags of all of them; those without a meaning for
//! it do nothing.

use super::{Data, Line};
use crate::scan::{Words, has_control, signed, unsigned, unsigned_32};
use crate::{
    Exptime, FlagTokens, Key, MetaArithmetic, MetaDebug, MetaDelete, MetaGet, MetaSet,
    MetaStoreMode, Refusal, Request, Step, base64,
};

/// Maximum number of words of a meta command, its name and key included.
const WORDS_MAX: usize = 20;
/// Longest opaque, its `O` included.
const OPAQUE_TOKEN_BYTES_MAX: usize = 32;

/// Flags of one command with their arguments.
///
/// The set of flags is one word of bits, not a field each: fields of a byte that are written one by
/// one and soon copied as a block cost more than all the parsing.
#[derive(Default)]
struct Flags {
    /// One bit per letter, see [`bit`].
    present: u64,
    opaque_len: usize,
    vivify: i64,
    touch: i64,
    recache: i64,
    compare: u64,
    explicit_cas: u64,
    client_flags: u32,
    mode: u8,
    initial: u64,
    delta: u64,
}

/// Bit of a flag: all letters of either case lie within 64 places from `A`.
fn bit(flag: u8) -> Option<u64> {
    1u64.checked_shl(u32::from(flag.wrapping_sub(b'A')))
}

impl Flags {
    /// Reads all tokens. Of several malformed arguments the last is reported, as memcached does.
    fn read(&mut self, tokens: Words<'_>) -> Result<(), Refusal> {
        let mut error = None;
        for token in tokens {
            let Some((&flag, argument)) = token.split_first() else { continue };
            if flag >= 0x7f {
                return Err(Refusal::DuplicateFlag);
            }
            let bit = bit(flag).ok_or(Refusal::InvalidFlag)?;
            if self.present & bit != 0 {
                return Err(Refusal::DuplicateFlag);
            }
            self.present |= bit;
            match self.set(flag, argument) {
                Ok(()) => {}
                Err(Refusal::InvalidFlag) => return Err(Refusal::InvalidFlag),
                // Malformed client flags have no message of their own.
                Err(Refusal::BadLine) => error = error.or(Some(Refusal::BadLine)),
                Err(refusal) => error = Some(refusal),
            }
        }
        error.map_or(Ok(()), Err)
    }

    fn set(&mut self, flag: u8, argument: &[u8]) -> Result<(), Refusal> {
        let signed = |argument| signed(argument).ok_or(Refusal::BadToken);
        let unsigned = |otherwise| unsigned(argument).ok_or(otherwise);
        match flag {
            b'b' | b'c' | b'f' | b'h' | b'I' | b'k' | b'l' | b'L' | b'P' | b'q' | b's' | b't'
            | b'u' | b'v' | b'x' => {}
            b'O' if has_control(argument) => return Err(Refusal::BadToken),
            b'O' => self.opaque_len = argument.len() + 1,
            b'N' => self.vivify = signed(argument)?,
            b'T' => self.touch = signed(argument)?,
            b'R' => self.recache = signed(argument)?,
            b'C' => self.compare = unsigned(Refusal::BadToken)?,
            b'E' => self.explicit_cas = unsigned(Refusal::BadToken)?,
            b'F' => self.client_flags = unsigned_32(argument).ok_or(Refusal::BadLine)?,
            b'M' => self.mode = argument.first().copied().unwrap_or_default(),
            b'J' => self.initial = unsigned(Refusal::BadInitialValue)?,
            b'D' => self.delta = unsigned(Refusal::BadMetaDelta)?,
            _ => return Err(Refusal::InvalidFlag),
        }
        Ok(())
    }

    fn has(&self, flag: u8) -> bool {
        bit(flag).is_some_and(|bit| self.present & bit != 0)
    }

    fn opaque_too_long(&self) -> bool {
        self.opaque_len > OPAQUE_TOKEN_BYTES_MAX
    }

    fn vivify(&self) -> Option<Exptime> {
        self.has(b'N').then_some(Exptime(self.vivify))
    }

    fn touch(&self) -> Option<Exptime> {
        self.has(b'T').then_some(Exptime(self.touch))
    }

    fn compare(&self) -> Option<u64> {
        self.has(b'C').then_some(self.compare)
    }

    fn explicit_cas(&self) -> Option<u64> {
        self.has(b'E').then_some(self.explicit_cas)
    }

    /// Mode of `ms` according to `M`. Only the letter counts: `MS` and `MSET` are the same.
    fn store_mode(&self) -> Result<MetaStoreMode, Refusal> {
        match self.mode {
            b'S' => Ok(MetaStoreMode::Set),
            b'E' => Ok(MetaStoreMode::Add),
            b'R' => Ok(MetaStoreMode::Replace),
            b'A' => Ok(MetaStoreMode::Append),
            b'P' => Ok(MetaStoreMode::Prepend),
            _ if !self.has(b'M') => Ok(MetaStoreMode::Set),
            _ => Err(Refusal::BadStoreMode),
        }
    }

    /// Direction of `ma` according to `M`; true is down.
    fn counts_down(&self) -> Result<bool, Refusal> {
        match self.mode {
            b'I' | b'+' => Ok(false),
            b'D' | b'-' => Ok(true),
            _ if !self.has(b'M') => Ok(false),
            _ => Err(Refusal::BadArithmeticMode),
        }
    }
}

impl<'a> Line<'a, '_> {
    /// Reads the words left on the line as flags, which decide how `key` is read. `words_before`
    /// counts the words already read, such as name and key.
    #[inline]
    fn meta(
        &self,
        key: &'a [u8],
        words_before: usize,
        flags: &mut Flags,
    ) -> Result<Key<'a>, Refusal> {
        if key.len() > super::key_bytes_max(self.limits) {
            return Err(Refusal::BadLine);
        }
        // A word takes two bytes with its space, so most lines need no counting.
        if self.words.rest().len() > WORDS_MAX && self.words.count() + words_before > WORDS_MAX {
            return Err(Refusal::TooManyFlags);
        }
        flags.read(self.words)?;
        match flags.has(b'b') {
            false if has_control(key) => Err(Refusal::BadLine),
            false => Ok(Key::Text(key)),
            true if !base64::is_valid(key) => Err(Refusal::BadBase64),
            true => Ok(Key::Base64(key)),
        }
    }

    /// Reads key and flags of a meta command without a data block.
    #[inline]
    fn meta_without_data(&mut self, flags: &mut Flags) -> Result<Key<'a>, Refusal> {
        let key = self.words.next().ok_or(Refusal::BadLine)?;
        let key = self.meta(key, 2, flags)?;
        if flags.opaque_too_long() { Err(Refusal::OpaqueTooLong) } else { Ok(key) }
    }

    /// Flags in the order of the line, once name, key and the like are read.
    fn tokens(&self) -> FlagTokens<'a> {
        FlagTokens::new(self.words)
    }

    pub(super) fn meta_get(&mut self) -> Step<'a> {
        let mut flags = Flags::default();
        let key = match self.meta_without_data(&mut flags) {
            Ok(key) => key,
            Err(refusal) => return self.refuse(refusal),
        };
        let get = MetaGet {
            key,
            tokens: self.tokens(),
            quiet: flags.has(b'q'),
            value: flags.has(b'v'),
            no_bump: flags.has(b'u'),
            wants_access_facts: flags.has(b'h') || flags.has(b'l') || flags.has(b't'),
            cas: flags.has(b'c'),
            compare: flags.compare(),
            explicit_cas: flags.explicit_cas(),
            touch: flags.touch(),
            vivify: flags.vivify(),
            recache: flags.has(b'R').then_some(Exptime(flags.recache)),
        };
        Step::Request { request: Request::MetaGet(get), consumed: self.consumed }
    }

    pub(super) fn meta_delete(&mut self) -> Step<'a> {
        let mut flags = Flags::default();
        let key = match self.meta_without_data(&mut flags) {
            Ok(key) => key,
            Err(refusal) => return self.refuse(refusal),
        };
        let delete = MetaDelete {
            key,
            tokens: self.tokens(),
            quiet: flags.has(b'q'),
            compare: flags.compare(),
            explicit_cas: flags.explicit_cas(),
            invalidate: flags.has(b'I'),
            touch: flags.touch(),
            remove_value: flags.has(b'x'),
        };
        Step::Request { request: Request::MetaDelete(delete), consumed: self.consumed }
    }

    pub(super) fn meta_arithmetic(&mut self) -> Step<'a> {
        let mut flags = Flags { delta: 1, ..Flags::default() };
        let meta = self
            .meta_without_data(&mut flags)
            .and_then(|key| flags.counts_down().map(|down| (key, down)));
        let (key, down) = match meta {
            Ok(meta) => meta,
            Err(refusal) => return self.refuse(as_ma_says(refusal)),
        };
        let arithmetic = MetaArithmetic {
            key,
            tokens: self.tokens(),
            quiet: flags.has(b'q'),
            value: flags.has(b'v'),
            down,
            delta: flags.delta,
            compare: flags.compare(),
            explicit_cas: flags.explicit_cas(),
            touch: flags.touch(),
            vivify: flags.vivify(),
            initial: flags.initial,
        };
        Step::Request { request: Request::MetaArithmetic(arithmetic), consumed: self.consumed }
    }

    pub(super) fn meta_debug(&mut self) -> Step<'a> {
        match self.meta_without_data(&mut Flags::default()) {
            Ok(key) => self.request(Request::MetaDebug(MetaDebug { key })),
            Err(refusal) => self.refuse(refusal),
        }
    }

    pub(super) fn meta_set(&mut self) -> Step<'a> {
        let (Some(key), Some(len)) =
            (self.words.next(), self.words.next().and_then(super::text::data_len))
        else {
            return self.refuse(Refusal::BadLine);
        };
        let mut flags = Flags::default();
        let meta = self
            .meta(key, 3, &mut flags)
            .and_then(|key| flags.store_mode().map(|mode| (key, mode)));
        let (key, mode) = match meta {
            Ok(meta) => meta,
            Err(refusal) => return self.refuse_with_data(len, Some(refusal)),
        };
        if len > self.limits.value_bytes_max {
            return self.too_large(len, false, Some(key));
        }
        if flags.opaque_too_long() {
            return self.refuse_with_data(len, Some(Refusal::OpaqueTooLong));
        }
        let (data, consumed) = match self.data(len) {
            Data::Missing { needed } => return Step::Incomplete { needed },
            Data::Malformed { consumed } => {
                self.consumed = consumed;
                return self.refuse(Refusal::BadDataChunk);
            }
            Data::Whole { data, consumed } => (data, consumed),
        };
        let set = MetaSet {
            key,
            data,
            tokens: self.tokens(),
            quiet: flags.has(b'q'),
            mode,
            flags: flags.client_flags,
            exptime: Exptime(flags.touch),
            compare: flags.compare(),
            explicit_cas: flags.explicit_cas(),
            invalidate: flags.has(b'I'),
            vivify: flags.vivify(),
        };
        Step::Request { request: Request::MetaSet(set), consumed }
    }
}

/// Translates a refusal for `ma`: memcached has one message for all mistakes in its flags.
fn as_ma_says(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::DuplicateFlag
        | Refusal::InvalidFlag
        | Refusal::BadToken
        | Refusal::BadInitialValue
        | Refusal::BadMetaDelta
        | Refusal::BadBase64 => Refusal::InvalidOrDuplicateFlag,
        other => other,
    }
}
