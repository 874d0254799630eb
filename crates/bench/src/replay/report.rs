//! A replay as tables and as a page.

use super::simulate::{MissRatioCurve, PolicyHits, Sizing};
use super::tally::Hits;
use super::{ReplayResult, tally};
use crate::load::latency_row;
use entresol_measure::report::svg::{Axis, Line, Scale, latency_curve, lines};
use entresol_measure::report::table::{grouped, number};
use entresol_measure::report::{Page, Table};

impl ReplayResult {
    /// Tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let mut tables = vec![self.totals()];
        if !self.policies.is_empty() {
            tables.push(self.comparison());
        }
        tables.push(self.by_size());
        if !self.curves.is_empty() {
            tables.push(curve_table(&self.curves));
        }
        tables.push(self.times());
        tables
    }

    fn totals(&self) -> Table {
        let composed =
            if self.composed { " (composed: keys and sizes of two origins)" } else { "" };
        let title = format!("{} on {}{composed}", self.trace, self.tenant);
        let mut table = Table::new(&title, &["", ""]);
        let mut row = |what: &str, value: String| table.row(vec![what.to_owned(), value]);
        row("requests", grouped(self.requests as f64));
        row("objects", grouped(f64::from(self.objects)));
        row("footprint with overhead, B", grouped(self.footprint_bytes as f64));
        row("hit ratio", format!("{:.4}", self.hits.all.hit_ratio));
        row("byte hit ratio", format!("{:.4}", self.hits.all.byte_hit_ratio));
        if let Some(warm) = &self.hits.warm {
            row("hit ratio after warm-up", format!("{:.4}", warm.hit_ratio));
            row("byte hit ratio after warm-up", format!("{:.4}", warm.byte_hit_ratio));
        }
        row("gets", grouped(self.hits.all.gets as f64));
        row("stores", grouped(self.stores as f64));
        row("stores refused", grouped(self.stores_refused as f64));
        row("deletes", grouped(self.deletes as f64));
        row("counts", grouped(self.counts as f64));
        row("bytes stored", grouped(self.stored_bytes as f64));
        row("requests without a size", grouped(self.sizes_assumed as f64));
        row("throughput, requests/s", grouped(self.throughput_ops_s));
        row("time of the trace, s", grouped(f64::from(self.trace_s)));
        row("time of the replay, s", number(self.duration_s));
        if let Some(held) = self.held_bytes {
            row("bytes of keys and values held", grouped(held as f64));
        }
        if let Some(found) = &self.statistics {
            row("items held", grouped(found.items as f64));
            row("DRAM used, B", grouped(found.dram_used_bytes as f64));
            row("medium used, B", grouped(found.medium_used_bytes as f64));
            row("items evicted", grouped(found.events.evicted_items as f64));
            row("items expired", grouped(found.events.expired_items as f64));
            row("access to the medium", found.access.to_owned());
        }
        table
    }

    fn comparison(&self) -> Table {
        let columns = ["policy", "capacity, B", "overhead, B", "miss ratio", "byte miss ratio"];
        let mut table = Table::new("Misses beside simulated policies", &columns);
        let row = |name: String, capacity: String, overhead: String, hits: &Hits| {
            let ratios = hits.warm.unwrap_or(hits.all);
            let missed = |hit: f64| format!("{:.4}", 1.0 - hit);
            let byte = missed(ratios.byte_hit_ratio);
            vec![name, capacity, overhead, missed(ratios.hit_ratio), byte]
        };
        table.row(row("ours".to_owned(), String::new(), String::new(), &self.hits));
        for it in &self.policies {
            let capacity = grouped(it.capacity_bytes as f64);
            table.row(row(policy_label(it), capacity, it.overhead_bytes.to_string(), &it.hits));
        }
        table
    }

    fn by_size(&self) -> Table {
        let columns = ["values, B", "gets", "misses", "miss ratio"];
        let mut table = Table::new("Misses by size of the value", &columns);
        for tally::SizeClass { value_bytes_below, ratios } in &self.hits.by_size {
            table.row(vec![
                format!("{} to {}", value_bytes_below / 2, value_bytes_below - 1),
                grouped(ratios.gets as f64),
                grouped((ratios.gets - ratios.hits) as f64),
                format!("{:.4}", 1.0 - ratios.hit_ratio),
            ]);
        }
        table
    }

    fn times(&self) -> Table {
        let columns = ["us", "count", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
        let mut times = Table::new("Response time", &columns);
        times.row(latency_row("gets", &self.get_latency));
        times.row(latency_row("stores", &self.store_latency));
        times
    }

    /// A page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new("entresol bench trace");
        page.drawing(&self.over_time());
        if !self.curves.is_empty() {
            page.drawing(&drawn_curves(&self.curves));
        }
        let times = [self.get_latency.line("gets"), self.store_latency.line("stores")];
        page.drawing(&latency_curve("Response time by percentile", &times));
        for table in self.tables() {
            page.table(&table);
        }
        page
    }

    /// Hit ratio over the trace, ours and the policies' at equal memory.
    fn over_time(&self) -> String {
        let line = |label: &str, hits: &Hits| {
            let sections = hits.hit_ratio_over_time.len().max(1) as f64;
            let points = hits.hit_ratio_over_time.iter().enumerate();
            let points = points.map(|(at, &ratio)| (at as f64 * 100.0 / sections, ratio));
            Line { label: label.to_owned(), points: points.collect() }
        };
        let simulated = self.policies.iter().filter(|policy| policy.sizing == Sizing::EqualMemory);
        let drawn: Vec<Line> = std::iter::once(line("ours", &self.hits))
            .chain(simulated.map(|it| line(it.policy, &it.hits)))
            .collect();
        let x = axis("part of the trace, %");
        lines("Hit ratio over time, at equal memory", &x, &axis("hit ratio"), &drawn)
    }
}

fn policy_label(it: &PolicyHits) -> String {
    match it.sizing {
        Sizing::EqualMemory => format!("{}, equal memory", it.policy),
        Sizing::EqualObjectBytes => format!("{}, equal object bytes", it.policy),
    }
}

fn curve_table(curves: &[MissRatioCurve]) -> Table {
    let mut columns = vec!["capacity, % of the footprint", "capacity, B"];
    columns.extend(curves.iter().map(|curve| curve.policy));
    let sampled = curves.first().map_or(1.0, |curve| curve.sampled_share);
    let title = format!("Miss ratio by capacity, {:.1}% of the objects sampled", sampled * 100.0);
    let mut table = Table::new(&title, &columns);
    for at in 0..curves.first().map_or(0, |curve| curve.points.len()) {
        let point = curves[0].points[at];
        let mut row = vec![number(point.footprint_percent), grouped(point.capacity_bytes as f64)];
        row.extend(curves.iter().map(|curve| format!("{:.4}", curve.points[at].miss_ratio)));
        table.row(row);
    }
    table
}

fn drawn_curves(curves: &[MissRatioCurve]) -> String {
    let line = |curve: &MissRatioCurve| Line {
        label: curve.policy.to_owned(),
        points: curve.points.iter().map(|it| (it.footprint_percent, it.miss_ratio)).collect(),
    };
    let drawn: Vec<Line> = curves.iter().map(line).collect();
    let x = Axis { scale: Scale::Logarithmic, ..axis("capacity, % of the footprint") };
    lines("Miss ratio by capacity", &x, &axis("miss ratio"), &drawn)
}

fn axis(label: &str) -> Axis {
    Axis { label: label.to_owned(), scale: Scale::Linear, ticks: Vec::new() }
}
