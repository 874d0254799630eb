//! Where the time of one read of 4 KiB goes: application, system, device (004, figure 4).

use serde::Serialize;

/// The parts of one read's time, on average, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeSplit {
    /// `interrupt` or `polling`.
    pub completion: &'static str,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// From the program's decision to read until it has the bytes.
    pub total_us: f64,
    /// In the program itself: outside the calls that start a request and wait for it.
    pub application_us: f64,
    /// What is left: system calls, file system, waking up.
    pub system_us: f64,
    /// In the block layer, its driver and the disk, as the kernel counts it.
    pub device_us: f64,
    /// Reads behind these numbers.
    pub reads: u64,
    /// Of all reads that the kernel counted meanwhile, those of others, whose times are mixed in.
    pub others_share: f64,
    /// How the parts were told apart, and how wrong that can be.
    pub method: String,
}

impl TimeSplit {
    /// No numbers, and why.
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
