//! Workloads, load generators and reports.
