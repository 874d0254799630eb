//! Histories of stores with several volumes: their layout, and changes of it.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use entresol_base::rng::Rng;
use entresol_media::Directory;
use entresol_simulated::disk::Disk;

use super::drives::Drives;
use super::{NAMES, options_on};
use crate::{Classes, Kvdb, KvdbOptions, MediaClass, Policy, StoreError, Volume};

/// Change of the volumes or policies of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// New policy for a `Kvs`.
    Policy(usize, Policy),
    /// New volume of a class, with a number for its name.
    Add(MediaClass, u8),
    /// Retirement of a volume other than the home, given by its index.
    Retire(u8),
    /// Retirement of the home, or its return if it is retired.
    Home,
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arrangement::Policy(kvs, policy) => write!(f, "policy {} {policy}", NAMES[*kvs]),
            Arrangement::Add(class, name) => write!(f, "add {class} volume-{name}"),
            Arrangement::Retire(number) => write!(f, "retire {number}"),
            Arrangement::Home => write!(f, "retire the home or add it again"),
        }
    }
}

/// Reserve of each volume.
const RESERVE_BYTES: u64 = KvdbOptions::SEGMENT_BYTES_MIN;
/// Quota of the fastest volume, which is soon full.
pub(super) const FASTEST_BYTES: u64 = 14 * KvdbOptions::SEGMENT_BYTES_MIN;
/// Quota of the second volume, which is full later.
const SECOND_BYTES: u64 = 24 * KvdbOptions::SEGMENT_BYTES_MIN;

/// Policy that moves what is old, however much room there is. No template does.
const AGING: Policy = Policy {
    new_keys: Classes::STAGING,
    new_values: Classes::STAGING,
    old_keys: Classes::CAPACITY,
    old_values: Classes::CAPACITY,
};

/// Draws a change.
pub(super) fn draw(rng: &mut Rng, number: u8) -> Arrangement {
    match rng.below(5) {
        0 | 1 => {
            let kvs = rng.below(NAMES.len() as u64) as usize;
            let templates = Policy::TEMPLATES;
            let drawn = rng.below(templates.len() as u64 + 1) as usize;
            let policy = templates.get(drawn).map_or(AGING, |(_, policy)| *policy);
            Arrangement::Policy(kvs, policy)
        }
        2 => {
            let classes = [MediaClass::Staging, MediaClass::Capacity];
            Arrangement::Add(classes[rng.below(2) as usize], number)
        }
        3 => Arrangement::Home,
        _ => Arrangement::Retire(rng.below(3) as u8),
    }
}

/// Returns the options for a store with several volumes.
pub(super) fn options(disk: &Disk) -> KvdbOptions {
    KvdbOptions { reserve_bytes: RESERVE_BYTES, ..options_on(disk) }
}

/// Opens the home of such a store.
///
/// # Errors
/// Fails if the directory cannot be created.
pub(super) fn home(disk: &Disk) -> Result<Arc<dyn Directory>, StoreError> {
    Ok(disk.root().subdirectory("home")?)
}

/// Creates the volumes of a store.
///
/// # Errors
/// Fails if they cannot be created.
pub(super) fn volumes(drives: &Drives) -> Result<Vec<Volume>, StoreError> {
    let place = |class, name: &str, bytes_max| -> Result<Volume, StoreError> {
        let root = drives.of(class).root();
        let directory = root.subdirectory(name)?;
        root.sync()?;
        Ok(Volume { class, directory, bytes_max })
    };
    let (staging, capacity) = (MediaClass::Staging, MediaClass::Capacity);
    Ok(match drives.home().is_persistent_memory() {
        true => vec![
            place(MediaClass::Pmem, "home", Some(FASTEST_BYTES))?,
            place(staging, "staging", Some(SECOND_BYTES))?,
            place(capacity, "capacity", None)?,
        ],
        false => {
            vec![place(staging, "home", Some(FASTEST_BYTES))?, place(capacity, "capacity", None)?]
        }
    })
}

/// Makes a change. One that the store refuses because of its state is left out.
///
/// # Errors
/// Fails if the change fails otherwise.
pub(super) fn arrange(
    store: &Kvdb,
    drives: &Drives,
    arrangement: Arrangement,
) -> Result<(), StoreError> {
    let done = match arrangement {
        Arrangement::Policy(kvs, policy) => store.set_policy(NAMES[kvs], policy),
        Arrangement::Add(class, name) => store.add_volume(&drives.make_place(class, name)?),
        Arrangement::Home => {
            let Some(home) = store.volumes().into_iter().next() else { return Ok(()) };
            match store.add_volume(&home) {
                Err(StoreError::Exists { .. }) => store
                    .retire_volume(&home.directory, &mut |_| ControlFlow::Continue(()))
                    .map(drop),
                added => added,
            }
        }
        Arrangement::Retire(number) => {
            let volumes = store.volumes();
            let others = volumes.len().saturating_sub(1).max(1);
            let at = 1 + usize::from(number) % others;
            // The remaining volumes must be able to hold everything.
            let has_unbounded = |at: usize| {
                let left = volumes.iter().enumerate().filter(|(other, _)| *other != at);
                left.into_iter().any(|(_, place)| place.bytes_max.is_none())
            };
            match volumes.get(at).filter(|_| has_unbounded(at)) {
                Some(place) => store
                    .retire_volume(&place.directory, &mut |_| ControlFlow::Continue(()))
                    .map(drop),
                None => Ok(()),
            }
        }
    };
    match done {
        Err(StoreError::Policy { .. } | StoreError::Exists { .. }) => Ok(()),
        done => done,
    }
}
