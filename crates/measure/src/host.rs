//! Host between an application and a drive: processors and their work for a request.

use entresol_base::Picos;

/// Way in which the host learns that a request is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The drive interrupts a processor, which wakes the thread.
    Interrupt,
    /// The thread polls for the completion and occupies its processor.
    Polled,
}

/// Host whose requests each use one processor, the same for submission and completion.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Time from the application's call to the doorbell.
    pub submit: Picos,
    /// Time from the completion to the application.
    pub complete: Picos,
    /// Time that a host bus adapter adds, half of it each way.
    pub adapter: Picos,
    /// Processors that issue requests.
    pub processors: usize,
    /// Way in which a completion is learnt of.
    pub completion: Completion,
}

impl Host {
    /// Linux with a multi-queue block layer and NVMe: "less than 4 us" (004, section III), on the
    /// two 22-core processors of footnote 3 of 004.
    pub const NVME: Host = Host {
        submit: Picos::from_nanos(1_400),
        complete: Picos::from_nanos(2_400),
        adapter: Picos::ZERO,
        processors: 44,
        completion: Completion::Interrupt,
    };

    /// NVMe with polling: "1.5 us", without a context switch (004, section III-B).
    pub const NVME_POLLED: Host = Host {
        submit: Picos::from_nanos(1_000),
        complete: Picos::from_nanos(500),
        completion: Completion::Polled,
        ..Host::NVME
    };

    /// Host of 2008: a stack of 12 us (004, section III-B), an adapter of 25 us (III-A), and 3 us
    /// of interrupts.
    pub const SATA_2008: Host = Host {
        submit: Picos::from_micros(6),
        complete: Picos::from_micros(9),
        adapter: Picos::from_micros(25),
        processors: 8,
        completion: Completion::Interrupt,
    };

    /// Returns the time that the host adds to a request when idle.
    pub fn time(&self) -> Picos {
        self.submit.after(self.complete).after(self.adapter)
    }
}
