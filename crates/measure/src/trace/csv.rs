//! CSV with a header that names the columns, in any order, like `CacheLib`'s key-value samples.

use super::{Operation, Record};

/// Positions of the columns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    text: String,
    key: usize,
    time: Option<usize>,
    key_size: Option<usize>,
    operation: Option<usize>,
    count: Option<usize>,
    size: Option<usize>,
    ttl: Option<usize>,
}

impl Header {
    /// Parses the first line. Only the column `key` is required; unknown columns are skipped.
    pub(super) fn parse(line: &str) -> Result<Header, String> {
        let names: Vec<String> =
            line.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
        let find = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
        let key = find(&["key"]).ok_or_else(|| {
            format!("the header has no column 'key' (found: {})", names.join(", "))
        })?;
        Ok(Header {
            text: line.to_owned(),
            key,
            time: find(&["op_time", "time", "timestamp"]),
            key_size: find(&["key_size"]),
            operation: find(&["op", "operation"]),
            count: find(&["op_count", "count"]),
            size: find(&["size", "value_size"]),
            ttl: find(&["ttl"]),
        })
    }

    /// Parses a line. A size of 0 means that the size is unknown, since a recorded miss has none.
    pub(super) fn record<'a>(&self, line: &'a str) -> Result<Record<'a>, String> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let wanted = self.text.split(',').count();
        if fields.len() != wanted {
            return Err(format!("{wanted} columns are wanted, found {}", fields.len()));
        }
        let number = |column: Option<usize>, otherwise: u64| match column {
            None => Ok(otherwise),
            Some(at) if fields[at].is_empty() => Ok(otherwise),
            Some(at) => fields[at]
                .parse::<u64>()
                .map_err(|_| format!("column {}: '{}' is no whole number", at + 1, fields[at])),
        };
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let operation = self.operation.map_or("get", |at| fields[at]);
        let size = small(number(self.size, 0)?);
        Ok(Record {
            at_s: number(self.time, 0)?,
            key: fields[self.key],
            key_bytes: number(self.key_size, 0)? as usize,
            operation: Operation::named(operation)
                .ok_or_else(|| format!("'{operation}' is no operation that is known here"))?,
            count: small(number(self.count, 1)?),
            value_bytes: (size > 0).then_some(size),
            ttl_s: small(number(self.ttl, 0)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let header = Header::parse("op_time,key,key_size,op,op_count,size,hits,ttl").unwrap();
        let record = header.record("604038471,82131353,48,GET_LEASE,3,87,1,60").unwrap();
        assert_eq!((record.key, record.key_bytes, record.count), ("82131353", 48, 3));
        assert_eq!((record.operation, record.value_bytes), (Operation::Get, Some(87)));
        let other = Header::parse("ttl,op,key").unwrap();
        let record = other.record("60,SET,k").unwrap();
        assert_eq!((record.ttl_s, record.operation), (60, Operation::Set));
        assert_eq!((record.value_bytes, record.count), (None, 1));
    }

    #[test]
    fn wrong_files_name_what_is_wrong() {
        assert!(Header::parse("op,size").unwrap_err().contains("no column 'key'"));
        let header = Header::parse("key,size").unwrap();
        assert!(header.record("k").unwrap_err().contains("found 1"));
        assert!(header.record("k,big").unwrap_err().contains("column 2: 'big'"));
    }
}
