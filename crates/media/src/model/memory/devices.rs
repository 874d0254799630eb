//! Parameters of the memory devices: each number with its source beside it.
//!
//! «Line» is a line of the paper's text, «table» one of its tables; «fitted» numbers are those that
//! `000-holdout` of the reproductions finds again from every other row of tables 3 to 8.

use entresol_base::clock::Picos;

use super::{Further, Interleave, Module, Parameters, Prefetch, Processor};

/// The processor of seed 000: Xeon Gold 5215, prefetch off, programs compiled without
/// optimisation (table 2).
const XEON_5215: Processor = Processor {
    // Fitted: table 3, sequential, 8 to 32 B.
    cached_word: Picos(19_000),
    // Chosen: no table shows it. Some six cycles of 2.5 GHz for a line of the second-level cache.
    cached_line: Picos(2_500),
    // Table 2: the second-level cache, 1,024 KB.
    cache_bytes: 1 << 20,
    // Fitted: table 4, from 1 MB.
    refetch_milli: 2_400,
    // Chosen, a page: table 4 has one pace up to 4 KB and another from 16 KB on, and a copy of
    // more must not cost less, so only what lies behind can go faster.
    read_ahead_from: 4 << 10,
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
        // Line 119: the unit of access is 256 B.
        unit_bytes: 256,
        // Fitted: tables 3 and 4, 512 B to 4 KB.
        unit_read: Picos(150_000),
        // Fitted: table 3, random, up to 128 B; within the statement on table 7.
        jump: Picos(43_600),
        // Fitted: table 4, 16 to 256 KB.
        unit_read_ahead: Picos(112_000),
        // Fitted: table 3, 256 B.
        line_read: Picos(14_000),
        // Fitted: table 3, sequential, 64 and 128 B.
        buffered_line: Picos(86_000),
        // Fitted: table 5, 64 to 256 B.
        store_latency: Picos(181_000),
        // Fitted: table 5, below 64 B.
        partial_line: Picos(500_000),
        // Line 227: «about 7 GB/s».
        read_bytes_s: 7_000_000_000,
        // Line 227: «2 GB/s»; fitted within its rounding: table 6, 1 KB to 1 MB.
        write_bytes_s: 2_040_000_000,
        // The public measurements of the combining buffer: 16 KiB.
        buffer_units: 64,
        // Chosen: the text has a floor for each kind and no number (line 346). A third is the most
        // that four readers of 256 B can claim while every read waits behind a write.
        read_share_milli: 333,
    },
    interleave: None,
    prefetch: None,
    further: None,
};

/// Two such modules, interleaved, prefetch on, in the machine of seed 002. «Lines» and «tables»
/// below are that seed's.
pub const AEP2: Parameters = Parameters {
    processor: Processor {
        // Fitted: table 2, NT-store: 3.73 and 3.44 GB/s, 17 to 18.6 ns a line.
        store_line: Picos(17_200),
        store_pace: Picos(17_200),
        ..XEON_5215
    },
    module: Module {
        unit_bytes: 256,
        // Fitted: table 2, 4 KB, no prefetch: 1.69 us for 16 units.
        unit_read: Picos(105_000),
        // Fitted: table 2, 256 B: 0.49 us (loads of one thread overlap, see `fill_buffers`).
        jump: Picos(362_000),
        // As without running ahead: what runs ahead here is the prefetcher.
        unit_read_ahead: Picos(105_000),
        line_read: Picos(11_000),
        buffered_line: Picos(86_000),
        // The public measurements: 90 ns until a store past the caches is safe.
        store_latency: Picos(90_000),
        partial_line: Picos(500_000),
        // Section 1: 6.6 GB/s of reads and 2.3 of writes for one module.
        read_bytes_s: 6_600_000_000,
        write_bytes_s: 2_300_000_000,
        buffer_units: 64,
        // Fitted: figure 1a, 1 GB/s of writes costs a reader as much as 8 GB/s of reads (with the
        // share of one module alone, 333, it costs 0.72 of it).
        read_share_milli: 250,
    },
    // The public measurements: 4 KiB in a row on each module.
    interleave: Some(Interleave { modules: 2, bytes: 4096 }),
    prefetch: Some(Prefetch {
        // Fitted: random loads of 1 KB are 60% of the traffic.
        units_max: 3,
        // Fitted: table 2, 4 KB: 1.22 us for 16 units.
        unit_pace: Picos(76_000),
    }),
    further: Some(Further {
        // Fitted: table 2, NT-load.
        past_caches: Picos(300_000),
        // The vendor's manual: twelve of them since Skylake.
        fill_buffers: 12,
        // Fitted: figure 3, stores of 64 B reach about what those of 256 B reach.
        completing_milli: 200,
    }),
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
    further: None,
};
