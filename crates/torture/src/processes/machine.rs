//! A machine that crashes, as far as a file system can tell: ext4 on a loop device, shut down while
//! processes write to it. What it had not written by then is lost when it is mounted again.
//!
//! Root may do this. The disk beneath loses nothing that reached it, in the order in which it came.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_measure::BenchError;
use entresol_media::machine::{ShutDown, shut_down_file_system};
use entresol_media::{Directory, LocalDirectory, files};

/// Size of the file system.
const SIZE: &str = "192M";
/// Most bytes of a file that are written back before a crash.
const BACK_BYTES_MAX: u64 = 96 << 10;

/// Number of times that a file system is unmounted while it is in use.
const UNMOUNT_TRIES: u32 = 100;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(100);

/// A mounted file system of its own. Dropping it unmounts it.
pub(super) struct Machine {
    image: PathBuf,
    mount: PathBuf,
}

impl Machine {
    /// Makes a file system in a file of the directory, and mounts it there.
    pub(super) fn start(directory: &Path) -> Result<Machine, BenchError> {
        let (image, mount) = (directory.join("image"), directory.join("mounted"));
        let failed = |source| BenchError::File { path: mount.clone(), source };
        files::create_directories(&mount).map_err(failed)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).arg(SIZE))?;
        let machine = Machine { image, mount };
        machine.mount()?;
        Ok(machine)
    }

    /// Returns the path at which the store lies.
    pub(super) fn store(&self) -> PathBuf {
        self.mount.join("store")
    }

    /// Mounts it, with a journal that does not commit by itself while a child lives.
    fn mount(&self) -> Result<(), BenchError> {
        run(Command::new("mount").args(["-o", "loop,commit=300"]).arg(&self.image).arg(&self.mount))
    }

    /// Writes a few parts of the store's files back, as the system does at any time.
    pub(super) fn write_back(&self, rng: &mut Rng) {
        let store = self.store();
        let names = LocalDirectory::open_existing(&store).and_then(|it| it.list());
        for entry in names.unwrap_or_default() {
            let path = store.join(entry.name);
            if entry.is_directory || rng.one_in(2) {
                continue;
            }
            // The child may remove a file meanwhile.
            let bytes = files::len(&path).unwrap_or_default();
            let offset = rng.below(bytes.max(1));
            let bytes = NonZeroU64::MIN.saturating_add(rng.below(BACK_BYTES_MAX));
            let _ = files::begin_write_back(&path, offset, bytes);
        }
    }

    /// Shuts the file system down.
    pub(super) fn shut_down(&self, rng: &mut Rng) -> Result<(), BenchError> {
        let failed = |source| BenchError::System { what: "shutting a file system down", source };
        let how = [ShutDown::Flush, ShutDown::FlushJournal, ShutDown::AtOnce][rng.index(3)];
        shut_down_file_system(&self.mount, how).map_err(failed)
    }

    /// Mounts it again after a crash. A process that was killed may still hold its files for a
    /// moment.
    pub(super) fn restart(&self) -> Result<(), BenchError> {
        let unmount = || run(Command::new("umount").arg(&self.mount));
        let mut tries = 1..UNMOUNT_TRIES;
        while let Err(error) = unmount() {
            if tries.next().is_none() {
                return Err(error);
            }
            std::thread::sleep(UNMOUNT_PAUSE);
        }
        self.mount()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // If it is not mounted, an earlier error said why.
        let _ = Command::new("umount").arg(&self.mount).output();
    }
}

/// Runs a command of the system's to its end.
fn run(command: &mut Command) -> Result<(), BenchError> {
    let name = command.get_program().display().to_string();
    let failed = |why: &dyn std::fmt::Display| {
        BenchError::Usage(format!(
            "{name} failed: {why}; --shutdown needs root, a free loop device, and e2fsprogs"
        ))
    };
    let done = command.output().map_err(|error| failed(&error))?;
    if done.status.success() {
        return Ok(());
    }
    Err(failed(&String::from_utf8_lossy(&done.stderr).trim()))
}
