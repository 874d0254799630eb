//! Figure 12: three ways to more memory for a cache: DRAM, paging to a fast drive, and its own I/O.

use entresol_base::Picos;
use entresol_base::histogram::Histogram;
use entresol_media::model::ModelName;

use super::paging::{GetWrites, VALUE_BYTES};
use super::ways::{IN_FLIGHT, ITEMS, MEMORY_ONE_IN, Measurement, Ran, Way, fault_us, run};
use super::{drawn_lines, drive};
use crate::{Check, Outcome, Settings, Side};

/// Processor time of a get of 4 KiB with the network's part: 100,000 a second and processor.
const CPU_GET: Picos = Picos::from_micros(10);
/// Other times, to show how far the ratios depend on it.
const CPU_OTHERS_US: [u64; 2] = [5, 20];
/// Loads in per cent of what the way itself can answer. The first counts as idle and the last but
/// one as loaded, as in figure 8.
const LOADS_PERCENT: [u32; 7] = [2, 25, 50, 70, 80, 90, 95];
const IDLE: usize = 0;
const LOADED: usize = 5;
/// Gets of each load, and of the ways that are only reported.
const GETS: u64 = 40_000;
const GETS_REPORTED: u64 = 20_000;

const OPTANE: ModelName = ModelName::OptaneSsd;
const NAND: ModelName = ModelName::NandP3700;
/// Memcached on one thread, whose gets move their items in the list by last use.
const PAGING: Way = Way::Paged { model: OPTANE, writes: GetWrites::CountAndList, threads: 1 };

/// Results of the three ways.
struct Ways {
    dram: f64,
    paging: Ran,
    own: Ran,
    /// Responses of DRAM at the loads of paging, and at those of own I/O.
    beside_paging: Vec<Histogram>,
    beside_own: Vec<Histogram>,
}

fn measurement(way: Way, cpu: Picos, gets: u64, seed: u64) -> Measurement {
    Measurement { way, cpu, gets, seed }
}

/// Returns the loads that follow from what a way can answer.
fn loads(saturation: f64) -> Vec<f64> {
    LOADS_PERCENT.iter().map(|&percent| saturation * f64::from(percent) / 100.0).collect()
}

impl Ways {
    fn measure(seed: u64) -> Result<Ways, String> {
        let of = |way| measurement(way, CPU_GET, GETS, seed);
        let paging = run(of(PAGING), loads)?;
        let own = run(of(Way::Own(OPTANE)), loads)?;
        let mut all = loads(paging.saturated.per_second);
        all.extend(loads(own.saturated.per_second));
        let dram = run(of(Way::Dram), |_| all)?;
        let mut beside_paging: Vec<Histogram> =
            dram.points.into_iter().map(|point| point.times).collect();
        let beside_own = beside_paging.split_off(LOADS_PERCENT.len());
        let dram = dram.saturated.per_second;
        Ok(Ways { dram, paging, own, beside_paging, beside_own })
    }

    /// Returns by how many times a get takes longer under paging than in DRAM, for each load.
    fn paging_times(&self) -> Vec<f64> {
        let pairs = self.paging.points.iter().zip(&self.beside_paging);
        pairs.map(|(paging, dram)| paging.times.mean_us() / dram.mean_us()).collect()
    }

    /// Returns the microseconds that own I/O adds to a get in DRAM, for each load.
    fn own_adds(&self, of: fn(&Histogram) -> f64) -> Vec<f64> {
        let pairs = self.own.points.iter().zip(&self.beside_own);
        pairs.map(|(own, dram)| of(&own.times) - of(dram)).collect()
    }

    fn checks(&self) -> Vec<Check> {
        let (paging, own) = (self.paging.saturated.per_second, self.own.saturated.per_second);
        let p99 = self.own_adds(|times| times.percentile_us(99.0));
        let written = self.own.written_by_gets;
        let (times, idle) = (self.paging_times(), self.own_adds(Histogram::mean_us)[IDLE]);
        vec![
            Check::limit("paging: throughput, of DRAM's", "", Side::Below, 0.2, paging / self.dram)
                .noting(format!("{paging:.0} gets/s of {:.0}", self.dram)),
            Check::about("paging: response time, times DRAM's", "", 45.0, times[LOADED], 50)
                .noting(swept(&times, 1)),
            Check::at_least("own I/O: throughput, of DRAM's", "", 0.6, own / self.dram),
            Check::at_least("own I/O: throughput, times that of paging", "", 3.0, own / paging),
            Check::about("own I/O: time added, idle", "us", 10.0, idle, 25)
                .given("the drive's model and the host's parts"),
            Check::about("own I/O: time added, p99 under load", "us", 110.0, p99[LOADED], 50)
                .noting(swept(&p99, 0)),
            Check::shape(
                "own I/O: gets write nothing to the drive",
                "metadata apart from data",
                format!("{written} bytes in {} gets", self.own.gets),
                written == 0,
            ),
        ]
    }

    fn drawing(&self) -> String {
        let line = |ran: &Ran| {
            let points = ran.points.iter().zip(loads(ran.saturated.per_second));
            points.map(|(point, load)| (load, point.times.percentile_us(99.0))).collect()
        };
        let dram = loads(self.own.saturated.per_second).into_iter().zip(&self.beside_own);
        drawn_lines(
            "99th percentile of gets over load (model)",
            ("gets/s", false),
            ("us", true),
            &[
                ("paging", line(&self.paging)),
                ("own I/O", line(&self.own)),
                ("DRAM", dram.map(|(load, times)| (load, times.percentile_us(99.0))).collect()),
            ],
        )
    }
}

/// Lists results over the loads.
fn swept(all: &[f64], digits: usize) -> String {
    let one = |(percent, value)| format!("{percent}% {value:.digits$}");
    LOADS_PERCENT.iter().zip(all).map(one).collect::<Vec<_>>().join(", ")
}

/// Checks the mean times of a page fault on both drives.
fn fault_checks(seed: u64) -> Result<Vec<Check>, String> {
    let check = |name: &str, model, paper| {
        let what = format!("a page fault on {name}");
        let given = "the drive's model, the host's parts and the fault's 5 us of code";
        let ours = fault_us(drive(model), seed)?;
        Ok::<Check, String>(Check::about(what, "us", paper, ours, 15).given(given))
    };
    Ok(vec![check("NAND", NAND, 92.0)?, check("Optane", OPTANE, 16.0)?])
}

/// Returns throughputs of other choices than those that are judged, to show how far the judged ones
/// depend on them.
fn others(seed: u64, dram: f64) -> Result<String, String> {
    let saturation = |way, cpu| run(measurement(way, cpu, GETS_REPORTED, seed), |_| Vec::new());
    let paged = |model, writes, threads| Way::Paged { model, writes, threads };
    let (list, count) = (GetWrites::CountAndList, GetWrites::Count);
    let mut told = Vec::new();
    for (what, way) in [
        ("paging, the list stays", paged(OPTANE, count, 1)),
        ("paging, gets write nothing", paged(OPTANE, GetWrites::Nothing, 1)),
        ("paging, four threads", paged(OPTANE, list, 4)),
        ("paging to NAND", paged(NAND, list, 1)),
        ("own I/O on NAND", Way::Own(NAND)),
    ] {
        let share = saturation(way, CPU_GET)?.saturated.per_second / dram;
        told.push(format!("{what} {share:.3}"));
    }
    for us in CPU_OTHERS_US {
        let cpu = Picos::from_micros(us);
        let of = |way| Ok::<f64, String>(saturation(way, cpu)?.saturated.per_second);
        let (dram, paging, own) = (of(Way::Dram)?, of(PAGING)?, of(Way::Own(OPTANE))?);
        let (paging, own) = (paging / dram, own / dram);
        told.push(format!("gets of {us} us: paging {paging:.3}, own I/O {own:.3}"));
    }
    Ok(format!("Other choices than those judged, throughput of DRAM's: {}.", told.join("; ")))
}

fn pager_told(ran: &Ran) -> String {
    ran.pager.map_or(String::new(), |counts| {
        let each = |count: u64| count as f64 / ran.gets as f64;
        let (faults, written) = (each(counts.faults), each(counts.written_back));
        format!("{faults:.2} faults and {written:.2} pages written back a get")
    })
}

fn scenario(ways: &Ways) -> Vec<String> {
    vec![
        format!(
            "Random gets of {VALUE_BYTES} B, one processor, {ITEMS} items. DRAM and own I/O: the \
             cache that ships, with values in DRAM, and on the model optane-ssd with up to \
             {IN_FLIGHT} gets in flight and keys and metadata in DRAM. Paging: items in \
             memcached's layout on one thread, with DRAM for one byte in {MEMORY_ONE_IN}; a get \
             counts a reference in its item and moves it in the list by last use, which writes to \
             the items beside it; a missing page is read alone, and one that was written goes back \
             when it is evicted: {}.",
            pager_told(&ways.paging),
        ),
        format!(
            "Chosen: a get takes {} us of the processor, network included; every get moves its \
             item, as memcached's do for items not used for a minute; Poisson arrivals, {GETS} \
             gets a load. Loaded is 90% of what the way itself can answer, and idle 2%; DRAM is \
             compared at the same gets a second. The paper's drive of DRAM is the model \
             optane-ssd: it says that their latencies are alike.",
            CPU_GET.as_secs_f64() * 1e6,
        ),
    ]
}

fn outcome(seed: u64) -> Result<Outcome, String> {
    let ways = Ways::measure(seed)?;
    let mut checks = ways.checks();
    checks.extend(fault_checks(seed)?);
    let mut scenario = scenario(&ways);
    scenario.push(others(seed, ways.dram)?);
    scenario.push("`004-fig12-here` measures paging and own I/O on a file of this machine.".into());
    Ok(Outcome { scenario, checks, drawings: vec![ways.drawing()] })
}

pub(super) fn fig12(settings: &Settings) -> Outcome {
    outcome(settings.seed).unwrap_or_else(Outcome::failed)
}

#[cfg(test)]
mod tests {
    use entresol_media::model::{BlockModel, BlockParameters};

    use super::*;

    /// Proves the reason in `expected-failures.toml`.
    #[test]
    fn own_io_adds_the_papers_p99_at_seven_tenths_of_the_load() {
        let few = |saturation: f64| vec![saturation * 0.7, saturation * 0.9];
        let of = |way| measurement(way, CPU_GET, GETS, 1);
        let own = run(of(Way::Own(OPTANE)), few).expect("gets");
        let saturation = own.saturated.per_second;
        let dram = run(of(Way::Dram), move |_| few(saturation)).expect("gets");
        let p99 = |of: &Ran| of.points.iter().map(|it| it.times.percentile_us(99.0)).collect();
        let (own, dram): (Vec<f64>, Vec<f64>) = (p99(&own), p99(&dram));
        let adds: Vec<f64> = own.iter().zip(&dram).map(|(own, dram)| own - dram).collect();
        println!("p99 of own I/O {own:.1?} us, of DRAM {dram:.1?}, added {adds:.1?} at 70 and 90%");
        assert!((55.0..=165.0).contains(&adds[0]) && adds[1] > 165.0, "{adds:?}");
    }

    /// Proves the reason in `expected-failures.toml`: a shorter read of the die, which is fitted
    /// within 50 to 75 us, is all that the fault lacks; figure 7 asks for a longer one.
    #[test]
    fn a_page_fault_takes_the_papers_time_if_a_die_reads_in_60_us() {
        let ours = BlockParameters::of(NAND).expect("a drive");
        let fault = |us| {
            let read = Picos::from_micros(us);
            let of = BlockModel::new(&BlockParameters { read, ..ours.clone() });
            let us = fault_us(of, 1).expect("faults");
            println!("a page fault with dies that read in {} us: {us:.1} us", read.0 / 1_000_000);
            us
        };
        assert_eq!(ours.read, Picos::from_micros(75));
        assert!(fault(75) > 92.0 * 1.15 && fault(70) < 92.0 * 1.15);
        assert!((fault(60) - 92.0).abs() < 2.0);
    }
}
