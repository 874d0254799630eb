//! Figure 4: breakdown of the time of one 4 KiB read.

use entresol_base::Picos;
use entresol_measure::report::svg::{Bar, bars_beside};
use entresol_media::cost::Access;
use entresol_media::model::{BlockModel, ModelName};

use super::drive;
use super::sata_2008;
use crate::{Check, Outcome, Settings, Side};
use entresol_measure::host::Host;

/// Returns the drive's time for one read in microseconds, from doorbell to completion.
fn device_us(mut drive: BlockModel) -> f64 {
    let at = Picos::from_secs(1);
    let reads = (0..64u64).map(|number| {
        let at = at.after(Picos::from_millis(100 * number));
        drive.submit(at, Access::Read, number * 7_340_032, 4096).since(at)
    });
    reads.map(|time| time.as_secs_f64() * 1e6).sum::<f64>() / 64.0
}

pub(super) fn fig4(_: &Settings) -> Outcome {
    let us = |time: Picos| time.as_secs_f64() * 1e6;
    let optane = device_us(drive(ModelName::OptaneSsd));
    let nand = device_us(drive(ModelName::NandP3700));
    let old = device_us(BlockModel::new(&sata_2008::drive()));
    let (host, polled) = (us(Host::NVME.time()), us(Host::NVME_POLLED.time()));
    let host_2008 = us(Host::SATA_2008.time());
    let why = "no number in the text";
    let (drive, system) = ("the drive's model", "the host's parts");
    let both = "the drive's model and the host's parts";
    let checks = vec![
        Check::at_most("P4800X, drive", "us", 8.0, optane).given(drive),
        Check::at_most("P4800X, system", "us", 4.0, host).given(system),
        Check::about("P4800X, in all", "us", 11.0, optane + host, 15).given(both),
        Check::about("SATA of 2008, drive", "us", 140.0, old, 15).given(drive),
        Check::about("SATA of 2008, the rest", "us", 40.0, host_2008, 15).given(system),
        Check::report("P3700, drive", "us", None, nand, why),
        Check::report("P3700, in all", "us", None, nand + host, why),
        // The text names the drive only as "NAND SSD".
        Check::about("page fault on NAND, without its 5 us of code", "us", 87.0, nand + host, 25)
            .given(both),
        Check::about("page fault on P4800X, without its 5 us", "us", 11.0, optane + host, 15)
            .given(both),
        Check::limit(
            "the system's time polled, over that of the interrupt",
            "",
            Side::Below,
            1.0,
            polled / host,
        )
        .beside("1.5 us against 4")
        .given(system),
    ];
    let bar =
        |label: &str, value, series, paper| (Bar { label: label.to_owned(), value, series }, paper);
    let drawing = bars_beside(
        "One 4 KiB read, drive and system (given to the model)",
        "us",
        &[
            bar("SATA of 2008, drive", old, 0, Some(140.0)),
            bar("SATA of 2008, system", host_2008, 1, Some(40.0)),
            bar("P3700, drive", nand, 0, None),
            bar("P3700, system", host, 1, None),
            bar("P4800X, drive", optane, 0, Some(8.0)),
            bar("P4800X, system", host, 1, Some(4.0)),
            bar("P4800X, system, polled", polled, 1, Some(1.5)),
        ],
    );
    let scenario = vec![
        "One read at a time on an idle drive; the system's parts are the text's, split chosen. So \
         the sums are the text's own numbers again: this shows where the models' time goes, it \
         finds nothing out."
            .to_owned(),
        "`004-fig4-here` splits reads of a file of the machine at hand in the same way.".to_owned(),
    ];
    Outcome { scenario, checks, drawings: vec![drawing] }
}
