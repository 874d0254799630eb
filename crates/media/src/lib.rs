//! Media: regions of byte-addressable memory, block files, cost tables and accounts.
//!
//! This crate is the only home of file system calls, memory mappings and inline assembly, and
//! within it the private folder `raw` is the only home of `unsafe` code. It knows nothing of
//! caches, stores or protocols.
//!
//! - Memory: the trait [`Region`], and [`Direct`], anonymous or over a file, as persistent memory
//!   or ordinarily mapped.
//! - Files written in place: [`MappedFile`].
//! - Disks: [`BlockFile`] and [`IoQueue`], through io_uring or over threads.
//! - Shares: [`Account`] and [`CostTable`]; every access that serves a tenant is charged there.
//! - Files beside the data: [`Directory`] and [`files`].
//! - Disks that fail on purpose, in virtual time: [`disk`].
//! - Devices that are not here: [`model`].
//! - Measuring: [`probe`].
//! - [`machine`]: memory, limits, names. A fence for all threads at once: [`Barrier`].
#![deny(unsafe_code)]

pub mod account;
mod ahead;
mod barrier;
pub mod block;
pub mod cost;
pub mod crash;
pub mod directory;
pub mod disk;
mod event;
pub mod files;
pub mod machine;
pub mod mapped;
pub mod medium;
pub mod model;
pub mod observe;
mod placement;
pub mod probe;
mod raw;
pub mod region;
mod streaming;

pub use account::{Account, AccountHandle, Admission, Limit, Usage};
pub use barrier::Barrier;
pub use block::{
    Alignment, Backend, BackendChoice, BlockFile, BlockOptions, IoBuffer, IoCompletion, IoQueue,
    IoRequest, SlotPool, open_block_file,
};
pub use cost::{Access, CostTable};
pub use directory::{Directory, LocalDirectory};
pub use mapped::{MapOptions, MappedFile, MappedKind, RegionFile};
pub use medium::{MediumKind, MediumSpec};
pub use model::ModelName;
pub use observe::{Counters, Counts, Observed, Observer};
pub use placement::{FileError, lacks_descriptors};
pub use region::{
    Direct, FlushKind, FoundPair, Line, PmemMode, Region, RegionError, RegionKind, RegionOptions,
};
