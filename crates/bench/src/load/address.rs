//! Address of a server: `HOST:PORT` or `unix:PATH`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use entresol_measure::process;
use entresol_media::machine;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP socket.
    Tcp(SocketAddr),
    /// UNIX stream socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Address::Unix(PathBuf::from(path)));
        }
        let address = machine::address_of(text);
        address
            .map(Address::Tcp)
            .map_err(|problem| format!("{problem}: write HOST:PORT or unix:PATH"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Returns the process of this machine that listens at the address, if it is visible.
    #[must_use]
    pub fn listener(&self) -> Option<u32> {
        match self {
            Address::Tcp(address) => process::listener_of_tcp(*address),
            Address::Unix(path) => process::listener_of_unix(path),
        }
    }

    /// Connects for blocking use. A read that takes longer than `patience` fails.
    pub(crate) fn connect_blocking(&self, patience: Duration) -> io::Result<BlockingStream> {
        match self {
            Address::Tcp(address) => {
                let stream = std::net::TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                Ok(Box::new(stream))
            }
            Address::Unix(path) => {
                let stream = std::os::unix::net::UnixStream::connect(path)?;
                stream.set_read_timeout(Some(patience))?;
                Ok(Box::new(stream))
            }
        }
    }

    /// Connects and waits until the server has accepted the connection.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        match self {
            Address::Tcp(address) => {
                let stream = std::net::TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Tcp(TcpStream::from_std(stream)))
            }
            Address::Unix(path) => {
                let stream = std::os::unix::net::UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(UnixStream::from_std(stream)))
            }
        }
    }
}

/// Connection that blocks, up to its time limit.
pub(crate) trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}
/// Blocking connection of either kind.
pub(crate) type BlockingStream = Box<dyn Duplex>;

/// Connection that never blocks.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        match self {
            Stream::Tcp(stream) => registry.register(stream, token, interests),
            Stream::Unix(stream) => registry.register(stream, token, interests),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(out),
            Stream::Unix(stream) => stream.read(out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_text() {
        for text in ["127.0.0.1:11211", "[::1]:80", "unix:/run/cache.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let address: Address = "localhost:80".parse().expect("localhost has an address");
        assert!(matches!(address, Address::Tcp(address) if address.ip().is_loopback()));
        for text in ["", "11211", "127.0.0.1", "127.0.0.1:x"] {
            assert!(text.parse::<Address>().unwrap_err().contains("HOST:PORT"), "{text}");
        }
    }
}
