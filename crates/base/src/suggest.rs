//! «Did you mean»: the nearest valid name to a misspelt one.

/// Candidate with the fewest edits to `name`, if it is near enough to be what the user meant.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 2).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::levenshtein(name, candidate), candidate))
        .min()
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, candidate)| candidate)
}

/// Message for a name that is not among the candidates: `no such KIND; there are A, B; did you mean
/// A?`
#[must_use]
pub fn unknown(kind: &str, name: &str, candidates: &[&str]) -> String {
    let near = nearest(name, candidates.iter().copied());
    let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    format!("no such {kind}; there are {}{near}", candidates.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(nearest("medum", ["medium", "eviction"]), Some("medium"));
        assert_eq!(nearest("dram_qouta", ["dram_quota", "medium_quota"]), Some("dram_quota"));
        assert_eq!(nearest("xyzzy", ["medium", "eviction"]), None);
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_and_the_nearest() {
        let names = ["tree", "log"];
        assert_eq!(
            unknown("toy", "tee", &names),
            "no such toy; there are tree, log; did you mean tree?"
        );
        assert_eq!(unknown("toy", "xyzzy", &names), "no such toy; there are tree, log");
    }
}
