//! Tables 3 to 8: one thread's latency, cell by cell.

use entresol_base::size::ByteSize;
use entresol_measure::report::table::number;

use super::{
    AEP, DRAM, Group, OneThread, Outcome, Parameters, Pattern, Settings, alone,
    one_thread_over_sizes, scenario,
};
use crate::check::{Check, Figure, cells, share_near};
use crate::tolerance::Side;

pub(super) const SMALL: [u64; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
pub(super) const LARGE: [u64; 8] =
    [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Column of a table in nanoseconds, in the order of [`SMALL`] or [`LARGE`].
pub(super) type Column = [f64; 8];

pub(super) const TABLE3: [Column; 2] = [
    [200.0, 196.0, 196.0, 201.0, 198.0, 241.0, 309.0, 611.0],
    [30.0, 53.0, 70.0, 101.0, 124.0, 191.0, 304.0, 589.0],
];
pub(super) const TABLE4: [Column; 2] = [
    [611.0, 2361.0, 7368.0, 29_086.0, 120e3, 1.09e6, 5.68e6, 22.81e6],
    [589.0, 2326.0, 7273.0, 28_850.0, 120e3, 1.09e6, 5.68e6, 22.82e6],
];
pub(super) const TABLE5: [Column; 2] = [
    [658.0, 669.0, 663.0, 190.0, 203.0, 218.0, 279.0, 538.0],
    [694.0, 717.0, 774.0, 187.0, 199.0, 217.0, 259.0, 503.0],
];
pub(super) const TABLE6: [Column; 2] = [
    [538.0, 2006.0, 8000.0, 31_597.0, 130e3, 0.51e6, 2.61e6, 10.37e6],
    [503.0, 2004.0, 8089.0, 32_115.0, 130e3, 0.51e6, 2.60e6, 10.50e6],
];
pub(super) const TABLE7_DRAM: Column = [46.0, 33.0, 33.0, 40.0, 43.0, 57.0, 93.0, 173.0];
pub(super) const TABLE8_DRAM: Column = [238.0, 238.0, 239.0, 174.0, 185.0, 200.0, 234.0, 361.0];
/// Ratio of AEP to DRAM as the tables print it.
const TABLE7_RATIO: Column = [4.35, 5.94, 5.94, 5.03, 4.60, 4.23, 3.32, 3.53];
const TABLE8_RATIO: Column = [2.76, 2.81, 2.77, 1.09, 1.10, 1.09, 1.19, 1.49];

const PATTERNS: [Pattern; 2] = [Pattern::Random, Pattern::Sequential];

/// Returns one thread's mean latency for each size.
pub(super) fn column(
    parameters: &Parameters,
    sizes: &[u64],
    seed: u64,
    group: impl Fn(u64) -> Group,
) -> Vec<f64> {
    sizes.iter().map(|&bytes| alone(parameters, group(bytes), seed).mean_ns()).collect()
}

fn both(sizes: &[u64], seed: u64, group: fn(u32, u64, Pattern) -> Group) -> (Vec<f64>, Vec<f64>) {
    let [random, sequential] =
        PATTERNS.map(|pattern| column(&AEP, sizes, seed, |bytes| group(1, bytes, pattern)));
    (random, sequential)
}

/// Draws both columns of a table beside the paper's.
fn drawing(table: &str, sizes: &[u64], papers: &[Column; 2], ours: [&[f64]; 2]) -> Vec<String> {
    let both = [0, 1].map(|at| OneThread {
        name: PATTERNS[at].name(),
        ours: ours[at],
        paper: &papers[at],
        table,
    });
    vec![one_thread_over_sizes("One thread's latency (model)", sizes, &both)]
}

fn table_cells(sizes: &[u64], papers: &[Column; 2], ours: [&[f64]; 2]) -> Vec<Check> {
    cells(plain_cells(sizes, papers, ours))
}

fn plain_cells(sizes: &[u64], papers: &[Column; 2], ours: [&[f64]; 2]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (pattern, (paper, ours)) in PATTERNS.iter().zip(papers.iter().zip(ours)) {
        for (bytes, (paper, ours)) in sizes.iter().zip(paper.iter().zip(ours)) {
            checks.push(cell(&format!("{}, {}", ByteSize(*bytes), pattern.name()), *paper, *ours));
        }
    }
    checks
}

fn cell(what: &str, paper: f64, ours: f64) -> Check {
    Check::cell(what, "ns", paper, ours)
}

fn ratios<'a>(above: &'a [f64], below: &'a [f64]) -> impl Iterator<Item = f64> + Clone + 'a {
    above.iter().zip(below).map(|(above, below)| above / below)
}

fn smallest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// Returns the largest relative difference between two columns.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    largest(ratios(a, b).map(|ratio| (ratio - 1.0).abs()))
}

pub(super) fn table3(settings: &Settings) -> Outcome {
    let (random, sequential) = both(&SMALL, settings.seed, Group::readers);
    let mut checks = table_cells(&SMALL, &TABLE3, [&random, &sequential]);
    let least = smallest(random[..5].iter().map(|ns| ns / random[5]));
    let what = "random reads below 256 B, the least, of those of 256 B: the unit is 256 B";
    checks.push(Check::limit(what, "", Side::AtLeast, 0.75, least));
    let worst = largest(ratios(&sequential[..6], &random[..6]));
    let what = "below 512 B sequential reads are cheaper: sequential / random, at most";
    checks.push(Check::limit(what, "", Side::Below, 1.0, worst));
    let ratio = |row: usize| random[row] / sequential[row];
    checks.push(Check::about("random / sequential, 8 B", "", 6.67, ratio(0), 15));
    checks.push(Check::about("random / sequential, 256 B", "", 1.26, ratio(5), 15));
    let worst = apart(&random[6..], &sequential[6..]);
    let what = "from 512 B on both cost the same: how far they are apart";
    checks.push(Check::limit(what, "%", Side::AtMost, 5.0, worst * 100.0));
    let scenario = scenario(&["one thread, 4 GiB of the device at random (chosen)"]);
    let drawings = drawing("table 3", &SMALL, &TABLE3, [&random, &sequential]);
    Outcome { scenario, checks, drawings }
}

pub(super) fn table4(settings: &Settings) -> Outcome {
    let (random, sequential) = both(&LARGE, settings.seed, Group::readers);
    let mut checks = table_cells(&LARGE, &TABLE4, [&random, &sequential]);
    let worst = apart(&random, &sequential);
    let what = "random and sequential cost the same (the printed ratios 1.04 and 1.03 \
                contradict the cells): how far they are apart";
    checks.push(Check::limit(what, "%", Side::AtMost, 5.0, worst * 100.0));
    for (row, paper) in [(4, 2.19), (5, 0.96), (6, 0.74), (7, 0.74)] {
        let what = format!("rate at {}", ByteSize(LARGE[row]));
        checks.push(Check::about(what, "GB/s", paper, LARGE[row] as f64 / random[row], 15));
    }
    let scenario = scenario(&[
        "one thread",
        "the fall from 1 MB on follows from one parameter: lines that a copy larger than the \
         second-level cache (1 MiB, table 2) loses before it uses them are read again",
    ]);
    let drawings = drawing("table 4", &LARGE, &TABLE4, [&random, &sequential]);
    Outcome { scenario, checks, drawings }
}

pub(super) fn table5(settings: &Settings) -> Outcome {
    let (random, sequential) = both(&SMALL, settings.seed, Group::writers);
    let mut checks = table_cells(&SMALL, &TABLE5, [&random, &sequential]);
    let least = smallest(random[..3].iter().map(|ns| ns / random[3]));
    let what = "a store past the caches of less than a line, over one of a line, at least";
    checks.push(Check::limit(what, "times", Side::AtLeast, 3.0, least).beside(3.47));
    checks.push(same(&random, &sequential, 17.0));
    let scenario = scenario(&[
        "one thread, 4 GiB of the device at random (chosen)",
        "the cell farthest off is 32 B in sequence: a part of a line costs the model the same \
         whatever its size and place, in the paper the time rises to 774 ns",
    ]);
    let drawings = drawing("table 5", &SMALL, &TABLE5, [&random, &sequential]);
    Outcome { scenario, checks, drawings }
}

pub(super) fn table6(settings: &Settings) -> Outcome {
    let (random, sequential) = both(&LARGE, settings.seed, Group::writers);
    let mut checks = table_cells(&LARGE, &TABLE6, [&random, &sequential]);
    checks.push(same(&random, &sequential, 8.0));
    let scenario = scenario(&[
        "one thread, a fence behind each block; the paper heads the sizes «read size», they are \
         of writes",
        "the fall from 4 MB on follows from one parameter: lines whose source is no longer in \
         the cache are stored late, and tear their units",
    ]);
    let drawings = drawing("table 6", &LARGE, &TABLE6, [&random, &sequential]);
    Outcome { scenario, checks, drawings }
}

fn same(random: &[f64], sequential: &[f64], limit: f64) -> Check {
    let what = "random and sequential writes cost the same: how far they are apart";
    Check::limit(what, "%", Side::AtMost, limit, apart(sequential, random) * 100.0)
}

/// Table of AEP beside DRAM: the cells of both and of their ratio. The AEP cells repeat table 3 or
/// 5 and count there only.
struct Beside {
    aep: Vec<Check>,
    own: Vec<Check>,
    drawing: String,
}

impl Beside {
    fn of(table: &str, aep: (&Column, &[f64]), dram: (&Column, &[f64]), ratio: &Column) -> Beside {
        let (mut repeated, mut own) = (Vec::new(), Vec::new());
        for (row, bytes) in SMALL.iter().enumerate() {
            let bytes = ByteSize(*bytes);
            repeated.push(cell(&format!("{bytes}, AEP"), aep.0[row], aep.1[row]));
            own.push(cell(&format!("{bytes}, DRAM"), dram.0[row], dram.1[row]));
            let ours = aep.1[row] / dram.1[row];
            own.push(Check::cell(format!("{bytes}, AEP / DRAM"), "", ratio[row], ours));
        }
        let both = [("AEP", aep), ("DRAM", dram)].map(|(name, (paper, ours))| OneThread {
            name,
            ours,
            paper,
            table,
        });
        let title = "One thread's latency, random (model)";
        let drawing = one_thread_over_sizes(title, &SMALL, &both);
        Beside { aep: repeated, own, drawing }
    }

    fn table7(seed: u64) -> Beside {
        let read = |bytes| Group::readers(1, bytes, Pattern::Random);
        let [aep, dram] = [&AEP, &DRAM].map(|device| column(device, &SMALL, seed, read));
        Beside::of("table 7", (&TABLE3[0], &aep), (&TABLE7_DRAM, &dram), &TABLE7_RATIO)
    }

    fn table8(seed: u64) -> Beside {
        let write = |bytes| Group::writers(1, bytes, Pattern::Random);
        let [aep, dram] = [&AEP, &DRAM].map(|device| column(device, &SMALL, seed, write));
        Beside::of("table 8", (&TABLE5[0], &aep), (&TABLE8_DRAM, &dram), &TABLE8_RATIO)
    }

    /// Returns our ratios of AEP to DRAM.
    fn ratios(&self) -> Vec<f64> {
        let ours = |check: &Check| match check.ours {
            Figure::Number(ours) => ours,
            Figure::Text(_) => f64::NAN,
        };
        self.own.iter().skip(1).step_by(2).map(ours).collect()
    }
}

/// Checks the share of all cells of the six tables that are within 10%, each counted once.
fn share_of_all(seed: u64) -> Check {
    let mut all = Vec::new();
    let mut add = |table: &str, cells: Vec<Check>| {
        for mut check in cells {
            check.what = format!("{table}, {}", check.what);
            all.push(check);
        }
    };
    let reads = |sizes, papers| {
        let (random, sequential) = both(sizes, seed, Group::readers);
        plain_cells(sizes, papers, [&random, &sequential])
    };
    let writes = |sizes, papers| {
        let (random, sequential) = both(sizes, seed, Group::writers);
        plain_cells(sizes, papers, [&random, &sequential])
    };
    add("table 3", reads(&SMALL, &TABLE3));
    add("table 4", reads(&LARGE, &TABLE4));
    add("table 5", writes(&SMALL, &TABLE5));
    add("table 6", writes(&LARGE, &TABLE6));
    add("table 7", Beside::table7(seed).own);
    add("table 8", Beside::table8(seed).own);
    share_near("share of all cells of tables 3 to 8 within 10%, each counted once", &all)
}

pub(super) fn table7(settings: &Settings) -> Outcome {
    let table = Beside::table7(settings.seed);
    let mut sorted = table.ratios();
    sorted.sort_by(f64::total_cmp);
    let median = f64::midpoint(sorted[3], sorted[4]);
    let mut checks = vec![
        share_near("share of this table's own cells, DRAM and ratio, within 10%", &table.own),
        share_of_all(settings.seed),
        Check::shape(
            "AEP's reads cost a few times DRAM's (the text says 3-4, 4-5 and 3-5; held to the \
             table)",
            "every ratio in 3..6, median in 4..5",
            format!("{} to {}, median {}", number(sorted[0]), number(sorted[7]), number(median)),
            sorted[0] >= 3.0 && sorted[7] <= 6.0 && (4.0..=5.0).contains(&median),
        ),
    ];
    let Beside { aep, own, drawing } = table;
    checks.splice(0..0, aep.into_iter().chain(own));
    let scenario = scenario(&[
        "one thread, random; AEP's cells are table 3's again and are not counted here",
        "two of this table's own 16 cells are beyond 10%, so 0.875 of them are within: DRAM at \
         8 B, and with it the ratio at 8 B. 46 ns are printed where 16 B take 33 and a whole line \
         40; the paper gives no cause, and a model in which fewer bytes of a line cost more would \
         be fitted to one cell",
    ]);
    let drawings = vec![drawing];
    Outcome { scenario, checks, drawings }
}

pub(super) fn table8(settings: &Settings) -> Outcome {
    let table = Beside::table8(settings.seed);
    let ratios = table.ratios();
    let share =
        share_near("share of this table's own cells, DRAM and ratio, within 10%", &table.own);
    let Beside { aep, own, drawing } = table;
    let mut checks: Vec<Check> = aep.into_iter().chain(own).collect();
    checks.push(share);
    let worst = largest(ratios[3..7].iter().copied());
    let what = "from 64 to 512 B AEP's writes cost about what DRAM's do, at most";
    checks.push(Check::limit(what, "times", Side::AtMost, 1.25, worst));
    let least = smallest(ratios[..3].iter().copied());
    let what = "below 64 B they cost more, at least";
    checks.push(Check::limit(what, "times", Side::AtLeast, 2.5, least));
    let scenario = scenario(&[
        "one thread, random; the paper heads the sizes KB, they are bytes; AEP's cells are table \
         5's again and are not counted here",
    ]);
    let drawings = vec![drawing];
    Outcome { scenario, checks, drawings }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if a cell may be this figure: the share counts those within 10%.
    fn is_near(printed: f64, ours: f64) -> bool {
        (ours / printed - 1.0).abs() <= 0.1
    }

    /// Proves the reason in `expected-failures.toml` by the printed numbers alone: where 8 B cost
    /// no more than 16 B, and those no more than 32 B, two of table 7's own cells are beyond 10%,
    /// or 8 B of AEP in table 3 are. A cost of 46 ns for 8 B alone meets all cells.
    #[test]
    fn two_cells_of_table_7_fail_wherever_fewer_bytes_of_a_line_cost_no_more() {
        let [eight, sixteen, more, ..] = TABLE7_DRAM;
        let tenths = || (100..=1000).map(|tenths| f64::from(tenths) / 10.0);
        let mut best = usize::MAX;
        for ours in tenths() {
            // What 16 and 32 B cost at least; a higher cost is farther from what is printed.
            let far_dram = [eight, sixteen, more].iter().filter(|it| !is_near(**it, ours)).count();
            // AEP's own cell at its lowest, which suits the ratio best.
            let lowest = TABLE3[0][0] * 0.9;
            let ratio_is_far = lowest / ours > TABLE7_RATIO[0] * 1.1;
            // A cost below 33 ns may rise to it by 16 B.
            let far = match ours < sixteen {
                true => 1 + usize::from(ratio_is_far),
                false => far_dram + usize::from(ratio_is_far),
            };
            best = best.min(far);
        }
        println!("of the three smallest sizes and the ratio at 8 B at least {best} are beyond 10%");
        assert!(best == 2 && 1.0 - best as f64 / 16.0 < 0.9, "{best}");

        let read = |bytes| Group::readers(1, bytes, Pattern::Random);
        let [aep, mut dram] = [&AEP, &DRAM].map(|device| column(device, &SMALL, 1, read));
        let share = |dram: &[f64]| {
            let papers = (&TABLE7_DRAM, &TABLE7_RATIO);
            let table = Beside::of("table 7", (&TABLE3[0], &aep), (papers.0, dram), papers.1);
            share_near("near", &table.own).ours.number().expect("a number")
        };
        let as_it_is = share(&dram);
        dram[0] = eight;
        let with_one = share(&dram);
        println!("share near: {as_it_is}, and {with_one} with {eight} ns for 8 B");
        assert!(as_it_is < 0.9 && with_one > 0.9, "{as_it_is}, {with_one}");
    }
}
