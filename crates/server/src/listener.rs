//! Listening sockets of a tenant: all are bound before it starts, or none.
//!
//! With several event loops, each has a TCP listener of its own on the shared port, and the kernel
//! spreads connections over them. A UNIX socket exists once, and all loops accept from it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use entresol_media::files;
use entresol_service::config::{TCP_BACKLOG, TenantSettings};
use mio::net::{TcpListener, UnixListener};
use socket2::{Domain, Protocol, Socket, Type};

/// Error of binding a tenant's listeners.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process listens there.
    #[error("cannot listen on {place}: the address is in use; free it or choose another")]
    InUse {
        /// Address or path.
        place: String,
    },
    /// The path holds something other than a socket.
    #[error("cannot listen on {place}: the path exists and is not a socket; choose another")]
    NotASocket {
        /// Path of the socket.
        place: String,
    },
    /// The system refuses.
    #[error("cannot listen on {place}: {cause}")]
    System {
        /// Address or path.
        place: String,
        /// Error of the system.
        cause: io::Error,
    },
}

impl ListenError {
    fn new(place: &str, cause: io::Error) -> Self {
        let place = place.to_owned();
        match cause.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { place },
            _ => ListenError::System { place, cause },
        }
    }
}

/// A tenant's listeners in one loop.
#[derive(Debug, Default)]
pub(crate) struct LoopListeners {
    pub(crate) tcp: Vec<TcpListener>,
    /// TCP listeners whose clients speak TLS.
    pub(crate) tls: Vec<TcpListener>,
    pub(crate) unix: Vec<UnixListener>,
}

/// A tenant's listeners after binding.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Listeners of each loop.
    pub(crate) loops: Vec<LoopListeners>,
    /// TCP addresses with their real ports.
    pub(crate) tcp_addresses: Vec<SocketAddr>,
    /// Every address and path, as `stats conns` shows it.
    pub(crate) places: Vec<String>,
    /// Removes the file of the UNIX socket when the last tenant that listens on it leaves.
    pub(crate) socket_file: Option<Arc<SocketFile>>,
}

/// Listeners that leaving tenants hold, for those that come in the same reload.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// Configured address, and one listener a loop.
    pub(crate) tcp: Vec<(SocketAddr, Vec<TcpListener>)>,
    pub(crate) unix: Vec<LentSocket>,
}

/// A UNIX socket that a leaving tenant holds.
#[derive(Debug)]
pub(crate) struct LentSocket {
    pub(crate) path: PathBuf,
    pub(crate) mode: u32,
    /// One listener a loop.
    pub(crate) listeners: Vec<UnixListener>,
    pub(crate) file: Arc<SocketFile>,
}

impl Lent {
    fn take_tcp(&mut self, address: SocketAddr) -> Option<Vec<TcpListener>> {
        let place = self.tcp.iter().position(|(own, _)| *own == address && address.port() != 0)?;
        Some(self.tcp.swap_remove(place).1)
    }

    fn take_unix(&mut self, path: &Path, mode: u32) -> Option<LentSocket> {
        let place = self.unix.iter().position(|own| own.path == path && own.mode == mode)?;
        Some(self.unix.swap_remove(place))
    }
}

/// Duplicates a TCP listener; both are the same socket.
pub(crate) fn duplicate_tcp(listener: &TcpListener) -> io::Result<TcpListener> {
    let own = listener.as_fd().try_clone_to_owned()?;
    Ok(TcpListener::from_std(std::net::TcpListener::from(own)))
}

/// Duplicates a UNIX listener; both are the same socket.
pub(crate) fn duplicate_unix(listener: &UnixListener) -> io::Result<UnixListener> {
    let own = listener.as_fd().try_clone_to_owned()?;
    Ok(UnixListener::from_std(std::os::unix::net::UnixListener::from(own)))
}

/// Binds all addresses that `tenant` listens on, for `loops` event loops. Those that a leaving
/// tenant holds are taken over.
pub(crate) fn bind(
    tenant: &TenantSettings,
    loops: usize,
    lent: &mut Lent,
) -> Result<Bound, ListenError> {
    let mut bound = Bound {
        loops: (0..loops).map(|_| LoopListeners::default()).collect(),
        tcp_addresses: Vec::new(),
        places: Vec::new(),
        socket_file: None,
    };
    for (index, address) in tenant.addresses().enumerate() {
        let is_tls = index >= tenant.listen.len();
        let place = address.to_string();
        let error = |cause| ListenError::new(&place, cause);
        let listeners = match lent.take_tcp(*address) {
            Some(listeners) => listeners,
            None => bind_tcp(*address, loops).map_err(error)?,
        };
        if let Some(first) = listeners.first() {
            let address = first.local_addr().map_err(error)?;
            bound.tcp_addresses.push(address);
            bound.places.push(format!("{}:{address}", if is_tls { "tls" } else { "tcp" }));
        }
        for (own, listener) in bound.loops.iter_mut().zip(listeners) {
            if is_tls { own.tls.push(listener) } else { own.tcp.push(listener) }
        }
    }
    if let Some(path) = &tenant.unix_socket {
        let (listeners, file) = match lent.take_unix(path, tenant.unix_socket_mode) {
            Some(lent) => (lent.listeners, lent.file),
            None => bind_unix(path, tenant.unix_socket_mode, loops)?,
        };
        for (own, listener) in bound.loops.iter_mut().zip(listeners) {
            own.unix.push(listener);
        }
        bound.places.push(format!("unix:{}", path.display()));
        bound.socket_file = Some(file);
    }
    Ok(bound)
}

/// Binds one listener a loop, all on the same address.
fn bind_tcp(address: SocketAddr, loops: usize) -> io::Result<Vec<TcpListener>> {
    if loops == 1 {
        return Ok(vec![listen_tcp(address, false)?]);
    }
    // A port shared on purpose must not be shared by accident: the kernel would not refuse another
    // process of the same user. So it is first bound exclusively, which also chooses a port for 0.
    let address = {
        let alone = tcp_socket(address, false)?;
        alone.local_addr()?.as_socket().unwrap_or(address)
    };
    (0..loops).map(|_| listen_tcp(address, true)).collect()
}

fn tcp_socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen_tcp(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = tcp_socket(address, shared)?;
    socket.listen(TCP_BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Binds a UNIX socket, taking over one that a dead server has left behind.
fn bind_unix(
    path: &Path,
    mode: u32,
    loops: usize,
) -> Result<(Vec<UnixListener>, Arc<SocketFile>), ListenError> {
    use std::os::unix::net::UnixStream;

    let place = path.to_string_lossy().into_owned();
    let error = |cause| ListenError::new(&place, cause);
    if let Ok(is_socket) = files::is_socket(path) {
        if !is_socket {
            return Err(ListenError::NotASocket { place });
        }
        if UnixStream::connect(path).is_ok() {
            return Err(ListenError::InUse { place });
        }
        files::remove(path).map_err(error)?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path).map_err(error)?;
    listener.set_nonblocking(true).map_err(error)?;
    let shared = || listener.try_clone().map(UnixListener::from_std);
    let listeners = (0..loops).map(|_| shared()).collect::<io::Result<_>>().map_err(error)?;
    let identity = files::identity(path).map_err(error)?;
    let file = SocketFile { path: path.to_owned(), identity, _listener: listener };
    files::set_mode(path, mode).map_err(error)?;
    Ok((listeners, Arc::new(file)))
}

/// File of a UNIX socket, removed when dropped unless another server has bound the path since.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
    /// Keeps the inode from being used anew.
    _listener: std::os::unix::net::UnixListener,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if files::identity(&self.path).is_ok_and(|found| found == self.identity) {
            // The file may vanish at any time.
            let _ = files::remove(&self.path);
        }
    }
}
