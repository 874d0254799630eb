//! ODS-Tree: its tables and figures.

mod core;
mod counts;
mod times;

use super::Entry;

const SOURCE: &str = "One-Direction Shift B+-Tree Based on Persistent Memory";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "003-table2",
        part: "",
        source: SOURCE,
        about: "lines flushed by inserts and deletes",
        run: counts::table2,
    },
    Entry {
        name: "003-table3",
        part: "",
        source: SOURCE,
        about: "lines flushed by mixed loads",
        run: counts::table3,
    },
    Entry {
        name: "003-fig4",
        part: "",
        source: SOURCE,
        about: "time of inserts, finds and deletes at three latencies",
        run: times::fig4,
    },
];
