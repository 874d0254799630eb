//! Breakdown of the time of one 4 KiB read: application, system, device (004, figure 4).

use serde::Serialize;

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
