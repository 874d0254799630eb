//! Tolerances of checks, in one form for parsing and printing.

use std::fmt;
use std::str::FromStr;

/// Grace on bounds, as a share of the limit.
const BOUND_GRACE: f64 = 0.05;
/// Largest relative difference at which a cell of a table is near.
pub(super) const CELL_NEAR: f64 = 0.10;
/// Largest relative difference that any cell may have.
const CELL_FAR: f64 = 0.25;

/// Rule by which a check is judged. A result better than the paper's passes only a bound or a count
/// «or fewer».
#[derive(Debug, Clone, PartialEq)]
pub enum Tolerance {
    /// Cell of a table: within 25%. A separate check demands that nine in ten are within 10%.
    Cell,
    /// Within this many per cent of the paper's number.
    About(f64),
    /// At most this many per cent above the paper's number.
    OrFewer(f64),
    /// Bound, with 5% grace or without.
    Bound(Side, f64, Grace),
    /// Range, both ends included.
    Within(f64, f64),
    /// Statement in words, which the entry judges, with the slack that its comparison allows.
    Shape(Option<String>),
    /// Number printed beside the paper's and never judged.
    Report,
}

/// Side of a limit on which the result must lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// At or below the limit.
    AtMost,
    /// At or above the limit.
    AtLeast,
    /// Strictly below the limit.
    Below,
    /// Strictly above the limit.
    Above,
}

/// Grace of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// 5% of the limit.
    Some,
    /// The limit holds as it is.
    None,
}

impl Tolerance {
    /// Returns the distance by which `ours` exceeds the tolerance, 0 if it is within. Returns
    /// `None` if the check is judged in words or not at all.
    #[must_use]
    pub fn beyond(&self, paper: Option<f64>, ours: f64) -> Option<f64> {
        let off = |percent: f64| {
            let paper = paper.unwrap_or(f64::NAN);
            Some((ours / paper - 1.0).abs() - percent / 100.0)
        };
        let over = match self {
            Tolerance::Cell => off(CELL_FAR * 100.0),
            Tolerance::About(percent) => off(*percent),
            Tolerance::OrFewer(percent) => {
                Some(ours - paper.unwrap_or(f64::NAN) * (1.0 + percent / 100.0))
            }
            Tolerance::Bound(side, limit, grace) => {
                let grace = limit.abs() * if *grace == Grace::Some { BOUND_GRACE } else { 0.0 };
                Some(match side {
                    Side::AtMost | Side::Below => ours - limit - grace,
                    Side::AtLeast | Side::Above => limit - grace - ours,
                })
            }
            Tolerance::Within(low, high) => Some((low - ours).max(ours - high)),
            Tolerance::Shape(_) | Tolerance::Report => None,
        }?;
        // NaN exceeds every tolerance.
        let over = if ours.is_nan() || over.is_nan() { f64::INFINITY } else { over };
        Some(over.max(0.0))
    }

    /// Returns whether a number is within the tolerance, or `None` if the check is judged in words
    /// or not at all.
    pub(super) fn allows(&self, paper: Option<f64>, ours: f64) -> Option<bool> {
        let beyond = self.beyond(paper, ours)?;
        let is_off_limit = match self {
            Tolerance::Bound(Side::Below | Side::Above, limit, Grace::None) => ours != *limit,
            _ => true,
        };
        Some(beyond == 0.0 && is_off_limit)
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tolerance::Cell => f.write_str("cell"),
            Tolerance::About(percent) => write!(f, "about {percent}%"),
            Tolerance::OrFewer(percent) => write!(f, "{percent}% or fewer"),
            Tolerance::Bound(side, limit, grace) => {
                let grace = if *grace == Grace::Some { ", 5% grace" } else { "" };
                write!(f, "{} {limit}{grace}", side.words())
            }
            Tolerance::Within(low, high) => write!(f, "{low} to {high}"),
            Tolerance::Shape(None) => f.write_str("exact"),
            Tolerance::Shape(Some(slack)) => write!(f, "exact but for {slack}"),
            Tolerance::Report => f.write_str("report"),
        }
    }
}

impl Side {
    const ALL: [Side; 4] = [Side::AtMost, Side::AtLeast, Side::Below, Side::Above];

    const fn words(self) -> &'static str {
        match self {
            Side::AtMost => "at most",
            Side::AtLeast => "at least",
            Side::Below => "below",
            Side::Above => "above",
        }
    }
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Tolerance, String> {
        let known = match text {
            "cell" => Some(Tolerance::Cell),
            "exact" => Some(Tolerance::Shape(None)),
            "report" => Some(Tolerance::Report),
            _ => None,
        };
        let slack = || text.strip_prefix("exact but for ").map(str::to_owned);
        let bound = || {
            let (side, rest) = Side::ALL.into_iter().find_map(|side| {
                text.strip_prefix(side.words()).map(|rest| (side, rest.trim_start()))
            })?;
            let (limit, grace) = match rest.strip_suffix(", 5% grace") {
                Some(limit) => (limit, Grace::Some),
                None => (rest, Grace::None),
            };
            limit.parse().ok().map(|limit| Tolerance::Bound(side, limit, grace))
        };
        let about = || text.strip_prefix("about ")?.strip_suffix('%')?.parse().ok();
        let fewer = || text.strip_suffix("% or fewer")?.parse().ok();
        let within = || {
            let (low, high) = text.split_once(" to ")?;
            Some(Tolerance::Within(low.parse().ok()?, high.parse().ok()?))
        };
        let found = known
            .or_else(|| slack().map(|slack| Tolerance::Shape(Some(slack))))
            .or_else(bound)
            .or_else(|| about().map(Tolerance::About))
            .or_else(|| fewer().map(Tolerance::OrFewer))
            .or_else(within);
        found.ok_or_else(|| format!("'{text}' is no tolerance"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tolerance {
        text.parse().expect("a tolerance")
    }

    #[test]
    fn what_is_printed_is_read_again() {
        for text in [
            "cell",
            "about 15%",
            "4% or fewer",
            "at most 12, 5% grace",
            "at least 0.95",
            "below 1.05",
            "above 1",
            "0.28 to 0.42",
            "exact",
            "exact but for 0.1% a step",
            "report",
        ] {
            assert_eq!(read(text).to_string(), text);
        }
        for text in ["", "about", "at most", "12%", "roughly 5%", "1 to"] {
            assert!(text.parse::<Tolerance>().is_err(), "{text}");
        }
    }

    #[test]
    fn edges_are_kept() {
        let allows = |text: &str, ours| read(text).allows(Some(100.0), ours).expect("judged");
        for (text, within, beyond) in [
            ("cell", 125.0, 126.0),
            ("about 15%", 85.1, 84.9),
            ("2% or fewer", 102.0, 102.1),
            ("2% or fewer", 3.0, 103.0),
            ("at most 100, 5% grace", 104.9, 105.1),
            ("at least 100, 5% grace", 95.1, 94.9),
            ("at most 100", 100.0, 100.01),
            ("at least 100", 100.0, 99.99),
            ("below 100", 99.99, 100.0),
            ("above 100", 100.01, 100.0),
            ("1 to 2", 2.0, 2.01),
            ("1 to 2", 1.0, f64::NAN),
            ("at most 1", 0.5, f64::INFINITY),
        ] {
            assert!(allows(text, within) && !allows(text, beyond), "{text}");
        }
        assert_eq!(read("exact").allows(Some(1.0), 1.0), None);
        assert_eq!(read("report").allows(Some(1.0), 1.0), None);
    }

    #[test]
    fn farther_beyond_is_more() {
        let beyond = |text: &str, ours| read(text).beyond(Some(10.0), ours).expect("a number");
        assert_eq!(beyond("at least 2", 2.5), 0.0);
        assert!(beyond("at least 2", 1.5) > beyond("at least 2", 1.9));
        assert!(beyond("about 30%", 157.0) > beyond("about 30%", 21.0));
        assert!(beyond("0.28 to 0.42", 0.6) > beyond("0.28 to 0.42", 0.44));
        assert_eq!(beyond("at most 2", f64::NAN), f64::INFINITY);
    }
}
