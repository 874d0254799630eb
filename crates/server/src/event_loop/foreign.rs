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
    clear: Fault,
    handshakes: Fault,
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
            Some(&TLS) => (
                &mut self.tls,
                "a client speaks TLS to a listener of clear text; set it to plain \
                                 TCP, or to an address of tls_listen",
            ),
            _ => return,
        };
        // A spell is over after a second, but lines are as rare then.
        if let Some(times) = fault.occurred(now) {
            tracing::warn!(tenant, client = %stream.peer(), times, "{cause}");
        }
    }

    /// Logs that a session of `tenant` is closed since it failed for this cause.
    pub(super) fn log_failure(
        &mut self,
        cause: &rustls::Error,
        tenant: &str,
        stream: &Stream,
        now: Nanos,
    ) {
        let client = stream.peer();
        if let rustls::Error::InvalidMessage(error) = cause {
            if let Some(times) = self.clear.occurred(now) {
                let hint = "a client does not speak TLS to an address of tls_listen; set it to TLS";
                tracing::warn!(tenant, %client, ?error, times, "{hint}");
            }
        } else if let Some(times) = self.handshakes.occurred(now) {
            let hint = "a client's TLS session failed; closing it";
            tracing::warn!(tenant, %client, error = %cause, times, "{hint}");
        }
    }
}
