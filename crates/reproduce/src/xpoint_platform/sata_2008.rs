//! The SATA drive of 2008 in 004's figure 4: an MLC drive of 50 nm.

use entresol_base::Picos;
use entresol_media::model::block::Rate;
use entresol_media::model::{BlockParameters, ModelName};

/// Each number with its source; what it shares with later drives is of no consequence to an idle
/// read.
pub(super) fn drive() -> BlockParameters {
    let later = BlockParameters::of(ModelName::NandS3700);
    let later = later.unwrap_or_else(|| unreachable!("the S3700 is a drive"));
    BlockParameters {
        // Fitted to 004, section III: about 140 us for 4 KiB.
        command: Picos::from_micros(10),
        front: Picos::from_micros(5),
        read_back: Picos::from_micros(5),
        // SATA of 3 Gb/s: 300 MB/s less its framing.
        link_read: Rate::megabytes_s(270),
        link_write: Rate::megabytes_s(270),
        // Ten channels, two planes' pages at 40 MB/s (ONFI 1).
        channels: 10,
        channel: Rate::megabytes_s(80),
        dies: 40,
        page_bytes: 4096,
        // MLC of 50 nm.
        read: Picos::from_micros(50),
        ..later
    }
}
