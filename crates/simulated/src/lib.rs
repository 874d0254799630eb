//! The media of a simulated machine: disks, persistent memory, crashes and faults, for tests.
//!
//! What ships never uses this crate. Code under test reaches it through the traits of
//! [`entresol_media`], in a [`World`](entresol_base::world::World), whose virtual time it takes.
//!
//! - Disks with directories, block files and mapped files, and their faults: [`disk`].
//! - Crash images of all media of a machine, and the explorer that opens them: [`crash`].
//! - Persistent memory: [`RecordedRegion`](crash::RecordedRegion), which knows the states in which
//!   a crash may leave it, and [`SimulatedMemory`], whose accesses take the time of a device.
//! - Counts of a region's accesses: [`Counters`].
#![forbid(unsafe_code)]

mod counters;
pub mod crash;
pub mod disk;
mod memory;

pub use counters::{Counters, Counts};
pub use memory::SimulatedMemory;
