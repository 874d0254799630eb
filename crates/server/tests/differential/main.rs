//! Differential tests: Entresol and a real memcached must reply alike to the same bytes.
//!
//! Needs `memcached` on PATH (Debian: `apt-get install memcached`); without it the tests say that
//! they were skipped. Changes of memcached 1.6.42 are compared only with that version or a later
//! one.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr)]

mod cases;
mod generated;
mod peers;

use peers::{Peer, Transcript};

/// Runs `sends` against both and compares what comes back, reply by reply.
///
/// A second may pass between the two, and a busy machine makes either of them late, so a difference
/// counts only if it comes back three times, with ever more time to answer.
fn check(sends: &[String]) -> Result<(), String> {
    let Some(pair) = peers::pair() else { return Ok(()) };
    let mut difference = None;
    for patience in [1, 4, 16] {
        let key = peers::fresh_key();
        let of = |peer: &Peer| Transcript::new(peer, &key, peers::SILENCE * patience).run(sends);
        let (ours, theirs) = (of(&pair.entresol), of(&pair.memcached));
        if ours == theirs {
            return Ok(());
        }
        difference = Some((ours, theirs));
    }
    let (ours, theirs) = difference.unwrap();
    let mut told = String::from("replies differ:\n");
    for ((send, ours), theirs) in sends.iter().zip(&ours).zip(&theirs) {
        let sign = if ours == theirs { ' ' } else { '!' };
        told +=
            &format!("{sign} {}\n    ours   {ours}\n    theirs {theirs}\n", send.escape_debug());
    }
    Err(told)
}
