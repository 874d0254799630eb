//! SATA drive of 2008 in figure 4 of 004: an MLC drive of 50 nm.

use entresol_base::Picos;
use entresol_media::model::block::Rate;
use entresol_media::model::{BlockParameters, ModelName};

/// Returns the parameters, each with its source. Those that it shares with later drives do not
/// affect an idle read.
pub(super) fn drive() -> BlockParameters {
    let later = BlockParameters::of(ModelName::NandS3700);
    let later = later.unwrap_or_else(|| unreachable!("the S3700 is a drive"));
    BlockParameters {
        // Fitted to about 140 us for 4 KiB (004, section III).
        command: Picos::from_micros(10),
        front: Picos::from_micros(5),
        read_back: Picos::from_micros(5),
        // SATA at 3 Gb/s: 300 MB/s less framing.
        link_read: Rate::megabytes_s(270),
        link_write: Rate::megabytes_s(270),
        // Ten channels, pages of two planes at 40 MB/s (ONFI 1).
        channels: 10,
        channel: Rate::megabytes_s(80),
        dies: 40,
        page_bytes: 4096,
        // MLC of 50 nm.
        read: Picos::from_micros(50),
        ..later
    }
}
