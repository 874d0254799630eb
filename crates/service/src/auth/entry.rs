//! The first command of a connection: `set KEY FLAGS EXPTIME BYTES`, whose data is the user's name
//! and the password, with one space between. Key, flags and time are of no interest, as in
//! memcached.

use super::gate::Claim;

/// Bytes of the command's line.
const LINE_BYTES_MAX: usize = 2048;
/// Bytes of user and password.
const TOKEN_BYTES_MAX: usize = 1024;
/// Bytes of input that an [`Entry`] needs at a time.
pub const INPUT_BYTES_MAX: usize = LINE_BYTES_MAX + TOKEN_BYTES_MAX + 2;
/// Refusals after which a connection is closed.
pub const ATTEMPTS_MAX: u8 = 8;
/// Line to a client that has not authenticated in time.
pub const TIMED_OUT: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";

const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const BAD_TERMINATION: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
const FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";

/// State of a connection that has not said who it is.
#[derive(Debug, Default)]
pub struct Entry {
    refusals: u8,
    /// Bytes of data that the line has announced.
    announced: Option<usize>,
}

/// Next step of an entry.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The input is not a whole command yet.
    More,
    /// Send this line, and go on.
    Reply(&'static [u8]),
    /// Send this line, and close the connection.
    Close(&'static [u8]),
    /// Decide on this claim.
    Verify(Claim),
}

impl Entry {
    /// Takes the next command from the input; returns the bytes that were dealt with as well.
    pub fn step(&mut self, input: &[u8]) -> (usize, Step) {
        match self.announced {
            Some(bytes) => self.data(input, bytes),
            None => self.line(input),
        }
    }

    /// Refuses a claim that is not true.
    pub fn fail(&mut self) -> Step {
        self.refuse(FAILURE)
    }

    fn refuse(&mut self, line: &'static [u8]) -> Step {
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals < ATTEMPTS_MAX { Step::Reply(line) } else { Step::Close(line) }
    }

    fn line(&mut self, input: &[u8]) -> (usize, Step) {
        let front = input.get(..LINE_BYTES_MAX).unwrap_or(input);
        let Some(end) = memchr::memchr(b'\n', front) else {
            let is_too_long = input.len() >= LINE_BYTES_MAX;
            return (0, if is_too_long { Step::Close(UNAUTHENTICATED) } else { Step::More });
        };
        let line = input.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let step = match announced(line) {
            // What follows such a length is no password, and must not be taken for commands.
            Some(bytes) if bytes > TOKEN_BYTES_MAX => Step::Close(BAD_TOKEN),
            Some(bytes) => {
                self.announced = Some(bytes);
                let data = input.get(end + 1..).unwrap_or_default();
                let (done, step) = self.data(data, bytes);
                return (end + 1 + done, step);
            }
            None if is_of_another_protocol(line) => Step::Close(UNAUTHENTICATED),
            None if line == b"quit" => Step::Close(b""),
            None => self.refuse(UNAUTHENTICATED),
        };
        (end + 1, step)
    }

    fn data(&mut self, input: &[u8], bytes: usize) -> (usize, Step) {
        let Some((data, end)) = input.get(..bytes + 2).map(|data| data.split_at(bytes)) else {
            return (0, Step::More);
        };
        self.announced = None;
        let step = match (end, split(data)) {
            (b"\r\n", Some(claim)) => Step::Verify(claim),
            (b"\r\n", None) => self.refuse(BAD_TOKEN),
            // The length was wrong, so what follows may be anything.
            _ => Step::Close(BAD_TERMINATION),
        };
        (bytes + 2, step)
    }
}

/// Bytes of data that a line announces, if it is a `set`.
fn announced(line: &[u8]) -> Option<usize> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    if words.next()? != b"set" {
        return None;
    }
    let bytes = words.nth(3)?;
    if !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse::<u32>().ok().map(|bytes| bytes as usize)
}

/// Returns true for a line of HTTP, and for one with bytes that no text has.
fn is_of_another_protocol(line: &[u8]) -> bool {
    let last = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let is_binary = line.first().is_some_and(|byte| *byte >= 0x80 || *byte < b' ');
    last.starts_with(b"HTTP/") || is_binary
}

fn split(data: &[u8]) -> Option<Claim> {
    let space = memchr::memchr(b' ', data)?;
    let (user, password) = (data.get(..space)?, data.get(space + 1..)?);
    let is_whole = !user.is_empty() && !password.is_empty();
    is_whole.then(|| Claim { user: user.to_vec(), password: password.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(user: &[u8], password: &[u8]) -> Step {
        Step::Verify(Claim { user: user.to_vec(), password: password.to_vec() })
    }

    /// The steps of an input that arrives as a whole, and of one that arrives byte by byte.
    fn steps(input: &[u8]) -> Vec<Step> {
        let whole = steps_by(input, input.len());
        assert_eq!(whole, steps_by(input, 1), "{:?}", String::from_utf8_lossy(input));
        whole
    }

    fn steps_by(input: &[u8], portion: usize) -> Vec<Step> {
        let (mut entry, mut steps) = (Entry::default(), Vec::new());
        let (mut begin, mut end) = (0, 0);
        while end < input.len() {
            end = input.len().min(end + portion);
            loop {
                let (done, step) = entry.step(&input[begin..end]);
                begin += done;
                match step {
                    Step::More => break,
                    Step::Close(_) => {
                        steps.push(step);
                        return steps;
                    }
                    step => steps.push(step),
                }
            }
        }
        steps
    }

    #[test]
    fn a_set_with_user_and_password_is_a_claim() {
        let right = claim(b"foo", b"bar");
        for text in [
            "set k 0 0 7\r\nfoo bar\r\n",
            "set k 0 0 7\nfoo bar\r\n",
            "set  any 12 -1 7 noreply\r\nfoo bar\r\n",
        ] {
            assert_eq!(steps(text.as_bytes()), [claim(b"foo", b"bar")], "{text:?}");
        }
        assert_eq!(steps(b"set k 0 0 9\r\nfoo b r\xff\xfe\r\n"), [claim(b"foo", b"b r\xff\xfe")]);
        let after = steps(b"get a\r\nset k 0 0 7\r\nfoo bar\r\n");
        assert_eq!(after, [Step::Reply(UNAUTHENTICATED), right]);
    }

    #[test]
    fn everything_else_is_refused_and_what_lies_about_its_length_is_closed() {
        let refused = |text: &[u8], line: &'static [u8]| {
            assert_eq!(steps(text), [Step::Reply(line)], "{:?}", String::from_utf8_lossy(text));
        };
        let closed = |text: &[u8], line: &'static [u8]| {
            assert_eq!(steps(text), [Step::Close(line)], "{:?}", String::from_utf8_lossy(text));
        };
        for text in ["\r\n", "\n", "get k\r\n", "stats\r\n", "set k 0 0\r\n", "set k 0 0 x\r\n"] {
            refused(text.as_bytes(), UNAUTHENTICATED);
        }
        for text in ["set k 0 0 -1\r\n", "set k 0 0 +7\r\n", "set k 0 0 99999999999\r\n"] {
            refused(text.as_bytes(), UNAUTHENTICATED);
        }
        refused(b"set foo 0 0 2\r\nhi\r\n", BAD_TOKEN);
        refused(b"set foo 0 0 0\r\n\r\n", BAD_TOKEN);
        refused(b"set foo 0 0 4\r\nfoo \r\n", BAD_TOKEN);
        refused(b"set foo 0 0 4\r\n foo\r\n", BAD_TOKEN);
        closed(b"set foo 0 0 7\r\nfoo barX\r\n", BAD_TERMINATION);
        closed(b"set foo 0 0 1025\r\n", BAD_TOKEN);
        closed(b"set foo 0 0 4294967295\r\n", BAD_TOKEN);
        closed(b"quit\r\n", b"");
        closed(b"GET / HTTP/1.1\r\n", UNAUTHENTICATED);
        closed(&[b'x'; LINE_BYTES_MAX], UNAUTHENTICATED);
        assert_eq!(steps(&[b'x'; LINE_BYTES_MAX - 1]), []);
        let many = steps(&b"get k\r\n".repeat(100));
        assert_eq!(many.len(), usize::from(ATTEMPTS_MAX));
        assert_eq!(many.last(), Some(&Step::Close(UNAUTHENTICATED)));
    }

    proptest::proptest! {
        /// Any input is dealt with, and one that is as long as there is room for gets on.
        #[test]
        fn any_input_is_dealt_with(input in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::strategy::Just(b' '), proptest::strategy::Just(b'\n'),
                proptest::strategy::Just(b'\r'), b'0'..=b'9', proptest::num::u8::ANY,
            ], 0..INPUT_BYTES_MAX), front in proptest::bool::ANY) {
            let mut bytes = if front { b"set k 0 0 1".to_vec() } else { Vec::new() };
            bytes.extend(input);
            steps_by(&bytes, bytes.len().max(1));
            bytes.resize(INPUT_BYTES_MAX, b'x');
            let (done, step) = Entry::default().step(&bytes);
            proptest::prop_assert!(done > 0 || step != Step::More);
        }
    }
}
