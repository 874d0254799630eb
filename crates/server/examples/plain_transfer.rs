//! A server that moves values and keeps none of them: the least that one can cost.
//!
//! `cargo run --release -p entresol-server --example plain_transfer -- HOST:PORT [FILE]` answers
//! `set` and `get` of memcached's protocol, so that `bench cache --against` can hold a cache beside
//! it. A set's bytes go into the next part of 300 MiB of memory, which are used in turn, so that
//! they are cold to the processor; a get sends as many as the last set brought from the next part.
//! With a file, the part is also written to it, or first read from it, past the page cache. Nothing
//! is looked up, checked or kept, and each connection has a thread that waits for one thing at a
//! time.
#![expect(clippy::print_stderr, reason = "says where it listens and what went wrong")]

use std::error::Error;
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use entresol_media::{BlockFile, BlockOptions, IoBuffer, open_block_file};

/// Memory of a connection.
const RING_BYTES: usize = 300 << 20;
/// Bytes of a part at most, which are also those of one system call.
const PART_BYTES: usize = 1 << 20;
/// Alignment of parts, and of their lengths in the file.
const ALIGNMENT: usize = 4 << 10;
/// Bytes of the file.
const FILE_BYTES: u64 = 2 << 30;
/// Bytes that are received before the first line is known.
const LINE_BYTES: usize = 2 << 10;

/// Values' place, which all connections share.
struct Medium {
    /// Length of the last value.
    value_len: AtomicUsize,
    file: Option<Arc<dyn BlockFile>>,
    /// Bytes that were written to the file so far, and that were read from it.
    written: AtomicU64,
    read: AtomicU64,
}

/// Memory of a connection, in parts that are used in turn.
struct Ring {
    parts: Vec<IoBuffer>,
    next: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("usage: plain_transfer HOST:PORT [FILE]")?;
    let options = BlockOptions { create: Some(FILE_BYTES), ..BlockOptions::default() };
    let open = |path: String| open_block_file(Path::new(&path), &options);
    let medium = Arc::new(Medium {
        value_len: AtomicUsize::new(0),
        file: arguments.next().map(open).transpose()?,
        written: AtomicU64::new(0),
        read: AtomicU64::new(0),
    });
    let listener = TcpListener::bind(&address)?;
    eprintln!("listening on {address}");
    for stream in listener.incoming() {
        let (stream, medium) = (stream?, Arc::clone(&medium));
        std::thread::spawn(move || {
            if let Err(error) = serve(stream, &medium) {
                eprintln!("a connection ends: {error}");
            }
        });
    }
    Ok(())
}

/// Answers the requests of a connection until it ends.
fn serve(mut stream: TcpStream, medium: &Medium) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut ring = Ring { parts: Vec::new(), next: 0 };
    let (mut input, mut filled) = (vec![0; LINE_BYTES], 0);
    loop {
        let Some(end) = input[..filled].windows(2).position(|two| two == b"\r\n") else {
            let received = stream.read(&mut input[filled..])?;
            if received == 0 {
                return Ok(());
            }
            filled += received;
            continue;
        };
        let line = String::from_utf8_lossy(&input[..end]).into_owned();
        let words: Vec<&str> = line.split(' ').collect();
        let mut used = end + 2;
        match words[..] {
            ["get", key] => medium.send(&mut stream, key, &mut ring)?,
            ["set", _, _, _, len] => {
                let len = len.parse().map_err(io::Error::other)?;
                used += medium.receive(&mut stream, &input[used..filled], len, &mut ring)?;
            }
            _ => return Err(io::Error::other(format!("'{line}' is not served"))),
        }
        input.copy_within(used..filled, 0);
        filled -= used;
    }
}

impl Medium {
    /// Receives a value, of which the `first` bytes have come, and its line's end. Returns how many
    /// of these bytes were used.
    fn receive(
        &self,
        stream: &mut TcpStream,
        first: &[u8],
        len: usize,
        ring: &mut Ring,
    ) -> io::Result<usize> {
        ring.be_for(len);
        let (mut at, mut used) = (0, 0);
        while at < len {
            let part = ring.take((len - at).min(PART_BYTES));
            let early = first[used..].len().min(part.len());
            part[..early].copy_from_slice(&first[used..used + early]);
            stream.read_exact(&mut part[early..])?;
            used += early;
            at += part.len();
            if let Some(file) = &self.file {
                part.set_len(part.len().next_multiple_of(ALIGNMENT));
                let offset = self.written.fetch_add(part.len() as u64, Ordering::Relaxed);
                file.write_at(place(offset, part.len()), part)?;
            }
        }
        let early = first[used..].len().min(2);
        stream.read_exact(&mut [0; 2][early..])?;
        self.value_len.store(len, Ordering::Relaxed);
        stream.write_all(b"STORED\r\n")?;
        Ok(used + early)
    }

    /// Sends a value as long as the last that was received; before the first, there is none.
    fn send(&self, stream: &mut TcpStream, key: &str, ring: &mut Ring) -> io::Result<()> {
        let len = self.value_len.load(Ordering::Relaxed);
        if len == 0 {
            return stream.write_all(b"END\r\n");
        }
        ring.be_for(len);
        let mut head = format!("VALUE {key} 0 {len}\r\n").into_bytes();
        let mut at = 0;
        while at < len {
            let part = ring.take((len - at).min(PART_BYTES));
            at += part.len();
            if let Some(file) = &self.file {
                let bytes = part.len();
                part.set_len(bytes.next_multiple_of(ALIGNMENT));
                let written = self.written.load(Ordering::Relaxed).min(FILE_BYTES);
                let offset = self.read.fetch_add(part.len() as u64, Ordering::Relaxed);
                file.read_at(place(offset % written.max(1), part.len()), part)?;
                part.set_len(bytes);
            }
            let tail: &[u8] = if at == len { b"\r\nEND\r\n" } else { b"" };
            let mut slices = [IoSlice::new(&head), IoSlice::new(part), IoSlice::new(tail)];
            let mut rest = &mut slices[..];
            while !rest.is_empty() {
                let sent = stream.write_vectored(rest)?;
                IoSlice::advance_slices(&mut rest, sent);
            }
            head.clear();
        }
        Ok(())
    }
}

/// Returns the place in the file of a part that lies at an offset of a file without an end.
fn place(offset: u64, len: usize) -> u64 {
    let at = offset % FILE_BYTES;
    if at + len as u64 <= FILE_BYTES { at } else { 0 }
}

impl Ring {
    /// Makes the parts such that a value of so many bytes fills some of them.
    fn be_for(&mut self, value_len: usize) {
        let len = value_len.next_multiple_of(ALIGNMENT).clamp(ALIGNMENT, PART_BYTES);
        if self.parts.first().is_some_and(|part| part.capacity() == len) {
            return;
        }
        let part = || {
            let mut part = IoBuffer::new(len);
            part.fill(1);
            part
        };
        self.parts = (0..RING_BYTES / len).map(|_| part()).collect();
    }

    fn take(&mut self, len: usize) -> &mut IoBuffer {
        self.next = (self.next + 1) % self.parts.len();
        let part = &mut self.parts[self.next];
        part.set_len(len);
        part
    }
}
