//! Seats of the tenants in one loop: how a tenant comes, and how it leaves.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use entresol_protocol::Limits;
use entresol_service::config::ConnectionLimits;
use entresol_service::executor::TurnLimits;
use entresol_service::tenant::{Seat, Tenant};
use entresol_service::tls::Acceptor;

use super::accounts::Accounts;
use super::buffers::BufferQuota;
use super::doors::Doors;
use super::reads::Reads;
use super::table::Table;
use super::waiting::Waiting;
use crate::buffer::READ_BYTES;
use crate::slab::Key;

/// Connections of a leaving tenant that are closed in one round. Closing a socket takes some ten
/// microseconds, and other tenants have their turn in between.
const CLOSES_PER_ROUND: usize = 32;

/// A tenant's seat in one loop.
pub(super) struct LoopSeat {
    pub(super) seat: Seat,
    pub(super) name: String,
    pub(super) limits: TurnLimits,
    pub(super) reads: Reads,
    /// Memory quota of its connections' buffers in this loop.
    pub(super) buffers: BufferQuota,
    /// Connections that wait for the tenant's account.
    pub(super) waiting: Waiting,
    /// Certificates for new connections to its listeners that speak TLS.
    pub(super) acceptor: Option<Acceptor>,
    /// Its listeners and its block file.
    pub(super) sources: Vec<Key>,
    /// False until all loops have taken the tenant in, and once it leaves.
    pub(super) is_open: bool,
}

impl LoopSeat {
    /// Makes a seat that takes no connections yet.
    pub(super) fn new(
        seat: Seat,
        reads: Reads,
        sources: Vec<Key>,
        limits: &ConnectionLimits,
    ) -> Self {
        let mut seat = LoopSeat {
            name: seat.tenant.name(),
            limits: turn_limits(&seat.tenant, limits),
            reads,
            buffers: BufferQuota::of(Arc::clone(seat.tenant.buffers())),
            waiting: Waiting::default(),
            acceptor: None,
            sources,
            is_open: false,
            seat,
        };
        seat.change_limits(limits);
        seat
    }

    /// Puts changed limits and certificates into effect.
    pub(super) fn change_limits(&mut self, limits: &ConnectionLimits) {
        self.acceptor = self.seat.tenant.settings().tls.and_then(|tls| tls.acceptor);
        self.limits = turn_limits(&self.seat.tenant, limits);
        let loops = self.seat.tenant.server().threads;
        let request_bytes = self.limits.protocol.value_bytes_max + READ_BYTES;
        self.buffers.set_share(limits.buffers_bytes, loops, request_bytes);
    }
}

/// Limits of a turn of a connection of `tenant`.
fn turn_limits(tenant: &Tenant, limits: &ConnectionLimits) -> TurnLimits {
    let value_limit = tenant.cache().value_limit().0;
    TurnLimits {
        protocol: Limits {
            line_bytes_max: limits.request_line_bytes,
            multiget_line_bytes_max: limits.multiget_line_bytes,
            value_bytes_max: usize::try_from(value_limit).unwrap_or(usize::MAX),
            ..Limits::default()
        },
        requests: limits.requests_per_turn,
        output_bytes: limits.output_bytes,
        pending_reads: limits.pending_reads,
    }
}

/// A tenant that is leaving, and the sender of the answer to its dismissal.
struct Dismissal {
    place: usize,
    connections: Vec<Key>,
    answer: Sender<io::Result<()>>,
}

/// Tenants that are leaving, whose connections are being closed.
#[derive(Default)]
pub(super) struct Dismissals {
    begun: Vec<Dismissal>,
}

impl Dismissals {
    /// Returns true if no tenant is leaving.
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// Closes a tenant's listeners, and then its connections, before its seat is given up.
    pub(super) fn begin(
        &mut self,
        table: &mut Table,
        doors: &mut Doors,
        place: usize,
        answer: Sender<io::Result<()>>,
    ) {
        if let Some(seat) = table.seat_mut(place) {
            doors.stop_listening(seat);
        }
        let theirs = table.connections.iter().filter(|(_, connection)| connection.seat == place);
        let connections = theirs.map(|(key, _)| key).collect();
        self.begun.push(Dismissal { place, connections, answer });
    }

    /// Closes some connections of a leaving tenant.
    pub(super) fn go_on(&mut self, table: &mut Table, doors: &mut Doors, accounts: &mut Accounts) {
        let Some(dismissal) = self.begun.last_mut() else { return };
        let left = dismissal.connections.len().saturating_sub(CLOSES_PER_ROUND);
        let place = dismissal.place;
        for key in dismissal.connections.split_off(left) {
            table.close(key);
        }
        if left > 0 {
            return;
        }
        let left = table.connections.iter().filter(|(_, one)| one.seat == place).count();
        assert!(left == 0, "slot {place} is given up, but has {left} connections");
        accounts.forget(place);
        if let Some(seat) = table.seats.get_mut(place).and_then(Option::take) {
            doors.remove(&seat.sources);
        }
        if let Some(dismissal) = self.begun.pop() {
            // The controlling thread may have given up waiting.
            let _ = dismissal.answer.send(Ok(()));
        }
    }
}
