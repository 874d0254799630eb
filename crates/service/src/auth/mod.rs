//! Authentication: who may speak to which tenant, by a file of users and hashes of their passwords.
//!
//! - [`Users`] is what the file says, and edits it;
//! - [`Entry`] reads a connection's first command, which must name a user and a password;
//! - [`Gate`] decides on that claim, and remembers what it has decided.
//!
//! Deliberately absent: the threads that wait for decisions, which are `verifiers`; and sockets,
//! timers and the end of connections, which are the server's.

mod entry;
mod gate;
mod users;

pub use entry::{ATTEMPTS_MAX, Entry, INPUT_BYTES_MAX, Step, TIMED_OUT};
pub use gate::{Claim, Gate};
pub use users::{User, Users, UsersError, add, remove};
