//! Measures the cost of charging an account by a measured table: admits and charges accesses of
//! changing sizes, and prints the processor time. Also for `valgrind --tool=callgrind`: the
//! difference of two runs with different counts is the cost of one charge.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use entresol_base::Nanos;
use entresol_media::{Access, Account, Admission, CostTable};
use rustix::time::{ClockId, clock_gettime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, table, count, what, how] = arguments.as_slice() else {
        return Err("usage: charge TABLE.json COUNT charge|nothing timed|counted".into());
    };
    // Valgrind does not emulate the system's clock as it is called here.
    let now_ns = if how == "timed" { processor_ns } else { || 0 };
    let costs = Arc::new(CostTable::load(Path::new(table))?);
    let count: usize = count.parse()?;
    let account = Account::new("measured", costs);
    let mut handle = account.handle();
    let charging = what == "charge";
    let before_ns = now_ns();
    for number in 0..count {
        // Sizes up to 8 KiB, so that both the table and what lies beyond it are used.
        let bytes = std::hint::black_box(number.wrapping_mul(2_654_435_761) >> 7 & 8191);
        if charging {
            if handle.admit(Nanos(0)) != Admission::Go {
                return Err("an account without a limit said no".into());
            }
            handle.charge(if number & 1 == 0 { Access::Read } else { Access::Write }, bytes);
        }
    }
    let spent = (now_ns() - before_ns) as f64 / count.max(1) as f64;
    writeln!(std::io::stdout(), "{spent:.3} ns each; {} ns charged", account.used_ns())?;
    Ok(())
}

fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
