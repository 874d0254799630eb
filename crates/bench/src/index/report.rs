//! Results of indexes as tables and as a page.

use entresol_measure::index::CPU_PER_OPERATION;
use entresol_measure::report::svg::{Bar, bars};
use entresol_measure::report::table::{grouped, number};
use entresol_measure::report::{Page, Table};

use super::{IndexResults, WorkResult};

impl IndexResults {
    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let mut tables = vec![self.times()];
        if self.is_virtual {
            tables.push(self.counts());
        }
        tables.push(self.shapes());
        tables
    }

    fn title(&self) -> String {
        let time = match self.is_virtual {
            true => format!(
                "virtual time with {} ns of processor an operation",
                CPU_PER_OPERATION.0 / 1000
            ),
            false => "processor time".to_owned(),
        };
        format!(
            "{} keys on {}, {}, {} thread{}, {time}, median (lowest to highest) of {}",
            grouped(self.keys as f64),
            self.medium,
            self.popularity,
            self.threads,
            if self.threads == 1 { "" } else { "s" },
            self.rounds
        )
    }

    fn times(&self) -> Table {
        let columns =
            ["index", "workload", "ns per operation", "operations/s", "p99 ns", "cache hits"];
        let mut table = Table::new(&self.title(), &columns);
        for index in &self.indexes {
            if let Some(load) = &index.load_ns {
                let load = ["loading".to_owned(), load.to_string()];
                table.row([index.index.to_string()].into_iter().chain(load).collect());
            }
            for found in &index.workloads {
                table.row(vec![
                    index.index.to_string(),
                    found.workload.to_string(),
                    found.ns.to_string(),
                    grouped(found.operations_s.median),
                    found.p99_ns.map(number).unwrap_or_default(),
                    found.hit_ratio.map(number).unwrap_or_default(),
                ]);
            }
        }
        table
    }

    fn counts(&self) -> Table {
        let columns = [
            "per operation",
            "workload",
            "lines flushed",
            "drains",
            "words stored",
            "loads",
            "units read",
            "units written",
        ];
        let mut table = Table::new("What the medium does; a unit is 256 bytes", &columns);
        for index in &self.indexes {
            for WorkResult { workload, counts, .. } in &index.workloads {
                let Some(counts) = counts else { continue };
                let mut row = vec![index.index.to_string(), workload.to_string()];
                row.extend(
                    [
                        counts.lines_flushed,
                        counts.drains,
                        counts.words_stored,
                        counts.loads,
                        counts.units_read,
                        counts.units_written,
                    ]
                    .map(|count| format!("{count:.3}")),
                );
                table.row(row);
            }
        }
        table
    }

    fn shapes(&self) -> Table {
        let columns = [
            "at the end",
            "keys",
            "nodes",
            "bytes a key",
            "DRAM bytes a key",
            "height",
            "ms to the first answer when opened again",
        ];
        let mut table = Table::new("", &columns);
        for index in &self.indexes {
            let shape = &index.shape;
            let per_key = |bytes: u64| number(bytes as f64 / shape.keys.max(1) as f64);
            table.row(vec![
                index.index.to_string(),
                grouped(shape.keys as f64),
                grouped(shape.nodes as f64),
                per_key(shape.bytes),
                per_key(shape.volatile_bytes),
                shape.height.to_string(),
                index
                    .first_answer_ns
                    .as_ref()
                    .map(|it| number(it.median / 1e6))
                    .unwrap_or_default(),
            ]);
        }
        table
    }

    /// Renders the results as a page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new("Indexes");
        page.note(&self.title());
        // All indexes have the same workloads.
        let first = self.indexes.first();
        let workloads = first.into_iter().flat_map(|index| &index.workloads).map(|it| it.workload);
        for workload in workloads {
            let of_indexes = self.indexes.iter().filter_map(|index| {
                let found = index.workloads.iter().find(|found| found.workload == workload)?;
                Some(Bar { label: index.index.to_string(), value: found.ns.median, series: 0 })
            });
            let of_indexes: Vec<Bar> = of_indexes.collect();
            page.drawing(&bars(workload.name(), "ns per operation", &of_indexes));
        }
        self.tables().iter().for_each(|table| page.table(table));
        page
    }
}
