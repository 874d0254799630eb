//! The few fields of an X.509 certificate that the server needs itself: its validity and its
//! holder's name. Signatures, chains and all else are checked by rustls.

use entresol_base::Seconds;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const OCTETS: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Version of the certificate, which may be absent.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// Alternative names that are an e-mail address or a host's name.
const NAMES: [u8; 2] = [0x81, 0x82];
/// Kinds of text that are bytes of UTF-8 or ASCII.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// Object identifier of a common name.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// Object identifier of the alternative names.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Elements of DER that follow each other.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match usize::from(*first) {
            short @ ..=0x7f => (short, rest),
            long @ 0x81..=0x84 => {
                let (length, rest) = rest.split_at_checked(long - 0x80)?;
                (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (body, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, body))
    }
}

impl<'a> Elements<'a> {
    /// Body of the next element, which must have this tag.
    fn body(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().and_then(|(own, body)| (own == tag).then_some(body))
    }
}

/// Time during which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Seconds,
    pub(super) until: Seconds,
}

/// Elements of a certificate behind its issuer.
fn behind_issuer(certificate: &[u8]) -> Option<Elements<'_>> {
    let mut fields = Elements(Elements(Elements(certificate).body(SEQUENCE)?).body(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.next()?;
    }
    // The serial number, the algorithm and the issuer.
    fields.nth(2)?;
    Some(fields)
}

/// Reads the time during which a certificate is valid.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let mut times = Elements(behind_issuer(certificate)?.body(SEQUENCE)?);
    let from = time(times.next()?)?;
    Some(Validity { from, until: time(times.next()?)? })
}

/// Reads the name of a certificate's holder: its common name or, if it has none, the first host's
/// name or e-mail address among its alternative names. Of several common names none counts.
pub(super) fn holder(certificate: &[u8]) -> Option<String> {
    let mut fields = behind_issuer(certificate)?;
    fields.next()?;
    let subject = fields.body(SEQUENCE)?;
    let sets = Elements(subject).filter(|(tag, _)| *tag == SET);
    let parts = sets.flat_map(|(_, set)| Elements(set)).filter_map(|(_, part)| {
        let mut part = Elements(part);
        (part.body(OBJECT)? == COMMON_NAME).then(|| part.next())?
    });
    let common: Vec<(u8, &[u8])> = parts.collect();
    match common.as_slice() {
        [] => alternative_name(fields),
        [(tag, name)] if TEXTS.contains(tag) => text(name),
        _ => None,
    }
}

fn alternative_name(mut fields: Elements<'_>) -> Option<String> {
    let (_, extensions) = fields.find(|(tag, _)| *tag == EXTENSIONS)?;
    for (_, extension) in Elements(Elements(extensions).body(SEQUENCE)?) {
        let mut parts = Elements(extension);
        if parts.body(OBJECT)? == ALTERNATIVE_NAMES {
            let (_, names) = parts.find(|(tag, _)| *tag == OCTETS)?;
            let mut names = Elements(Elements(names).body(SEQUENCE)?);
            return names.find(|(tag, _)| NAMES.contains(tag)).and_then(|(_, name)| text(name));
        }
    }
    None
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

/// Reads a time. One beyond those that [`Seconds`] has is the first or the last of them.
fn time((tag, digits): (u8, &[u8])) -> Option<Seconds> {
    let digits = std::str::from_utf8(digits).ok()?.strip_suffix('Z')?;
    let number = |from: usize| digits.get(from..from + 2)?.parse::<i64>().ok();
    let (year, rest) = match tag {
        UTC_TIME => (number(0)? + if number(0)? < 50 { 2000 } else { 1900 }, 2),
        GENERALIZED_TIME => (number(0)? * 100 + number(2)?, 4),
        _ => return None,
    };
    let (month, day) = (number(rest)?, number(rest + 2)?);
    // Hinnant's days_from_civil: years begin in March.
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468;
    let seconds =
        days * 86_400 + number(rest + 4)? * 3600 + number(rest + 6)? * 60 + number(rest + 8)?;
    Some(Seconds(seconds.clamp(0, i64::from(u32::MAX)) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "261126120102Z", 1_795_694_462),
            (GENERALIZED_TIME, "20000229235959Z", 951_868_799),
            (GENERALIZED_TIME, "99991231235959Z", u32::MAX),
            (UTC_TIME, "500101000000Z", 0),
        ] {
            assert_eq!(time((tag, text.as_bytes())), Some(Seconds(seconds)), "{text}");
        }
        for wrong in ["", "Z", "2611261201Z", "26112612010Z", "xx1126120102Z", "261126120102"] {
            assert_eq!(time((UTC_TIME, wrong.as_bytes())), None, "{wrong}");
        }
    }

    #[test]
    fn lengths_beyond_the_bytes_end_the_elements() {
        for wrong in [&[0x30][..], &[0x30, 5, 0], &[0x30, 0x80], &[0x30, 0x84, 255, 255, 255, 255]]
        {
            assert_eq!(Elements(wrong).next(), None, "{wrong:?}");
            assert_eq!((validity(wrong), holder(wrong)), (None, None));
        }
        assert_eq!(Elements(&[4, 0x81, 1, 7, 5, 0]).collect::<Vec<_>>().len(), 2);
    }
}
