//! The drive's own count of the bytes that it was told to write.
//!
//! NVMe drives have it in their health page, ATA drives in their device statistics. Both count in
//! units of their own and over the drive's whole life, all its users together.
#![expect(clippy::disallowed_methods, reason = "this crate is the home of file system calls")]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::files;
use crate::machine::FileDisk;
use crate::raw::drive::{PAGE_BYTES, ata_log_page, nvme_log_page};

/// NVMe's page SMART / Health Information, and in it the data units written.
const NVME_HEALTH: u8 = 2;
const NVME_UNITS_WRITTEN: usize = 48;
const NVME_UNIT_BYTES: u128 = 512_000;
/// ATA's log of device statistics, its page of general statistics, and in it the logical sectors
/// written.
const ATA_STATISTICS: u8 = 4;
const ATA_GENERAL: u8 = 1;
const ATA_SECTORS_WRITTEN: usize = 24;
/// Bits of a statistic: the drive has it, and its value is valid.
const ATA_KNOWN: u64 = 3 << 62;
const ATA_VALUE: u64 = (1 << 48) - 1;
const SECTOR_BYTES: u64 = 512;

/// Bytes that a drive was told to write over its life, by its own count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriveWritten {
    /// The drive says so.
    Counted {
        /// Name of the drive, such as `nvme0n1`.
        drive: String,
        /// The bytes.
        bytes: u64,
    },
    /// The count is not there, or may not be read, for this reason.
    Unknown(String),
}

impl DriveWritten {
    /// Asks the drive beneath a file or directory.
    #[must_use]
    pub fn of(path: &Path) -> DriveWritten {
        let Some(disk) = FileDisk::of(path) else {
            return DriveWritten::Unknown("the kernel names no drive beneath it".to_owned());
        };
        match whole_drive(&disk) {
            Ok(folder) => ask(&folder),
            Err(reason) => DriveWritten::Unknown(reason),
        }
    }
}

/// Returns the kernel's folder of the one drive beneath a partition, or beneath layers above one.
fn whole_drive(disk: &FileDisk) -> Result<PathBuf, String> {
    let mut folder = disk.folder().to_owned();
    loop {
        if folder.join("partition").exists() {
            folder.pop();
        }
        let beneath = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
        let mut beneath = beneath.map(|entry| entry.path());
        match (beneath.next(), beneath.next()) {
            (None, _) => return Ok(folder),
            (Some(one), None) => folder = fs::canonicalize(one).map_err(|it| it.to_string())?,
            (Some(_), Some(_)) => {
                return Err(format!("{} lies on several drives", name_of(&folder)));
            }
        }
    }
}

fn name_of(folder: &Path) -> String {
    folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn ask(folder: &Path) -> DriveWritten {
    let drive = name_of(folder);
    let device = Path::new("/dev").join(&drive);
    let unknown = |error: &io::Error| {
        let text = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("{} may not be asked: {error}", device.display())
            }
            _ => format!("{} does not tell: {error}", device.display()),
        };
        DriveWritten::Unknown(text)
    };
    let file = match File::open(&device) {
        Ok(file) => file,
        Err(error) => return unknown(&error),
    };
    let bytes = match drive.starts_with("nvme") {
        true => nvme_log_page(file.as_fd(), NVME_HEALTH).map(|page| nvme_written(&page)),
        false => {
            let page = ata_log_page(file.as_fd(), ATA_STATISTICS, ATA_GENERAL);
            page.map(|page| ata_written(&page, sector_bytes(folder)))
        }
    };
    match bytes {
        Ok(Some(bytes)) => DriveWritten::Counted { drive, bytes },
        Ok(None) => {
            DriveWritten::Unknown(format!("{} does not count what it writes", device.display()))
        }
        Err(error) => unknown(&error),
    }
}

fn sector_bytes(folder: &Path) -> u64 {
    let text = files::read_to_string(&folder.join("queue/logical_block_size"));
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(SECTOR_BYTES)
}

/// Returns the bytes written in a health page; zero stands for a drive that does not count.
fn nvme_written(page: &[u8; PAGE_BYTES]) -> Option<u64> {
    let units = u128::from_le_bytes(*page[NVME_UNITS_WRITTEN..].first_chunk()?);
    u64::try_from(units.saturating_mul(NVME_UNIT_BYTES)).ok().filter(|bytes| *bytes > 0)
}

/// Returns the bytes written in a page of general statistics.
fn ata_written(page: &[u8; PAGE_BYTES], sector_bytes: u64) -> Option<u64> {
    let statistic = u64::from_le_bytes(*page[ATA_SECTORS_WRITTEN..].first_chunk()?);
    let is_known = statistic & ATA_KNOWN == ATA_KNOWN && page[2] == ATA_GENERAL;
    is_known.then(|| (statistic & ATA_VALUE).saturating_mul(sector_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_nvme_drive_counts_in_thousands_of_512_bytes() {
        let mut page = [0; PAGE_BYTES];
        assert_eq!(nvme_written(&page), None, "a drive that never wrote does not count");
        page[48..64].copy_from_slice(&1_234_567_u128.to_le_bytes());
        // The units read, before, and the commands, behind, are others.
        page[32..48].copy_from_slice(&99_u128.to_le_bytes());
        page[64..80].copy_from_slice(&77_u128.to_le_bytes());
        assert_eq!(nvme_written(&page), Some(1_234_567 * 512_000));
        page[63] = 0xFF;
        assert_eq!(nvme_written(&page), None, "no drive has written that much");
    }

    #[test]
    fn an_ata_drive_counts_sectors_if_it_says_that_they_are_valid() {
        let mut page = [0; PAGE_BYTES];
        page[2] = 1;
        page[24..32].copy_from_slice(&(3 << 62 | 5_000_000_u64).to_le_bytes());
        assert_eq!(ata_written(&page, 512), Some(5_000_000 * 512));
        assert_eq!(ata_written(&page, 4096), Some(5_000_000 * 4096));
        page[31] = 0x80;
        assert_eq!(ata_written(&page, 512), None, "supported, and not valid");
        page[31] = 0xC0;
        page[2] = 7;
        assert_eq!(ata_written(&page, 512), None, "another page");
    }

    #[test]
    fn a_file_in_memory_has_no_drive_and_says_so() {
        let DriveWritten::Unknown(reason) = DriveWritten::of(Path::new("/proc/self/stat")) else {
            panic!("/proc has no drive");
        };
        assert!(reason.contains("no drive"), "{reason}");
    }
}
