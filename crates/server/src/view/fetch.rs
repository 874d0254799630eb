//! Asking a running server for its view: one small HTTP request to its admin listener.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use entresol_base::{Clock, SystemClock};

use super::View;

/// How long a server may take for the answer, all of it.
const PATIENCE: Duration = Duration::from_secs(5);
/// A view is a few kilobytes for each tenant; what is longer is something else.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Why there is no view.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// Nobody answers there.
    #[error(
        "no admin listener answers at {address}: {cause}; give the address that the server's \
         `admin` names"
    )]
    Io {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        cause: io::Error,
    },
    /// Somebody answers, who is no server of ours or another version.
    #[error("{address} answers, but not with a view ({reason}); is it the admin listener?")]
    Answer {
        /// Where.
        address: SocketAddr,
        /// What is wrong with the answer.
        reason: String,
    },
}

/// Asks the admin listener at `address`.
///
/// # Errors
/// When nobody answers there, or somebody else.
pub fn fetch(address: SocketAddr) -> Result<View, FetchError> {
    let text = ask(address).map_err(|cause| FetchError::Io { address, cause })?;
    let refused = |reason: String| FetchError::Answer { address, reason };
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(refused(status.chars().take(80).collect()));
    }
    serde_json::from_str(body).map_err(|error| refused(error.to_string()))
}

fn ask(address: SocketAddr) -> io::Result<String> {
    let clock = SystemClock::new();
    let end = clock.now().after(PATIENCE);
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the answer is not cut into chunks, and ends with the connection.
    stream
        .write_all(format!("GET /sharing.json HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut part = [0; 16 << 10];
    while answer.len() < ANSWER_BYTES_MAX {
        let left = end.since(clock.now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Time is short for the whole: who sends a byte now and then has no more of it.
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(part.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
