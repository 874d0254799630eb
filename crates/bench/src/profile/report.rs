//! Report of a profile: tables on the terminal, and a page.

use entresol_measure::report::svg::{Bar, bars};
use entresol_measure::report::table::number;
use entresol_measure::report::{Page, Table};
use entresol_measure::statistics::Spread;

use super::figure::{Figure, Point, Quantity, Series, with_spread};
use super::{MediumProfile, Profile};

impl Profile {
    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        for medium in &self.media {
            tables.push(medium.head());
            tables.extend(medium.figures.iter().map(Figure::table));
            tables.extend(medium.split_table());
        }
        tables.extend(self.comparison());
        tables.extend(self.media.iter().map(MediumProfile::advice_table));
        tables
    }

    /// Renders the page.
    #[must_use]
    pub fn page(&self) -> Page {
        let names: Vec<&str> = self.media.iter().map(|medium| medium.medium.as_str()).collect();
        let mut page = Page::new(&format!("Profile of {}", names.join(" and ")));
        page.note(&format!(
            "Points are medians of {} rounds, whiskers reach from the lowest round to the highest. \
             Mode: {}.",
            self.rounds, self.mode
        ));
        for table in self.comparison() {
            page.section(&table.title);
            page.table(&Table { title: String::new(), ..table });
        }
        for figure in self.compared_figures() {
            page.drawing(&figure.drawing());
        }
        for medium in &self.media {
            medium.add_to(&mut page);
        }
        page
    }

    /// Compares the figures of two media side by side. (000: tables 7 and 8)
    fn comparison(&self) -> Vec<Table> {
        let [first, second] = self.media.as_slice() else { return Vec::new() };
        let pairs = first.figures.iter().filter(|figure| figure.is_compared());
        pairs.filter_map(|a| compare(a, second.figure(a.name)?, [first, second])).collect()
    }

    /// Returns the figures to draw with both media in them.
    fn compared_figures(&self) -> Vec<Figure> {
        let [first, second] = self.media.as_slice() else { return Vec::new() };
        let pairs = first.figures.iter().filter(|figure| figure.is_compared());
        pairs
            .filter_map(|a| {
                let labelled = |figure: &Figure, medium: &MediumProfile| {
                    figure.series.first().map(|series| Series {
                        label: format!("{}, {}", medium.medium, series.label),
                        points: series.points.clone(),
                    })
                };
                let b = second.figure(a.name)?;
                let series = [labelled(a, first)?, labelled(b, second)?].to_vec();
                Some(Figure { series, ..a.clone() })
            })
            .collect()
    }
}

fn compare(a: &Figure, b: &Figure, [first, second]: [&MediumProfile; 2]) -> Option<Table> {
    let (series_a, series_b) = (a.series.first()?, b.series.first()?);
    let title = format!("{}, {} ({}), both media", a.title, series_a.label, a.y.label);
    let columns = [a.x.label, &first.medium, &second.medium, "ratio"];
    let mut table = Table::new(&title, &columns);
    let pairs = series_a.points.iter().filter_map(|point| {
        let other = series_b.points.iter().find(|other| (other.x - point.x).abs() < 0.5)?;
        Some((point, other))
    });
    for (point, other) in pairs {
        table.row(vec![
            a.place_text(point.x),
            with_spread(point.y),
            with_spread(other.y),
            number(point.y.median / other.y.median),
        ]);
    }
    Some(table)
}

impl MediumProfile {
    /// Returns the figure of this name.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    fn head(&self) -> Table {
        let mut table = Table::new(&format!("{}: {}", self.medium, self.kind), &[""]);
        for fact in &self.facts {
            table.row(vec![format!("{}: {}", fact.name, fact.text)]);
        }
        table
    }

    fn advice_table(&self) -> Table {
        let mut table = Table::new(&format!("Advice for {}", self.medium), &[""]);
        for sentence in &self.advice {
            table.row(vec![sentence.clone()]);
        }
        table
    }

    fn add_to(&self, page: &mut Page) {
        page.section(&format!("{}: {}", self.medium, self.kind));
        let facts: Vec<String> =
            self.facts.iter().map(|fact| format!("{}: {}", fact.name, fact.text)).collect();
        page.list(&facts);
        page.section("What these numbers advise");
        page.list(&self.advice);
        page.section("Figures");
        for figure in &self.figures {
            page.drawing(&figure.up_to(4096.0).drawing());
            page.note(&figure.about);
            page.folded_table("The numbers", &figure.table());
        }
        self.add_costs(page);
        self.add_splits(page);
    }

    fn split_table(&self) -> Option<Table> {
        if self.splits.is_empty() {
            return None;
        }
        let title = "Where the time of one 4 KiB read goes (us)";
        let columns = ["completion by", "application", "system", "device", "in all"];
        let mut table = Table::new(title, &columns);
        for split in &self.splits {
            let mut row = vec![split.completion.to_owned()];
            match &split.refused {
                Some(why) => row.push(format!("refused: {why}")),
                None => {
                    let parts = [split.application_us, split.system_us, split.device_us];
                    row.extend(parts.map(number));
                    row.push(number(split.total_us));
                }
            }
            table.row(row);
        }
        Some(table)
    }

    fn add_splits(&self, page: &mut Page) {
        let Some(table) = self.split_table() else { return };
        let measured = self.splits.iter().filter(|split| split.refused.is_none());
        let parts = measured.flat_map(|split| {
            let parts = [
                ("application", split.application_us),
                ("system", split.system_us),
                ("device", split.device_us),
            ];
            parts.into_iter().enumerate().map(|(series, (part, value))| Bar {
                label: format!("{}: {part}", split.completion),
                value,
                series,
            })
        });
        page.drawing(&bars(&table.title, "us", &parts.collect::<Vec<_>>()));
        page.table(&table);
        let methods = self.splits.iter().filter(|split| !split.method.is_empty());
        for split in methods {
            page.note(&split.method);
        }
    }

    fn add_costs(&self, page: &mut Page) {
        let Some(figure) = self.figure(super::costs::FIGURE) else { return };
        let cost = |point: &Point| Point {
            x: point.x,
            y: Spread {
                median: 1e9 / point.y.median,
                min: 1e9 / point.y.max,
                max: 1e9 / point.y.min,
            },
        };
        let series = figure.series.iter().map(|series| Series {
            label: series.label.clone(),
            points: series.points.iter().filter(|p| p.x <= 4096.0).map(cost).collect(),
        });
        let costs = Figure {
            name: "costs",
            title: "What one access costs",
            about: "One over the most accesses of that size that the medium serves in a second: \
                    the share of its time that an account is charged."
                .to_owned(),
            x: Quantity::SIZE,
            y: Quantity::COST_NS,
            series: series.collect(),
        };
        page.drawing(&costs.drawing());
        page.note(&costs.about);
    }
}
