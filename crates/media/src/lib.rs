//! Media: regions of byte-addressable memory, block files, cost tables and accounts.
//!
//! All data files, memory mappings and inline assembly are in this crate, and all of its `unsafe`
//! code is in the private folder `raw`. It knows nothing of caches, stores or protocols.
//!
//! - Memory: the trait [`Region`], and [`Direct`], its implementation over anonymous memory,
//!   persistent memory or an ordinary mapped file. [`Observed`] reports every access to an
//!   [`Observer`].
//! - Files written in place: [`MappedFile`].
//! - Disks: [`BlockFile`] and [`IoQueue`], through io_uring or a pool of threads.
//! - Shares of media: [`Account`] and [`CostTable`], by which every tenant's accesses are charged.
//! - The life of drives: [`endurance`].
//! - Directories and small files: [`Directory`] and [`files`].
//! - Models of devices: [`model`].
//! - Loops for measuring memory: [`probe`].
//! - Facts about the machine: [`machine`]. An asymmetric fence: [`Barrier`].
#![deny(unsafe_code)]

mod access;
pub mod account;
mod ahead;
mod barrier;
pub mod block;
pub mod cost;
mod device;
pub mod directory;
pub mod endurance;
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

pub use access::Access;
pub use account::{Account, AccountHandle, Admission, Limit, Usage};
pub use ahead::Begun;
pub use barrier::Barrier;
pub use block::{
    Alignment, Backend, BackendChoice, BlockFile, BlockOptions, IoBuffer, IoCompletion, IoQueue,
    IoRequest, SlotPool, open_block_file,
};
pub use cost::CostTable;
pub use device::DeviceError;
pub use directory::{Directory, LocalDirectory};
pub use event::Event;
pub use mapped::{MapOptions, MappedFile, MappedKind, RegionFile};
pub use medium::{MediumKind, MediumSpec};
pub use model::ModelName;
pub use observe::{Observed, Observer};
pub use placement::{FileError, PAGE_BYTES, lacks_descriptors};
pub use region::{
    Direct, FlushKind, FoundPair, Line, PmemMode, Region, RegionError, RegionKind, RegionOptions,
    SendPart, receive, send_parts,
};
