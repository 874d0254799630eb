//! Words of commands that messages advise to run.

use std::fmt::Display;

/// Writes a path as one word of a shell's command, which is not taken for a flag.
pub(crate) fn quoted(path: &impl Display) -> String {
    let mut text = path.to_string();
    if text.starts_with('-') {
        text.insert_str(0, "./");
    }
    // Only a NUL cannot be quoted, and no path has one.
    shlex::try_quote(&text).map_or_else(|_| text.clone(), |word| word.into_owned())
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_path_is_one_word() {
        for path in ["plain/path-1.2", "two words", "it's", "$HOME", "~", "a;b", "*", "тест", ""]
        {
            let word = quoted(&path);
            assert_eq!(shlex::split(&word), Some(vec![path.to_owned()]), "{word}");
        }
        assert_eq!(quoted(&"plain/path-1.2"), "plain/path-1.2");
        assert_eq!(quoted(&"-dash"), "./-dash");
    }
}
