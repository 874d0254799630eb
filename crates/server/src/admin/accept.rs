//! Connections of the admin listener: few at a time, each for a short time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use entresol_base::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

use crate::event_loop::keep_alive;
use crate::fault::Fault;

/// Connections at a time; further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32;
/// Time in which a request must have arrived, and in which each part of a reply must be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time of a connection.
const LIFETIME: Duration = Duration::from_secs(60);
/// Pause after the system refused to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Listener with a limit on its connections.
pub(super) struct Accept {
    listener: TcpListener,
    free: Arc<Semaphore>,
    clock: Arc<dyn Clock>,
    fault: Fault,
}

impl Accept {
    pub(super) fn new(listener: TcpListener, clock: Arc<dyn Clock>) -> Self {
        let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Accept { listener, free, clock, fault: Fault::default() }
    }

    /// Waits for a connection; on an error of the system, tries again after a pause.
    async fn next(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            let accepted = self.listener.accept().await;
            let now = self.clock.now();
            if let Some(times) = self.fault.is_over(now) {
                tracing::info!(times, "the admin listener can accept connections again");
            }
            match accepted {
                Ok(accepted) => return accepted,
                Err(error) => {
                    if let Some(times) = self.fault.occurred(now) {
                        tracing::warn!(%error, times, "the admin listener cannot accept; retrying");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

impl Listener for Accept {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let free = Arc::clone(&self.free).acquire_owned().await;
        let (stream, address) = self.next().await;
        keep_alive(&stream);
        let (now, sleep) = (Instant::now(), tokio::time::sleep(PATIENCE));
        // The semaphore is never closed.
        let (end, permit) = (now + LIFETIME, free.ok());
        (Connection { stream, patience: Box::pin(sleep), end, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Connection that fails if its client is slow or silent.
pub(super) struct Connection {
    stream: TcpStream,
    patience: Pin<Box<Sleep>>,
    end: Instant,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Outcome of a transfer that is pending: it fails once the patience is over.
    fn is_late<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        match self.patience.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => self.is_late(context),
            ready => ready,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.is_late(context),
            ready => {
                let until = self.end.min(Instant::now() + PATIENCE);
                self.patience.as_mut().reset(until);
                ready
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
