//! Byte sizes as people write them: `64MiB`, `1g`, `4096`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes. `k`, `m`, `g` and `t` are powers of 1024, with or without `iB` behind. `MB`
/// is refused: drives are sold by powers of 1000, and memory is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Size of `n` KiB.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        ByteSize(n << 10)
    }

    /// Size of `n` MiB.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        ByteSize(n << 20)
    }

    /// Size of `n` GiB.
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        ByteSize(n << 30)
    }
}

/// Error of a text that is not a byte size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseSizeError {
    /// The text is not a number with a unit.
    #[error(
        "'{text}' is not a size: write a whole number of bytes, \
         or one with KiB, MiB, GiB or TiB behind (64MiB)"
    )]
    Malformed {
        /// As it was written.
        text: String,
    },
    /// Its unit means powers of 1000 to some and powers of 1024 to others.
    #[error("'{text}' may mean powers of 1000 or of 1024: write {instead}, or a number of bytes")]
    Ambiguous {
        /// As it was written.
        text: String,
        /// The number with the unit of 1024.
        instead: String,
    },
}

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseSizeError::Malformed { text: text.to_owned() };
        let trimmed = text.trim();
        let digits_end =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(trimmed.len());
        let (digits, unit) = trimmed.split_at(digits_end);
        let number: u64 = digits.replace('_', "").parse().map_err(|_| error())?;
        let ambiguous = |unit: &str| {
            let (text, instead) = (text.to_owned(), format!("{digits}{unit}"));
            Err(ParseSizeError::Ambiguous { text, instead })
        };
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            "t" | "tib" => 40,
            "kb" => return ambiguous("KiB"),
            "mb" => return ambiguous("MiB"),
            "gb" => return ambiguous("GiB"),
            "tb" => return ambiguous("TiB"),
            _ => return Err(error()),
        };
        number.checked_mul(1 << shift).map(ByteSize).ok_or_else(error)
    }
}

impl fmt::Display for ByteSize {
    /// Prints the largest unit that divides the size exactly, so that printing loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 != 0 && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(bytes) => Ok(ByteSize(bytes)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, bytes: u64) {
        assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
    }

    #[test]
    fn sizes_as_people_write_them() {
        check("0", 0);
        check("4096", 4096);
        check("1k", 1024);
        check("64MiB", 64 << 20);
        check("64 mib", 64 << 20);
        check("1_000", 1000);
        check("2G", 2 << 30);
        check("1TiB", 1 << 40);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "MiB", "12 parsecs", "-1", "1.5G", "99999999999T"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_unit_of_two_meanings_is_refused_with_the_one_that_is_meant() {
        for (text, instead) in [("64MB", "64MiB"), ("1 gb", "1GiB"), ("8kB", "8KiB")] {
            let said = text.parse::<ByteSize>().expect_err(text).to_string();
            assert!(said.contains(&format!("write {instead},")), "{said}");
        }
    }

    #[test]
    fn printing_loses_nothing() {
        for bytes in [0, 1, 1023, 1024, 1536, 64 << 20, (1 << 30) + 1] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
        assert_eq!(ByteSize::mib(64).to_string(), "64MiB");
    }
}
