//! Results of direct calls as tables and as a page.

use entresol_measure::report::svg::{Bar, bars};
use entresol_measure::report::table::{grouped, number};
use entresol_measure::report::{Page, Table};

use super::{DirectResult, Workload};

impl DirectResult {
    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        vec![self.times(), self.memory_table(), self.threads(), self.account_table()]
    }

    fn times(&self) -> Table {
        let title = format!(
            "{} objects of {} + {} B, one thread, processor time, median (lowest to highest) of {}",
            grouped(f64::from(self.objects)),
            self.key_bytes,
            self.value_bytes,
            self.rounds
        );
        let columns = ["ns per operation", "cache", "boxed map", "ratio"];
        let mut table = Table::new(&title, &columns);
        let (ours, map) = (self.cache_fill_cpu_ns, self.map_fill_cpu_ns);
        let fill = [number(ours), number(map), number(ours / map.max(f64::MIN_POSITIVE))];
        table.row(["first set (filling)".to_owned()].into_iter().chain(fill).collect());
        for found in &self.workloads {
            table.row(vec![
                found.workload.label().to_owned(),
                found.cache_cpu_ns.to_string(),
                found.map_cpu_ns.to_string(),
                number(found.ratio),
            ]);
        }
        table
    }

    fn memory_table(&self) -> Table {
        let mut table = Table::new("Memory", &["bytes per object", ""]);
        let map = ("boxed map, resident growth", self.map_resident_bytes_per_object);
        let Some(memory) = &self.memory else {
            let text = "so few objects do not fill the smallest cache";
            table.row(vec!["cache at its quota".to_owned(), text.to_owned()]);
            table.row(vec![map.0.to_owned(), number(map.1)]);
            return table;
        };
        for (what, value) in [
            ("quota at the first eviction", memory.quota_bytes_per_object),
            ("accounted by the cache", memory.accounted_bytes_per_object),
            ("resident growth", memory.resident_bytes_per_object),
            ("quota after half as many again", memory.quota_bytes_per_object_after_overflow),
            map,
        ] {
            table.row(vec![what.to_owned(), number(value)]);
        }
        let refused = grouped(memory.refused_while_free as f64);
        table.row(vec!["stores refused while memory was free".to_owned(), refused]);
        table.row(vec!["stores refused in all".to_owned(), grouped(memory.refused as f64)]);
        table
    }

    fn threads(&self) -> Table {
        let columns = ["threads", "cache ops/s", "cache ns", "map behind one lock ops/s"];
        let mut table = Table::new(Workload::Mixed.label(), &columns);
        for found in &self.mixed {
            table.row(vec![
                found.threads.to_string(),
                found.cache_ops_s.to_string(),
                found.cache_cpu_ns.to_string(),
                found.map_ops_s.to_string(),
            ]);
        }
        table
    }

    fn account_table(&self) -> Table {
        let columns = ["value B", "get", "one account more", "difference", "account alone"];
        let mut table = Table::new("Cost of an account on each get, ns", &columns);
        for found in &self.accounts {
            table.row(vec![
                found.value_bytes.to_string(),
                found.get_cpu_ns.to_string(),
                found.get_twice_accounted_cpu_ns.to_string(),
                found.difference_cpu_ns.to_string(),
                found.account_alone_cpu_ns.to_string(),
            ]);
        }
        table
    }

    /// Renders the results as a page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new("entresol bench cache: in process");
        let bar = |label: String, value, series| Bar { label, value, series };
        let times: Vec<Bar> = self
            .workloads
            .iter()
            .flat_map(|found| {
                let label = found.workload.label();
                [
                    bar(format!("cache: {label}"), found.cache_cpu_ns.median, 0),
                    bar(format!("map: {label}"), found.map_cpu_ns.median, 1),
                ]
            })
            .collect();
        page.drawing(&bars("Processor time of one operation, median", "ns", &times));
        let map = self.map_resident_bytes_per_object;
        let ours = self.memory.as_ref().map(|memory| memory.resident_bytes_per_object);
        let ours = ours.map(|bytes| bar("cache, resident".into(), bytes, 0));
        let map = bar("boxed map, resident".into(), map, 1);
        let memory: Vec<Bar> = ours.into_iter().chain([map]).collect();
        page.drawing(&bars("Memory of one object", "B", &memory));
        for table in self.tables() {
            page.table(&table);
        }
        page
    }
}
