//! Fetches a running server's view by one small HTTP request to its admin listener.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use entresol_base::{Clock, SystemClock};

use super::View;

/// Maximum time for the whole answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of an answer. A view takes a few kilobytes for each tenant, so a longer answer is
/// something else.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Error of fetching a view.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The address has no listener that answers.
    #[error(
        "no admin listener answers at {address}: {cause}; give the address that the server's \
         `admin` names"
    )]
    Io {
        /// Address that was asked.
        address: SocketAddr,
        /// Error of the system.
        cause: io::Error,
    },
    /// The listener wants a token.
    #[error(
        "{address} wants another token; give the file that the server's `admin_token_file` names"
    )]
    Token {
        /// Address that was asked.
        address: SocketAddr,
    },
    /// The listener is not an Entresol server, or one of another version.
    #[error(
        "{address} answers, but not as an admin listener does ({reason}); give the address that \
         the server's `admin` names"
    )]
    Answer {
        /// Address that was asked.
        address: SocketAddr,
        /// Reason for which the answer is refused.
        reason: String,
    },
}

/// Asks the admin listener at `address` for its view, with the token that it may want.
///
/// # Errors
/// When there is no listener, or its answer is not a view.
pub fn fetch(address: SocketAddr, token: Option<&str>) -> Result<View, FetchError> {
    let text = ask(address, token).map_err(|cause| FetchError::Io { address, cause })?;
    let refused = |reason: String| FetchError::Answer { address, reason };
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("401") {
        return Err(FetchError::Token { address });
    }
    if status.split(' ').nth(1) != Some("200") {
        return Err(refused(status.chars().take(80).collect()));
    }
    serde_json::from_str(body).map_err(|error| refused(error.to_string()))
}

fn ask(address: SocketAddr, token: Option<&str>) -> io::Result<String> {
    let clock = SystemClock::new();
    let end = clock.now().after(PATIENCE);
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // With HTTP/1.0 the answer is not chunked, and ends with the connection.
    let token = token.map_or(String::new(), |it| format!("Authorization: Bearer {it}\r\n"));
    let request = format!("GET /sharing.json HTTP/1.0\r\nHost: {address}\r\n{token}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut part = [0; 16 << 10];
    while answer.len() < ANSWER_BYTES_MAX {
        let left = end.since(clock.now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // The limit holds for the whole answer: a byte now and then does not prolong it.
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
