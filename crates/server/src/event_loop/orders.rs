//! Orders to a loop from the thread that controls the server, and the loop's start and end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use entresol_base::sync::Mutex;
use entresol_service::config::ConnectionLimits;
use entresol_service::registry::Registry;
use entresol_service::slow_log::SlowLog;
use entresol_service::tenant::{Seat, Tenant};
use mio::{Poll, Waker};

use super::entrance::{Decision, Doorkeeper};
use super::reads::Reads;
use super::seats::LoopSeat;
use super::{EventLoop, new_waker};
use crate::listener::LoopListeners;

/// An order to a loop.
pub(crate) enum Order {
    /// Take a tenant in at this place.
    Admit { place: usize, tenant: Arc<Tenant>, listeners: LoopListeners },
    /// Send duplicates of the tenant's listeners, in their order.
    Lend { place: usize, listeners: Sender<LoopListeners> },
    /// Begin to accept the tenant's connections.
    Open { place: usize },
    /// Close the tenant's listeners and connections.
    Dismiss { place: usize },
    /// Let only users of this doorkeeper speak.
    Guard { doorkeeper: Doorkeeper },
    /// Apply these limits, and log requests that take at least this long.
    Change { limits: ConnectionLimits, slow_log: Option<Duration> },
    /// Panic, for a test.
    #[cfg(test)]
    Panic,
    /// Accept no more connections, answer pending requests, and end within this time.
    Drain { within: Duration },
}

/// Orders on their way to a loop, with the senders of their answers.
#[derive(Default)]
pub(super) struct Mailbox {
    orders: Mutex<Orders>,
    /// Set once a tenant's limit has changed.
    limits_changed: AtomicBool,
    /// Decisions on the claims of clients; no more than claims may wait.
    decisions: Mutex<Vec<Decision>>,
}

#[derive(Default)]
struct Orders {
    given: Vec<(Order, Sender<io::Result<()>>)>,
    /// True once the loop has ended. Orders from then on are dropped, and so are the senders of
    /// their answers: the controlling thread would otherwise wait for ever.
    ended: bool,
}

impl Mailbox {
    fn put(&self, order: Order, answer: Sender<io::Result<()>>) {
        let mut orders = self.orders.lock();
        if !orders.ended {
            orders.given.push((order, answer));
        }
    }

    fn take(&self) -> Vec<(Order, Sender<io::Result<()>>)> {
        std::mem::take(&mut self.orders.lock().given)
    }

    fn close(&self) {
        *self.orders.lock() = Orders { given: Vec::new(), ended: true };
    }
}

/// Handle of a loop, held by the controlling thread.
pub(crate) struct LoopHandle {
    bell: LoopBell,
    thread: Option<JoinHandle<()>>,
}

/// Waker of a loop; any thread may hold one.
#[derive(Clone)]
pub(crate) struct LoopBell {
    mailbox: Arc<Mailbox>,
    waker: Arc<Waker>,
}

impl LoopBell {
    /// Tells the loop that a tenant may be allowed more than before.
    pub(crate) fn limits_changed(&self) {
        self.mailbox.limits_changed.store(true, Ordering::Release);
        self.ring();
    }

    /// Tells the loop of a decision on a client's claim.
    pub(super) fn decided(&self, decision: Decision) {
        self.mailbox.decisions.lock().push(decision);
        self.ring();
    }

    fn ring(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake an event loop");
        }
    }
}

impl LoopHandle {
    /// Gives an order; the answer arrives once it is carried out. A loop that has ended gives none.
    pub(crate) fn order(&self, order: Order) -> Receiver<io::Result<()>> {
        let (answer, answered) = channel();
        self.bell.mailbox.put(order, answer);
        self.bell.ring();
        answered
    }

    /// Waker of this loop.
    pub(crate) fn bell(&self) -> LoopBell {
        self.bell.clone()
    }

    /// Waits until the loop has ended.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("an event loop panicked");
        }
    }
}

/// Starts loop number `number` on a thread of its own.
pub(crate) fn start(
    number: usize,
    registry: Arc<Registry>,
    limits: ConnectionLimits,
    slow_log: Option<Duration>,
) -> io::Result<LoopHandle> {
    let poll = Poll::new()?;
    let waker = Arc::new(new_waker(&poll)?);
    let mailbox = Arc::new(Mailbox::default());
    let own_mailbox = Arc::clone(&mailbox);
    let run = move || {
        let alarmed = Arc::clone(&registry);
        let mut alarm = Alarm { registry: alarmed, mailbox: Arc::clone(&own_mailbox), armed: true };
        let slow_log = SlowLog::new(slow_log);
        let event_loop = EventLoop::new(number, poll, registry, own_mailbox, limits, slow_log);
        alarm.armed = !event_loop.run();
    };
    let thread = std::thread::Builder::new().name(format!("loop-{number}")).spawn(run)?;
    Ok(LoopHandle { bell: LoopBell { mailbox, waker }, thread: Some(thread) })
}

/// Closes the mailbox of a loop that ends, and reports one that ends without an order to, for
/// instance by a panic.
struct Alarm {
    registry: Arc<Registry>,
    mailbox: Arc<Mailbox>,
    armed: bool,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.mailbox.close();
        if self.armed {
            if std::thread::panicking() {
                self.registry.note_panic("event loop");
            }
            tracing::error!("an event loop has ended; stopping the server");
            self.registry.note_failure();
        }
    }
}

impl EventLoop {
    pub(super) fn read_mailbox(&mut self) {
        if self.mailbox.limits_changed.swap(false, Ordering::Acquire) {
            self.turns.accounts.ask_again(&mut self.table, self.rounds.round.now.nanos);
        }
        let decisions = std::mem::take(&mut *self.mailbox.decisions.lock());
        self.turns.entrance.hear(&mut self.table, &self.rounds.round, decisions);
        for (order, answer) in self.mailbox.take() {
            self.obey(order, answer);
        }
    }

    fn obey(&mut self, order: Order, answer: Sender<io::Result<()>>) {
        let done = match order {
            Order::Admit { place, tenant, listeners } => {
                let seat = Seat::new(&tenant, self.number);
                self.admit(place, seat, listeners)
            }
            Order::Lend { place, listeners } => {
                let sources = self.table.seat(place).map(|seat| seat.sources.as_slice());
                self.doors.lend(sources.unwrap_or_default()).map(|lent| {
                    // The controlling thread may have given up waiting.
                    let _ = listeners.send(lent);
                })
            }
            Order::Open { place } => {
                if let Some(seat) = self.table.seat_mut(place) {
                    self.doors.open(seat);
                }
                Ok(())
            }
            // Answered when the last of its connections is closed.
            Order::Dismiss { place } => {
                return self.dismissals.begin(&mut self.table, &mut self.doors, place, answer);
            }
            Order::Guard { doorkeeper } => {
                self.turns.entrance.guard(&mut self.table, doorkeeper);
                Ok(())
            }
            Order::Change { limits, slow_log } => {
                self.slow_log = SlowLog::new(slow_log);
                self.limits = limits;
                for seat in self.table.seats.iter_mut().flatten() {
                    seat.change_limits(&limits);
                }
                Ok(())
            }
            #[cfg(test)]
            Order::Panic => panic!("ordered to"),
            Order::Drain { within } => {
                self.drain(within);
                Ok(())
            }
        };
        // The controlling thread may have given up waiting.
        let _ = answer.send(done);
    }

    /// Takes a tenant in at `place`, all of it or nothing.
    pub(super) fn admit(
        &mut self,
        place: usize,
        seat: Seat,
        listeners: LoopListeners,
    ) -> io::Result<()> {
        let reads = Reads::new(seat.tenant.cache().file())?;
        let sources = self.doors.add(place, listeners, &reads)?;
        self.table.seat_at(place, LoopSeat::new(seat, reads, sources, &self.limits));
        Ok(())
    }

    fn drain(&mut self, within: Duration) {
        for seat in self.table.seats.iter_mut().flatten() {
            self.doors.stop_listening(seat);
        }
        self.rounds.drain(within);
        // Requests that have arrived by now are still answered: every connection gets a last read.
        let all: Vec<_> = self.table.connections.iter().map(|(key, _)| key).collect();
        for key in all {
            if let Some(connection) = self.table.connections.get_mut(key) {
                connection.readable = true;
            }
            self.table.enqueue(key);
        }
        self.table.close_left_since(self.rounds.round.now.nanos);
    }
}
