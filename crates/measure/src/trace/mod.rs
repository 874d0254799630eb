//! Traces of recorded requests: Twitter's seven columns, CSV with a header, or bare keys; plain or
//! compressed.

mod csv;
mod input;
mod sizes;
mod twitter;

use std::fmt;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::BenchError;

pub use sizes::SizeDistribution;

/// Longest line of a trace.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Longest key that the protocol carries.
const KEY_BYTES_MAX: usize = 250;

/// Operation of a recorded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read of any kind.
    Get,
    /// Unconditional store; a `cas` counts as one, since traces record no tokens.
    Set,
    /// Store if the key does not exist.
    Add,
    /// Store if the key exists.
    Replace,
    /// Append to the value.
    Append,
    /// Prepend to the value.
    Prepend,
    /// Deletion.
    Delete,
    /// Increment of a counter.
    Increment,
    /// Decrement of a counter.
    Decrement,
}

impl Operation {
    /// Parses an operation's name as Twitter and Meta write it, in any case.
    fn named(name: &str) -> Option<Operation> {
        Some(match name.to_ascii_lowercase().as_str() {
            "get" | "gets" | "get_lease" => Operation::Get,
            "set" | "cas" | "set_lease" => Operation::Set,
            "add" => Operation::Add,
            "replace" => Operation::Replace,
            "append" => Operation::Append,
            "prepend" => Operation::Prepend,
            "delete" => Operation::Delete,
            "incr" => Operation::Increment,
            "decr" => Operation::Decrement,
            _ => return None,
        })
    }
}

/// Recorded request. Its key is returned beside it, in a buffer that the caller owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRequest {
    /// Time of the request, in seconds since the trace began.
    pub at_s: u32,
    /// Operation of the request.
    pub operation: Operation,
    /// Repetitions in a row.
    pub count: u32,
    /// Size of the value, if it was recorded.
    pub value_bytes: Option<u32>,
    /// Time to live of a stored value in seconds; 0 means no expiry.
    pub ttl_s: u32,
}

/// File format of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceFormat {
    /// Timestamp, key, key size, value size, client, operation, time to live; no header.
    Twitter,
    /// Columns named by a header, as in `CacheLib`'s key-value samples.
    Csv,
    /// Keys of four bytes, most significant first, and nothing else.
    Keys,
}

impl FromStr for TraceFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "twitter" => Ok(TraceFormat::Twitter),
            "csv" => Ok(TraceFormat::Csv),
            "keys" => Ok(TraceFormat::Keys),
            _ => Err(format!("'{text}' is no trace format: write twitter, csv or keys")),
        }
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TraceFormat::Twitter => "twitter",
            TraceFormat::Csv => "csv",
            TraceFormat::Keys => "keys",
        })
    }
}

/// Reads a trace from its beginning.
pub struct TraceReader {
    path: PathBuf,
    input: Box<dyn BufRead + Send>,
    columns: Columns,
    line: Vec<u8>,
    line_number: u64,
    first_s: Option<u64>,
}

enum Columns {
    Twitter,
    Csv(csv::Header),
    Keys,
}

impl fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TraceReader {
    /// Opens a trace. Compression by zstd or xz is recognised by the first bytes.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not of this format.
    pub fn open(path: &Path, format: TraceFormat) -> Result<TraceReader, BenchError> {
        let input = input::open(path)?;
        let mut reader = TraceReader {
            path: path.to_owned(),
            input,
            columns: Columns::Keys,
            line: Vec::new(),
            line_number: 0,
            first_s: None,
        };
        reader.columns = match format {
            TraceFormat::Twitter => Columns::Twitter,
            TraceFormat::Keys => Columns::Keys,
            TraceFormat::Csv => {
                reader.read_line()?;
                let header = csv::Header::parse(text_of(&reader.line));
                Columns::Csv(header.map_err(|problem| reader.problem(&problem))?)
            }
        };
        Ok(reader)
    }

    /// Returns the next request, or `None` at the end; its key replaces the content of `key`.
    ///
    /// # Errors
    /// Fails if the file cannot be read further or a line is not of the format.
    pub fn next(&mut self, key: &mut Vec<u8>) -> Result<Option<TraceRequest>, BenchError> {
        if matches!(self.columns, Columns::Keys) {
            return self.next_bare_key(key);
        }
        if !self.read_line()? {
            return Ok(None);
        }
        let line = text_of(&self.line);
        let record = match &self.columns {
            Columns::Csv(header) => header.record(line),
            Columns::Twitter | Columns::Keys => twitter::parse(line),
        };
        match record {
            Ok(record) => {
                fit_key(record.key, record.key_bytes, key);
                let first_s = *self.first_s.get_or_insert(record.at_s);
                let at_s = u32::try_from(record.at_s.saturating_sub(first_s)).unwrap_or(u32::MAX);
                Ok(Some(TraceRequest {
                    at_s,
                    operation: record.operation,
                    count: record.count,
                    value_bytes: record.value_bytes,
                    ttl_s: record.ttl_s,
                }))
            }
            Err(problem) => Err(self.problem(&problem)),
        }
    }

    fn next_bare_key(&mut self, key: &mut Vec<u8>) -> Result<Option<TraceRequest>, BenchError> {
        let mut number = [0; 4];
        let mut filled = 0;
        while filled < number.len() {
            match self.input.read(&mut number[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(self.problem("its length is no multiple of 4 bytes")),
                Ok(read) => filled += read,
                Err(source) => return Err(self.unreadable(source)),
            }
        }
        self.line_number += 1;
        let text = format!("{:010}", u32::from_be_bytes(number));
        fit_key(&text, 16, key);
        let operation = Operation::Get;
        Ok(Some(TraceRequest { at_s: 0, operation, count: 1, value_bytes: None, ttl_s: 0 }))
    }

    /// Reads the next line that is not empty. Returns false at the end.
    fn read_line(&mut self) -> Result<bool, BenchError> {
        loop {
            self.line.clear();
            let mut limited = (&mut self.input).take(LINE_BYTES_MAX);
            let read = match limited.read_until(b'\n', &mut self.line) {
                Ok(read) => read,
                Err(source) => return Err(self.unreadable(source)),
            };
            self.line_number += 1;
            if read as u64 == LINE_BYTES_MAX {
                return Err(self.problem("the line is longer than 64 KiB: is this text?"));
            }
            if read == 0 || !self.line.trim_ascii().is_empty() {
                return Ok(read != 0);
            }
        }
    }

    fn problem(&self, problem: &str) -> BenchError {
        BenchError::Format {
            path: self.path.clone(),
            problem: format!("line {}: {problem}", self.line_number),
        }
    }

    fn unreadable(&self, source: std::io::Error) -> BenchError {
        BenchError::File { path: self.path.clone(), source }
    }
}

/// Parsed line; its key is borrowed from the line.
#[derive(Debug, PartialEq, Eq)]
struct Record<'a> {
    at_s: u64,
    key: &'a str,
    key_bytes: usize,
    operation: Operation,
    count: u32,
    value_bytes: Option<u32>,
    ttl_s: u32,
}

/// Returns the line as text. Bytes that are not UTF-8 become `(not text)`, which the parsers
/// reject.
fn text_of(line: &[u8]) -> &str {
    std::str::from_utf8(line.trim_ascii()).unwrap_or("(not text)")
}

/// Makes a key that the protocol accepts: without blanks and control characters, at most 250 bytes.
/// A key is padded to the size recorded, since anonymised keys are shorter than the real ones.
fn fit_key(key: &str, key_bytes: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend(key.bytes().map(|b| if b.is_ascii_graphic() { b } else { b'_' }));
    if out.len() > KEY_BYTES_MAX {
        // Two long keys may differ anywhere; a hash of the whole key replaces the end.
        let hash = entresol_base::hash::KeyHasher::seeded(0).hash(key.as_bytes());
        out.truncate(KEY_BYTES_MAX - 16);
        out.extend_from_slice(format!("{hash:016x}").as_bytes());
    }
    if out.is_empty() {
        out.push(b'_');
    }
    let wanted = key_bytes.min(KEY_BYTES_MAX);
    if out.len() < wanted {
        out.resize(wanted, b'_');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_fit_and_stay_apart() {
        let fit = |key: &str, bytes| {
            let mut out = Vec::new();
            fit_key(key, bytes, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(fit("ab c", 6), "ab_c__");
        assert_eq!(fit("abcdef", 3), "abcdef");
        assert_eq!(fit("", 0), "_");
        let (long, other) = ("x".repeat(400), "x".repeat(399) + "y");
        assert_eq!(fit(&long, 0).len(), 250);
        assert_ne!(fit(&long, 0), fit(&other, 0));
    }
}
