//! Receive buffers. A pool lends a large one for the length of a turn; a waiting connection keeps
//! only the bytes of its unfinished request.

/// Bytes that one read takes at most, and size of the pool's buffers.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// Maximum unfinished request that is copied out of a pool buffer so that the buffer can go back.
pub(crate) const SMALL_REST_BYTES: usize = 4096;
/// Buffers that one thread keeps for reuse.
const SPARE_BUFFERS_MAX: usize = 32;
/// Largest buffer that is kept for reuse; larger ones are freed.
const SPARE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes received but not executed, `bytes[start..end]`, and room for more behind them.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
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
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room behind the data, to read into.
    #[inline]
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.end..).unwrap_or_default()
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

    fn with_room(capacity: usize) -> Self {
        Buffer { bytes: vec![0; capacity], start: 0, end: 0 }
    }

    fn hold(&mut self, data: &[u8]) {
        (self.start, self.end) = (0, data.len());
        if let Some(front) = self.bytes.get_mut(..data.len()) {
            front.copy_from_slice(data);
        }
    }
}

/// Spare buffers of one thread.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    spare: Vec<Buffer>,
}

impl BufferPool {
    /// Makes room for a read, and grows the buffer towards a request of `needed` bytes. Growth
    /// follows the bytes that have arrived, never a length that was merely announced.
    pub(crate) fn make_room(&mut self, buffer: &mut Buffer, needed: usize) {
        let held = buffer.data().len();
        if buffer.bytes.len() < READ_BYTES {
            let mut large = self.spare.pop().unwrap_or_else(|| Buffer::with_room(READ_BYTES));
            large.hold(buffer.data());
            *buffer = large;
        }
        if buffer.start > 0 && buffer.bytes.len() - buffer.end < READ_BYTES / 2 {
            buffer.bytes.copy_within(buffer.start..buffer.end, 0);
            (buffer.start, buffer.end) = (0, held);
        }
        if buffer.bytes.len() - buffer.end < READ_BYTES / 2 {
            let wanted = needed.clamp(READ_BYTES, 2 * (held + READ_BYTES));
            let length = wanted.max(buffer.end + READ_BYTES / 2);
            buffer.bytes.resize(length, 0);
        }
    }

    /// Takes back what the connection need not keep after a turn.
    pub(crate) fn settle(&mut self, buffer: &mut Buffer) {
        if buffer.bytes.is_empty() || buffer.data().len() > SMALL_REST_BYTES {
            return;
        }
        if buffer.bytes.len() < READ_BYTES && !buffer.is_empty() {
            return;
        }
        let rest = if buffer.is_empty() {
            Buffer::default()
        } else {
            let data = buffer.data().to_vec();
            Buffer { start: 0, end: data.len(), bytes: data }
        };
        let mut large = std::mem::replace(buffer, rest);
        let length = large.bytes.len();
        if self.spare.len() < SPARE_BUFFERS_MAX && (READ_BYTES..=SPARE_BYTES_MAX).contains(&length)
        {
            (large.start, large.end) = (0, 0);
            self.spare.push(large);
        }
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
