//! Writes records to a region and prints which are durable; after a power cut it checks that they
//! are there. `.ci/dax-vm` runs it in a machine with persistent memory.
//!
//! `dax_writer write FILE` appends records for ever, to FILE and to further numbered files, and
//! prints `ack N.` once record N is durable. `dax_writer check FILE ACKED` fails unless the first
//! ACKED records are there, none is torn, and nothing lies behind the one that was being written.
//! `dax_writer careless FILE` is the control: it maps the file without `MAP_SYNC`, makes nothing
//! durable, and claims that it did; `dax_writer doubt FILE ACKED` is its check.
//!
//! FILE may be a DAX device, which holds all records. What is acknowledged then begins with
//! `device`, so that two writers can share an output.
//!
//! Every byte of record N follows from N, so all files follow from the number of the last record. A
//! record is its number, stored last, followed by its bytes. Records are packed without regard to
//! cache lines or pages, a file grows in small steps, and there are many files, since new pages,
//! blocks, lengths and names cause the trouble after a cut.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use entresol_media::{Direct, PmemMode, RegionKind, RegionOptions, files};

const MAGIC: [u8; 8] = *b"daxtrial";
/// Offset of the first record.
const START: u64 = 64;
/// Bytes by which a file grows, and at which the next one begins.
const STEP_BYTES: u64 = 128 << 10;
const FILE_BYTES: u64 = 4 * STEP_BYTES;
/// Bytes of the control's only file. It never grows, since growing makes everything durable.
const CARELESS_BYTES: u64 = 128 << 20;
const RECORD_BYTES_MAX: u64 = 6000;
/// Pause behind each record on a device, which would otherwise be full after some seconds: nothing
/// there takes time, neither growth nor new files.
const DEVICE_PAUSE: Duration = Duration::from_millis(5);
/// Bytes that are compared at once.
const COMPARED_BYTES: usize = 4096;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let check = |file, acked: &str, file_bytes| match acked.parse() {
        Ok(acked) => check(Path::new(file), acked, file_bytes),
        Err(_) => Err(format!("{acked} is not the number of a record").into()),
    };
    let result = match arguments[..] {
        ["write", file] => write(Path::new(file)),
        ["check", file, acked] if files::is_character_device(Path::new(file)) => {
            check(file, acked, u64::MAX)
        }
        ["check", file, acked] => check(file, acked, FILE_BYTES),
        ["careless", file] => careless(Path::new(file)),
        ["doubt", file, acked] => check(file, acked, CARELESS_BYTES),
        _ => Err("usage: dax_writer write|careless FILE, dax_writer check|doubt FILE ACKED".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{}: {error}", arguments.first().unwrap_or(&"dax_writer")));
            ExitCode::FAILURE
        }
    }
}

/// Prints one line at once. It goes on even if there is no reader.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Returns the bytes of record `number`, whose length varies.
fn bytes_of(number: u64) -> Vec<u8> {
    // splitmix64, seeded by the number.
    let mut state = number << 32;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let len = 1 + next() % RECORD_BYTES_MAX;
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    bytes.truncate(len as usize);
    bytes
}

/// Returns the offset behind the record at `offset`.
fn behind(offset: u64, bytes: &[u8]) -> u64 {
    (offset + 8 + bytes.len() as u64).next_multiple_of(8)
}

/// Returns the path of file `index`: the first has the given name.
fn file_of(first: &Path, index: u64) -> PathBuf {
    if index == 0 { first.into() } else { first.with_extension(index.to_string()) }
}

fn open(path: &Path, bytes: u64) -> Result<Direct, Error> {
    let options = RegionOptions {
        create: Some(bytes),
        grow: true,
        magic: Some(MAGIC),
        pmem: Some(PmemMode { assume_dax: false }),
        ..RegionOptions::default()
    };
    let region = Direct::open(path, &options)?;
    if region.kind() != RegionKind::Dax {
        return Err(format!("the region is {:?}, not persistent memory", region.kind()).into());
    }
    Ok(region)
}

/// End of the records.
struct End {
    /// Number of the last whole record.
    last: u64,
    /// File and offset of the next record.
    index: u64,
    offset: u64,
}

impl End {
    /// Skips over the records of a file; returns true if the file is full.
    fn pass(&mut self, region: &Direct, file_bytes: u64) -> Result<bool, Error> {
        loop {
            let number = self.last + 1;
            let bytes = bytes_of(number);
            let next = behind(self.offset, &bytes);
            if next > file_bytes {
                return Ok(true);
            }
            if next > region.len() {
                return Ok(false);
            }
            let found = region.load_u64(self.offset, Ordering::Relaxed);
            if found == 0 {
                return Ok(false);
            }
            if found != number || !region.equals(self.offset + 8, &bytes) {
                let place = format!("at {} of file {}", self.offset, self.index);
                return Err(
                    format!("record {number} {place} is torn; its number is {found}").into()
                );
            }
            (self.last, self.offset) = (number, next);
        }
    }

    /// Fails unless only a part of the next record lies behind the end.
    fn nothing_follows(&self, region: &Direct) -> Result<(), Error> {
        let next = bytes_of(self.last + 1);
        let of_next: Vec<u8> = [0; 8].iter().chain(&next).copied().collect();
        let mut at = self.offset;
        while at < region.len() {
            let mut rest = [0; COMPARED_BYTES];
            let rest = &mut rest[..(region.len() - at).min(COMPARED_BYTES as u64) as usize];
            region.read(at, rest);
            let expected = of_next.iter().skip((at - self.offset) as usize).copied();
            let expected = expected.chain(std::iter::repeat(0));
            if rest.iter().any(|&byte| byte != 0)
                && let Some(byte) =
                    rest.iter().zip(expected).position(|(&is, may)| is != 0 && is != may)
            {
                let (at, index) = (at + byte as u64, self.index);
                return Err(format!(
                    "byte {at} of file {index}, behind the last record, is nobody's"
                )
                .into());
            }
            at += rest.len() as u64;
        }
        Ok(())
    }
}

/// Skips over all files, the last of which may be missing.
fn find_end(first: &Path, file_bytes: u64) -> Result<End, Error> {
    let mut end = End { last: 0, index: 0, offset: START };
    while file_of(first, end.index).exists() {
        let pmem = files::is_character_device(first).then(PmemMode::default);
        let options = RegionOptions { magic: Some(MAGIC), pmem, ..RegionOptions::default() };
        let region = Direct::open(&file_of(first, end.index), &options)?;
        if !end.pass(&region, file_bytes)? {
            end.nothing_follows(&region)?;
            break;
        }
        (end.index, end.offset) = (end.index + 1, START);
    }
    match file_of(first, end.index + 1) {
        stray if stray.exists() => Err(format!("{} should not be there", stray.display()).into()),
        _ => Ok(end),
    }
}

fn write(first: &Path) -> Result<(), Error> {
    if files::is_character_device(first) {
        return write_device(first);
    }
    let End { last, mut index, mut offset } = find_end(first, FILE_BYTES)?;
    let mut region = open(&file_of(first, index), STEP_BYTES)?;
    say(&format!("write: {last} records in {index} full files, {:?}", region.flush_kind()));
    for number in last + 1.. {
        let bytes = bytes_of(number);
        if behind(offset, &bytes) > FILE_BYTES {
            (index, offset) = (index + 1, START);
            region = open(&file_of(first, index), STEP_BYTES)?;
        }
        if behind(offset, &bytes) > region.len() {
            let grown = region.len() + STEP_BYTES;
            drop(region);
            region = open(&file_of(first, index), grown)?;
        }
        put(&region, offset, number, &bytes);
        offset = behind(offset, &bytes);
        say(&format!("ack {number}."));
    }
    Ok(())
}

fn write_device(device: &Path) -> Result<(), Error> {
    // Opened first, since the engine marks an unused device then.
    drop(open(device, STEP_BYTES)?);
    let End { last, index: 0, mut offset } = find_end(device, u64::MAX)? else {
        return Err("the device is full".into());
    };
    let region = open(device, STEP_BYTES)?;
    let (bytes, flush) = (region.len(), region.flush_kind());
    say(&format!("device write: {last} records, {offset} of {bytes} bytes, {flush:?}"));
    for number in last + 1.. {
        let bytes = bytes_of(number);
        if behind(offset, &bytes) > region.len() {
            return Err("the device is full".into());
        }
        put(&region, offset, number, &bytes);
        offset = behind(offset, &bytes);
        say(&format!("device ack {number}."));
        std::thread::sleep(DEVICE_PAUSE);
    }
    Ok(())
}

/// Writes a record, alternately by ordinary stores and past the caches, and makes it durable.
fn put(region: &Direct, offset: u64, number: u64, bytes: &[u8]) {
    if number.is_multiple_of(2) {
        region.write_streaming(offset + 8, bytes);
        region.drain();
    } else {
        region.write(offset + 8, bytes);
        region.persist(offset + 8, bytes.len());
    }
    region.store_u64(offset, number, Ordering::Release);
    region.persist(offset, 8);
}

fn careless(path: &Path) -> Result<(), Error> {
    let options = RegionOptions { create: Some(CARELESS_BYTES), ..RegionOptions::default() };
    let options = RegionOptions { magic: Some(MAGIC), ..options };
    let region = Direct::open(path, &options)?;
    let mut offset = START;
    for number in 1.. {
        let bytes = bytes_of(number);
        if behind(offset, &bytes) > region.len() {
            break;
        }
        region.write(offset + 8, &bytes);
        region.store_u64(offset, number, Ordering::Release);
        offset = behind(offset, &bytes);
        say(&format!("ack {number}."));
    }
    Ok(())
}

fn check(first: &Path, acked: u64, file_bytes: u64) -> Result<(), Error> {
    let End { last, index, offset } = find_end(first, file_bytes)?;
    if last < acked {
        let lost = acked - last;
        return Err(format!("{lost} of {acked} acknowledged records are lost").into());
    }
    say(&format!("check: {last} records whole, {acked} were acknowledged; file {index}, {offset}"));
    Ok(())
}
