//! Report of each thread's activity, the body of a failure's report.

use std::fmt::Write;

use super::shared::Shared;
use super::state::{Place, State, Status, Subject, Thread, Wait};
use crate::Picos;

/// Lists each thread that has not ended, and the locks that it holds.
pub(super) fn threads(state: &State, shared: &Shared) -> String {
    let mut report = format!(
        "at {} of virtual time, step {}, seed {}:",
        shared.now(),
        shared.steps(),
        shared.options.seed
    );
    for (number, thread) in state.threads.iter().enumerate() {
        let doing = match thread.status {
            Status::Done => continue,
            Status::Ready(_) => match thread.place {
                Some(seen) => format!("can go on from {}", place(seen)),
                None => "has not started".to_owned(),
            },
            Status::Waiting(wait) => waiting(state, wait),
        };
        let _ = write!(report, "\n  thread {number} {:?} {doing}", thread.name);
        for (subject, place) in &thread.held {
            let _ = write!(report, "\n    holds {}", held(*subject, place));
        }
    }
    report
}

fn waiting(state: &State, wait: Wait) -> String {
    let mut line = match wait.subject {
        Subject::Time => "sleeps".to_owned(),
        Subject::Nothing => "was given up".to_owned(),
        Subject::Token(why) => format!("waits for {why}"),
        Subject::Mutex(_) => format!("waits for a mutex {}", holders(state, wait.subject)),
        Subject::Read(_) => {
            let (holders, next) = (holders(state, wait.subject), next(state, wait.subject));
            format!("waits for a lock, to read, {holders}{next}")
        }
        Subject::Write(_) | Subject::Readers(_) => {
            format!("waits for a lock, to write, {}", holders(state, wait.subject))
        }
        Subject::Condvar(_) => "waits to be notified".to_owned(),
        Subject::Thread(id) => match state.threads.get(id.0 as usize) {
            Some(thread) => format!("waits for the end of thread {} {:?}", id.0, thread.name),
            None => format!("waits for the end of thread {}", id.0),
        },
    };
    let _ = write!(line, ", since {}", place(wait.place));
    let _ = match wait.until {
        Some(Picos::MAX) => write!(line, ", until a time after the end of virtual time"),
        Some(until) => write!(line, ", until {until}"),
        None => Ok(()),
    };
    line
}

/// Names the holders of a lock that a thread waits for.
fn holders(state: &State, wanted: Subject) -> String {
    let mut list = Vec::new();
    for (number, thread) in state.threads.iter().enumerate() {
        for (_, taken) in thread.held.iter().filter(|(held, _)| held.lock() == wanted.lock()) {
            list.push(holder(number, thread, taken));
        }
    }
    if list.is_empty() { "that no thread here holds".to_owned() } else { list.join(" and ") }
}

/// Names the writer that comes before any reader.
fn next(state: &State, wanted: Subject) -> String {
    let mut numbered = state.threads.iter().enumerate();
    let next = numbered.find(|(_, thread)| {
        matches!(thread.status, Status::Waiting(Wait { subject: Subject::Readers(at), .. })
            if Some(at) == wanted.lock())
    });
    next.map_or_else(String::new, |(number, thread)| {
        format!(", behind thread {number} {:?}, which waits to write", thread.name)
    })
}

fn holder(number: usize, thread: &Thread, taken: Place) -> String {
    format!("held by thread {number} {:?} since {}", thread.name, place(taken))
}

fn held(subject: Subject, taken: Place) -> String {
    let kind = match subject {
        Subject::Read(_) => "a lock for reading",
        Subject::Write(_) => "a lock for writing",
        _ => "a mutex",
    };
    format!("{kind} since {}", place(taken))
}

fn place(place: Place) -> String {
    format!("{}:{}:{}", place.file(), place.line(), place.column())
}
