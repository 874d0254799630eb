//! Parameters of the named drives: each number with its source beside it.
//!
//! "Sheet" is the vendor's public product specification. "Fitted" is a number that no vendor
//! publishes, chosen within physically sensible bounds so that the sheet's figures come out. 004 is
//! "Platform Storage Performance With 3D XPoint Technology", Proc. IEEE 105(9), 2017.

use entresol_base::Picos;

use super::parameters::{BlockParameters, Erase, Placement, Rate};
use crate::model::ModelName;

const KIB: u64 = 1024;

pub(super) fn of(name: ModelName) -> Option<BlockParameters> {
    match name {
        ModelName::OptaneSsd => Some(optane_ssd()),
        ModelName::NandP3700 => Some(nand_p3700()),
        ModelName::NandP3600 => Some(nand_p3600()),
        ModelName::NandS3700 => Some(nand_s3700()),
        ModelName::Nvme9300 => Some(nvme_9300()),
        ModelName::Qlc5210 => Some(qlc_5210()),
        ModelName::Dram | ModelName::Aep | ModelName::Aep2 => None,
    }
}

/// Intel Optane SSD DC P4800X, PCIe 3.0 x4.
fn optane_ssd() -> BlockParameters {
    BlockParameters {
        // Fitted: a path in hardware only (004, section II-A), twice as fast as its media.
        command: Picos::from_nanos(600),
        // Fitted: 004, section III, "less than 8 us from doorbell to completion" for 4 KiB, less
        // the command, the die, the channels and the link.
        front: Picos::from_nanos(2_800),
        read_back: Picos::from_nanos(850),
        // Sheet: writes take what reads take, typically below 10 us with the system's part.
        write_back: Picos::from_nanos(3_100),
        // PCIe 3.0 x4: 3.94 GB/s less the packets' headers.
        link_read: Rate::megabytes_s(3_200),
        link_write: Rate::megabytes_s(3_200),
        link_duplex: true,
        // A unit of 4 KiB is spread over all seven channels (004, section II-A), so they are one
        // group; sheet: 2,400 MB/s of reads (550,000 of 4 KiB; measured by reviewers: 585,000).
        channels: 1,
        channel: Rate::megabytes_s(2_400),
        // Sheet: 500,000 writes of 4 KiB, 2,000 MB/s.
        channel_write: Rate::megabytes_s(2_048),
        // 28 dies, four to a channel, work in groups of seven.
        dies: 4,
        page_bytes: 4 * KIB,
        codeword_bytes: 4 * KIB,
        // Fitted: 3D XPoint reads in some hundred nanoseconds.
        read: Picos::from_nanos(300),
        program_bytes: 4 * KIB,
        // Fitted: some microseconds; slower than a read, and not what limits writes.
        program: Picos::from_micros(8),
        program_limit: None,
        // In place, without erasure or relocation (004, section II-A).
        erase: None,
        mapping_bytes: 4 * KIB,
        placement: Placement::InPlace,
        amplification_percent: 100,
        // Fitted: it has no DRAM, so what the controller itself can hold.
        buffer_bytes: 256 * KIB,
    }
}

/// Intel SSD DC P3700 2 TB, PCIe 3.0 x4, 20 nm high-endurance MLC.
fn nand_p3700() -> BlockParameters {
    BlockParameters {
        // Sheet: 460,000 random reads of 4 KiB in a second.
        command: Picos::from_nanos(2_170),
        // Fitted, firmware's part: reviewers measured 78 to 112 us for one 4 KiB read with the
        // system's part, 004's page faults take 92 us (section III-B).
        front: Picos::from_nanos(7_000),
        read_back: Picos::from_nanos(3_000),
        // Sheet: 20 us for a write into the buffer.
        write_back: Picos::from_nanos(10_000),
        // Sheet: 2,800 MB/s of sequential reads; the link itself has 3,200.
        link_read: Rate::megabytes_s(2_800),
        link_write: Rate::megabytes_s(3_200),
        link_duplex: true,
        // Controller with 18 channels (reviewers' teardowns); ONFI 3 moves 400 MB/s.
        channels: 18,
        channel: Rate::megabytes_s(400),
        channel_write: Rate::megabytes_s(400),
        // 18 x 8 dies of 16 GiB: 2.47 TB for 2 TB, a fifth in reserve.
        dies: 144,
        page_bytes: 16 * KIB,
        codeword_bytes: 4 * KIB,
        // Fitted, MLC: 50 to 75 us.
        read: Picos::from_micros(75),
        // Two planes of 16 KiB pages.
        program_bytes: 32 * KIB,
        // Fitted: high-endurance MLC takes its time, 1.5 to 2.5 ms.
        program: Picos::from_micros(2_200),
        // Sheet: 2,000 MB/s of sequential writes, with 25 W.
        program_limit: Some(Rate::megabytes_s(2_000)),
        // Fitted to 004's 99.999th percentile of about 10 ms; MLC takes 3 to 10 ms.
        erase: Some(Erase { time: Picos::from_millis(9), programs_between: 256 }),
        mapping_bytes: 4 * KIB,
        placement: Placement::Log,
        // Fitted, with the time that relocation reads: 2,000 MB/s of sequential, but
        // 175,000 x 4 KiB = 717 MB/s of random writes.
        amplification_percent: 279,
        // Fitted: a part of its DRAM, held up by capacitors.
        buffer_bytes: 8 * KIB * KIB,
    }
}

/// Intel SSD DC P3600 2 TB: the P3700's construction with ordinary MLC and less in reserve.
fn nand_p3600() -> BlockParameters {
    BlockParameters {
        // Sheet: 450,000 random reads of 4 KiB in a second.
        command: Picos::from_nanos(2_220),
        // Sheet: 2,600 MB/s of sequential reads.
        link_read: Rate::megabytes_s(2_600),
        // Sheet: 1,700 MB/s of sequential writes: 144 x 32 KiB / 2.78 ms.
        program: Picos::from_micros(2_780),
        program_limit: None,
        // Fitted likewise: 1,700 MB/s of sequential, but
        // 56,000 x 4 KiB = 229 MB/s of random writes.
        amplification_percent: 700,
        ..nand_p3700()
    }
}

/// Intel SSD DC S3700 400 GB, SATA, 25 nm high-endurance MLC.
fn nand_s3700() -> BlockParameters {
    BlockParameters {
        // Sheet: 75,000 random reads of 4 KiB in a second.
        command: Picos::from_nanos(13_300),
        // Fitted: reviewers measured 150 us for one 4 KiB read with the system's part.
        front: Picos::from_nanos(15_000),
        read_back: Picos::from_nanos(5_000),
        // Sheet: 65 us for a write into the buffer, less command, front and link.
        write_back: Picos::from_nanos(28_000),
        // Sheet: 500 MB/s of sequential reads; SATA does one direction at a time.
        link_read: Rate::megabytes_s(500),
        link_write: Rate::megabytes_s(500),
        link_duplex: false,
        // Eight channels (reviewers' teardowns); ONFI 2 moves 200 MB/s.
        channels: 8,
        channel: Rate::megabytes_s(200),
        channel_write: Rate::megabytes_s(200),
        // 64 dies of 8 GiB: 550 GB for 400 GB.
        dies: 64,
        page_bytes: 8 * KIB,
        codeword_bytes: 4 * KIB,
        // Fitted, MLC: 50 to 75 us.
        read: Picos::from_micros(60),
        // Two planes of 8 KiB pages.
        program_bytes: 16 * KIB,
        // Sheet: 460 MB/s of sequential writes: 64 x 16 KiB / 2.28 ms.
        program: Picos::from_micros(2_280),
        program_limit: None,
        // As the P3700's.
        erase: Some(Erase { time: Picos::from_micros(5_000), programs_between: 256 }),
        mapping_bytes: 4 * KIB,
        placement: Placement::Log,
        // Fitted likewise: 460 MB/s of sequential, but
        // 36,000 x 4 KiB = 147 MB/s of random writes.
        amplification_percent: 292,
        // Fitted: a part of its DRAM, held up by capacitors.
        buffer_bytes: 4 * KIB * KIB,
    }
}

/// Micron 9300 PRO 7.68 TB, PCIe 3.0 x4, 64-layer TLC. Seed 001 names the drive, not its numbers.
/// The brief's figures are the vendor's as commonly cited; the sheet of the 9200 before it (3.5 and
/// 3.5 GB/s, 840,000 reads, 92 us and 21 us) was at hand and agrees in kind.
fn nvme_9300() -> BlockParameters {
    BlockParameters {
        // Brief: 850,000 random reads of 4 KiB in a second.
        command: Picos::from_nanos(1_170),
        // Brief: 86 us for one 4 KiB read, less die, channel and link.
        front: Picos::from_nanos(4_000),
        read_back: Picos::from_nanos(2_000),
        // Brief: 11 us for a write into the buffer.
        write_back: Picos::from_nanos(4_500),
        // Brief: 3,500 MB/s each way.
        link_read: Rate::megabytes_s(3_500),
        link_write: Rate::megabytes_s(3_500),
        link_duplex: true,
        // Fitted: 16 channels at 667 MB/s.
        channels: 16,
        channel: Rate::megabytes_s(667),
        channel_write: Rate::megabytes_s(667),
        // 128 dies of 64 GiB: 8.8 TB for 7.68 TB.
        dies: 128,
        page_bytes: 16 * KIB,
        codeword_bytes: 4 * KIB,
        // Fitted: TLC, 60 to 75 us.
        read: Picos::from_micros(72),
        // Two planes of 16 KiB pages, three pages at once.
        program_bytes: 96 * KIB,
        // Brief: 3,500 MB/s of sequential writes: 128 x 96 KiB / 3.59 ms.
        program: Picos::from_micros(3_590),
        program_limit: None,
        // Fitted: TLC, 5 to 15 ms.
        erase: Some(Erase { time: Picos::from_millis(8), programs_between: 384 }),
        mapping_bytes: 4 * KIB,
        placement: Placement::Log,
        // Fitted likewise: 3,500 MB/s of sequential, but
        // 145,000 x 4 KiB = 594 MB/s of random writes.
        amplification_percent: 520,
        // Fitted: a part of its DRAM, held up by capacitors.
        buffer_bytes: 16 * KIB * KIB,
    }
}

/// Micron 5210 ION 7.68 TB, SATA, 64-layer QLC. Seed 001 names the drive, not its numbers.
fn qlc_5210() -> BlockParameters {
    BlockParameters {
        // Sheet: 90,000 random reads of 4 KiB in a second.
        command: Picos::from_nanos(11_100),
        // Fitted: firmware of the family.
        front: Picos::from_nanos(15_000),
        read_back: Picos::from_nanos(5_000),
        write_back: Picos::from_nanos(10_000),
        // Sheet: 540 MB/s of sequential reads; SATA does one direction at a time.
        link_read: Rate::megabytes_s(540),
        link_write: Rate::megabytes_s(540),
        link_duplex: false,
        // Four channels at 400 MB/s: the family's controller.
        channels: 4,
        channel: Rate::megabytes_s(400),
        channel_write: Rate::megabytes_s(400),
        // 64 dies of 1 Tbit (announced with it, four planes): 8.8 TB for 7.68 TB.
        dies: 64,
        page_bytes: 16 * KIB,
        codeword_bytes: 4 * KIB,
        // Fitted: QLC, 90 to 150 us.
        read: Picos::from_micros(120),
        // Four planes of 16 KiB pages.
        program_bytes: 64 * KIB,
        // Fitted: a die of this kind sustains some 12.5 MB/s (a 1 TB drive of eight such dies
        // writes 100 MB/s).
        program: Picos::from_micros(5_240),
        // Sheet: 360 MB/s of sequential writes; 3.6 W do not let all dies program at once.
        program_limit: Some(Rate::megabytes_s(360)),
        // Fitted: QLC, 10 to 20 ms.
        erase: Some(Erase { time: Picos::from_millis(15), programs_between: 384 }),
        // The sheet's random writes fall with the capacity (13,000, 6,500, 4,500 at 1.92, 3.84 and
        // 7.68 TB), as 4, 8 and 16 KiB to an entry of a map of about the same size would have it.
        mapping_bytes: 16 * KIB,
        placement: Placement::Log,
        // Sheet: 4,500 random writes, 16 KiB each = 74 MB/s, where 360 MB/s are programmed.
        amplification_percent: 488,
        // Fitted: a part of its DRAM, held up by capacitors.
        buffer_bytes: 4 * KIB * KIB,
    }
}
