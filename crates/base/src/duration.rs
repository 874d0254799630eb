//! Durations as people write them: `250ms`, `2.5s`, `5m`.

use std::time::Duration;

/// Error of a text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a duration: write a number with ns, us, ms, s, m or h behind (250ms, 2.5s)"
)]
pub struct ParseDurationError {
    text: String,
}

/// Reads `250ms`, `2.5s`, `5m`, `1h`, `20us`, `100ns`. Only zero needs no unit: of any other number
/// seconds and milliseconds may be meant.
///
/// # Errors
/// When the text is no number with a unit of the list, has a fraction of a nanosecond, or is too
/// long a time for 64 bits of nanoseconds.
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    nanos(text.trim())
        .map(Duration::from_nanos)
        .ok_or_else(|| ParseDurationError { text: text.to_owned() })
}

fn nanos(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let unit_ns: u64 = match unit.trim() {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" if number == "0" => 1,
        _ => return None,
    };
    // Whole numbers throughout, so that no binary fraction rounds what was written.
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let parts = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit_ns);
    if !parts.is_multiple_of(u128::from(scale)) {
        return None;
    }
    let parts = u64::try_from(parts / u128::from(scale)).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(unit_ns)?.checked_add(parts)
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
        assert_eq!(parse("2.5ms"), Ok(Duration::from_micros(2500)));
        assert_eq!(parse("0.1s"), Ok(Duration::from_millis(100)));
        assert_eq!(parse("1.000000001s"), Ok(Duration::from_nanos(1_000_000_001)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("2 h"), Ok(Duration::from_secs(7200)));
        for text in ["", "s", "10", ".5s", "1.s", "1.2.3s", "-1s", "3 fortnights", "1M", "1e3s"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["2.5ns", "99999999999h", "0.00000000000000000000001s"] {
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
