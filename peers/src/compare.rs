//! Comparison of stores: the same workloads in turns, each in a process and a control group of its
//! own.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use entresol_base::{ByteSize, duration};
use entresol_measure::progress::Progress;
use entresol_bench::ycsb::Workload;
use entresol_media::files;

use crate::Name;
use crate::compared::{Compared, Report, Side};
use crate::group::Group;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Store to measure; may be given more than once [default: all that were built]. Entresol is
    /// measured twice, to show the difference that the method makes by itself.
    #[arg(long, value_name = "NAME")]
    engine: Vec<Name>,
    /// Directory for the stores, with a folder for each. It must not exist yet, and is removed in
    /// the end.
    #[arg(long, value_name = "PATH")]
    directory: PathBuf,
    /// Limit of memory for each process, including the system's cache of its files.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: ByteSize,
    /// Limit of memory that Entresol is given for itself [default: 13/16 of --memory; the rest is
    /// for the system's cache, which holds the log: a generation takes a sixteenth, and there may
    /// be five].
    #[arg(long, value_name = "SIZE")]
    own_memory: Option<ByteSize>,
    /// Make no control groups, so nothing bounds the system's cache.
    #[arg(long)]
    without_cgroup: bool,
    /// Number of rounds in which each store is measured; ten give an interval, fewer a range.
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: usize,
    /// Number of rounds, the first ones, in which a store is loaded anew, by a process of its own
    /// if there are more rounds; later rounds continue with the data that is there [default: all,
    /// with another load for what follows workload d, which adds keys].
    #[arg(long, value_name = "N")]
    loads: Option<usize>,
    /// Workload after the load: a, b, c, d, e or f; may be given more than once, and runs in that
    /// order [default: a, b, c, f, d, e].
    #[arg(long, value_name = "NAME")]
    workload: Vec<Workload>,
    /// Number of keys to load.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,
    /// Operations of each workload but load, for all threads together [default: as many as keys].
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// End each workload but load after this time, whatever has been done.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    duration: Option<Duration>,
    /// Bytes of a key.
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    key_size: usize,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    value_size: usize,
    /// Number of concurrent threads.
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Seed of orders and arrivals; each round gets another one.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also write one JSON object with all rounds to this file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print that object instead of tables.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn sides(&self) -> Vec<Side> {
        let all = || Name::value_variants().to_vec();
        let names = if self.engine.is_empty() { all() } else { self.engine.clone() };
        let mut sides: Vec<Side> = Vec::new();
        for name in names {
            if !sides.iter().any(|side| side.engine == name.name()) {
                sides.push(Side::new(name, false));
            }
        }
        if sides.iter().any(|side| side.name == Name::Entresol) {
            sides.push(Side::new(Name::Entresol, true));
        }
        sides
    }

    fn loads(&self) -> usize {
        self.loads.unwrap_or(self.rounds)
    }

    fn workloads(&self) -> Vec<Workload> {
        use Workload::{A, B, C, D, E, F};
        if self.workload.is_empty() { vec![A, B, C, F, D, E] } else { self.workload.clone() }
    }

    fn own_memory(&self) -> ByteSize {
        self.own_memory.unwrap_or(ByteSize(self.memory.0 / 16 * 13))
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.rounds > 0, "--rounds is at least 1");
        anyhow::ensure!(self.loads() > 0, "--loads is at least 1: what is measured must be there");
        let refused = [Workload::Load, Workload::Mixgraph];
        let refused = self.workload.iter().find(|it| refused.contains(it));
        anyhow::ensure!(
            refused.is_none(),
            "--workload is a, b, c, d, e or f; every store is loaded before them, and mixgraph is \
             measured with ycsb"
        );
        let path = self.directory.display();
        anyhow::ensure!(
            !files::exists(&self.directory),
            "{path} is there already: name a directory to be made"
        );
        Ok(())
    }

    /// Returns the processes of one side in a round, each as its workloads. A process that begins
    /// with load begins with an empty store.
    fn processes(&self, round: usize) -> Vec<Vec<Workload>> {
        let load = [Workload::Load];
        let all = self.workloads();
        match (round < self.loads(), self.loads() < self.rounds) {
            // A store that is fast at d would have more keys than the others for what follows.
            (true, false) => {
                let parts = all.split_inclusive(|workload| *workload == Workload::D);
                parts.map(|part| [&load, part].concat()).collect()
            }
            (true, true) => vec![load.to_vec(), all],
            (false, _) => vec![all],
        }
    }

    /// Returns the arguments of a process of one side in a round.
    fn command(
        &self,
        side: &Side,
        round: usize,
        workloads: &[Workload],
        group: Option<&Path>,
    ) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec!["ycsb".into(), "--json".into()];
        let mut put = |name: &str, value: OsString| command.extend([name.into(), value]);
        put("--engine", side.name.name().into());
        put("--directory", self.directory.join(side.directory()).into());
        if let Some(group) = group {
            put("--control-group", group.into());
        }
        let memory = match side.name {
            Name::Entresol => {
                let own = self.own_memory();
                // Half of it is the row cache: a quarter of all memory, which is the most that the
                // store allows.
                put("--cache", (own.0 / 2).to_string().into());
                put("--generation", (self.memory.0 / 16).to_string().into());
                own
            }
            _ => self.memory,
        };
        put("--memory", memory.0.to_string().into());
        for workload in workloads {
            put("--workload", workload.to_string().into());
        }
        let operations = self.operations.unwrap_or(self.keys);
        for (name, number) in [
            ("--keys", self.keys),
            ("--operations", operations),
            ("--key-size", self.key_size as u64),
            ("--value-size", self.value_size as u64),
            ("--threads", self.threads as u64),
            ("--seed", self.seed + round as u64),
        ] {
            put(name, number.to_string().into());
        }
        if let Some(duration) = self.duration {
            put("--duration", format!("{}ms", duration.as_millis()).into());
        }
        command.push("--keep".into());
        command
    }

    /// Runs one side once. Returns what its processes printed, or why one failed.
    fn measure(&self, side: &Side, round: usize) -> anyhow::Result<Result<Report, String>> {
        let store = self.directory.join(side.directory());
        let mut all = Report::default();
        for workloads in self.processes(round) {
            if workloads.first() == Some(&Workload::Load) && files::exists(&store) {
                files::remove_tree(&store).with_context(|| store.display().to_string())?;
            }
            match self.process(side, round, &workloads)? {
                Ok(report) => all.workloads.extend(report.workloads),
                Err(failure) => return Ok(Err(failure)),
            }
        }
        Ok(Ok(all))
    }

    fn process(
        &self,
        side: &Side,
        round: usize,
        workloads: &[Workload],
    ) -> anyhow::Result<Result<Report, String>> {
        let group = (!self.without_cgroup).then(|| Group::new(self.memory.0)).transpose()?;
        let program = std::env::current_exe().context("the path of this program")?;
        let output = Command::new(program)
            .args(self.command(side, round, workloads, group.as_ref().map(Group::path)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .context("a process for a store")?;
        if group.as_ref().is_some_and(|group| group.killed() > 0) {
            return Ok(Err(format!("was killed, as {} did not suffice", self.memory)));
        }
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Ok(Err(format!("{}: {}", output.status, said.trim())));
        }
        let report = serde_json::from_slice(&output.stdout).context("what the process printed")?;
        Ok(Ok(report))
    }

    /// Runs all sides once, in an order of the round's own.
    fn round(&self, round: usize, sides: &mut [Side], progress: &Progress) -> anyhow::Result<()> {
        let count = sides.len();
        for place in 0..count {
            let place = (place + round) % count;
            // Every other round runs backwards, so no side always follows the same one.
            let side = &mut sides[if round.is_multiple_of(2) { place } else { count - 1 - place }];
            let what = format!("round {} of {}: {}", round + 1, self.rounds, side.title());
            progress.say(&what);
            if side.failure.is_none() {
                match self.measure(side, round)? {
                    Ok(report) => side.rounds.push(Some(report)),
                    Err(failure) => side.failure = Some(failure),
                }
            }
            if side.failure.is_some() {
                side.rounds.push(None);
            }
            if !std::io::stderr().is_terminal() {
                let failed = side.failure.as_ref().map(|why| format!(": {why}"));
                eprintln!("{what}{}", failed.unwrap_or_default());
            }
            progress.advance(1);
        }
        Ok(())
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    arguments.check()?;
    if arguments.without_cgroup {
        eprintln!("peers: no control groups, so nothing bounds the system's cache of files");
    }
    let path = || arguments.directory.display().to_string();
    files::create_directories(&arguments.directory).with_context(path)?;
    let mut sides = arguments.sides();
    let progress = Progress::new((arguments.rounds * sides.len()) as u64, "compare");
    let mut load_averages = Vec::with_capacity(arguments.rounds);
    let mut rounds = || -> anyhow::Result<()> {
        for round in 0..arguments.rounds {
            arguments.round(round, &mut sides, &progress)?;
            load_averages.extend(load_average());
        }
        Ok(())
    };
    let done = rounds();
    progress.finish();
    files::remove_tree(&arguments.directory).with_context(path)?;
    done?;
    let subject = format!(
        "{} keys of {} bytes, values of {} bytes, {} thread{}, closed loop",
        arguments.keys,
        arguments.key_size,
        arguments.value_size,
        arguments.threads,
        if arguments.threads == 1 { "" } else { "s" },
    );
    let bound = match arguments.without_cgroup {
        true => "no bound of memory: the system's cache of files is not counted".to_owned(),
        false => format!(
            "{} for each process, the system's cache of its files included (control group)",
            arguments.memory
        ),
    };
    let compared = Compared::new(vec![subject, bound], sides, &load_averages, arguments.seed);
    compared.put(arguments.json, arguments.save.as_deref())
}

/// Returns the mean number of runnable processes in the last minute, including the measured ones.
fn load_average() -> Option<f64> {
    let text = files::read_to_string(Path::new("/proc/loadavg")).ok()?;
    text.split(' ').next()?.parse().ok()
}
