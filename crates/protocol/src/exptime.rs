//! Expiry times as clients write them, and their meaning.

use entresol_base::Seconds;

/// Largest number that counts from now; a larger one is a time since the Unix epoch.
const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// First number that 31 bits do not hold.
const EXPTIME_CEILING: i64 = 1 << 31;

/// Expiry time of a request: 0 is never, negative is at once, up to 30 days counts from now, and a
/// larger number is seconds since the Unix epoch. Numbers beyond 31 bits are at once too: memcached
/// reads them as negative, and clients write -1 as 4294967295.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exptime(pub i64);

/// Meaning of an [`Exptime`] at a given moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// The item never expires.
    Forever,
    /// The item has already expired.
    Over,
    /// The item lives until this moment.
    Until(Seconds),
}

impl Exptime {
    /// Meaning of this time to a server whose clock shows `now`.
    #[must_use]
    pub fn lifetime(self, now: Seconds) -> Lifetime {
        let at = match self.0 {
            0 => return Lifetime::Forever,
            ..0 => return Lifetime::Over,
            EXPTIME_CEILING.. => return Lifetime::Over,
            1..=RELATIVE_SECONDS_MAX => i64::from(now.0) + self.0,
            absolute => absolute,
        };
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        if at <= now.0 { Lifetime::Over } else { Lifetime::Until(Seconds(at)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_kinds_of_exptime() {
        const MONTH: i64 = 2_592_000;
        let now = Seconds(1_700_000_000);
        let until = |at| Lifetime::Until(Seconds(at));
        for (written, meant) in [
            (0, Lifetime::Forever),
            (-1, Lifetime::Over),
            (i64::MIN, Lifetime::Over),
            (1, until(1_700_000_001)),
            (MONTH, until(1_702_592_000)),
            (MONTH + 1, Lifetime::Over),
            (1_700_000_000, Lifetime::Over),
            (1_700_000_001, until(1_700_000_001)),
            (0x7fff_ffff, until(0x7fff_ffff)),
            (0x8000_0000, Lifetime::Over),
            (4_294_967_295, Lifetime::Over),
            (9_999_999_999, Lifetime::Over),
            (i64::MAX, Lifetime::Over),
        ] {
            assert_eq!(Exptime(written).lifetime(now), meant, "exptime {written}");
        }
    }

    #[test]
    fn the_end_of_the_clock_does_not_wrap() {
        assert_eq!(Exptime(60).lifetime(Seconds(u32::MAX - 1)), Lifetime::Until(Seconds(u32::MAX)));
        assert_eq!(Exptime(60).lifetime(Seconds(u32::MAX)), Lifetime::Over);
    }
}
