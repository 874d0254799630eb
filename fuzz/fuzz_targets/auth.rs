//! The first commands of a connection that must authenticate, and the file of users, under any
//! bytes. Neither panics; the commands' steps are the same for any division of the bytes, and end
//! after a bounded number of refusals.
#![no_main]

use entresol_service::auth::{ATTEMPTS_MAX, Entry, INPUT_BYTES_MAX, Step, Users};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [division, bytes @ ..] = input else { return };
    let whole = steps(bytes, bytes.len().max(1));
    let divided = steps(bytes, usize::from(*division) + 1);
    assert_eq!(divided, whole, "in pieces of {}", usize::from(*division) + 1);
    let refused = whole.iter().filter(|it| !matches!(it, Step::Close(_))).count();
    assert!(refused <= 2 * usize::from(ATTEMPTS_MAX), "{refused} steps");
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err((line, _)) = Users::parse(text)
    {
        assert!(line <= text.lines().count(), "line {line} of {}", text.lines().count());
    }
});

/// Steps of a client whose bytes come in pieces, and of whose claims none is true.
fn steps(bytes: &[u8], piece: usize) -> Vec<Step> {
    let (mut entry, mut steps) = (Entry::default(), Vec::new());
    let (mut input, mut pieces) = (Vec::new(), bytes.chunks(piece));
    loop {
        // A server reads no further than a command may be long.
        let window = input.get(..INPUT_BYTES_MAX).unwrap_or(&input);
        let (consumed, step) = entry.step(window);
        assert!(consumed <= window.len());
        input.drain(..consumed);
        match step {
            Step::More => match pieces.next() {
                Some(more) => input.extend_from_slice(more),
                None => return steps,
            },
            Step::Reply(_) => steps.push(step),
            Step::Close(_) => {
                steps.push(step);
                return steps;
            }
            Step::Verify(_) => {
                steps.extend([step, entry.fail()]);
                if matches!(steps.last(), Some(Step::Close(_))) {
                    return steps;
                }
            }
        }
    }
}
