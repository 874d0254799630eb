//! Questions to a drive through its driver: an NVMe log page, and an ATA log page through SCSI.
//!
//! Both are ioctls that take a structure by address, which in turn holds the address of a buffer.
//! The kernel reads the structure and fills the buffer before the call returns.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of a page, for both kinds of drives.
pub(crate) const PAGE_BYTES: usize = 512;

/// `_IOWR('N', 0x41, struct nvme_admin_cmd)`.
const NVME_IOCTL_ADMIN_CMD: u64 = 0xC048_4E41;
const NVME_GET_LOG_PAGE: u8 = 2;
/// Address of the whole controller.
const NVME_ALL_NAMESPACES: u32 = u32::MAX;
const SG_IO: u64 = 0x2285;
const SG_DXFER_FROM_DEV: i32 = -3;
const SENSE_BYTES: usize = 32;
const TIMEOUT_MS: u32 = 10_000;

/// The kernel's `struct nvme_admin_cmd`.
#[repr(C)]
#[derive(Default)]
struct NvmeAdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_and_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    bytes: u32,
    words_10_to_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// The kernel's `struct sg_io_hdr`.
#[repr(C)]
struct ScsiRequest {
    interface: i32,
    direction: i32,
    command_bytes: u8,
    sense_bytes_max: u8,
    pieces: u16,
    bytes: u32,
    address: *mut u8,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack: i32,
    user: *mut u8,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_bytes: u8,
    host_status: u16,
    driver_status: u16,
    residue: i32,
    duration_ms: u32,
    info: u32,
}

const _: () = assert!(size_of::<NvmeAdminCommand>() == 72);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<ScsiRequest>() == 88);

/// Reads a log page of an NVMe controller.
///
/// # Errors
/// If this is no NVMe drive, the caller may not ask it, or the drive does not have the page.
pub(crate) fn nvme_log_page(drive: BorrowedFd<'_>, page: u8) -> io::Result<[u8; PAGE_BYTES]> {
    let mut bytes = [0; PAGE_BYTES];
    let words = PAGE_BYTES as u32 / 4 - 1;
    let mut command = NvmeAdminCommand {
        opcode: NVME_GET_LOG_PAGE,
        namespace: NVME_ALL_NAMESPACES,
        address: bytes.as_mut_ptr() as u64,
        bytes: PAGE_BYTES as u32,
        words_10_to_15: [u32::from(page) | words << 16, 0, 0, 0, 0, 0],
        timeout_ms: TIMEOUT_MS,
        ..NvmeAdminCommand::default()
    };
    let address = &raw mut command;
    // SAFETY: the structure is the one that this request names, and the buffer in it has the length
    // that it says; both outlive the call.
    let status = unsafe { libc::ioctl(drive.as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, address) };
    match status {
        0 => Ok(bytes),
        ..0 => Err(io::Error::last_os_error()),
        1.. => Err(io::Error::other(format!("the drive answered with status {status:#x}"))),
    }
}

/// Reads a page of a log of an ATA drive.
///
/// # Errors
/// If this is no ATA drive, the caller may not ask it, or the drive does not have the page.
pub(crate) fn ata_log_page(
    drive: BorrowedFd<'_>,
    log: u8,
    page: u8,
) -> io::Result<[u8; PAGE_BYTES]> {
    let (mut bytes, mut sense) = ([0; PAGE_BYTES], [0; SENSE_BYTES]);
    let command = ata_read_log(log, page);
    let mut request = ScsiRequest {
        interface: i32::from(b'S'),
        direction: SG_DXFER_FROM_DEV,
        command_bytes: command.len() as u8,
        sense_bytes_max: SENSE_BYTES as u8,
        pieces: 0,
        bytes: PAGE_BYTES as u32,
        address: bytes.as_mut_ptr(),
        command: command.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: TIMEOUT_MS,
        flags: 0,
        pack: 0,
        user: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_bytes: 0,
        host_status: 0,
        driver_status: 0,
        residue: 0,
        duration_ms: 0,
        info: 0,
    };
    let address = &raw mut request;
    // SAFETY: the structure is the one that this request names; the buffers in it have the lengths
    // that it says, and all outlive the call.
    let status = unsafe { libc::ioctl(drive.as_raw_fd(), SG_IO as _, address) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    let answers = [request.status.into(), request.host_status, request.driver_status];
    if answers != [0; 3] || request.residue != 0 {
        let [device, host, driver] = answers;
        let text =
            format!("the drive answered with {device:#x}, host {host:#x}, driver {driver:#x}");
        return Err(io::Error::other(text));
    }
    Ok(bytes)
}

/// Returns the SCSI command ATA PASS-THROUGH (16) that carries READ LOG EXT for one page.
fn ata_read_log(log: u8, page: u8) -> [u8; 16] {
    const PASS_THROUGH_16: u8 = 0x85;
    const PIO_IN_OF_48_BITS: u8 = 4 << 1 | 1;
    /// Data come in, in blocks whose number is in the count.
    const IN_BY_COUNT: u8 = 0x0E;
    const READ_LOG_EXT: u8 = 0x2F;
    let mut command = [0; 16];
    (command[0], command[1], command[2]) = (PASS_THROUGH_16, PIO_IN_OF_48_BITS, IN_BY_COUNT);
    (command[6], command[8], command[10]) = (1, log, page);
    command[14] = READ_LOG_EXT;
    command
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_that_is_no_drive_is_an_error_of_both_questions() {
        let file = tempfile::tempfile().expect("a file");
        assert!(nvme_log_page(file.as_fd(), 2).is_err());
        assert!(ata_log_page(file.as_fd(), 4, 1).is_err());
    }

    #[test]
    fn the_command_carries_log_and_page_where_ata_wants_them() {
        let command = ata_read_log(4, 1);
        assert_eq!(command, [0x85, 9, 0x0E, 0, 0, 0, 1, 0, 4, 0, 1, 0, 0, 0, 0x2F, 0]);
    }
}
