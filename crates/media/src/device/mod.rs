//! DAX devices: memory that the kernel hands out without a file system, as `/dev/daxX.Y`.
//!
//! Such a device can be mapped, in units of its alignment, and nothing else: it cannot be read or
//! written by system calls, synced, lengthened or given back in part. Its facts are in sysfs.
#![expect(clippy::disallowed_methods, reason = "this crate is the home of file system calls")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Mount point of sysfs.
pub(crate) const SYSFS: &str = "/sys";
/// Smallest page, and so the smallest alignment.
const PAGE_BYTES: u64 = 4096;
/// Type, in sysfs, of the ancestor of a device whose bytes outlive the power.
const PERSISTENT_TYPE: &str = "nd_pmem";

/// Reason why a DAX device cannot be used. Every variant names the device and a way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device does not exist.
    #[error(
        "{path} does not exist; `daxctl list` shows the DAX devices, and one in the mode \
         system-ram must be reconfigured to devdax"
    )]
    Missing {
        /// The device.
        path: PathBuf,
    },
    /// A character device of another kind.
    #[error(
        "{path} is a character device, but no DAX device; name one such as /dev/dax0.0, or a file \
         on a DAX file system"
    )]
    NotDax {
        /// The device.
        path: PathBuf,
    },
    /// This user may not use the device.
    #[error(
        "cannot open the DAX device {path}: {cause}; let this user read and write it, lastingly by \
         a udev rule for SUBSYSTEM==\"dax\""
    )]
    Denied {
        /// The device.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The device cannot be opened for another reason.
    #[error("cannot open the DAX device {path}: {cause}; check its state with `daxctl list`")]
    Open {
        /// The device.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The device's memory loses its bytes with the power.
    #[error(
        "the DAX device {path} is no persistent memory: its bytes are lost with the power; add \
         ,assume-dax to use it as emulated persistent memory"
    )]
    Volatile {
        /// The device.
        path: PathBuf,
    },
    /// The device is smaller than required.
    #[error(
        "the DAX device {path} has {found} bytes, {needed} are needed; name a larger device, or \
         lower the quota"
    )]
    TooSmall {
        /// The device.
        path: PathBuf,
        /// Bytes that can be mapped: its size in whole units of its alignment.
        found: u64,
        /// The bytes that it must have.
        needed: u64,
    },
    /// The device belongs to something else.
    #[error(
        "the DAX device {path} holds something else; it is left alone: name another one, or zero \
         its first 4 KiB (daxio --zero --len 4096 --output {path})"
    )]
    Foreign {
        /// The device.
        path: PathBuf,
    },
    /// A fact of the device cannot be read, or makes no sense.
    #[error(
        "cannot use the DAX device {path}: {file} {problem}; see that sysfs is mounted there and \
         shows the device"
    )]
    Sysfs {
        /// The device.
        path: PathBuf,
        /// The file in sysfs.
        file: PathBuf,
        /// Its defect, in words.
        problem: String,
    },
}

impl DeviceError {
    /// Returns the kind of failure.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            DeviceError::Missing { .. } => io::ErrorKind::NotFound,
            DeviceError::NotDax { .. } | DeviceError::Volatile { .. } => io::ErrorKind::Unsupported,
            DeviceError::Denied { cause, .. } | DeviceError::Open { cause, .. } => cause.kind(),
            DeviceError::TooSmall { .. }
            | DeviceError::Foreign { .. }
            | DeviceError::Sysfs { .. } => io::ErrorKind::InvalidData,
        }
    }
}

/// A DAX device, as sysfs describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaxDevice {
    path: PathBuf,
    size: u64,
    align: u64,
    is_persistent: bool,
}

impl DaxDevice {
    /// Looks for a DAX device at `path`, with sysfs mounted at `sysfs`; none if a file may be
    /// there, or made there.
    pub(crate) fn find(path: &Path, sysfs: &Path) -> Result<Option<DaxDevice>, DeviceError> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_char_device() => {
                DaxDevice::describe(path, metadata.rdev(), sysfs).map(Some)
            }
            // A file made there would be in the memory of devtmpfs.
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_named_as_one(path) => {
                Err(DeviceError::Missing { path: path.into() })
            }
            // Other errors are those of the file.
            _ => Ok(None),
        }
    }

    /// Describes a device that is not there.
    #[cfg(test)]
    pub(crate) fn imagined(path: &Path, size: u64, align: u64, is_persistent: bool) -> DaxDevice {
        DaxDevice { path: path.into(), size, align, is_persistent }
    }

    fn describe(path: &Path, number: u64, sysfs: &Path) -> Result<DaxDevice, DeviceError> {
        let not_dax = || DeviceError::NotDax { path: path.into() };
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let link = sysfs.join(format!("dev/char/{major}:{minor}"));
        let facts = fs::canonicalize(&link).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound if sysfs.join("dev/char").is_dir() => not_dax(),
            _ => DeviceError::Sysfs {
                path: path.into(),
                file: link.clone(),
                problem: format!("cannot be read: {cause}"),
            },
        })?;
        let bus = fs::read_link(facts.join("subsystem")).map_err(|_| not_dax())?;
        if bus.file_name().is_none_or(|name| name != "dax") {
            return Err(not_dax());
        }
        let size = read_number(path, &facts.join("size"))?;
        let align = read_number(path, &facts.join("align"))?;
        if !align.is_power_of_two() || align < PAGE_BYTES {
            let problem = format!("holds {align}, which is no power of two from {PAGE_BYTES} on");
            let (path, file) = (path.into(), facts.join("align"));
            return Err(DeviceError::Sysfs { path, file, problem });
        }
        let types = facts.ancestors().map(|above| fs::read_to_string(above.join("devtype")));
        let is_persistent = types.flatten().any(|it| it.trim_end() == PERSISTENT_TYPE);
        Ok(DaxDevice { path: path.into(), size, align, is_persistent })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the device.
    pub(crate) fn open(&self, read_only: bool) -> Result<File, DeviceError> {
        let path = self.path.clone();
        OpenOptions::new().read(true).write(!read_only).open(&path).map_err(|cause| {
            match cause.kind() {
                io::ErrorKind::PermissionDenied => DeviceError::Denied { path, cause },
                _ => DeviceError::Open { path, cause },
            }
        })
    }

    /// Returns the bytes that can be mapped, whole units of the alignment, if at least `needed` can
    /// be.
    pub(crate) fn mappable(&self, needed: u64) -> Result<u64, DeviceError> {
        let (found, needed) = (self.size / self.align * self.align, needed.max(self.align));
        if found < needed {
            return Err(DeviceError::TooSmall { path: self.path.clone(), found, needed });
        }
        Ok(found)
    }

    /// Returns true if the device's bytes outlive the power, false if that is only assumed.
    pub(crate) fn persistence(&self, assume_dax: bool) -> Result<bool, DeviceError> {
        if !self.is_persistent && !assume_dax {
            return Err(DeviceError::Volatile { path: self.path.clone() });
        }
        Ok(self.is_persistent)
    }
}

/// Returns true if the kernel would give a DAX device this path.
fn is_named_as_one(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let numbers = name.and_then(|name| name.strip_prefix("dax")?.split_once('.'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    path.parent() == Some(Path::new("/dev"))
        && numbers.is_some_and(|(region, device)| is_number(region) && is_number(device))
}

fn read_number(path: &Path, file: &Path) -> Result<u64, DeviceError> {
    let failed = |problem| DeviceError::Sysfs { path: path.into(), file: file.into(), problem };
    let text = fs::read_to_string(file).map_err(|cause| failed(format!("cannot be read: {cause}")));
    let text = text?;
    let text = text.trim_end();
    text.parse().map_err(|_| failed(format!("holds '{text}', which is no number of bytes")))
}

#[cfg(test)]
mod tests;
