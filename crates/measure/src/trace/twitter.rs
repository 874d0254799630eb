//! Lines of Twitter's traces: `timestamp,key,key size,value size,client,operation,ttl`.

use super::{Operation, Record};

/// Parses a line. Keys may contain commas; the last five columns are therefore split off from the
/// end.
pub(super) fn parse(line: &str) -> Result<Record<'_>, String> {
    let (at, rest) = line.split_once(',').ok_or_else(|| columns_missing(line))?;
    let mut last = rest.rsplitn(6, ',');
    let mut column = || last.next().ok_or_else(|| columns_missing(line));
    let (ttl, operation, _client) = (column()?, column()?, column()?);
    let (value_bytes, key_bytes, key) = (column()?, column()?, column()?);
    Ok(Record {
        at_s: number(at, "timestamp")?,
        key,
        key_bytes: number(key_bytes, "key size")?,
        operation: Operation::named(operation)
            .ok_or_else(|| format!("'{operation}' is no operation of Twitter's traces"))?,
        count: 1,
        value_bytes: Some(number(value_bytes, "value size")?),
        ttl_s: number(ttl, "time to live")?,
    })
}

fn columns_missing(line: &str) -> String {
    let found = line.split(',').count();
    format!(
        "7 columns are wanted (time,key,key size,value size,client,operation,ttl), found {found}"
    )
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("the {what} '{text}' is no whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_commas_in_its_key() {
        let record = parse("17,ns:a,b:9,44,1030,37,cas,300").unwrap();
        assert_eq!(
            record,
            Record {
                at_s: 17,
                key: "ns:a,b:9",
                key_bytes: 44,
                operation: Operation::Set,
                count: 1,
                value_bytes: Some(1030),
                ttl_s: 300
            }
        );
    }

    #[test]
    fn wrong_lines_name_what_is_wrong() {
        for (line, word) in [
            ("0,k,1,2,3,get", "found 6"),
            ("x,k,1,2,3,get,0", "timestamp"),
            ("0,k,1,-2,3,get,0", "value size"),
            ("0,k,1,2,3,peek,0", "'peek'"),
            ("0,k,1,2,3,get,soon", "time to live"),
        ] {
            let problem = parse(line).unwrap_err();
            assert!(problem.contains(word), "{line}: {problem}");
        }
    }
}
