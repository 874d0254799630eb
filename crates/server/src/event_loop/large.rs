//! Large values on their way in or out, which take room from a tenant's items: they may not stand
//! still, and give way where others lack room.

use std::time::Duration;

use entresol_base::Nanos;

use super::table::Table;
use crate::connection::Connection;
use crate::slab::Key;

/// Time that a large value may stand still on its way in.
const ARRIVAL_STALL_MAX: Duration = Duration::from_secs(1);
/// Time that a large value may stand still on its way out once its item has gone: more than one
/// interval between searches, since each of them tries to send more.
const READER_STALL_MAX: Duration = Duration::from_secs(2);
/// Time without progress after which a value on its way in gives way to another: one that comes
/// over a network has shorter pauses.
const UNMOVED_MIN: Duration = Duration::from_millis(50);
/// Time for which a value waits for room that others hold: readers of values whose items have gone,
/// and values of other loops, which are searched for stalled ones once a second.
const WAIT_MAX: Duration = Duration::from_millis(2500);
/// Interval of its attempts meanwhile.
const TRY_EVERY: Duration = Duration::from_millis(5);

/// Frees a large value that arrives for one that lacks room: the one that has taken the most
/// for the longest time without moving. If there is none, the value that lacks room is refused
/// in the end. Returns the time of its next attempt, if that is not now.
pub(super) fn make_room(table: &mut Table, key: Key, now: Nanos) -> Option<Nanos> {
    let place = table.connections.get(key)?.seat;
    let burden = |connection: &Connection| {
        let unmoved = now.since(connection.moved_at);
        connection.session.piece_bytes() as u128 * unmoved.as_nanos()
    };
    let others = table.connections.iter().filter(|(other, connection)| {
        *other != key
            && connection.seat == place
            && !connection.waits_for_file
            && connection.stalled_since.is_some()
            && now.since(connection.moved_at) >= UNMOVED_MIN
    });
    let victim = others
        .map(|(other, connection)| (burden(connection), other))
        .filter(|(burden, _)| *burden > 0)
        .max_by_key(|(burden, _)| *burden);
    if let Some((_, victim)) = victim {
        table.connections.get_mut(victim)?.session.give_up_arrival();
        return None;
    }
    let connection = table.connections.get_mut(key)?;
    let since = *connection.lacks_room_since.get_or_insert(now);
    if now.since(since) < WAIT_MAX {
        return Some(now.after(TRY_EVERY));
    }
    connection.session.give_up_arrival();
    None
}

/// Frees values that stand still on their way in, whose connections go on, and closes
/// connections that alone keep the memory of a value and take nothing of it.
pub(super) fn free_stalled(table: &mut Table, now: Nanos) {
    let (mut arriving, mut slow, mut stuck) = (Vec::new(), Vec::new(), Vec::new());
    for (key, connection) in table.connections.iter() {
        let Some(since) = connection.stalled_since else { continue };
        let stalled = now.since(since);
        if connection.session.is_arriving() && !connection.is_held() {
            if stalled >= ARRIVAL_STALL_MAX {
                arriving.push(key);
            }
        } else if connection.output.has_orphan() {
            let keys = if stalled >= READER_STALL_MAX { &mut stuck } else { &mut slow };
            keys.push(key);
        }
    }
    for key in arriving {
        if let Some(connection) = table.connections.get_mut(key) {
            connection.session.give_up_arrival();
        }
    }
    // The system tells of room in a socket only once a third of its buffer is free, which a slow
    // client may take long for.
    for key in slow {
        table.enqueue(key);
    }
    for key in stuck {
        if let Some(connection) = table.connections.get(key)
            && let Some(seat) = table.seat(connection.seat)
        {
            seat.seat.counters.buffer_kicks.count();
        }
        table.close(key);
    }
}
