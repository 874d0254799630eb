//! The meta commands: a key, and flags that are one letter with an optional argument each.
//!
//! Like memcached, every meta command accepts the flags of all of them; those that mean nothing to
//! it do nothing.

use super::scan::{has_control, signed, unsigned, unsigned_32};
use super::{Data, Line};
use crate::{
    Exptime, FlagTokens, Key, MetaArithmetic, MetaDebug, MetaDelete, MetaGet, MetaSet,
    MetaStoreMode, Refusal, Request, Step, base64,
};

/// Words of a meta command, its name and key included.
const WORDS_MAX: usize = 20;
/// The longest opaque, its `O` included.
const OPAQUE_TOKEN_BYTES_MAX: usize = 32;

/// What all the flags of one command say.
#[derive(Default)]
struct Flags {
    base64: bool,
    no_bump: bool,
    value: bool,
    quiet: bool,
    cas: bool,
    access_facts: bool,
    invalidate: bool,
    remove_value: bool,
    opaque_too_long: bool,
    vivify: Option<Exptime>,
    touch: Option<Exptime>,
    recache: Option<Exptime>,
    compare: Option<u64>,
    explicit_cas: Option<u64>,
    client_flags: u32,
    mode: Option<u8>,
    initial: u64,
    delta: Option<u64>,
}

impl Flags {
    /// Reads all tokens; of several malformed arguments the last is reported, as memcached does.
    fn read(tokens: FlagTokens<'_>) -> Result<Flags, Refusal> {
        let mut flags = Flags::default();
        let mut seen = 0u128;
        let mut error = None;
        for token in tokens.iter() {
            let Some((&name, argument)) = token.split_first() else { continue };
            let bit = 1u128.checked_shl(u32::from(name)).ok_or(Refusal::DuplicateFlag)?;
            if seen & bit != 0 || name == 0x7f {
                return Err(Refusal::DuplicateFlag);
            }
            seen |= bit;
            match flags.set(name, argument) {
                Ok(()) => {}
                Err(Refusal::InvalidFlag) => return Err(Refusal::InvalidFlag),
                // Client flags that are no number have no message of their own.
                Err(Refusal::BadLine) => error = error.or(Some(Refusal::BadLine)),
                Err(refusal) => error = Some(refusal),
            }
        }
        error.map_or(Ok(flags), Err)
    }

    fn set(&mut self, name: u8, argument: &[u8]) -> Result<(), Refusal> {
        match name {
            b'b' => self.base64 = true,
            b'u' => self.no_bump = true,
            b'v' => self.value = true,
            b'q' => self.quiet = true,
            b'c' => self.cas = true,
            b'h' | b'l' | b't' => self.access_facts = true,
            b'I' => self.invalidate = true,
            b'x' => self.remove_value = true,
            b'f' | b'k' | b's' | b'P' | b'L' => {}
            b'O' => {
                if has_control(argument) {
                    return Err(Refusal::BadToken);
                }
                self.opaque_too_long = argument.len() >= OPAQUE_TOKEN_BYTES_MAX;
            }
            b'N' => self.vivify = Some(exptime(argument)?),
            b'T' => self.touch = Some(exptime(argument)?),
            b'R' => self.recache = Some(exptime(argument)?),
            b'C' => self.compare = Some(unsigned(argument).ok_or(Refusal::BadToken)?),
            b'E' => self.explicit_cas = Some(unsigned(argument).ok_or(Refusal::BadToken)?),
            b'F' => self.client_flags = unsigned_32(argument).ok_or(Refusal::BadLine)?,
            b'M' => self.mode = Some(argument.first().copied().unwrap_or(b' ')),
            b'J' => self.initial = unsigned(argument).ok_or(Refusal::BadInitialValue)?,
            b'D' => self.delta = Some(unsigned(argument).ok_or(Refusal::BadMetaDelta)?),
            _ => return Err(Refusal::InvalidFlag),
        }
        Ok(())
    }

    /// What `M` means to `ms`. Only the letter counts: `MS` and `MSET` are the same.
    fn store_mode(&self) -> Result<MetaStoreMode, Refusal> {
        match self.mode {
            None | Some(b'S') => Ok(MetaStoreMode::Set),
            Some(b'E') => Ok(MetaStoreMode::Add),
            Some(b'R') => Ok(MetaStoreMode::Replace),
            Some(b'A') => Ok(MetaStoreMode::Append),
            Some(b'P') => Ok(MetaStoreMode::Prepend),
            Some(_) => Err(Refusal::BadStoreMode),
        }
    }

    /// What `M` means to `ma`: whether to count down.
    fn counts_down(&self) -> Result<bool, Refusal> {
        match self.mode {
            None | Some(b'I' | b'+') => Ok(false),
            Some(b'D' | b'-') => Ok(true),
            Some(_) => Err(Refusal::BadArithmeticMode),
        }
    }
}

fn exptime(argument: &[u8]) -> Result<Exptime, Refusal> {
    signed(argument).map(Exptime).ok_or(Refusal::BadToken)
}

/// A key with its flags, read and found good.
struct Meta<'a> {
    key: Key<'a>,
    tokens: FlagTokens<'a>,
    flags: Flags,
}

impl<'a> Line<'a, '_> {
    /// Reads the words left on the line as flags; `words_before` are name, key and the like.
    fn meta(&self, key: &'a [u8], words_before: usize) -> Result<Meta<'a>, Refusal> {
        if key.len() > super::key_bytes_max(self.limits) {
            return Err(Refusal::BadLine);
        }
        if self.words.count() + words_before > WORDS_MAX {
            return Err(Refusal::TooManyFlags);
        }
        let tokens = FlagTokens::new(self.words.rest());
        let flags = Flags::read(tokens)?;
        let key = if flags.base64 { Key::Base64(key) } else { Key::Text(key) };
        match key {
            Key::Text(text) if has_control(text) => Err(Refusal::BadLine),
            Key::Base64(text) if !base64::is_valid(text) => Err(Refusal::BadBase64),
            _ => Ok(Meta { key, tokens, flags }),
        }
    }

    /// The line of a meta command without a data block, made a request by `build`.
    fn meta_request(
        mut self,
        build: impl FnOnce(Meta<'a>) -> Result<Request<'a>, Refusal>,
    ) -> Step<'a> {
        let Some(key) = self.words.next() else {
            return self.refuse(Refusal::BadLine);
        };
        let request = self.meta(key, 2).and_then(|meta| {
            if meta.flags.opaque_too_long { Err(Refusal::OpaqueTooLong) } else { build(meta) }
        });
        match request {
            Ok(request) => self.request(request),
            Err(refusal) => self.refuse(refusal),
        }
    }

    pub(super) fn meta_get(self) -> Step<'a> {
        self.meta_request(|Meta { key, tokens, flags }| {
            Ok(Request::MetaGet(MetaGet {
                key,
                tokens,
                quiet: flags.quiet,
                value: flags.value,
                no_bump: flags.no_bump,
                wants_access_facts: flags.access_facts,
                cas: flags.cas,
                explicit_cas: flags.explicit_cas,
                touch: flags.touch,
                vivify: flags.vivify,
                recache: flags.recache,
            }))
        })
    }

    pub(super) fn meta_delete(self) -> Step<'a> {
        self.meta_request(|Meta { key, tokens, flags }| {
            Ok(Request::MetaDelete(MetaDelete {
                key,
                tokens,
                quiet: flags.quiet,
                compare: flags.compare,
                explicit_cas: flags.explicit_cas,
                invalidate: flags.invalidate,
                touch: flags.touch,
                remove_value: flags.remove_value,
            }))
        })
    }

    pub(super) fn meta_arithmetic(self) -> Step<'a> {
        let step = self.meta_request(|Meta { key, tokens, flags }| {
            Ok(Request::MetaArithmetic(MetaArithmetic {
                key,
                tokens,
                quiet: flags.quiet,
                value: flags.value,
                down: flags.counts_down()?,
                delta: flags.delta.unwrap_or(1),
                compare: flags.compare,
                explicit_cas: flags.explicit_cas,
                touch: flags.touch,
                vivify: flags.vivify,
                initial: flags.initial,
            }))
        });
        like_ma(step)
    }

    pub(super) fn meta_debug(self) -> Step<'a> {
        self.meta_request(|Meta { key, .. }| Ok(Request::MetaDebug(MetaDebug { key })))
    }

    pub(super) fn meta_set(mut self) -> Step<'a> {
        let (Some(key), Some(len)) =
            (self.words.next(), self.words.next().and_then(super::text::data_len))
        else {
            return self.refuse(Refusal::BadLine);
        };
        let meta = self.meta(key, 3);
        let (Meta { key, tokens, flags }, mode) =
            match meta.and_then(|meta| meta.flags.store_mode().map(|mode| (meta, mode))) {
                Ok(parsed) => parsed,
                Err(refusal) => return self.refuse_with_data(len, Some(refusal)),
            };
        if len > self.limits.value_bytes_max {
            return self.too_large(len, false, Some(key));
        }
        if flags.opaque_too_long {
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
            tokens,
            quiet: flags.quiet,
            mode,
            flags: flags.client_flags,
            exptime: flags.touch.unwrap_or_default(),
            compare: flags.compare,
            explicit_cas: flags.explicit_cas,
            invalidate: flags.invalidate,
            vivify: flags.vivify,
        };
        Step::Request { request: Request::MetaSet(set), consumed }
    }
}

/// memcached has one message for all that can be wrong with the flags of `ma`.
fn like_ma(step: Step<'_>) -> Step<'_> {
    let Step::Refused { reply: Some(refusal), consumed, then, discard } = step else {
        return step;
    };
    let reply = match refusal {
        Refusal::DuplicateFlag
        | Refusal::InvalidFlag
        | Refusal::BadToken
        | Refusal::BadInitialValue
        | Refusal::BadMetaDelta
        | Refusal::BadBase64 => Refusal::InvalidOrDuplicateFlag,
        other => other,
    };
    Step::Refused { reply: Some(reply), consumed, then, discard }
}
