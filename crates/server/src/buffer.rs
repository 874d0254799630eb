//! Receive buffers. A pool lends a large one for the length of a turn; a waiting connection keeps
//! only the bytes of its unfinished request.
//!
//! Most of the time that a fresh buffer of a mebibyte and more takes is spent on its first touch:
//! the kernel clears its pages, and we clear it again. So buffers in which large requests arrived
//! are kept as well.
//!
//! Data begins on a page: the kernel lays the bytes of a request out from the beginning of a page
//! when nothing else is under way, and some processors copy at a quarter of their speed to places
//! that lie up to 31 bytes further in their pages than the source does.

/// Size of the pool's buffers.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// Bytes that one read, or the backlog of one turn, moves at most, so that others need not wait.
pub(crate) const TURN_BYTES: usize = 256 * 1024;
/// Maximum unfinished request that is copied out of a pool buffer so that the buffer can go back.
pub(crate) const SMALL_REST_BYTES: usize = 4096;
/// Buffers that one thread keeps for reuse.
const SPARE_BUFFERS_MAX: usize = 32;
/// Bytes of all buffers that one thread keeps for reuse: two of the largest requests.
const SPARE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Size up to which a buffer is lent for any read. Larger ones are kept for large requests.
const LENT_BYTES_MAX: usize = 256 * 1024;

/// Alignment of the data.
const PAGE_BYTES: usize = 4096;

/// Bytes received but not executed, `bytes[start..end]`, and room for more behind them.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Position at which data begins.
    front: usize,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Bytes that were received and not consumed.
    #[inline]
    pub(crate) fn data(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Bytes of memory that the buffer takes.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops `count` bytes from the front.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        let held = self.data().len();
        debug_assert!(count <= held, "{count} bytes were consumed, but only {held} received");
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            self.clear();
        }
    }

    /// Drops all data.
    fn clear(&mut self) {
        (self.start, self.end) = (self.front, self.front);
    }

    /// Returns the bytes of data that it can hold.
    fn len(&self) -> usize {
        self.bytes.len() - self.front
    }

    /// Room behind the data, to read into: so much of it as one read takes.
    #[inline]
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let end = self.bytes.len().min(self.end + TURN_BYTES);
        self.bytes.get_mut(self.end..end).unwrap_or_default()
    }

    /// Marks `count` bytes of the room as filled.
    #[inline]
    pub(crate) fn filled(&mut self, count: usize) {
        let room = self.bytes.len() - self.end;
        debug_assert!(
            count <= room,
            "{count} bytes were received, but there was room for {room} \
                                      only"
        );
        self.end = (self.end + count).min(self.bytes.len());
    }

    fn with_room(len: usize) -> Self {
        let mut bytes = vec![0; len + PAGE_BYTES];
        let front = bytes.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        bytes.truncate(front + len);
        Buffer { bytes, front, start: front, end: front }
    }

    fn hold(&mut self, data: &[u8]) {
        (self.start, self.end) = (self.front, self.front + data.len());
        if let Some(room) = self.bytes.get_mut(self.start..self.end) {
            room.copy_from_slice(data);
        }
    }

    /// Moves the data to the front.
    fn compact(&mut self) {
        self.bytes.copy_within(self.start..self.end, self.front);
        (self.start, self.end) = (self.front, self.front + self.data().len());
    }
}

/// Spare buffers of one thread.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    spare: Vec<Buffer>,
    /// Spare buffers for large requests.
    large: Vec<Buffer>,
    /// Bytes of all spare buffers.
    spare_bytes: usize,
}

impl BufferPool {
    /// Makes room for a read, and grows the buffer towards a request of `needed` bytes. Growth
    /// follows the bytes that have arrived, never a length that was merely announced.
    pub(crate) fn make_room(&mut self, buffer: &mut Buffer, needed: usize) {
        let held = buffer.data().len();
        if buffer.len() < READ_BYTES {
            let lent = self.spare.pop().inspect(|lent| self.spare_bytes -= lent.capacity());
            self.exchange(buffer, lent.unwrap_or_else(|| Buffer::with_room(READ_BYTES)));
        }
        if buffer.start > buffer.front && buffer.bytes.len() - buffer.end < READ_BYTES / 2 {
            buffer.compact();
        }
        if buffer.bytes.len() - buffer.end < READ_BYTES / 2 {
            let wanted = needed.clamp(READ_BYTES, 2 * (held + READ_BYTES));
            let length = wanted.max(held + READ_BYTES / 2);
            match self.take_large(length, needed) {
                Some(large) => self.exchange(buffer, large),
                None => {
                    let mut grown = Buffer::with_room(length);
                    grown.hold(buffer.data());
                    *buffer = grown;
                }
            }
        }
    }

    /// Takes a spare buffer of at least `length` bytes for a request of `needed` bytes: the
    /// smallest that holds it whole, but none that would be half empty, or else the largest.
    fn take_large(&mut self, length: usize, needed: usize) -> Option<Buffer> {
        let wanted = needed.max(length);
        let sizes = self.large.iter().map(Buffer::len).enumerate();
        let (place, _) = sizes
            .filter(|&(_, bytes)| (length..=2 * wanted).contains(&bytes))
            .min_by_key(|&(_, bytes)| (bytes < wanted, bytes.abs_diff(wanted)))?;
        let large = self.large.swap_remove(place);
        self.spare_bytes -= large.capacity();
        Some(large)
    }

    /// Moves the data of a buffer into another one, which replaces it.
    fn exchange(&mut self, buffer: &mut Buffer, mut other: Buffer) {
        other.hold(buffer.data());
        self.keep(std::mem::replace(buffer, other));
    }

    /// Keeps a buffer for reuse, if there are not too many.
    fn keep(&mut self, mut buffer: Buffer) {
        let (length, bytes) = (buffer.len(), buffer.capacity());
        let count = self.spare.len() + self.large.len();
        let has_room = count < SPARE_BUFFERS_MAX && self.spare_bytes + bytes <= SPARE_BYTES_MAX;
        if length < READ_BYTES || !has_room {
            return;
        }
        buffer.clear();
        self.spare_bytes += bytes;
        let kind = if length <= LENT_BYTES_MAX { &mut self.spare } else { &mut self.large };
        kind.push(buffer);
    }

    /// Takes back what the connection need not keep after a turn.
    pub(crate) fn settle(&mut self, buffer: &mut Buffer) {
        if buffer.bytes.is_empty() || buffer.data().len() > SMALL_REST_BYTES {
            return;
        }
        if buffer.len() < READ_BYTES && !buffer.is_empty() {
            return;
        }
        let rest = if buffer.is_empty() {
            Buffer::default()
        } else {
            let data = buffer.data().to_vec();
            Buffer { front: 0, start: 0, end: data.len(), bytes: data }
        };
        self.keep(std::mem::replace(buffer, rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(pool: &mut BufferPool, buffer: &mut Buffer, data: &[u8], needed: usize) {
        let mut data = data;
        while !data.is_empty() {
            pool.make_room(buffer, needed);
            let count = data.len().min(buffer.room().len());
            buffer.room()[..count].copy_from_slice(&data[..count]);
            buffer.filled(count);
            data = &data[count..];
        }
    }

    #[test]
    fn a_connection_that_waits_keeps_little() {
        let (mut pool, mut buffer) = (BufferPool::default(), Buffer::default());
        receive(&mut pool, &mut buffer, b"get a\r\nget", 1);
        buffer.consume(7);
        pool.settle(&mut buffer);
        assert_eq!(buffer.data(), b"get");
        assert_eq!(buffer.bytes.len(), 3);
        receive(&mut pool, &mut buffer, b" b\r\n", 4);
        assert_eq!(buffer.data(), b"get b\r\n");
        buffer.consume(7);
        pool.settle(&mut buffer);
        assert_eq!(buffer.bytes.len(), 0);
        assert_eq!(pool.spare.len(), 1);
    }

    #[test]
    fn a_large_request_arrives_whole_and_room_follows_what_has_arrived() {
        let (mut pool, mut buffer) = (BufferPool::default(), Buffer::default());
        let data: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
        pool.make_room(&mut buffer, 1 << 30);
        assert!(buffer.bytes.len() < 1 << 20, "an announcement alone takes little memory");
        receive(&mut pool, &mut buffer, &data, data.len());
        assert_eq!(buffer.data(), data);
        buffer.consume(1_000_000);
        pool.settle(&mut buffer);
        assert_eq!(buffer.data(), &data[1_000_000..]);
    }

    #[test]
    fn a_large_buffer_is_lent_again_for_a_large_request_only() {
        let (mut pool, mut buffer) = (BufferPool::default(), Buffer::default());
        let data = vec![7; 3 << 20];
        receive(&mut pool, &mut buffer, &data, data.len());
        let (first, length) = (buffer.bytes.as_ptr(), buffer.bytes.len());
        buffer.consume(data.len());
        pool.settle(&mut buffer);
        receive(&mut pool, &mut buffer, &data[..100], 400_000);
        assert_eq!(buffer.len(), READ_BYTES, "a large buffer lent for a hundred bytes");
        receive(&mut pool, &mut buffer, &data[..200_000], 400_000);
        assert!(buffer.bytes.len() < length, "a buffer that would stay half empty");
        let mut other = Buffer::default();
        receive(&mut pool, &mut other, &data, data.len());
        assert_eq!(other.bytes.as_ptr(), first, "fresh memory although a buffer was spare");
        assert_eq!(other.data(), data);
    }

    #[test]
    fn spare_buffers_have_a_limit_in_bytes() {
        let mut pool = BufferPool::default();
        let data = vec![7; 10 << 20];
        let mut buffers: Vec<Buffer> = (0..5).map(|_| Buffer::default()).collect();
        for buffer in &mut buffers {
            receive(&mut pool, buffer, &data, data.len());
        }
        for mut buffer in buffers {
            buffer.consume(data.len());
            pool.settle(&mut buffer);
        }
        let spare = pool.spare.iter().chain(&pool.large).map(Buffer::capacity).sum::<usize>();
        assert!(spare <= SPARE_BYTES_MAX, "{spare} bytes");
        assert_eq!(pool.large.len(), 3);
        assert_eq!(spare, pool.spare_bytes);
    }

    #[test]
    fn data_begins_on_a_page_wherever_it_comes_from() {
        let (mut pool, mut buffer) = (BufferPool::default(), Buffer::default());
        let data = vec![7; 3 << 20];
        for len in [100, 5000, 100_000, 3 << 20, 100, 3 << 20] {
            for _ in 0..2 {
                receive(&mut pool, &mut buffer, &data[..len], len);
                assert_eq!(buffer.data().as_ptr().align_offset(PAGE_BYTES), 0, "{len} bytes");
                buffer.consume(len);
            }
            pool.settle(&mut buffer);
        }
        receive(&mut pool, &mut buffer, &data[..70_000], 200_000);
        buffer.consume(60_000);
        receive(&mut pool, &mut buffer, &data[..200_000], 200_000);
        assert_eq!(buffer.data().len(), 210_000);
        assert_eq!(buffer.data().as_ptr().align_offset(PAGE_BYTES), 0, "behind what is done");
    }

    #[test]
    fn the_front_is_reused() {
        let (mut pool, mut buffer) = (BufferPool::default(), Buffer::default());
        for _ in 0..1000 {
            receive(&mut pool, &mut buffer, &[7; 6000], 1);
            buffer.consume(5999);
            buffer.consume(1);
            receive(&mut pool, &mut buffer, &[7; 10], 1);
        }
        assert!(buffer.bytes.len() <= 4 * READ_BYTES, "{}", buffer.bytes.len());
    }
}
