//! A trace sent to a server over many connections, at the trace's own times or as fast as it goes.

use std::time::Duration;

use entresol_base::{Clock, Nanos, SystemClock};

use super::socket::SocketAnswers;
use super::{ReplayOptions, Sent, ServerTenant, Session};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::trace::Recorded;

/// Requests of a connection between two looks at the progress bar.
const PROGRESS_EVERY: u64 = 256;
/// Longest sleep before the next look at whether the user interrupts.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Sends the trace: one thread and connection for each share of the keys, one request at a time, so
/// that the requests for a key keep their order and a store after a miss precedes the next of them.
pub(super) fn replay(
    options: &ReplayOptions,
    tenant: &ServerTenant,
    recorded: &Recorded,
    warm_up: usize,
    progress: &Progress,
) -> Result<Sent, BenchError> {
    let due = tenant.pace.map(|pace| pace.due_times(recorded)).transpose()?;
    let clock = SystemClock::new();
    let began = clock.now();
    let share = |connection: usize| {
        let mut answers = SocketAnswers::connect(&tenant.address, tenant.dialect)?;
        let mut session = Session::new(options, recorded, warm_up, &clock);
        session.miss_cost = tenant.miss_cost;
        let mut unreported = 0;
        for (number, request) in recorded.requests().iter().enumerate() {
            if request.object as usize % tenant.connections != connection {
                continue;
            }
            let due = match &due {
                None => clock.now(),
                Some(due) => wait_until(&clock, began.after(due[number]), progress),
            };
            if progress.is_stopped() {
                break;
            }
            session.step_due(&mut answers, number, request, due)?;
            unreported += 1;
            if unreported == PROGRESS_EVERY {
                progress.advance(std::mem::take(&mut unreported));
            }
        }
        session.sent.duration = clock.now().since(began);
        progress.advance(unreported);
        Ok(session.sent)
    };
    let shares: Vec<Result<Sent, BenchError>> = std::thread::scope(|scope| {
        let share = &share;
        let threads: Vec<_> =
            (0..tenant.connections).map(|number| scope.spawn(move || share(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(resume)).collect()
    });
    let mut sent = Sent::new(recorded.requests().len(), warm_up);
    for share in shares {
        sent.merge(&share?);
    }
    Ok(sent)
}

/// Goes on with the panic of a connection's thread.
fn resume<T>(panic: Box<dyn std::any::Any + Send>) -> T {
    std::panic::resume_unwind(panic)
}

/// Sleeps until `due`, or until the user interrupts; returns `due`.
fn wait_until(clock: &SystemClock, due: Nanos, progress: &Progress) -> Nanos {
    loop {
        let left = due.since(clock.now());
        if left.is_zero() || progress.is_stopped() {
            return due;
        }
        std::thread::sleep(left.min(SLEEP_MAX));
    }
}
