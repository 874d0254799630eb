//! Writes records to a region and says on standard output which are durable; after a power cut it
//! checks that they are. `.ci/dax-vm` runs it in a machine that has persistent memory.
//!
//! `dax_writer write FILE` appends records for ever and prints `ack N.` once the N-th is durable.
//! `dax_writer check FILE ACKED` fails unless the first ACKED records are there, none is torn, and
//! nothing lies behind the one that was being written. `dax_writer careless FILE` is the control:
//! it maps the file without `MAP_SYNC`, makes nothing durable, and says that it did.
//!
//! Every byte of record N follows from N, so that the whole file follows from the number of the
//! last record. A record is its number, stored after everything else, and then its bytes. They are
//! packed without regard to cache lines or pages, and the file grows in small steps: what makes
//! trouble after a cut is the new page, the new block, and the new length.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use entresol_media::{Direct, PmemMode, RegionKind, RegionOptions};

const MAGIC: [u8; 8] = *b"daxtrial";
/// Where the first record lies.
const START: u64 = 64;
/// By how much the file grows.
const STEP_BYTES: u64 = 1 << 20;
/// How long the control's file is. It never grows, since growing makes everything durable.
const CARELESS_BYTES: u64 = 128 << 20;
const RECORD_BYTES_MAX: u64 = 6000;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["write", file] => write(Path::new(file)),
        ["careless", file] => careless(Path::new(file)),
        ["check", file, acked] => acked
            .parse()
            .map_err(|_| format!("{acked} is not the number of a record").into())
            .and_then(|acked| check(Path::new(file), acked)),
        _ => Err("usage: dax_writer write FILE | check FILE ACKED | careless FILE".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{}: {error}", arguments.first().unwrap_or(&"dax_writer")));
            ExitCode::FAILURE
        }
    }
}

/// One line, on its way when this returns. That nobody reads it is no reason to stop.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The bytes of the `number`-th record, of a length of its own.
fn bytes_of(number: u64) -> Vec<u8> {
    // splitmix64, begun at a place that the number decides.
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

/// Where the record behind the one at `offset` lies.
fn behind(offset: u64, bytes: &[u8]) -> u64 {
    (offset + 8 + bytes.len() as u64).next_multiple_of(8)
}

fn open(path: &Path, bytes: u64) -> Result<Direct, Error> {
    let options = RegionOptions {
        create: Some(bytes),
        grow: true,
        magic: Some(MAGIC),
        pmem: Some(PmemMode { assume_dax: false }),
    };
    let region = Direct::open(path, &options)?;
    if region.kind() != RegionKind::Dax {
        return Err(format!("the region is {:?}, not persistent memory", region.kind()).into());
    }
    Ok(region)
}

/// The number of the last whole record, and where the next one goes.
fn find_end(region: &Direct) -> Result<(u64, u64), Error> {
    let (mut number, mut offset) = (0, START);
    while offset + 8 <= region.len() {
        let found = region.load_u64(offset, Ordering::Relaxed);
        if found == 0 {
            break;
        }
        number += 1;
        let bytes = bytes_of(number);
        let whole = behind(offset, &bytes) <= region.len() && region.equals(offset + 8, &bytes);
        if found != number || !whole {
            let what = format!("record {number} at {offset} is torn; its number is {found}");
            return Err(what.into());
        }
        offset = behind(offset, &bytes);
    }
    Ok((number, offset))
}

fn write(path: &Path) -> Result<(), Error> {
    let mut region = open(path, STEP_BYTES)?;
    let (last, mut offset) = find_end(&region)?;
    say(&format!("write: {last} records in {} bytes, {:?}", region.len(), region.flush_kind()));
    for number in last + 1.. {
        let bytes = bytes_of(number);
        if behind(offset, &bytes) > region.len() {
            let grown = region.len() + STEP_BYTES;
            drop(region);
            region = open(path, grown)?;
        }
        put(&region, offset, number, &bytes);
        offset = behind(offset, &bytes);
        say(&format!("ack {number}."));
    }
    Ok(())
}

/// Writes a record, by ordinary stores or past the caches in turn, and makes it durable.
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

fn check(path: &Path, acked: u64) -> Result<(), Error> {
    let region = Direct::open(path, &RegionOptions { magic: Some(MAGIC), ..Default::default() })?;
    let (last, end) = find_end(&region)?;
    if last < acked {
        let lost = acked - last;
        return Err(format!("{lost} of {acked} acknowledged records are lost").into());
    }
    // Of the record that was being written any part may be there, but nothing else.
    let next = bytes_of(last + 1);
    let mut rest = vec![0; (region.len() - end) as usize];
    region.read(end, &mut rest);
    let expected = [0; 8].iter().chain(&next).copied().chain(std::iter::repeat(0));
    let foreign = rest.iter().zip(expected).position(|(&is, may)| is != 0 && is != may);
    if let Some(at) = foreign {
        let at = end + at as u64;
        return Err(format!("byte {at}, behind the last record {last}, is nobody's").into());
    }
    say(&format!("check: {last} records whole, {acked} were acknowledged; {end} bytes"));
    Ok(())
}
