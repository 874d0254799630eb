//! The client's half: requests out, replies in.
//!
//! It serves the load generator and the tests. Nothing is allocated per request or reply; a value
//! is handed out as a slice of the receive buffer, or skipped without being gathered
//! ([`reply_head`]).

mod reply;
mod request;

pub use reply::{Reply, ReplyStep, reply, reply_head};
pub use request::{
    SetOptions, get, get_many, gets, meta_arithmetic, meta_delete, meta_get, meta_noop, meta_set,
    request, set,
};
