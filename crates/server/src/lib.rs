//! The server: connections, tenants, configuration and the admin listener.
//!
//! - [`config`] reads and checks the configuration;
//! - [`start`] makes a [`Running`] server of it, and [`signals::serve`] runs it until told to stop;
//! - [`executor`] is the path of every request, without sockets.
//!
//! The protocol's grammar, the layout of values and unsafe code live in other crates.
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
