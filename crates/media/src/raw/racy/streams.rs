//! CRC-32C by the processor's instruction. Three streams are computed side by side, since an
//! instruction takes three times as long as the next one has to wait. A stream's checksum is moved
//! past the streams behind it by tables.

use std::arch::asm;

/// Bytes of each of the three streams.
const STREAM_BYTES: usize = 4096;
/// Reversed polynomial of CRC-32C.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Effect of some number of zero bytes on a checksum, by each of its four bytes.
type Table = [[u32; 256]; 4];

static PAST_ONE: Table = past(STREAM_BYTES);
static PAST_TWO: Table = past(2 * STREAM_BYTES);

/// Computes the effect of zero bytes, a power of two.
const fn past(bytes: usize) -> Table {
    // Columns of the matrix of one zero bit, squared for twice as many bits each time.
    let mut matrix = [0; 32];
    matrix[0] = POLYNOMIAL;
    let mut bit = 1;
    while bit < 32 {
        matrix[bit] = 1 << (bit - 1);
        bit += 1;
    }
    let mut bits = 1;
    while bits < 8 * bytes {
        let mut squared = [0; 32];
        let mut column = 0;
        while column < 32 {
            squared[column] = times(&matrix, matrix[column]);
            column += 1;
        }
        matrix = squared;
        bits *= 2;
    }
    let mut table = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 4 {
        let mut value = 0;
        while value < 256 {
            table[byte][value] = times(&matrix, (value as u32) << (8 * byte));
            value += 1;
        }
        byte += 1;
    }
    table
}

const fn times(matrix: &[u32; 32], vector: u32) -> u32 {
    let (mut sum, mut bit) = (0, 0);
    while bit < 32 {
        if vector >> bit & 1 == 1 {
            sum ^= matrix[bit];
        }
        bit += 1;
    }
    sum
}

fn moved(checksum: u64, table: &Table) -> u64 {
    let [a, b, c, d] = (checksum as u32).to_le_bytes().map(usize::from);
    (table[0][a] ^ table[1][b] ^ table[2][c] ^ table[3][d]).into()
}

/// Continues the checksum `before` over `len` bytes.
///
/// # Safety
/// As for [`checksum`](super::checksum::checksum); the processor must have SSE 4.2.
pub(super) unsafe fn checksum(from: *const u8, len: usize, before: u32) -> u32 {
    let (mut sum, mut at) = (u64::from(!before), 0);
    while len - at >= 3 * STREAM_BYTES {
        // SAFETY: `at` is below `len`.
        let from = unsafe { from.add(at) };
        // SAFETY: three streams from here are inside; the processor has the instruction.
        let streams = unsafe { three_streams(from, sum) };
        sum = moved(streams[0], &PAST_TWO) ^ moved(streams[1], &PAST_ONE) ^ streams[2];
        at += 3 * STREAM_BYTES;
    }
    while at < len {
        // SAFETY: `at` is below `len`.
        let from = unsafe { from.add(at) };
        if len - at >= 8 {
            // SAFETY: eight bytes from here are inside. Assembly may read what others write.
            unsafe {
                asm!("crc32 {sum}, qword ptr [{from}]", sum = inout(reg) sum,
                    from = in(reg) from, options(nostack, readonly, preserves_flags));
            }
            at += 8;
        } else {
            // SAFETY: as above, of one byte.
            unsafe {
                asm!("crc32 {sum}, byte ptr [{from}]", sum = inout(reg) sum,
                    from = in(reg) from, options(nostack, readonly, preserves_flags));
            }
            at += 1;
        }
    }
    !(sum as u32)
}

/// Continues a checksum over a stream, and computes those of the two streams behind it.
///
/// # Safety
/// As for [`checksum`], of the three streams.
unsafe fn three_streams(from: *const u8, first: u64) -> [u64; 3] {
    let (mut a, mut b, mut c) = (first, 0_u64, 0_u64);
    // Each stream is a page, whose beginning the processor does not foresee: those of the next
    // round are fetched ahead, and its first one in the round before that.
    // SAFETY: the loop reads three streams from `from` on; assembly may read what other threads
    // write, and a prefetch may go to any address.
    unsafe {
        asm!(
            "2:",
            "prefetcht0 [{from} + {at} + 4 * {stream}]",
            "prefetcht0 [{from} + {at} + 5 * {stream}]",
            "prefetcht0 [{from} + {at} + 6 * {stream}]",
            "crc32 {a}, qword ptr [{from} + {at}]",
            "crc32 {b}, qword ptr [{from} + {at} + {stream}]",
            "crc32 {c}, qword ptr [{from} + {at} + 2 * {stream}]",
            "crc32 {a}, qword ptr [{from} + {at} + 8]",
            "crc32 {b}, qword ptr [{from} + {at} + {stream} + 8]",
            "crc32 {c}, qword ptr [{from} + {at} + 2 * {stream} + 8]",
            "crc32 {a}, qword ptr [{from} + {at} + 16]",
            "crc32 {b}, qword ptr [{from} + {at} + {stream} + 16]",
            "crc32 {c}, qword ptr [{from} + {at} + 2 * {stream} + 16]",
            "crc32 {a}, qword ptr [{from} + {at} + 24]",
            "crc32 {b}, qword ptr [{from} + {at} + {stream} + 24]",
            "crc32 {c}, qword ptr [{from} + {at} + 2 * {stream} + 24]",
            "crc32 {a}, qword ptr [{from} + {at} + 32]",
            "crc32 {b}, qword ptr [{from} + {at} + {stream} + 32]",
            "crc32 {c}, qword ptr [{from} + {at} + 2 * {stream} + 32]",
            "crc32 {a}, qword ptr [{from} + {at} + 40]",
            "crc32 {b}, qword ptr [{from} + {at} + {stream} + 40]",
            "crc32 {c}, qword ptr [{from} + {at} + 2 * {stream} + 40]",
            "crc32 {a}, qword ptr [{from} + {at} + 48]",
            "crc32 {b}, qword ptr [{from} + {at} + {stream} + 48]",
            "crc32 {c}, qword ptr [{from} + {at} + 2 * {stream} + 48]",
            "crc32 {a}, qword ptr [{from} + {at} + 56]",
            "crc32 {b}, qword ptr [{from} + {at} + {stream} + 56]",
            "crc32 {c}, qword ptr [{from} + {at} + 2 * {stream} + 56]",
            "add {at}, 64",
            "cmp {at}, {stream}",
            "jne 2b",
            a = inout(reg) a,
            b = inout(reg) b,
            c = inout(reg) c,
            from = in(reg) from,
            at = inout(reg) 0_usize => _,
            stream = const STREAM_BYTES,
            options(nostack, readonly),
        );
    }
    [a, b, c]
}
