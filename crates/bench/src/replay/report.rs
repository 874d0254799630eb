//! Results of a replay as tables and as a page.

use entresol_measure::report::svg::latency_curve;
use entresol_measure::report::table::{grouped, number};
use entresol_measure::report::{Page, Table};

use super::ReplayResult;
use crate::load::latency_row;

impl ReplayResult {
    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let composed =
            if self.composed { " (composed: keys and sizes of two origins)" } else { "" };
        let title = format!("{} on {}{composed}", self.trace, self.tenant);
        let mut table = Table::new(&title, &["", ""]);
        let mut row = |what: &str, value: String| table.row(vec![what.to_owned(), value]);
        row("requests", grouped(self.requests as f64));
        row("hit ratio", format!("{:.4}", self.hit_ratio));
        row("gets", grouped(self.gets as f64));
        row("stores", grouped(self.stores as f64));
        row("stores refused", grouped(self.stores_refused as f64));
        row("deletes", grouped(self.deletes as f64));
        row("counts", grouped(self.counts as f64));
        row("bytes stored", grouped(self.stored_bytes as f64));
        row("throughput, requests/s", grouped(self.throughput_ops_s));
        row("time of the trace, s", grouped(f64::from(self.trace_s)));
        row("time of the replay, s", number(self.duration_s));
        if let Some(found) = &self.statistics {
            row("items held", grouped(found.items as f64));
            row("DRAM used, B", grouped(found.dram_used_bytes as f64));
            row("medium used, B", grouped(found.medium_used_bytes as f64));
            row("items evicted", grouped(found.events.evicted_items as f64));
            row("items expired", grouped(found.events.expired_items as f64));
            row("access to the medium", found.access.to_owned());
        }
        let columns = ["us", "count", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
        let mut times = Table::new("Response time, one request at a time", &columns);
        times.row(latency_row("gets", &self.get_latency));
        times.row(latency_row("stores", &self.store_latency));
        vec![table, times]
    }

    /// Renders the results as a page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new("entresol bench trace");
        let lines = [self.get_latency.line("gets"), self.store_latency.line("stores")];
        page.drawing(&latency_curve("Response time by percentile", &lines));
        for table in self.tables() {
            page.table(&table);
        }
        page
    }
}
