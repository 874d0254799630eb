//! Log of clients that speak another protocol. They are closed at once, and each protocol has a
//! line when such clients begin to come, and one now and then.

use entresol_base::Nanos;

use crate::connection::Stream;
use crate::fault::Fault;

/// First byte of a request of the binary protocol.
const BINARY: u8 = 0x80;
/// First byte of a client's first record of TLS.
const TLS: u8 = 0x16;

/// Lines about each protocol.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    binary: Fault,
    tls: Fault,
}

impl Foreign {
    /// Logs that a connection of `tenant` which began with `bytes` is closed, if they are of a
    /// known protocol.
    pub(super) fn log(&mut self, bytes: &[u8], tenant: &str, stream: &Stream, now: Nanos) {
        let (fault, cause) = match bytes.first() {
            Some(&BINARY) => (
                &mut self.binary,
                "a client speaks the binary protocol, which is not supported; set it to the text \
                 or meta protocol, without SASL",
            ),
            Some(&TLS) => {
                (&mut self.tls, "a client speaks TLS, which is not supported; set it to plain TCP")
            }
            _ => return,
        };
        // A spell is over after a second, but lines are as rare then.
        if let Some(times) = fault.occurred(now) {
            tracing::warn!(tenant, client = %stream.peer(), times, "{cause}");
        }
    }
}
