//! The server: connections, event loops, signals and the admin listener.
//!
//! [`start`] makes a [`Running`] server of settings, and [`signals::serve`] runs it until told to
//! stop.
//!
//! Tenants, commands and configuration live in `entresol_service`, which knows no sockets.
#![forbid(unsafe_code)]

mod admin;
mod buffer;
mod connection;
mod descriptors;
mod error;
mod event_loop;
mod fault;
mod listener;
mod metrics;
mod reload;
mod server;
pub mod signals;
mod slab;
mod stranger;
mod tls;
pub mod view;

pub use error::{ReloadError, StartError};
pub use listener::ListenError;
pub use server::{Running, start};
