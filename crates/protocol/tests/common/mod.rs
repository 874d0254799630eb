//! A connection without a server: bytes in, one line of text out for every step the parser takes.

use entresol_protocol::{AfterRefusal, Limits, Step, client, parse};

/// Feeds `chunks` one after the other, as a socket would, and tells what came of them.
///
/// Requests are told in the one spelling that the client's half gives them, refusals by their
/// reply. `(silence)` is a refusal without a reply, `(discard k)` stands before the refusal that
/// takes the item `k` with it, `(close)` is the end, and `(waiting)` an unfinished request.
pub(crate) fn feed<'c>(chunks: impl IntoIterator<Item = &'c [u8]>, limits: &Limits) -> Vec<String> {
    let mut told = Vec::new();
    let mut buffer: Vec<u8> = Vec::new();
    let mut wanted = 1;
    let mut swallow = 0u64;
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        loop {
            let skipped = swallow.min(buffer.len() as u64);
            buffer.drain(..skipped as usize);
            swallow -= skipped;
            if buffer.is_empty() {
                break;
            }
            let step = parse(&buffer, limits);
            if buffer.len() < wanted {
                assert!(matches!(step, Step::Incomplete { .. }), "promised to need {wanted}");
            }
            match step {
                Step::Incomplete { needed } => {
                    assert!(needed > buffer.len(), "asks for no more than it has");
                    wanted = needed;
                    break;
                }
                Step::Request { request, consumed } => {
                    let mut line = Vec::new();
                    client::request(&mut line, &request);
                    told.push(printable(line.strip_suffix(b"\r\n").unwrap()));
                    buffer.drain(..consumed);
                }
                Step::Refused { reply, consumed, then, discard } => {
                    if let Some(key) = discard {
                        told.push(format!("(discard {})", printable(key.token())));
                    }
                    match (reply, then) {
                        (Some(refusal), _) => {
                            told.push(printable(refusal.reply().strip_suffix(b"\r\n").unwrap()));
                        }
                        (None, AfterRefusal::Close) => {}
                        (None, _) => told.push("(silence)".into()),
                    }
                    buffer.drain(..consumed);
                    match then {
                        AfterRefusal::Continue => {}
                        AfterRefusal::Swallow(bytes) => swallow = bytes,
                        AfterRefusal::Close => {
                            told.push("(close)".into());
                            return told;
                        }
                    }
                }
            }
            wanted = 1;
        }
    }
    if swallow > 0 || !buffer.is_empty() {
        told.push("(waiting)".into());
    }
    told
}

fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
