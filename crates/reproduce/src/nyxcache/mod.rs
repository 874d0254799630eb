//! NyxCache: its tables and figures.

mod adversaries;
mod core;
mod fig1;
mod fig10;
mod fig11;
mod fig12;
mod fig13;
mod fig14;
mod fig3;
mod fig4;
mod fig4_cache;
mod fig5;
mod fig6;
mod fig7;
mod fig8;
mod fig9;
mod scene;
mod table2;
mod tenants;

use super::Entry;

const SOURCE: &str = "NyxCache: Flexible and Efficient Multi-tenant Persistent Memory Caching";

/// Entries measured in real time.
pub(super) const MEASURED: &[Entry] = &[Entry {
    name: "002-fig5",
    part: "a",
    source: SOURCE,
    about: "what accounts cost, on the machine at hand",
    run: fig5::fig5a,
}];

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "002-table2",
        part: "",
        source: SOURCE,
        about: "kinds of loads and stores, one thread",
        run: table2::table2,
    },
    Entry {
        name: "002-fig1",
        part: "a",
        source: SOURCE,
        about: "what reads and writes beside it cost a reader",
        run: fig1::fig1a,
    },
    Entry {
        name: "002-fig1",
        part: "b",
        source: SOURCE,
        about: "what the size of stores beside it costs a reader",
        run: fig1::fig1b,
    },
    Entry {
        name: "002-fig3",
        part: "",
        source: SOURCE,
        about: "the most random accesses a second by size, and the cost table",
        run: fig3::fig3,
    },
    Entry {
        name: "002-fig4",
        part: "a",
        source: SOURCE,
        about: "what gets gain by keys in DRAM",
        run: fig4::fig4a,
    },
    Entry {
        name: "002-fig4",
        part: "b",
        source: SOURCE,
        about: "what replacements gain by stores past the caches",
        run: fig4::fig4b,
    },
    Entry {
        name: "002-fig5",
        part: "b",
        source: SOURCE,
        about: "what learning performance alone costs",
        run: fig5::fig5b,
    },
    Entry {
        name: "002-fig6",
        part: "a",
        source: SOURCE,
        about: "a limit of resources beside one of bytes, for each kind of request",
        run: fig6::fig6a,
    },
    Entry {
        name: "002-fig6",
        part: "c",
        source: SOURCE,
        about: "the same beside mixes of gets and sets",
        run: fig6::fig6c,
    },
    Entry {
        name: "002-fig7",
        part: "",
        source: SOURCE,
        about: "a limit of resources when only some requests hit",
        run: fig7::fig7,
    },
    Entry {
        name: "002-fig8",
        part: "",
        source: SOURCE,
        about: "a latency target beside one that reads and one that writes",
        run: fig8::fig8,
    },
    Entry {
        name: "002-fig9",
        part: "a",
        source: SOURCE,
        about: "equal slowdown of a light and an intensive tenant, over time",
        run: fig9::fig9a,
    },
    Entry {
        name: "002-fig9",
        part: "b",
        source: SOURCE,
        about: "equal slowdown beside twelve kinds of neighbour",
        run: fig9::fig9b,
    },
    Entry {
        name: "002-fig10",
        part: "a",
        source: SOURCE,
        about: "shares by weight of one that reads and one that writes",
        run: fig10::fig10a,
    },
    Entry {
        name: "002-fig10",
        part: "b",
        source: SOURCE,
        about: "shares by weight of large and small gets",
        run: fig10::fig10b,
    },
    Entry {
        name: "002-fig11",
        part: "a",
        source: SOURCE,
        about: "idle shares lent out, over time",
        run: fig11::fig11a,
    },
    Entry {
        name: "002-fig11",
        part: "b",
        source: SOURCE,
        about: "idle shares lent out, by how much is idle",
        run: fig11::fig11b,
    },
    Entry {
        name: "002-fig12",
        part: "a",
        source: SOURCE,
        about: "three of Twitter's mixes and a spike of sets",
        run: fig12::fig12a,
    },
    Entry {
        name: "002-fig12",
        part: "b",
        source: SOURCE,
        about: "three of Twitter's mixes by day and by night",
        run: fig12::fig12b,
    },
    Entry {
        name: "002-fig13",
        part: "",
        source: SOURCE,
        about: "the paper's latency targets by the size of its experiments",
        run: fig13::fig13,
    },
    Entry {
        name: "002-fig14",
        part: "",
        source: SOURCE,
        about: "idle shares lent out in steps of several sizes",
        run: fig14::fig14,
    },
    Entry {
        name: "002-adversaries",
        part: "",
        source: SOURCE,
        about: "tenants that try to get more than their limit or share, no figure of the paper",
        run: adversaries::adversaries,
    },
];

#[cfg(test)]
mod tests {
    use entresol_media::model::memory::{AEP2, MemoryOp};

    use super::*;
    use crate::tests::holds;

    #[test]
    fn the_quick_entries_are_as_in_the_catalogue_and_fail_as_known() {
        for name in ["002-table2", "002-fig1b", "002-fig4a", "002-fig4b"] {
            holds(name);
        }
    }

    #[test]
    fn ten_runs_are_the_same_to_the_bit() {
        let run = |seed| {
            let loads = core::Accesses { op: MemoryOp::Load, bytes: 256 };
            let accesses = core::Accesses { op: MemoryOp::NtStore, bytes: 192 };
            let beside = Some(core::Beside { accesses, bytes_s: 1e9 });
            let scene = core::Scene { beside, ..core::Scene::alone(loads, 5_000) };
            let measured = core::run(&AEP2, &scene, seed);
            (measured.gb_s.to_bits(), measured.latency.percentile_us(99.0).to_bits())
        };
        assert!((0..9).all(|_| run(7) == run(7)));
        assert_ne!(run(7), run(8), "the seed is heard");
    }
}
