//! Estimates of what no counter shows: performance alone, and interference between tenants.
//!
//! Both are measured by trying, for a short time, at run time; no property of the device is
//! assumed.

pub(crate) mod alone;
pub(crate) mod interference;
mod metric;
mod watch;
