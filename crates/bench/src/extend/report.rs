//! Report of DRAM extension: a table on the terminal, and a page.

use entresol_base::ByteSize;
use entresol_measure::report::svg::{Bar, bars};
use entresol_measure::report::table::number;
use entresol_measure::report::{Page, Table};
use entresol_measure::statistics::{PairedRatio, Spread};

use super::{Extended, Way, WayResult};

impl Way {
    /// Returns the name in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Way::Mapped => "mapped file",
            Way::MappedRandom => "mapped file, MADV_RANDOM",
            Way::Cache => "cache on a file",
        }
    }
}

impl Extended {
    /// Returns the results of a way.
    #[must_use]
    pub fn of(&self, way: Way) -> Option<&WayResult> {
        self.ways.iter().find(|result| result.way == way)
    }

    fn about(&self) -> String {
        let gets = if self.read_only { "write nothing" } else { "count and move their items" };
        format!(
            "{} of values and of columns, {} of memory of which {} are the cache's ({}), {} \
             threads, {} rounds; gets of mapped files {gets}; median (lowest to highest)",
            ByteSize(self.data_bytes),
            ByteSize(self.limit_bytes),
            ByteSize(self.cache_dram_bytes),
            self.limited_by,
            self.threads,
            self.rounds,
        )
    }

    fn ratios(&self) -> Table {
        let columns = ["cache over the faster mapped file", "ratio", "95% interval", "pairs"];
        let mut table = Table::new("", &columns);
        let both = [("gets", self.cache_over_mapped), ("scan", self.cache_over_mapped_scan)];
        for (what, ratio) in both {
            let Some(PairedRatio { ratio, ci95_low, ci95_high, pairs }) = ratio else { continue };
            let interval = format!("{ci95_low:.2} to {ci95_high:.2}");
            table.row(vec![what.to_owned(), format!("{ratio:.2}"), interval, pairs.to_string()]);
        }
        table
    }

    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let columns = ["data in", "gets/s", "get 50% us", "get 99% us", "scan MB/s"];
        let mut table = Table::new(&self.about(), &columns);
        let cell = |Spread { median, min, max }: Spread, unit: f64| {
            let [median, min, max] = [median, min, max].map(|value| number(value / unit));
            format!("{median} ({min} to {max})")
        };
        for result in &self.ways {
            table.row(vec![
                result.way.text().to_owned(),
                cell(result.gets_s, 1.0),
                cell(result.get_us_p50, 1.0),
                cell(result.get_us_p99, 1.0),
                cell(result.scan_bytes_s, 1e6),
            ]);
        }
        vec![table, self.ratios()]
    }

    /// Renders the page.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new("Data beyond the memory: mapped files and a cache");
        page.note(&self.about());
        let bars_of = |title: &str, unit: &str, value: fn(&WayResult) -> f64| {
            let bar = |(series, result): (usize, &WayResult)| Bar {
                label: result.way.text().to_owned(),
                value: value(result),
                series,
            };
            bars(title, unit, &self.ways.iter().enumerate().map(bar).collect::<Vec<_>>())
        };
        page.drawing(&bars_of("Gets a second", "1/s", |result| result.gets_s.median));
        page.drawing(&bars_of("99% of gets", "us", |result| result.get_us_p99.median));
        page.drawing(&bars_of("Scan", "MB/s", |result| result.scan_bytes_s.median / 1e6));
        for table in self.tables() {
            page.table(&table);
        }
        page
    }
}
