//! State of a connection before its client has authenticated.

use entresol_base::Nanos;
use entresol_service::auth::Entry;

/// A client that has not said who it is.
#[derive(Debug)]
pub(crate) struct Stranger {
    pub(crate) entry: Entry,
    /// Time of its connection.
    pub(crate) since: Nanos,
    /// True while its claim is being verified.
    pub(crate) waits: bool,
}

impl Stranger {
    pub(crate) fn new(since: Nanos) -> Box<Self> {
        Box::new(Stranger { entry: Entry::default(), since, waits: false })
    }
}
