//! The client's side: requests out, replies in.
//!
//! The load generator and the tests use it. It allocates nothing per request or reply; a value is a
//! slice of the receive buffer, or is skipped without being gathered ([`reply_head`]).

mod reply;
mod request;

pub use reply::{Reply, ReplyStep, reply, reply_head};
pub use request::{
    SetOptions, get, get_many, gets, meta_arithmetic, meta_delete, meta_get, meta_noop, meta_set,
    request, set,
};
