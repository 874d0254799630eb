//! The server: connections, tenants, configuration and the admin listener.
//!
//! - [`config`] reads and checks what a server is configured with;
//! - [`start`] makes a [`Running`] server of it, [`signals::serve`] runs it until told to stop;
//! - [`executor`] is the path of every request, without sockets.
//!
//! Deliberately absent: the protocol's grammar, where values lie, unsafe code.
#![forbid(unsafe_code)]

mod admin;
mod buffer;
pub mod config;
mod connection;
pub mod counters;
mod descriptors;
mod error;
mod event_loop;
pub mod executor;
mod listener;
mod maintenance;
mod metrics;
mod registry;
mod reload;
mod server;
mod sharing;
pub mod signals;
mod slab;
mod slow_log;
pub mod stats;
pub mod tenant;
pub mod view;

pub use error::{ReloadError, StartError};
pub use listener::ListenError;
pub use server::{Running, start};
