//! Breakdown of the time of one 4 KiB read: application, system, device (004, figure 4).

use std::path::PathBuf;

use entresol_base::{ByteSize, Stop};
use entresol_measure::BenchError;
use entresol_media::MediumSpec;
use serde::Serialize;

use super::real::RealFile;
use crate::profile::ProfileOptions;

/// Bytes of the file whose reads [`split_rounds`] breaks down.
const SPLIT_BYTES: ByteSize = ByteSize::mib(256);

/// Parts of the mean time of one read, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeSplit {
    /// Kind of completion: `interrupt` or `polling`.
    pub completion: &'static str,
    /// Reason why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Time from the program's decision to read until it has the bytes.
    pub total_us: f64,
    /// Time in the program itself, outside the calls that start a request and wait for it.
    pub application_us: f64,
    /// Remaining time: system calls, file system, wake-up.
    pub system_us: f64,
    /// Time in the block layer, its driver and the disk, as the kernel counts it.
    pub device_us: f64,
    /// Number of reads behind these numbers.
    pub reads: u64,
    /// Share of other programs among the reads that the kernel counted; their times are included.
    pub others_share: f64,
    /// Method of the breakdown, with its possible error.
    pub method: String,
}

impl TimeSplit {
    /// Creates a breakdown without numbers, for the reason `why`.
    pub(super) fn refused(completion: &'static str, why: String) -> TimeSplit {
        TimeSplit {
            completion,
            refused: Some(why),
            total_us: 0.0,
            application_us: 0.0,
            system_us: 0.0,
            device_us: 0.0,
            reads: 0,
            others_share: 0.0,
            method: String::new(),
        }
    }
}

/// Breakdowns of one round, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitRound {
    /// Completion by interrupt.
    pub interrupt: TimeSplit,
    /// Completion by polling.
    pub polled: TimeSplit,
}

/// Creates a file at `path`, breaks down reads of it in alternating rounds, and removes it again.
///
/// # Errors
/// Fails if the file exists, cannot be created or read, or has no reads past the page cache.
pub fn split_rounds(
    path: PathBuf,
    rounds: usize,
    seed: u64,
) -> Result<Vec<SplitRound>, BenchError> {
    if entresol_media::files::exists(&path) {
        let text = format!("{} exists: remove it, or measure elsewhere", path.display());
        return Err(BenchError::Usage(text));
    }
    let options = ProfileOptions {
        medium: MediumSpec::File { path: path.clone(), model: None },
        against: None,
        full: false,
        threads: None,
        size: Some(SPLIT_BYTES),
        huge_pages: false,
        keep: false,
        seed,
    };
    let mut file = RealFile::open(&path, None, &options, &Stop::new())?;
    if !file.is_direct() {
        let text = format!("{} has no reads past the page cache (O_DIRECT)", path.display());
        return Err(BenchError::Failed(text));
    }
    let mut all = Vec::new();
    for _ in 0..rounds {
        let [interrupt, polled] = file.both_splits()?;
        all.push(SplitRound { interrupt, polled });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_exists_is_neither_overwritten_nor_removed() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("kept");
        entresol_media::files::write_atomically(&path, b"kept").expect("a file");
        let error = split_rounds(path.clone(), 1, 1).expect_err("refused");
        assert!(error.is_usage() && error.to_string().contains("kept exists"), "{error}");
        assert!(entresol_media::files::exists(&path));
    }
}
