//! Meaning of requests and configurations, without a socket: tenants, commands, sharing.
//!
//! - [`config`] reads and checks a configuration, and [`reload`] decides how it may change live;
//! - [`opening`] opens tenants' caches, and [`registry`] lists the tenants that are served;
//! - [`executor`] turns a connection's bytes into replies against one [`tenant`];
//! - [`auth`] knows the users, and decides who may speak to which tenant, on the threads of
//!   [`verifiers`];
//! - [`sharing`] and [`maintenance`] are the threads beside the requests, which [`threads`] runs.
//!
//! The protocol's grammar, the layout of values and unsafe code live in crates below; sockets,
//! event loops and the admin listener live above, in the server.
#![forbid(unsafe_code)]

pub mod auth;
pub mod config;
pub mod counters;
mod detail;
mod error;
pub mod executor;
mod listing;
pub mod maintenance;
mod moment;
pub mod opening;
mod pace;
pub mod registry;
pub mod reload;
pub mod sharing;
pub mod slow_log;
mod stats;
pub mod tenant;
pub mod threads;
pub mod verifiers;

pub use error::{ChangeError, TenantError};
pub use moment::Now;
pub use stats::{SERVER_VERSION, VERSION};
