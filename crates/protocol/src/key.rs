//! Keys: one plain or base64 key, and the list of keys on a line of `get`.

use crate::limits::KEY_BYTES_CEILING;

/// Key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'a> {
    /// Plain key.
    Text(&'a [u8]),
    /// Key in base64 (the `b` flag), known to be well-formed.
    Base64(&'a [u8]),
}

/// Room for one decoded key; one per thread is enough.
#[derive(Debug, Clone)]
pub struct KeyBuffer([u8; KEY_BYTES_CEILING]);

impl Default for KeyBuffer {
    fn default() -> Self {
        KeyBuffer([0; KEY_BYTES_CEILING])
    }
}

impl<'a> Key<'a> {
    /// Bytes that name the item; a base64 key is decoded into `buffer`.
    #[inline]
    #[must_use]
    pub fn resolve<'b>(self, buffer: &'b mut KeyBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Key::Text(bytes) => bytes,
            Key::Base64(text) => {
                let len = crate::base64::decode(text, &mut buffer.0).unwrap_or(0);
                buffer.0.get(..len).unwrap_or_default()
            }
        }
    }

    /// Key as the client wrote it.
    #[must_use]
    pub fn token(self) -> &'a [u8] {
        match self {
            Key::Text(token) | Key::Base64(token) => token,
        }
    }
}

/// Keys of a retrieval line, in the order of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys<'a> {
    /// Rest of the line; begins with a key unless empty.
    rest: &'a [u8],
    /// Length of the first key of `rest`.
    first_len: usize,
}

impl<'a> Keys<'a> {
    /// Keys in `rest`, which begins with a key of `first_len` bytes and holds only keys and spaces.
    #[inline]
    pub(crate) fn new(rest: &'a [u8], first_len: usize) -> Self {
        debug_assert!(first_len <= rest.len());
        Keys { rest, first_len }
    }

    /// The last remaining key, if exactly one is left.
    #[inline]
    #[must_use]
    pub fn single(&self) -> Option<&'a [u8]> {
        let (key, rest) = self.rest.split_at_checked(self.first_len)?;
        (!key.is_empty() && rest.iter().all(|&byte| byte == b' ')).then_some(key)
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (key, rest) = self.rest.split_at_checked(self.first_len)?;
        if key.is_empty() {
            return None;
        }
        let start = rest.iter().position(|&byte| byte != b' ').unwrap_or(rest.len());
        self.rest = rest.get(start..).unwrap_or_default();
        self.first_len = self.rest.iter().position(|&byte| byte == b' ').unwrap_or(self.rest.len());
        Some(key)
    }
}
