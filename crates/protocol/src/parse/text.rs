//! Parser of the classic text commands, each from the words behind its name.
//!
//! Like memcached 1.6.42 and later, it ignores surplus words. A last word `noreply` silences the
//! command whatever else is missing, as in memcached: a client that pipelines does not wait for a
//! reply, and an error would be taken for the reply to its next request.

use super::{Data, Line};
use crate::scan::{Words, signed, unsigned, unsigned_32, word_end};
use crate::{
    Arithmetic, Delete, Exptime, Key, Keys, Refusal, Request, Step, Store, StoreVerb, Touch,
};

/// Longest data block that can be announced: memcached counts it in 31 bits, ending included.
const DATA_BYTES_CEILING: u64 = i32::MAX as u64 - 2;

/// Storage command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// Announced length of a data block.
pub(super) fn data_len(word: &[u8]) -> Option<usize> {
    let len = unsigned(word).filter(|&len| len <= DATA_BYTES_CEILING)?;
    usize::try_from(len).ok()
}

/// Returns true if the last of the words is `noreply`.
fn noreply(words: Words<'_>) -> bool {
    words.last() == Some(b"noreply")
}

impl<'a> Line<'a, '_> {
    pub(super) fn get(&mut self, cas: bool) -> Step<'a> {
        match self.keys() {
            Ok(keys) => self.request(Request::Get { keys, cas }),
            Err(refusal) => self.refuse(refusal),
        }
    }

    pub(super) fn get_and_touch(&mut self, cas: bool) -> Step<'a> {
        let exptime = self.words.next().unwrap_or_default();
        match (self.keys(), signed(exptime)) {
            (Ok(keys), Some(exptime)) => {
                let exptime = Exptime(exptime);
                self.request(Request::GetAndTouch { keys, cas, exptime })
            }
            (Ok(_), None) => self.refuse(Refusal::BadExptime),
            (Err(refusal), _) => self.refuse(refusal),
        }
    }

    /// Reads the words that are left as keys. One bad key spoils the whole request.
    fn keys(&self) -> Result<Keys<'a>, Refusal> {
        let rest = self.words.rest();
        let first_len = word_end(rest);
        let mut words = self.words;
        if first_len == 0 || !words.all(|key| self.is_key(key)) {
            return Err(Refusal::BadLine);
        }
        Ok(Keys::new(rest, first_len))
    }

    pub(super) fn store(&mut self, verb: Verb) -> Step<'a> {
        let noreply = noreply(self.words);
        let mut word = || self.words.next().unwrap_or_default();
        let (key, flags, exptime, len) = (word(), word(), word(), word());
        // Without a valid length, the number of bytes to skip is unknown.
        let Some(len) = data_len(len) else {
            return self.refuse_unless(noreply, Refusal::BadLine);
        };
        let verb = match verb {
            Verb::Set => Some(StoreVerb::Set),
            Verb::Add => Some(StoreVerb::Add),
            Verb::Replace => Some(StoreVerb::Replace),
            Verb::Append => Some(StoreVerb::Append),
            Verb::Prepend => Some(StoreVerb::Prepend),
            Verb::Cas => self.words.next().and_then(unsigned).map(StoreVerb::Cas),
        };
        let (Some(verb), Some(flags), Some(exptime), true) =
            (verb, unsigned_32(flags), signed(exptime), self.is_key(key))
        else {
            return self.refuse_with_data(len, (!noreply).then_some(Refusal::BadLine));
        };
        if len > self.limits.value_bytes_max {
            let discard = (verb == StoreVerb::Set).then_some(Key::Text(key));
            return self.too_large(len, noreply, discard);
        }
        match self.data(len) {
            Data::Missing { needed } => Step::Incomplete { needed },
            Data::Malformed { consumed } => {
                self.consumed = consumed;
                self.refuse_unless(noreply, Refusal::BadDataChunk)
            }
            Data::Whole { data, consumed } => {
                let exptime = Exptime(exptime);
                let store = Store { verb, key, flags, exptime, data, noreply };
                Step::Request { request: Request::Store(store), consumed }
            }
        }
    }

    pub(super) fn delete(&mut self) -> Step<'a> {
        let noreply = noreply(self.words);
        let Some(key) = self.words.next() else {
            return self.refuse(Refusal::BadLine);
        };
        if !self.is_key(key) {
            return self.refuse_unless(noreply, Refusal::BadLine);
        }
        self.request(Request::Delete(Delete { key, noreply }))
    }

    pub(super) fn arithmetic(&mut self, down: bool) -> Step<'a> {
        let noreply = noreply(self.words);
        let (Some(key), Some(delta)) = (self.words.next(), self.words.next()) else {
            return self.refuse_unless(noreply, Refusal::BadLine);
        };
        if !self.is_key(key) {
            return self.refuse_unless(noreply, Refusal::BadLine);
        }
        match unsigned(delta) {
            Some(delta) => {
                self.request(Request::Arithmetic(Arithmetic { key, delta, down, noreply }))
            }
            None => self.refuse_unless(noreply, Refusal::BadDelta),
        }
    }

    pub(super) fn touch(&mut self) -> Step<'a> {
        let noreply = noreply(self.words);
        let (Some(key), Some(exptime)) = (self.words.next(), self.words.next()) else {
            return self.refuse_unless(noreply, Refusal::BadLine);
        };
        if !self.is_key(key) {
            return self.refuse_unless(noreply, Refusal::BadLine);
        }
        match signed(exptime) {
            Some(exptime) => {
                let exptime = Exptime(exptime);
                self.request(Request::Touch(Touch { key, exptime, noreply }))
            }
            None => self.refuse_unless(noreply, Refusal::BadExptime),
        }
    }

    pub(super) fn flush_all(&mut self) -> Step<'a> {
        let mut words = self.words;
        let noreply = noreply(words);
        let delay = match words.next() {
            None => Some(0),
            Some(b"noreply") if words.next().is_none() => Some(0),
            Some(word) => signed(word),
        };
        match delay {
            Some(delay) => self.request(Request::FlushAll { delay: Exptime(delay), noreply }),
            None => self.refuse_unless(noreply, Refusal::BadExptime),
        }
    }

    pub(super) fn stats(&mut self) -> Step<'a> {
        self.request(Request::Stats { argument: self.argument() })
    }

    pub(super) fn lru_crawler(&mut self) -> Step<'a> {
        self.request(Request::LruCrawler { argument: self.argument() })
    }

    /// Returns the words that are left, without spaces behind the last.
    fn argument(&self) -> &'a [u8] {
        let argument = self.words.rest();
        let end = argument.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
        argument.get(..end).unwrap_or_default()
    }

    pub(super) fn verbosity(&mut self) -> Step<'a> {
        let noreply = noreply(self.words);
        match self.words.next().and_then(unsigned_32) {
            Some(_) => self.request(Request::Verbosity { noreply }),
            None => self.refuse_unless(noreply, Refusal::BadLine),
        }
    }

    pub(super) fn memory_limit(&mut self) -> Step<'a> {
        let noreply = noreply(self.words);
        match self.words.next().and_then(unsigned_32) {
            Some(megabytes) => self.request(Request::MemoryLimit { megabytes, noreply }),
            None => self.refuse_unless(noreply, Refusal::UnknownCommand),
        }
    }

    /// Returns true if the words behind `config` ask for the machines of a cluster.
    pub(super) fn asks_for_cluster(&self) -> bool {
        let mut words = self.words;
        words.next() == Some(b"get") && words.next() == Some(b"cluster")
    }

    pub(super) fn shutdown(&mut self) -> Step<'a> {
        let graceful = self.words.next() == Some(b"graceful");
        self.request(Request::Shutdown { graceful })
    }
}
