//! Encoder of requests, which are appended to a `Vec<u8>`.

use crate::encode::{CRLF, number};
use crate::{Exptime, FlagTokens, Key, Keys, Request, Store, StoreVerb};

/// Options of `set` besides key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetOptions {
    /// Client flags, 32 bits.
    pub flags: u32,
    /// Expiry of the item.
    pub exptime: Exptime,
    /// True to ask for no reply.
    pub noreply: bool,
}

/// Appends `get key`.
#[inline]
pub fn get(out: &mut Vec<u8>, key: &[u8]) {
    line(out, b"get ", key);
}

/// Appends `gets key`.
#[inline]
pub fn gets(out: &mut Vec<u8>, key: &[u8]) {
    line(out, b"gets ", key);
}

/// Appends one `get` of all `keys`, of which there must be at least one.
pub fn get_many<'k>(out: &mut Vec<u8>, keys: impl IntoIterator<Item = &'k [u8]>) {
    out.extend_from_slice(b"get");
    words(out, keys);
}

/// Appends `set` with its data block.
#[inline]
pub fn set(out: &mut Vec<u8>, key: &[u8], value: &[u8], options: SetOptions) {
    let SetOptions { flags, exptime, noreply } = options;
    let verb = StoreVerb::Set;
    store(out, &Store { verb, key, flags, exptime, data: value, noreply });
}

/// Appends `mg key flags`; `flags` as on the line, such as `"v c O7"`.
#[inline]
pub fn meta_get(out: &mut Vec<u8>, key: &[u8], flags: &str) {
    meta(out, b"mg ", key, flags);
}

/// Appends `ms key length flags` with its data block.
#[inline]
pub fn meta_set(out: &mut Vec<u8>, key: &[u8], value: &[u8], flags: &str) {
    out.reserve(key.len() + value.len() + flags.len() + 32);
    out.extend_from_slice(b"ms ");
    out.extend_from_slice(key);
    out.push(b' ');
    number(out, value.len() as u64);
    if !flags.is_empty() {
        out.push(b' ');
        out.extend_from_slice(flags.as_bytes());
    }
    out.extend_from_slice(CRLF);
    out.extend_from_slice(value);
    out.extend_from_slice(CRLF);
}

/// Appends `md key flags`.
pub fn meta_delete(out: &mut Vec<u8>, key: &[u8], flags: &str) {
    meta(out, b"md ", key, flags);
}

/// Appends `ma key flags`.
pub fn meta_arithmetic(out: &mut Vec<u8>, key: &[u8], flags: &str) {
    meta(out, b"ma ", key, flags);
}

/// Appends `mn`, whose reply tells that all requests before it are done.
pub fn meta_noop(out: &mut Vec<u8>) {
    out.extend_from_slice(b"mn\r\n");
}

/// Appends any request; the parser turns it back into an equal one.
pub fn request(out: &mut Vec<u8>, request: &Request<'_>) {
    match *request {
        Request::Get { keys, cas } => retrieval(out, if cas { b"gets" } else { b"get" }, keys),
        Request::GetAndTouch { keys, cas, exptime } => {
            out.extend_from_slice(if cas { b"gats " } else { b"gat " });
            signed(out, exptime);
            words(out, keys);
        }
        Request::Store(ref request) => store(out, request),
        Request::Delete(request) => {
            out.extend_from_slice(b"delete ");
            out.extend_from_slice(request.key);
            finish(out, request.noreply);
        }
        Request::Arithmetic(request) => {
            out.extend_from_slice(if request.down { b"decr " } else { b"incr " });
            out.extend_from_slice(request.key);
            out.push(b' ');
            number(out, request.delta);
            finish(out, request.noreply);
        }
        Request::Touch(request) => {
            out.extend_from_slice(b"touch ");
            out.extend_from_slice(request.key);
            out.push(b' ');
            signed(out, request.exptime);
            finish(out, request.noreply);
        }
        Request::FlushAll { delay, noreply } => {
            out.extend_from_slice(b"flush_all ");
            signed(out, delay);
            finish(out, noreply);
        }
        Request::Stats { argument: [] } => out.extend_from_slice(b"stats\r\n"),
        Request::Stats { argument } => line(out, b"stats ", argument),
        Request::LruCrawler { argument } => line(out, b"lru_crawler ", argument),
        Request::ConfigGetCluster => out.extend_from_slice(b"config get cluster\r\n"),
        Request::Version => out.extend_from_slice(b"version\r\n"),
        Request::Verbosity { noreply } => {
            out.extend_from_slice(b"verbosity 1");
            finish(out, noreply);
        }
        Request::MemoryLimit { megabytes, noreply } => {
            out.extend_from_slice(b"cache_memlimit ");
            number(out, u64::from(megabytes));
            finish(out, noreply);
        }
        Request::Quit => out.extend_from_slice(b"quit\r\n"),
        Request::Shutdown { graceful: true } => out.extend_from_slice(b"shutdown graceful\r\n"),
        Request::Shutdown { graceful: false } => out.extend_from_slice(b"shutdown\r\n"),
        Request::MetaGet(request) => meta_tokens(out, b"mg ", request.key, request.tokens),
        Request::MetaSet(request) => {
            out.extend_from_slice(b"ms ");
            out.extend_from_slice(request.key.token());
            out.push(b' ');
            number(out, request.data.len() as u64);
            words(out, request.tokens.iter());
            out.extend_from_slice(request.data);
            out.extend_from_slice(CRLF);
        }
        Request::MetaDelete(request) => meta_tokens(out, b"md ", request.key, request.tokens),
        Request::MetaArithmetic(request) => meta_tokens(out, b"ma ", request.key, request.tokens),
        Request::MetaNoop => meta_noop(out),
        Request::MetaDebug(request) => {
            let flags = if matches!(request.key, Key::Base64(_)) { "b" } else { "" };
            meta(out, b"me ", request.key.token(), flags);
        }
    }
}

fn retrieval(out: &mut Vec<u8>, command: &[u8], keys: Keys<'_>) {
    out.extend_from_slice(command);
    words(out, keys);
}

fn store(out: &mut Vec<u8>, store: &Store<'_>) {
    let command: &[u8] = match store.verb {
        StoreVerb::Set => b"set ",
        StoreVerb::Add => b"add ",
        StoreVerb::Replace => b"replace ",
        StoreVerb::Append => b"append ",
        StoreVerb::Prepend => b"prepend ",
        StoreVerb::Cas(_) => b"cas ",
    };
    out.reserve(store.key.len() + store.data.len() + 64);
    out.extend_from_slice(command);
    out.extend_from_slice(store.key);
    out.push(b' ');
    number(out, u64::from(store.flags));
    out.push(b' ');
    signed(out, store.exptime);
    out.push(b' ');
    number(out, store.data.len() as u64);
    if let StoreVerb::Cas(cas) = store.verb {
        out.push(b' ');
        number(out, cas);
    }
    finish(out, store.noreply);
    out.extend_from_slice(store.data);
    out.extend_from_slice(CRLF);
}

fn meta(out: &mut Vec<u8>, command: &[u8], key: &[u8], flags: &str) {
    out.extend_from_slice(command);
    out.extend_from_slice(key);
    if !flags.is_empty() {
        out.push(b' ');
        out.extend_from_slice(flags.as_bytes());
    }
    out.extend_from_slice(CRLF);
}

fn meta_tokens(out: &mut Vec<u8>, command: &[u8], key: Key<'_>, tokens: FlagTokens<'_>) {
    out.extend_from_slice(command);
    out.extend_from_slice(key.token());
    words(out, tokens.iter());
}

fn line(out: &mut Vec<u8>, command: &[u8], argument: &[u8]) {
    out.extend_from_slice(command);
    out.extend_from_slice(argument);
    out.extend_from_slice(CRLF);
}

/// Appends each word with a space before it, and the line ending.
fn words<'w>(out: &mut Vec<u8>, words: impl IntoIterator<Item = &'w [u8]>) {
    for word in words {
        out.push(b' ');
        out.extend_from_slice(word);
    }
    out.extend_from_slice(CRLF);
}

fn finish(out: &mut Vec<u8>, noreply: bool) {
    out.extend_from_slice(if noreply { b" noreply\r\n" } else { CRLF });
}

fn signed(out: &mut Vec<u8>, Exptime(seconds): Exptime) {
    out.extend_from_slice(itoa::Buffer::new().format(seconds).as_bytes());
}
