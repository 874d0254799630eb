//! Orders to a loop from the thread that controls the server, and the loop's start and end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::{Poll, Waker};
use parking_lot::Mutex;

use super::throttled::NEVER;
use super::timers::Timers;
use super::{EventLoop, new_waker};
use crate::config::ConnectionLimits;
use crate::executor::Now;
use crate::listener::LoopListeners;
use crate::registry::Registry;
use crate::slow_log::SlowLog;
use crate::tenant::{Seat, Tenant};

/// An order to a loop.
pub(crate) enum Order {
    /// Take a tenant in at this place.
    Admit { place: usize, tenant: Arc<Tenant>, listeners: LoopListeners },
    /// Close the tenant's listeners and connections.
    Dismiss { place: usize },
    /// Apply these limits, and log requests that take at least this long.
    Change { limits: ConnectionLimits, slow_log: Option<Duration> },
    /// Accept no more connections, answer pending requests, and end within this time.
    Drain { within: Duration },
}

/// Orders on their way to a loop, with the senders of their answers.
#[derive(Default)]
pub(super) struct Mailbox {
    orders: Mutex<Vec<(Order, Sender<io::Result<()>>)>>,
    /// Set once a tenant's limit has changed.
    limits_changed: AtomicBool,
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

    fn ring(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake an event loop");
        }
    }
}

impl LoopHandle {
    /// Gives an order; the answer arrives once it is carried out.
    pub(crate) fn order(&self, order: Order) -> Receiver<io::Result<()>> {
        let (answer, answered) = channel();
        self.bell.mailbox.orders.lock().push((order, answer));
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
    let clock = Arc::clone(&registry.clock);
    let poll = Poll::new()?;
    let waker = Arc::new(new_waker(&poll)?);
    let mailbox = Arc::new(Mailbox::default());
    let (nanos, seconds) = (clock.now(), clock.seconds());
    let own_mailbox = Arc::clone(&mailbox);
    let run = move || {
        let event_loop = EventLoop {
            number,
            poll,
            clock,
            now: Now { nanos, seconds },
            mailbox: own_mailbox,
            limits,
            slow_log: SlowLog::new(slow_log),
            seats: Vec::new(),
            sources: Default::default(),
            connections: Default::default(),
            ready: Default::default(),
            accepting: Default::default(),
            timers: Timers::default(),
            dismissals: Vec::new(),
            throttled: Vec::new(),
            question_at: NEVER,
            arrival: nanos,
            round_ended: nanos,
            answered: Vec::new(),
            executor: Default::default(),
            output: Default::default(),
            buffers: Default::default(),
            draining: None,
            drain_began: nanos,
            stopped: false,
        };
        let mut alarm = Alarm { registry, armed: true };
        alarm.armed = !event_loop.run();
    };
    let thread = std::thread::Builder::new().name(format!("loop-{number}")).spawn(run)?;
    Ok(LoopHandle { bell: LoopBell { mailbox, waker }, thread: Some(thread) })
}

/// Reports a loop that ends without an order to, for instance by a panic.
struct Alarm {
    registry: Arc<Registry>,
    armed: bool,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if self.armed {
            self.registry.note_failure();
        }
    }
}

impl EventLoop {
    pub(super) fn read_mailbox(&mut self) {
        if self.mailbox.limits_changed.swap(false, Ordering::Acquire) {
            self.ask_again();
        }
        let orders = std::mem::take(&mut *self.mailbox.orders.lock());
        for (order, answer) in orders {
            self.obey(order, answer);
        }
    }

    fn obey(&mut self, order: Order, answer: Sender<io::Result<()>>) {
        let done = match order {
            Order::Admit { place, tenant, listeners } => {
                let seat = Seat::new(&tenant, self.number);
                self.admit(place, seat, listeners)
            }
            // Answered when the last of its connections is closed.
            Order::Dismiss { place } => return self.begin_dismissal(place, answer),
            Order::Change { limits, slow_log } => {
                self.slow_log = SlowLog::new(slow_log);
                self.change_limits(limits);
                Ok(())
            }
            Order::Drain { within } => {
                self.drain(within);
                Ok(())
            }
        };
        // The controlling thread may have given up waiting.
        let _ = answer.send(done);
    }

    fn drain(&mut self, within: Duration) {
        for place in 0..self.seats.len() {
            self.stop_listening(place);
        }
        self.drain_began = self.now.nanos;
        self.draining = Some(self.now.nanos.after(within));
        // Requests that have arrived by now are still answered: every connection gets a last read.
        let all: Vec<_> = self.connections.iter().map(|(key, _)| key).collect();
        for key in all {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.readable = true;
            }
            self.enqueue(key);
        }
        self.close_left_since(self.now.nanos);
    }
}
