//! Numbers in bytes: little-endian, or as varints of seven bits a byte.

/// Most bytes of a varint.
pub(in crate::run) const VARINT_BYTES_MAX: usize = 10;

/// Appends a varint: seven bits a byte, the lowest first. All bytes but the last have the top bit.
#[inline]
pub(in crate::run) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the first eight bytes of a key as a number that sorts as they do. Missing bytes count as
/// 0.
#[inline]
pub(crate) fn head_of(key: &[u8]) -> u64 {
    if let Some(chunk) = key.first_chunk() {
        return u64::from_be_bytes(*chunk);
    }
    let mut chunk = [0; 8];
    for (to, from) in chunk.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(chunk)
}

/// Returns the two bytes at `at` as a number.
#[inline]
pub(in crate::run) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|chunk| u16::from_le_bytes(*chunk))
}

/// Returns the four bytes at `at` as a number.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

/// Returns the eight bytes at `at` as a number.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

/// Bytes that are read from front to back.
pub(in crate::run) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(in crate::run) fn new(bytes: &'a [u8], at: usize) -> Reader<'a> {
        Reader { bytes, at }
    }

    /// Returns the index of the next byte.
    pub(in crate::run) fn at(&self) -> usize {
        self.at
    }

    #[inline]
    pub(in crate::run) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    pub(in crate::run) fn u32(&mut self) -> Option<u32> {
        let value = u32_at(self.bytes, self.at)?;
        self.at += 4;
        Some(value)
    }

    /// Reads a varint. Most have one byte, and most others three at most: these are read in line.
    #[inline(always)]
    pub(in crate::run) fn varint(&mut self) -> Option<u64> {
        let first = u64::from(self.byte()?);
        if first < 0x80 {
            return Some(first);
        }
        let second = u64::from(self.byte()?);
        let value = (first & 0x7f) | (second & 0x7f) << 7;
        if second < 0x80 {
            return Some(value);
        }
        let third = u64::from(self.byte()?);
        let value = value | (third & 0x7f) << 14;
        if third < 0x80 { Some(value) } else { self.long_varint(value) }
    }

    /// Reads the rest of a varint behind its first three bytes.
    #[inline(never)]
    fn long_varint(&mut self, mut value: u64) -> Option<u64> {
        for place in 3..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * place);
            if shifted >> (7 * place) != bits {
                return None;
            }
            value |= shifted;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a length. Returns `None` if it is longer than all the bytes.
    #[inline]
    pub(in crate::run) fn length(&mut self) -> Option<usize> {
        let length = usize::try_from(self.varint()?).ok()?;
        (length <= self.bytes.len()).then_some(length)
    }

    /// Skips so many bytes, and returns the index at which they begin.
    #[inline]
    pub(in crate::run) fn skip(&mut self, length: usize) -> Option<usize> {
        let start = self.at;
        let end = start.checked_add(length)?;
        if end > self.bytes.len() {
            return None;
        }
        self.at = end;
        Some(start)
    }
}

/// Returns the length of the common prefix of `a` and `b`.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    let mut at = 0;
    for (left, right) in words {
        let (Some(left), Some(right)) = (u64_at(left, 0), u64_at(right, 0)) else { break };
        let difference = left ^ right;
        if difference != 0 {
            return at + difference.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let (rest_a, rest_b) = (a.get(at..).unwrap_or_default(), b.get(at..).unwrap_or_default());
    at + rest_a.iter().zip(rest_b).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_overlong_ones_do_not() {
        for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            assert!(bytes.len() <= VARINT_BYTES_MAX);
            let mut reader = Reader::new(&bytes, 0);
            assert_eq!((reader.varint(), reader.at()), (Some(value), bytes.len()));
            assert_eq!(Reader::new(&bytes[..bytes.len() - 1], 0).varint(), None, "cut off");
        }
        assert_eq!(Reader::new(&[0xff; 11], 0).varint(), None, "more than 64 bits");
        let above = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(Reader::new(&above, 0).varint(), None, "a 65th bit");
    }

    #[test]
    fn common_beginnings_are_counted_to_the_byte() {
        let long: Vec<u8> = (0..40).collect();
        for length in 0..40 {
            assert_eq!(common_prefix(&long, &long[..length]), length);
            let mut other = long.clone();
            other[length] ^= 0x80;
            assert_eq!(common_prefix(&long, &other), length);
        }
    }
}
