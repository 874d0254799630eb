//! This machine's files and those of a simulated disk behave alike: one suite tries both.
#![expect(clippy::expect_used, reason = "a test says what it expects")]

mod block;
mod directory;
mod mapped;
