//! Results of a run as tables and as a page.

use entresol_base::ByteSize;
use entresol_measure::report::svg::latency_curve;
use entresol_measure::report::table::{grouped, number};
use entresol_measure::report::{Page, Table};

use super::result::{VolumeResult, WorkloadResult, YcsbResult};
use crate::load::latency_row;

impl YcsbResult {
    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let volumes = self.capacity.is_some().then(|| self.volumes());
        let resources = std::iter::once(self.resources()).chain(volumes).chain(self.space());
        let rates = std::iter::once(self.rates());
        rates.chain(resources).chain([self.times()]).collect()
    }

    fn title(&self) -> String {
        let values = match self.value_bytes {
            Some(bytes) => format!("values of {bytes} bytes"),
            None => "values of drawn lengths".to_owned(),
        };
        let slowed =
            |model: &Option<String>| model.as_ref().map(|model| format!(" as slow as {model}"));
        let drive = match slowed(&self.model) {
            Some(slowed) => slowed,
            None if self.medium == "file" => String::new(),
            None => format!(", {}", self.medium),
        };
        let capacity = self.capacity.as_ref().map_or(String::new(), |capacity| {
            let most =
                capacity.fast_bytes_max.map(|bytes| format!(", at most {}", ByteSize(bytes)));
            format!(
                " ({}{}) and {}{} (capacity)",
                capacity.fast_class,
                most.unwrap_or_default(),
                capacity.directory,
                slowed(&capacity.model).unwrap_or_default(),
            )
        });
        let policy = self.policy.as_ref().map(|policy| format!(", policy {policy}"));
        let hot_share = self.hot_share.map(|share| format!(", hot share {share}"));
        let shards =
            if self.shards == 1 { String::new() } else { format!(", {} shards", self.shards) };
        format!(
            "{} in {}{shards}{drive}{capacity}{}{}: {} keys of {} bytes, {values}, {} thread{}, {} \
             loop",
            self.engine,
            self.directory,
            policy.unwrap_or_default(),
            hot_share.unwrap_or_default(),
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
            "stolen, s",
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
                number(found.stolen_s),
                grouped(found.reads_missing as f64),
            ]);
            if let Some(writer) = &found.writer {
                table.row(vec![
                    format!("{}, the writer beside", found.workload),
                    grouped(writer.operations as f64),
                    number(found.duration_s),
                    grouped(writer.throughput_ops_s),
                    grouped(writer.offered_ops_s),
                ]);
            }
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

    /// Returns the tables of the workloads whose space was watched.
    fn space(&self) -> impl Iterator<Item = Table> {
        let watched =
            self.workloads.iter().filter_map(|it| Some((it.workload, it.space.as_ref()?)));
        watched.flat_map(|(workload, space)| space.tables(workload))
    }

    fn volumes(&self) -> Table {
        let columns = [
            "workload",
            "volume",
            "written",
            "log",
            "flushed",
            "compacted",
            "demoted",
            "misplaced",
            "promoted",
            "hot",
            "garbage",
            "files",
        ];
        let title = "Bytes written to each volume, as the store counts them";
        let mut table = Table::new(title, &columns);
        let bytes = |bytes: u64| ByteSize(bytes >> 20 << 20).to_string();
        for found in &self.workloads {
            for volume in &found.volumes {
                let VolumeResult { class, bytes_written, written, directory_bytes, .. } = volume;
                table.row(vec![
                    found.workload.to_string(),
                    class.to_string(),
                    bytes(*bytes_written),
                    bytes(written.log_bytes),
                    bytes(written.flush_bytes),
                    bytes(written.compaction_bytes),
                    bytes(written.demoted_bytes),
                    bytes(written.misplaced_bytes),
                    bytes(written.promoted_bytes),
                    bytes(written.hot_bytes),
                    bytes(written.collected_bytes),
                    bytes(*directory_bytes),
                ]);
            }
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
            if let Some(writer) = &found.writer {
                let what = format!("{}, the writer, from when due", found.workload);
                table.row(latency_row(&what, &writer.latency));
            }
            if let Some(late) = found.begun_late_p99_us {
                table.row(vec![format!("{} begun late, p99", found.workload), number(late)]);
            }
        }
        table
    }

    /// Renders the results as a page with drawings.
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
