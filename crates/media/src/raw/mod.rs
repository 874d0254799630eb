//! The only folder with `unsafe` code, apart from `peers/`. Each file wraps one thing that the
//! compiler cannot check behind functions that are safe to call, or states what their caller must
//! guarantee.
//!
//! - `allocator`: tuning of the C library's allocator.
//! - `buffer`: aligned buffers for disks.
//! - `drive`: questions to a drive through its driver.
//! - `mapping`: mapped memory, bounds-checked; every access to a region ends here.
//! - `persist`: writing cache lines back, and stores past the caches.
//! - `probe`: loads and stores with given instructions, for measuring.
//! - `racy`: copies and comparisons of memory that other threads may be writing.
//! - `ring`: reads and writes through io_uring.
//! - `shutdown`: the end of a file system, for tests.
//! - `standard`: standard descriptors that were closed when the program began.
#![allow(unsafe_code)]

pub(crate) mod allocator;
pub(crate) mod buffer;
pub(crate) mod drive;
pub(crate) mod mapping;
pub(crate) mod persist;
pub(crate) mod probe;
pub(crate) mod racy;
pub(crate) mod ring;
pub(crate) mod shutdown;
pub(crate) mod standard;
