//! The devices: each number with where it comes from.
//!
//! «Line» is the line of the paper's text, «table» one of its tables; «fitted» numbers are those
//! that `000-tables` of the reproductions finds again from every other row of tables 3 to 8.

use entresol_base::clock::Picos;

use super::{Module, Parameters, Processor};

/// The processor of seed 000: Xeon Gold 5215, prefetch off, programs compiled without
/// optimisation (table 2).
const XEON_5215: Processor = Processor {
    // Fitted: table 3, sequential, 8 B.
    cached_word: Picos(20_000),
    // Fitted: table 3, sequential, 16 and 32 B.
    cached_copy: Picos(38_000),
    // Table 2: the second-level cache, 1,024 KB.
    cache_bytes: 1 << 20,
    // Fitted: table 4, from 1 MB.
    refetch_milli: 2_240,
    // Table 2: half of the first-level cache of 32 KB, from where the C library copies with
    // prefetching loops.
    read_ahead_from: 16 << 10,
    // Fitted: tables 5 and 8.
    store_line: Picos(9_000),
    // Fitted: table 8, DRAM, 1 KB.
    store_pace: Picos(22_600),
    // Fitted: table 6, from 4 MB.
    late_milli: 190,
};

/// One 3D `XPoint` module of 128 GB, as seed 000 measured it.
pub const AEP: Parameters = Parameters {
    processor: XEON_5215,
    module: Module {
        // Line 151: the unit of access is 256 B.
        unit_bytes: 256,
        // Fitted: tables 3 and 4, 512 B to 4 KB.
        unit_read: Picos(150_000),
        // Fitted: table 3, random, up to 128 B; within the statement on table 7.
        jump: Picos(43_600),
        // Fitted: table 4, 16 to 256 KB.
        unit_read_ahead: Picos(116_000),
        // Fitted: table 3, 256 B.
        line_read: Picos(14_000),
        // Fitted: table 3, sequential, 64 and 128 B.
        buffered_line: Picos(86_000),
        // Fitted: table 5, 64 to 256 B.
        store_latency: Picos(181_000),
        // Fitted: table 5, below 64 B.
        partial_line: Picos(500_000),
        // Line 224: «about 7 GB/s».
        read_bytes_s: 7_000_000_000,
        // Line 224: «2 GB/s»; fitted within its rounding: table 6, 1 KB to 1 MB.
        write_bytes_s: 2_040_000_000,
        // The public measurements of the combining buffer: 16 KiB.
        buffer_units: 64,
        // Chosen: the text has a floor for each kind and no number (line 338). A third is the most
        // that four readers of 256 B can claim while every read waits behind a write.
        read_share_milli: 333,
    },
    interleave: None,
    prefetch: None,
};

/// The DRAM beside it.
pub const DRAM: Parameters = Parameters {
    processor: XEON_5215,
    module: Module {
        unit_bytes: 64,
        // Fitted: table 7, 512 B and 1 KB.
        unit_read: Picos(10_900),
        // Fitted: table 7, 16 to 64 B.
        jump: Picos(25_300),
        unit_read_ahead: Picos(10_900),
        // Fitted: table 7, 128 to 512 B.
        line_read: Picos(8_500),
        buffered_line: Picos(36_200),
        // Fitted: table 8.
        store_latency: Picos(165_000),
        // Fitted: table 8, below 64 B.
        partial_line: Picos(64_000),
        // Line 369: AEP reads at about a third of it.
        read_bytes_s: 21_000_000_000,
        // Line 369: AEP writes at about a sixth of it.
        write_bytes_s: 12_000_000_000,
        buffer_units: 64,
        read_share_milli: 500,
    },
    interleave: None,
    prefetch: None,
};
