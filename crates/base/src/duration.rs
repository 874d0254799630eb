//! Durations as people write them: `250ms`, `10s`, `5m`.

use std::time::Duration;

/// Error of a text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a duration: write a whole number with ns, us, ms, s, m or h behind (250ms)"
)]
pub struct ParseDurationError {
    text: String,
}

/// Parses `250ms`, `10s`, `5m`, `1h`, `20us`, `100ns`; a bare number is seconds.
///
/// # Errors
/// When the text is not a whole number with one of these units, or exceeds 64 bits of nanoseconds.
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    let error = || ParseDurationError { text: text.to_owned() };
    let trimmed = text.trim();
    let digits_end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (digits, unit) = trimmed.split_at(digits_end);
    let number: u64 = digits.parse().map_err(|_| error())?;
    let unit_ns = match unit.trim() {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" | "" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(error()),
    };
    number.checked_mul(unit_ns).map(Duration::from_nanos).ok_or_else(error)
}

/// Prints the largest unit that divides the duration exactly, so that printing loses nothing.
#[must_use]
pub fn format(duration: Duration) -> String {
    let ns = duration.as_nanos();
    let units = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    for (unit_ns, unit) in units {
        if ns != 0 && ns.is_multiple_of(unit_ns) {
            return format!("{}{unit}", ns / unit_ns);
        }
    }
    format!("{ns}ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("2 h"), Ok(Duration::from_secs(7200)));
        for text in ["", "s", "1.5s", "-1s", "3 fortnights", "99999999999h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn printing_loses_nothing() {
        for ns in [0, 1, 1500, 1_000_000, 90_000_000_000, 3_600_000_000_000] {
            let duration = Duration::from_nanos(ns);
            assert_eq!(parse(&format(duration)), Ok(duration));
        }
    }
}
