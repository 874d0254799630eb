//! What cannot be read from a counter: performance alone, and who disturbs whom. Both are learnt by
//! trying, for a short time, at run time; nothing is assumed of the device.

pub(crate) mod alone;
pub(crate) mod interference;
mod metric;
mod watch;
