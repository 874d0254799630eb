//! Runs one kind of operation of the cache for an instrument that counts instructions:
//!
//! ```sh
//! cargo build --release --package entresol-bench --example instructions
//! for n in 10000 30000; do
//!     valgrind --tool=callgrind --callgrind-out-file=target/counts.out \
//!         target/release/examples/instructions get $n 100 2>&1 | grep Collected
//! done
//! ```
//!
//! The difference of the two counts, divided by 20,000, is the number of instructions of one
//! operation with its share of the loop; start-up and filling cancel out. The operations are get,
//! get-miss, get-batched and set. The last argument is the size of a value in bytes.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use entresol_bench::direct::{CountedOperation, run_counted};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            complain(&problem);
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let [operation, operations, value_bytes] = arguments else {
        return Err("usage: instructions OPERATION COUNT VALUE_BYTES".to_owned());
    };
    let operation: CountedOperation = operation.parse()?;
    let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is no whole number"));
    let operations: u64 = number(operations)?;
    let value_bytes = number(value_bytes)? as usize;
    run_counted(operation, operations, value_bytes).map_err(|error| error.to_string())
}

#[expect(clippy::print_stderr, reason = "the example's own error message")]
fn complain(problem: &str) {
    eprintln!("instructions: {problem}");
}
