//! Checks of the repository's own rules: `cargo xtask tidy`.

fn main() {}
