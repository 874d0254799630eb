//! A run as tables and as a page.

use entresol_base::ByteSize;

use super::result::{WorkloadResult, YcsbResult};
use crate::load::latency_row;
use crate::report::svg::latency_curve;
use crate::report::table::{grouped, number};
use crate::report::{Page, Table};

impl YcsbResult {
    /// Tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        vec![self.rates(), self.resources(), self.times()]
    }

    fn title(&self) -> String {
        let values = match self.value_bytes {
            Some(bytes) => format!("values of {bytes} bytes"),
            None => "values of drawn lengths".to_owned(),
        };
        let drive = match &self.model {
            Some(model) => format!(" as slow as {model}"),
            None if self.medium == "file" => String::new(),
            None => format!(", {}", self.medium),
        };
        format!(
            "{} in {}{drive}: {} keys of {} bytes, {values}, {} thread{}, {} loop",
            self.engine,
            self.directory,
            grouped(self.keys as f64),
            self.key_bytes,
            self.threads,
            if self.threads == 1 { "" } else { "s" },
            self.r#loop,
        )
    }

    fn rates(&self) -> Table {
        let columns = [
            "workload",
            "operations",
            "seconds",
            "operations/s",
            "offered/s",
            "CPU us each",
            "generator's",
            "not found",
        ];
        let mut table = Table::new(&self.title(), &columns);
        for found in &self.workloads {
            table.row(vec![
                found.workload.to_string(),
                grouped(found.operations as f64),
                number(found.duration_s),
                grouped(found.throughput_ops_s),
                found.offered_ops_s.map_or("-".to_owned(), grouped),
                number(found.cpu_us_per_operation),
                number(found.generator_cpu_us_per_operation),
                grouped(found.reads_missing as f64),
            ]);
        }
        if let Some(keys) = self.keys_read_back {
            let what = "after reopening, every key was right";
            table.row(vec![what.to_owned(), grouped(keys as f64)]);
        }
        table
    }

    fn resources(&self) -> Table {
        let columns = [
            "workload",
            "put",
            "written",
            "for each byte put",
            "files",
            "memory, most",
            "of it no file's",
        ];
        let mut table = Table::new("Bytes", &columns);
        let bytes = |bytes: u64| ByteSize(bytes >> 20 << 20).to_string();
        for found in &self.workloads {
            let WorkloadResult { bytes_written: written, .. } = found;
            table.row(vec![
                found.workload.to_string(),
                bytes(found.user_bytes),
                written.map_or("not counted".to_owned(), bytes),
                found.bytes_written_per_user_byte.map_or("-".to_owned(), number),
                bytes(found.directory_bytes),
                bytes(found.resident_bytes_max),
                bytes(found.anonymous_bytes_max),
            ]);
        }
        table
    }

    fn times(&self) -> Table {
        let since = if self.r#loop == "open" { "due" } else { "begun" };
        let title = format!("Time from when an operation was {since}, us");
        let columns = ["", "count", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
        let mut table = Table::new(&title, &columns);
        for found in &self.workloads {
            for of in &found.kinds {
                table.row(latency_row(&format!("{} {}", found.workload, of.kind), &of.latency));
            }
            if let Some(late) = found.begun_late_p99_us {
                table.row(vec![format!("{} begun late, p99", found.workload), number(late)]);
            }
        }
        table
    }

    /// The same as a page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new(&format!("YCSB on {}", self.engine));
        for found in &self.workloads {
            let lines: Vec<_> = found.kinds.iter().map(|it| it.latency.line(it.kind)).collect();
            page.drawing(&latency_curve(&format!("Workload {}", found.workload), &lines));
        }
        self.tables().iter().for_each(|table| page.table(table));
        page
    }
}
