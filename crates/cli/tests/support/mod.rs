//! Processes of the program that are interrupted once they are at work.

use std::fs;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Reads a file of the process in `/proc`.
fn told(child: &Child, name: &str) -> String {
    fs::read_to_string(format!("/proc/{}/{name}", child.id())).expect("the process runs")
}

fn catches_interrupts(child: &Child) -> bool {
    let status = told(child, "status");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
    // Signal 2 is the second bit.
    u64::from_str_radix(caught.trim(), 16).expect("a mask") & 2 != 0
}

/// Returns the processor time that the process has taken, in the kernel's hundredths of a second.
fn processor_ticks(child: &Child) -> u64 {
    let stat = told(child, "stat");
    let behind_name = stat.rsplit(')').next().expect("fields");
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    [fields[11], fields[12]].iter().map(|it| it.parse::<u64>().expect("ticks")).sum()
}

/// Interrupts a process as soon as it catches interrupts and has worked for a fifth of a second,
/// which may take long on a busy machine.
pub(crate) fn interrupt_at_work(child: &Child) {
    for _ in 0..6_000 {
        if catches_interrupts(child) && processor_ticks(child) >= 20 {
            kill_process(Pid::from_child(child), Signal::INT).expect("a signal");
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the process was not at work within 60 s");
}
