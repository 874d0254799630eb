//! Figure 3: time of the system and the drive for a 4 KiB read over IOPS, without the media, for
//! three ways to attach drives.

use entresol_base::Picos;
use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_media::model::{BlockParameters, ModelName};

use super::drawn_lines;
use crate::{Check, Outcome, Settings, Side};

/// Processors of the host: two with 14 cores at 2.3 GHz (004, footnote 2: E5-2695).
const PROCESSORS: usize = 28;
const REQUESTS: u64 = 400_000;
const LOADS_PERCENT: [u32; 7] = [2, 20, 40, 60, 80, 90, 97];
/// Load that exceeds the capacity of every attachment.
const TOO_MUCH: f64 = 1_500_000.0;

/// Bandwidth of PCIe 3.0 x4: 3.94 GB/s on the wire.
const LINK_BYTES_S: u64 = 3_938_000_000;
/// Bytes on the link for a 4 KiB read: 32 packets of 128 bytes with a header of 26 each, the
/// completion entry (16) and the interrupt (4).
const LINK_BYTES: u64 = 32 * (128 + 26) + 16 + 26 + 4 + 26;

/// Way to attach drives. Every stage except the ports is a queue with one server.
#[derive(Debug, Clone, Copy)]
struct Attachment {
    name: &'static str,
    /// Processor time before and after the request.
    stack: Picos,
    /// Latency that an adapter adds to every request without being busy.
    adapter: Picos,
    /// Time for which the adapter is busy with a request.
    adapter_command: Picos,
    /// Time of register reads, which only one processor performs at a time.
    registers: Picos,
    ports: usize,
    /// Time of a port for 4 KiB.
    port: Picos,
    /// Time of the drive without its media.
    drive: Picos,
}

fn nvme() -> Attachment {
    Attachment {
        name: "NVMe",
        // Below 4 us (004, section III).
        stack: Picos::from_nanos(3_800),
        adapter: Picos::ZERO,
        adapter_command: Picos::ZERO,
        registers: Picos::ZERO,
        ports: 1,
        port: Picos::ZERO,
        drive: path(ModelName::NandP3700),
    }
}

fn sas() -> Attachment {
    Attachment {
        name: "SAS HBA",
        // The stack before multi-queue (004, section III-B).
        stack: Picos::from_nanos(9_000),
        // 004, section III-A: about 25 us.
        adapter: Picos::from_micros(25),
        // Broadcom 9207-8i: 700,000 IOPS by its brief.
        adapter_command: Picos::from_nanos(1_430),
        ports: 8,
        // 540 MB/s, the rate of the SATA drives behind it.
        port: Picos::from_nanos(7_585),
        drive: path(ModelName::NandS3700),
        ..nvme()
    }
}

fn ahci() -> Attachment {
    Attachment {
        name: "AHCI HBA",
        // NVM Express on AHCI: four register reads per command, 2,000 cycles each, at 2.3 GHz.
        registers: Picos::from_nanos(3_480),
        // An integrated adapter has no firmware to be busy with; it has six ports.
        adapter_command: Picos::ZERO,
        ports: 6,
        ..sas()
    }
}

/// Returns the time of the controller and firmware in a drive's model.
fn path(name: ModelName) -> Picos {
    let drive = BlockParameters::of(name);
    drive.map_or(Picos::ZERO, |p| p.command.after(p.front).after(p.read_back))
}

/// Queue with one server; a request waits until the server is free.
#[derive(Debug, Clone, Copy, Default)]
struct Queue(Picos);

impl Queue {
    fn pass(&mut self, at: Picos, time: Picos) -> Picos {
        self.0 = self.0.max(at).after(time);
        self.0
    }
}

/// Arrival times of the requests.
#[derive(Debug, Clone, Copy)]
enum Arrivals {
    /// Each processor issues requests at an interval of its own, 10% more or less.
    Paced,
    /// Poisson process.
    Poisson,
}

struct Measured {
    response: Histogram,
    per_second: f64,
}

fn run(way: &Attachment, per_second: f64, arrivals: Arrivals, mut rng: Rng) -> Measured {
    let gap = Picos((1e12 / per_second) as u64);
    let interval = gap.0 * PROCESSORS as u64;
    let mut next: Vec<Picos> = (0..PROCESSORS).map(|_| Picos(rng.below(interval))).collect();
    let mut processors = [Queue::default(); PROCESSORS];
    let mut back = [Queue::default(); PROCESSORS];
    let mut ports = vec![Queue::default(); way.ports];
    let [mut adapter, mut link, mut registers] = [Queue::default(); 3];
    let link_time = Picos(LINK_BYTES * 1_000_000 / (LINK_BYTES_S / 1_000_000));
    let (half_stack, half_adapter) = (Picos(way.stack.0 / 2), Picos(way.adapter.0 / 2));
    let mut response = Histogram::new();
    let (mut poisson, mut last) = (Picos::ZERO, Picos::ZERO);
    for number in 0..REQUESTS as usize {
        let (due, processor) = match arrivals {
            Arrivals::Poisson => {
                poisson = poisson.after(rng.poisson_gap(gap));
                (poisson, number % PROCESSORS)
            }
            Arrivals::Paced => {
                let (processor, due) = next
                    .iter()
                    .copied()
                    .enumerate()
                    .min_by_key(|(_, due)| *due)
                    .unwrap_or((0, Picos::ZERO));
                let jitter = rng.below(interval / 5);
                next[processor] = due.after(Picos(interval - interval / 10 + jitter));
                (due, processor)
            }
        };
        let at = processors[processor].pass(due, half_stack);
        let at = adapter.pass(at.after(half_adapter), way.adapter_command).after(way.drive);
        let at = ports[number % way.ports].pass(at, way.port);
        let at = link.pass(at, link_time).after(half_adapter);
        let at = registers.pass(at, way.registers);
        last = back[processor].pass(at, half_stack);
        response.record(last.since(due).into());
    }
    Measured { response, per_second: REQUESTS as f64 / last.as_secs_f64() }
}

struct Curve {
    way: Attachment,
    top: f64,
    /// IOPS and the 99.99th percentile in microseconds.
    points: Vec<(f64, f64)>,
    poisson_us: f64,
}

impl Curve {
    fn of(way: Attachment, seed: u64) -> Curve {
        let rng = |what: &str| Rng::named(seed, &format!("004-fig3 {} {what}", way.name));
        let top = run(&way, TOO_MUCH, Arrivals::Paced, rng("top")).per_second;
        let tail = |percent: u32, arrivals| {
            let load = top * f64::from(percent) / 100.0;
            let measured = run(&way, load, arrivals, rng(&percent.to_string()));
            (load, measured.response.percentile_us(99.99))
        };
        let points = LOADS_PERCENT.iter().map(|&percent| tail(percent, Arrivals::Paced)).collect();
        let poisson_us = tail(90, Arrivals::Poisson).1;
        Curve { way, top, points, poisson_us }
    }

    fn tail_us(&self, percent: u32) -> f64 {
        let place = LOADS_PERCENT.iter().position(|load| *load == percent);
        place.and_then(|place| self.points.get(place)).map_or(f64::NAN, |(_, us)| *us)
    }
}

pub(super) fn fig3(settings: &Settings) -> Outcome {
    let curve = |way| Curve::of(way, settings.seed);
    let (nvme, sas_curve, ahci_curve) = (curve(nvme()), curve(sas()), curve(ahci()));
    let direct = curve(Attachment { adapter: Picos::ZERO, ..sas() });
    let (idle, busy) = (nvme.tail_us(2), nvme.tail_us(90));
    let better = sas_curve.top.max(ahci_curve.top) / nvme.top;
    let checks = vec![
        Check::about("NVMe at its most", "1/s", 800_000.0, nvme.top, 15),
        Check::limit("both HBAs have less: the better, of NVMe's", "", Side::Below, 1.0, better)
            .beside("NVMe comes close to what the link can do")
            .noting(format!("SAS {:.0}, AHCI {:.0}", sas_curve.top, ahci_curve.top)),
        Check::limit("NVMe, 99.99% at 90% load over idle", "times", Side::AtMost, 2.0, busy / idle)
            .beside("low until the most")
            .noting(format!("{busy:.1} / {idle:.1} us")),
        Check::about(
            "an HBA adds (SAS, against the same without)",
            "us",
            25.0,
            sas_curve.tail_us(2) - direct.tail_us(2),
            15,
        )
        .given("the adapter's 25 us (section III-A)"),
        Check::report(
            "NVMe, 99.99% at 90% load, Poisson arrivals",
            "us",
            None,
            nvme.poisson_us,
            "a memoryless stream waits some 44 transfers at a link that is 90% busy, whatever the \
             host does",
        ),
    ];
    let rows: Vec<(&str, Vec<(f64, f64)>)> = [nvme, sas_curve, ahci_curve]
        .into_iter()
        .map(|curve| (curve.way.name, curve.points))
        .collect();
    let drawing = drawn_lines(
        "99.99th percentile without the media, 4 KiB reads (model)",
        ("operations/s", false),
        ("us", false),
        &rows,
    );
    let scenario = vec![
        format!(
            "Open loop with paced arrivals, not random ones: {PROCESSORS} processors, each with \
             one request at an interval of its own, 10% more or less (chosen); {REQUESTS} requests \
             a point. How low the percentiles stay up to the most rests on this pace; under a \
             Poisson process they do not, see the last line."
        ),
        "The drive's controller and firmware count, its media do not; as many drives as keep the \
         way busy; each way has a link of 4 GB/s."
            .to_owned(),
    ];
    Outcome { scenario, checks, drawings: vec![drawing] }
}
