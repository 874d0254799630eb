//! Traces of fixed binary records: bare keys of 4 or 8 bytes, and libCacheSim's oracleGeneral.

use super::{Operation, TraceRequest};

/// Layout of a binary trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A key of so many bytes, most significant byte first.
    Keys(usize),
    /// `u32` time in seconds, `u64` key, `u32` size of the value, `i64` number of the next request
    /// for the key or -1, all least significant byte first.
    OracleGeneral,
}

/// Longest record.
pub(super) const RECORD_BYTES_MAX: usize = 24;
/// Bytes at the beginning of a file by which it is judged.
pub(super) const JUDGED_BYTES: usize = 4096;

/// Beginnings of files that are never traces.
const FOREIGN: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", "packed by gzip: unpack it, or pack it with zstd or xz"),
    (b"BZh", "packed by bzip2: unpack it, or pack it with zstd or xz"),
    (b"PK\x03\x04", "a zip archive: unpack it"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3", "a database"),
    (b"\x89PNG", "a picture"),
];

impl Layout {
    pub(super) fn record_bytes(self) -> usize {
        match self {
            Layout::Keys(bytes) => bytes,
            Layout::OracleGeneral => RECORD_BYTES_MAX,
        }
    }

    /// Refuses a file that begins like something else.
    pub(super) fn judge(self, beginning: &[u8]) -> Result<(), String> {
        if let Some((_, what)) = FOREIGN.iter().find(|(magic, _)| beginning.starts_with(magic)) {
            return Err(format!("this is {what}"));
        }
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        if beginning.len() >= self.record_bytes() && beginning.iter().all(is_text) {
            return Err("this is text: write --format csv or twitter".to_owned());
        }
        if matches!(self, Layout::Keys(_)) && looks_like_oracle_general(beginning) {
            return Err(
                "this looks like libCacheSim's records: write --format oracle-general".into()
            );
        }
        Ok(())
    }

    /// Takes a record apart; its key replaces the content of `key`.
    pub(super) fn parse(self, record: &[u8], key: &mut String) -> Result<TraceRequest, String> {
        key.clear();
        let mut request = TraceRequest {
            at_s: 0,
            operation: Operation::Get,
            count: 1,
            value_bytes: None,
            ttl_s: 0,
        };
        match self {
            Layout::Keys(4) => *key = format!("{:010}", number(record)),
            Layout::Keys(_) => *key = format!("{:016x}", number(record)),
            Layout::OracleGeneral => {
                let oracle = Oracle::of(record);
                if oracle.bytes == 0 {
                    return Err("a size of 0".to_owned());
                }
                if oracle.next < -1 {
                    return Err(format!("{} is no number of a next request", oracle.next));
                }
                *key = format!("{:016x}", oracle.key);
                request.at_s = oracle.at_s;
                request.value_bytes = Some(oracle.bytes);
            }
        }
        Ok(request)
    }
}

/// Fields of one oracleGeneral record.
struct Oracle {
    at_s: u32,
    key: u64,
    bytes: u32,
    next: i64,
}

impl Oracle {
    fn of(record: &[u8]) -> Oracle {
        let field = |from: usize, bytes: usize| {
            record[from..from + bytes].iter().rev().fold(0, |sum, &b| sum << 8 | u64::from(b))
        };
        Oracle {
            at_s: field(0, 4) as u32,
            key: field(4, 8),
            bytes: field(12, 4) as u32,
            next: field(16, 8) as i64,
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// True if the times of ten records and more do not fall, sizes are positive, and each next request
/// lies behind its own.
fn looks_like_oracle_general(beginning: &[u8]) -> bool {
    let records: Vec<Oracle> = beginning.chunks_exact(RECORD_BYTES_MAX).map(Oracle::of).collect();
    records.len() >= 10
        && records.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s)
        && records
            .iter()
            .enumerate()
            .all(|(at, it)| it.bytes > 0 && (it.next == -1 || it.next > at as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oracle(at_s: u32, key: u64, bytes: u32, next: i64) -> Vec<u8> {
        let mut record = at_s.to_le_bytes().to_vec();
        record.extend_from_slice(&key.to_le_bytes());
        record.extend_from_slice(&bytes.to_le_bytes());
        record.extend_from_slice(&next.to_le_bytes());
        record
    }

    #[test]
    fn records_are_taken_apart() {
        let mut key = String::new();
        let read = Layout::OracleGeneral.parse(&oracle(7, 12, 99, -1), &mut key).unwrap();
        assert_eq!((read.at_s, read.value_bytes, key.as_str()), (7, Some(99), "000000000000000c"));
        Layout::Keys(4).parse(&[0, 0, 1, 2], &mut key).unwrap();
        assert_eq!(key, "0000000258");
        Layout::Keys(8).parse(&[0, 0, 0, 1, 0, 0, 0, 0], &mut key).unwrap();
        assert_eq!(key, "0000000100000000");
        for wrong in [oracle(7, 12, 0, -1), oracle(7, 12, 5, -2)] {
            assert!(Layout::OracleGeneral.parse(&wrong, &mut key).is_err());
        }
    }

    #[test]
    fn foreign_files_are_refused_by_their_beginning() {
        let records =
            (0..20).flat_map(|at| oracle(at, 5, 10, i64::from(at) + 1)).collect::<Vec<_>>();
        for (layout, beginning, problem) in [
            (Layout::Keys(4), &b"key,size\na,5\n"[..], "text"),
            (Layout::Keys(8), b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "gzip"),
            (Layout::OracleGeneral, b"1,a,2,3,4,get,0\n1,a,2,3,4,get,0\n", "text"),
            (Layout::Keys(4), &records, "oracle-general"),
        ] {
            let error = layout.judge(beginning).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
        assert_eq!(Layout::OracleGeneral.judge(&records), Ok(()));
        assert_eq!(Layout::Keys(4).judge(&[0, 0, 1, 2, 0, 0, 1, 3]), Ok(()));
    }
}
