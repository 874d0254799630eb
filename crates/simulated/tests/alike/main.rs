//! This machine's files and those of a simulated disk behave alike: one suite tries both.

mod block;
mod directory;
mod mapped;
