//! Any text as a configuration: it is refused with places in the text, or yields settings, and
//! never panics.
#![no_main]

use entresol_base::ByteSize;
use entresol_service::config::{self, Machine};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let machine = Machine { memory: ByteSize::gib(64), processors: 2 };
    match config::parse("fuzz.toml", text, &machine) {
        Ok(settings) => assert!(!settings.tenants.is_empty(), "no tenant"),
        Err(error) => assert!(error.to_string().contains("fuzz.toml"), "{error}"),
    }
});
