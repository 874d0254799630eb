//! A connection without a server: bytes in, one line of text out for every step the parser takes.

use entresol_protocol::{AfterRefusal, Limits, Request, Step, client, parse, parse_keys};

/// Feeds `chunks` one after the other, as a socket would, and tells what came of them.
///
/// Requests are told in the one spelling that the client's half gives them, refusals by their
/// reply. `(silence)` is a refusal without a reply, `(discard k)` stands before the refusal that
/// takes the item `k` with it, `(close)` is the end, and `(waiting)` an unfinished request.
pub(crate) fn feed<'c>(chunks: impl IntoIterator<Item = &'c [u8]>, limits: &Limits) -> Vec<String> {
    let mut told = Vec::new();
    let mut buffer: Vec<u8> = Vec::new();
    let mut wanted = 1;
    let (mut swallow, mut swallow_line, mut line) = (0u64, false, None);
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        loop {
            let skipped = swallow.min(buffer.len() as u64);
            buffer.drain(..skipped as usize);
            swallow -= skipped;
            if swallow_line {
                let end = buffer.iter().position(|&byte| byte == b'\n');
                buffer.drain(..end.map_or(buffer.len(), |end| end + 1));
                swallow_line = end.is_none();
            }
            if buffer.is_empty() {
                break;
            }
            let is_end = line.is_some();
            let step = match line {
                None => parse(&buffer, limits),
                Some(line) => parse_keys(line, &buffer, limits),
            };
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
                    told.push(written(&request));
                    if is_end {
                        told.push("(end of the line)".into());
                    }
                    line = None;
                    buffer.drain(..consumed);
                }
                Step::Keys { request, consumed, line: command } => {
                    told.push(written(&request));
                    line = Some(command);
                    buffer.drain(..consumed);
                }
                Step::Refused { reply, consumed, then, discard, .. } => {
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
                    line = None;
                    match then {
                        AfterRefusal::Continue => {}
                        AfterRefusal::SwallowLine => swallow_line = true,
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
    if swallow > 0 || swallow_line || line.is_some() || !buffer.is_empty() {
        told.push("(waiting)".into());
    }
    told
}

fn written(request: &Request<'_>) -> String {
    let mut line = Vec::new();
    client::request(&mut line, request);
    printable(line.strip_suffix(b"\r\n").unwrap())
}

fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
