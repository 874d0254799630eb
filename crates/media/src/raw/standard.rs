//! Standard descriptors that were closed when the program began. The runtime of the standard
//! library opens `/dev/null` in their place ahead of `main`, as some launchers do on purpose, so
//! only a look ahead of the runtime tells.

use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each of them that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: the loader calls what this section lists once, with one thread, ahead of the runtime; the
// function needs nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for descriptor in 0..3 {
        // SAFETY: the call takes numbers alone, and fails for a descriptor that is not open.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
}

/// Returns true if this is a standard descriptor that was closed when the program began.
pub(crate) fn was_closed(descriptor: i32) -> bool {
    (0..3).contains(&descriptor) && CLOSED.load(Ordering::Relaxed) >> descriptor & 1 == 1
}
