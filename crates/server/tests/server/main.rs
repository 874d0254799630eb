//! The whole server over real sockets, in this process.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod admin;
mod auth;
mod isolation;
mod large;
mod limits;
mod media;
mod pipelining;
mod reload;
mod sharing;
mod starting;
mod support;
mod threats;
mod tls;
