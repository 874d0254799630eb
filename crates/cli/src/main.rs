//! The `entresol` command: arguments in, library calls out.

fn main() {}
