//! Requests for lists of keys: `lru_crawler metadump` and `mgdump`.

use entresol_protocol::encode;

/// Number of the class that all items are in.
const CLASS: u32 = 1;
/// Number of classes that memcached numbers: 1 to 63.
const CLASSES_END: u32 = 64;

/// Form of a list of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A line of metadata for each item.
    Metadump,
    /// The `mg` request for each item.
    Mgdump,
}

/// List of keys that a client has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Form of each key's line.
    pub(crate) form: Form,
    /// True if the classes that were named have items.
    pub(crate) has_items: bool,
}

impl Listing {
    /// Parses the words behind `lru_crawler`.
    ///
    /// # Errors
    /// The reply to anything else.
    pub(crate) fn of(argument: &[u8]) -> Result<Listing, &'static [u8]> {
        let mut words = argument.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let form = match words.next() {
            Some(b"metadump") => Form::Metadump,
            Some(b"mgdump") => Form::Mgdump,
            _ => return Err(encode::ERROR),
        };
        let has_items = match words.next() {
            None => return Err(encode::ERROR),
            Some(b"all" | b"hash") => true,
            Some(classes) => has_class(classes).ok_or(encode::BAD_CLASS)?,
        };
        Ok(Listing { form, has_items })
    }

    /// Returns the line behind the last key.
    pub(crate) fn end(self) -> &'static [u8] {
        match self.form {
            Form::Metadump => encode::END,
            Form::Mgdump => encode::META_END,
        }
    }
}

/// Returns whether a list such as `1,2,3` names the class of the items; `None` if it is none.
fn has_class(list: &[u8]) -> Option<bool> {
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u32>().ok();
    let numbers: Option<Vec<u32>> = list.split(|byte| *byte == b',').map(number).collect();
    let numbers = numbers.filter(|all| all.iter().all(|class| (1..CLASSES_END).contains(class)))?;
    Some(numbers.contains(&CLASS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_checked_as_memcached_checks_them() {
        let all = |has_items| Ok(Listing { form: Form::Metadump, has_items });
        for (argument, expected) in [
            ("metadump all", all(true)),
            ("metadump hash", all(true)),
            ("metadump 2,1", all(true)),
            ("metadump 2,63", all(false)),
            ("metadump 0", Err(encode::BAD_CLASS)),
            ("metadump 64", Err(encode::BAD_CLASS)),
            ("metadump 1,", Err(encode::BAD_CLASS)),
            ("metadump x", Err(encode::BAD_CLASS)),
            ("metadump", Err(encode::ERROR)),
            ("mgdump", Err(encode::ERROR)),
            ("enable", Err(encode::ERROR)),
            ("", Err(encode::ERROR)),
        ] {
            assert_eq!(Listing::of(argument.as_bytes()), expected, "{argument}");
        }
        let listing = Listing { form: Form::Mgdump, has_items: true };
        assert_eq!(Listing::of(b"mgdump  all"), Ok(listing));
    }
}
