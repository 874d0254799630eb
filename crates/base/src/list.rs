//! Lists that are printed: of like lines ten, and how many more there are.

use std::collections::HashMap;
use std::hash::Hash;

/// The most lines of one kind that are printed.
pub const LIKE_LINES_MAX: usize = 10;

/// The first ten, and `and N more` if there are more.
pub fn shortened<T: ToString>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    shortened_by(items, |_| ())
}

/// The first ten of each kind, in their order; behind the last line of a kind that has more stands
/// `and N more`.
pub fn shortened_by<T: ToString, K: Eq + Hash>(
    items: impl IntoIterator<Item = T>,
    kind: impl Fn(&T) -> K,
) -> Vec<String> {
    let mut lines = Vec::new();
    // Of each kind: how many there are, and where the last of its printed lines stands.
    let mut kinds: HashMap<K, (usize, usize)> = HashMap::new();
    for item in items {
        let (count, last) = kinds.entry(kind(&item)).or_default();
        *count += 1;
        if *count <= LIKE_LINES_MAX {
            *last = lines.len();
            lines.push(item.to_string());
        }
    }
    let mut cut: Vec<_> =
        kinds.into_values().filter(|(count, _)| *count > LIKE_LINES_MAX).collect();
    cut.sort_by_key(|(_, last)| std::cmp::Reverse(*last));
    for (count, last) in cut {
        lines.insert(last + 1, format!("and {} more", count - LIKE_LINES_MAX));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_lines_are_cut_after_ten_and_others_are_not() {
        assert_eq!(shortened(["a", "b"]), ["a", "b"]);
        assert_eq!(shortened(0..10).len(), 10);
        let lines = shortened(0..12);
        assert_eq!((lines.len(), lines[9].as_str(), lines[10].as_str()), (11, "9", "and 2 more"));
        let lines = shortened_by((0..40).chain([100]), |number| number % 3 + number / 100 * 10);
        assert_eq!(lines.len(), 30 + 3 + 1);
        assert_eq!(lines.iter().filter(|line| *line == "and 3 more").count(), 2);
        assert_eq!(lines.last().map(String::as_str), Some("100"));
        assert_eq!(lines[27..30], ["27", "and 4 more", "28"]);
    }
}
