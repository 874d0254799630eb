//! Results of a load as tables and as a page.

use entresol_measure::report::svg::{Bar, bars, latency_curve};
use entresol_measure::report::table::{grouped, number};
use entresol_measure::report::{Page, Table};
use entresol_measure::statistics::{PAIRS_MIN, PairedRatio};

use super::compare::{Comparison, Side};
use super::result::{LatencySummary, LoadResult};

fn optional(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), number)
}

impl LoadResult {
    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let title = format!("{} loop on {}", self.r#loop, self.server);
        let mut totals = Table::new(&title, &["", ""]);
        let mut row = |what: &str, value: String| totals.row(vec![what.to_owned(), value]);
        row("requests", grouped(self.requests as f64));
        if let Some(offered) = self.offered_ops_s {
            row("offered, requests/s", grouped(offered));
        }
        row("throughput, requests/s", grouped(self.throughput_ops_s));
        row("values, MB/s", number(self.value_bytes_s / 1e6));
        row("hit ratio", format!("{:.4}", self.hit_ratio));
        row("sets refused", grouped(self.sets_refused as f64));
        row("server CPU, us a request", optional(self.server_cpu_us_per_request));
        row("server CPU, s a GB of values", optional(self.server_cpu_s_per_gb));
        row("generator CPU, us a request", number(self.client_cpu_us_per_request));
        if let Some(late) = self.generator_late_p99_us {
            row("generator late, us, p99", number(late));
        }
        if self.generator_too_late {
            row("VOID: the generator was late", "use a lower rate or more threads".to_owned());
        }
        vec![totals, self.latency_table()]
    }

    fn latency_table(&self) -> Table {
        let since = if self.offered_ops_s.is_some() { "due" } else { "sent" };
        let title = format!("Response time from when a request was {since}, us");
        let columns = ["", "count", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
        let mut table = Table::new(&title, &columns);
        for (what, latency) in
            [("all", &self.latency), ("gets", &self.get_latency), ("sets", &self.set_latency)]
        {
            table.row(latency_row(what, latency));
        }
        table
    }

    /// Renders the results as a page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new("entresol bench cache: load on a server");
        let lines = [self.get_latency.line("gets"), self.set_latency.line("sets")];
        page.drawing(&latency_curve("Response time by percentile", &lines));
        for table in self.tables() {
            page.table(&table);
        }
        page
    }
}

/// Returns the row of one kind of request in a table of response times.
pub(crate) fn latency_row(what: &str, latency: &LatencySummary) -> Vec<String> {
    vec![
        what.to_owned(),
        grouped(latency.count as f64),
        number(latency.mean_us),
        number(latency.p50_us),
        number(latency.p90_us),
        number(latency.p99_us),
        optional(latency.p99_9_us),
        optional(latency.p99_99_us),
        number(latency.max_us),
    ]
}

impl Comparison {
    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let (first, second) = (&self.first, &self.second);
        let mut sides = Table::new(
            "Median (lowest to highest) of the runs",
            &["", &format!("1: {}", first.server), &format!("2: {}", second.server)],
        );
        let mut row = |what: &str, of: &dyn Fn(&Side) -> String| {
            sides.row(vec![what.to_owned(), of(first), of(second)]);
        };
        row("throughput, requests/s", &|side| side.throughput_ops_s.to_string());
        row("values, MB/s", &|side| side.value_mb_s.to_string());
        row("server CPU, s a GB of values", &|side| {
            side.server_cpu_s_per_gb.as_ref().map_or("-".to_owned(), ToString::to_string)
        });
        row("server CPU, us a request", &|side| {
            side.server_cpu_us_per_request.as_ref().map_or("-".to_owned(), ToString::to_string)
        });
        row("response time p50, us", &|side| side.p50_us.to_string());
        row("response time p99, us", &|side| side.p99_us.to_string());
        row("hit ratio, lowest run", &|side| format!("{:.4}", side.hit_ratio_min));
        row("generator CPU, us a request", &|side| side.client_cpu_us_per_request.to_string());
        vec![sides, self.ratio_table()]
    }

    fn ratio_table(&self) -> Table {
        let columns = ["1 to 2", "ratio", "95% from", "to", "pairs", ""];
        let mut table = Table::new("Ratios over pairs, bootstrap over whole pairs", &columns);
        for (what, ratio) in [
            ("server CPU a request", &self.cpu_ratio),
            ("throughput", &self.throughput_ratio),
            ("p99 at equal load", &self.p99_ratio),
        ] {
            if let Some(ratio) = ratio {
                table.row(ratio_row(what, ratio));
            }
        }
        if self.pairs_void > 0 {
            let void = grouped(self.pairs_void as f64);
            table.row(vec![
                "response times put aside, generator late".to_owned(),
                String::new(),
                void,
            ]);
        }
        table
    }

    /// Renders the comparison as a page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new("entresol bench cache: two servers");
        let sides = [&self.first, &self.second];
        let cpu: Vec<Bar> = sides
            .iter()
            .enumerate()
            .filter_map(|(series, side)| {
                let value = side.server_cpu_us_per_request.as_ref()?.median;
                Some(Bar { label: side.server.clone(), value, series })
            })
            .collect();
        page.drawing(&bars("Server CPU for each request, median", "us", &cpu));
        let lines = sides.map(|side| side.typical.latency.line(&side.server));
        page.drawing(&latency_curve("Response time by percentile, typical runs", &lines));
        for table in self.tables() {
            page.table(&table);
        }
        page
    }
}

fn ratio_row(what: &str, ratio: &PairedRatio) -> Vec<String> {
    let verdict = if ratio.differs() {
        ""
    } else if ratio.pairs < PAIRS_MIN {
        "too few pairs to claim anything"
    } else {
        "no difference claimed"
    };
    let three = |value: f64| format!("{value:.3}");
    vec![
        what.to_owned(),
        three(ratio.ratio),
        three(ratio.ci95_low),
        three(ratio.ci95_high),
        ratio.pairs.to_string(),
        verdict.to_owned(),
    ]
}
