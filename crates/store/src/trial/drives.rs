//! Drives that a store lies on, and their troubles: one is slow, or calls to it fail, for a while
//! or for ever.

use std::fmt;
use std::sync::Arc;

use entresol_base::clock::Picos;
use entresol_base::rng::Rng;
use entresol_base::world::World;
use entresol_media::Directory;
use entresol_simulated::crash::{Crash, Power};
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, Fault, FaultPlan, Repeat, SectorSize,
};

use super::{Trial, arrange, of_history, options_on};
use crate::{Kvdb, KvdbOptions, MediaClass, StoreError, Volume};

/// Trouble with a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Each call takes longer, by this number of milliseconds.
    Slow(u64),
    /// Calls of a kind fail, from the n-th on or only that one.
    Fails(Failing, u64, Repeat),
    /// The trouble ends.
    Over,
}

/// Kind of calls to a drive that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failing {
    /// Calls of every kind.
    All,
    /// Calls that write, create, remove, rename or allocate.
    Writes,
    /// Calls that make something durable.
    Syncs,
    /// Calls that read.
    Reads,
}

impl Failing {
    /// All kinds.
    pub const ALL: [Failing; 4] = [Failing::All, Failing::Writes, Failing::Syncs, Failing::Reads];

    const fn calls(self) -> Calls {
        match self {
            Failing::All => Calls::ALL,
            Failing::Writes => {
                Calls::of(&[Call::Write, Call::Create, Call::Remove, Call::Rename, Call::Allocate])
            }
            Failing::Syncs => Calls::of(&[Call::Sync, Call::DirectorySync]),
            Failing::Reads => Calls::of(&[Call::Read, Call::Look]),
        }
    }

    /// Returns the name of the kind in the counts.
    const fn name(self) -> &'static str {
        match self {
            Failing::All => "every call fails",
            Failing::Writes => "writes fail",
            Failing::Syncs => "syncs fail",
            Failing::Reads => "reads fail",
        }
    }
}

impl Trouble {
    /// Draws a trouble.
    pub(super) fn draw(rng: &mut Rng) -> Trouble {
        match rng.below(7) {
            0 => Trouble::Over,
            1 | 2 => Trouble::Slow([1, 7, 30][rng.below(3) as usize]),
            _ => {
                let failing = Failing::ALL[rng.below(Failing::ALL.len() as u64) as usize];
                let repeat = if rng.one_in(3) { Repeat::Once } else { Repeat::EverAfter };
                Trouble::Fails(failing, 1 + rng.below(6), repeat)
            }
        }
    }

    /// Returns the name of the trouble in the counts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Trouble::Slow(_) => "slow",
            Trouble::Fails(failing, ..) => failing.name(),
            Trouble::Over => "over",
        }
    }

    fn plan(self) -> FaultPlan {
        let fault =
            |calls, nth, repeat, effect| FaultPlan::one(Fault { calls, nth, repeat, effect });
        match self {
            Trouble::Slow(time) => {
                let effect = Effect::Slow(Picos::from_millis(time));
                fault(Calls::ALL, 1, Repeat::EverAfter, effect)
            }
            Trouble::Fails(failing, nth, repeat) => {
                fault(failing.calls(), nth, repeat, Effect::Fail(Failure::Io))
            }
            Trouble::Over => FaultPlan::default(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Slow(time) => write!(f, "each call takes {time} ms longer"),
            Trouble::Fails(failing, nth, Repeat::Once) => {
                write!(f, "{}, once, at the {nth}. call", failing.name())
            }
            Trouble::Fails(failing, nth, _) => write!(f, "{} from the {nth}. call", failing.name()),
            Trouble::Over => write!(f, "all is well"),
        }
    }
}

/// Layout of a store on drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// One volume.
    Plain,
    /// Several volumes on one drive.
    Classes,
    /// Each class on a drive of its own.
    Apart,
}

/// Drives of a store, the home's first. On persistent memory they are memory, staging and capacity,
/// otherwise staging and capacity.
#[derive(Debug, Clone)]
pub(super) struct Drives {
    pub(super) layout: Layout,
    pub(super) all: Vec<Disk>,
    /// Unit that a crash leaves whole on the first drive.
    sector: SectorSize,
}

impl Drives {
    /// Creates the drives of a trial, with a shared power supply.
    pub(super) fn new(world: &World, trial: &Trial, power: &Power) -> std::io::Result<Drives> {
        let layout = match (trial.classes, trial.troubles) {
            (false, _) => Layout::Plain,
            (true, false) => Layout::Classes,
            (true, true) => Layout::Apart,
        };
        let sector = match trial.seed.is_multiple_of(2) {
            _ if trial.pmem => SectorSize::Line,
            true => SectorSize::Small,
            false => SectorSize::Large,
        };
        let disk = |sector| {
            Disk::new(world, DiskOptions { sector, power: power.clone(), ..DiskOptions::default() })
        };
        let mut all = vec![disk(sector)?];
        if layout == Layout::Apart {
            // Below persistent memory there are two more drives.
            for _ in 0..1 + u8::from(trial.pmem) {
                all.push(disk(SectorSize::Large)?);
            }
        }
        Ok(Drives { layout, all, sector })
    }

    /// Returns one drive with several volumes.
    #[cfg(test)]
    pub(super) fn one(disk: &Disk) -> Drives {
        let all = vec![disk.clone()];
        Drives { layout: Layout::Classes, all, sector: SectorSize::default() }
    }

    /// Returns the drives that a crash has left.
    pub(super) fn left_by(layout: Layout, crash: &Crash<'_>) -> Result<Drives, String> {
        let disks = crash.images.iter().map(|image| image.downcast_ref::<Disk>().cloned());
        let all: Option<Vec<Disk>> = disks.collect();
        match all.filter(|all| !all.is_empty()) {
            Some(all) => Ok(Drives { layout, all, sector: SectorSize::default() }),
            None => Err("a medium is no disk".to_owned()),
        }
    }

    /// Returns the drives as they are when only the process dies: with everything that was written.
    pub(super) fn of_the_dead(&self) -> Drives {
        let all = self.all.iter().map(|disk| disk.image(&disk.units())).collect();
        Drives { all, ..*self }
    }

    /// Returns the drives as a power cut leaves them, on a machine with another power supply.
    pub(super) fn after_a_cut(
        &self,
        world: &World,
        power: &Power,
        rng: &mut Rng,
    ) -> std::io::Result<Drives> {
        let again = self.all.iter().enumerate().map(|(number, disk)| {
            let sector = if number == 0 { self.sector } else { SectorSize::Large };
            let options = DiskOptions { sector, power: power.clone(), ..DiskOptions::default() };
            disk.random_image(rng).reopen(world, options)
        });
        let all = again.collect::<std::io::Result<Vec<Disk>>>()?;
        Ok(Drives { all, ..*self })
    }

    pub(super) fn home(&self) -> &Disk {
        &self.all[0]
    }

    /// Returns the drive of a class.
    pub(super) fn of(&self, class: MediaClass) -> &Disk {
        let last = self.all.len() - 1;
        match (self.layout, class) {
            (Layout::Apart, MediaClass::Capacity) => &self.all[last],
            (Layout::Apart, MediaClass::Staging) => &self.all[last - 1],
            _ => &self.all[0],
        }
    }

    /// Puts a drive, given by its index, into trouble. Returns its position.
    pub(super) fn trouble(&self, drive: u8, trouble: Trouble) -> usize {
        let number = usize::from(drive) % self.all.len();
        self.all[number].inject(trouble.plan());
        number
    }

    /// Returns the number of calls that the last trouble of each drive has struck.
    pub(super) fn struck(&self) -> u64 {
        self.all.iter().map(Disk::struck_count).sum()
    }

    /// Ends all trouble.
    pub(super) fn heal(&self) {
        self.all.iter().for_each(|disk| disk.inject(FaultPlan::default()));
    }

    fn options(&self) -> KvdbOptions {
        of_history(match self.layout {
            Layout::Plain => options_on(self.home()),
            Layout::Classes | Layout::Apart => arrange::options(self.home()),
        })
    }

    fn home_directory(&self) -> Result<Arc<dyn Directory>, StoreError> {
        match self.layout {
            Layout::Plain => Ok(self.home().root()),
            Layout::Classes | Layout::Apart => arrange::home(self.home()),
        }
    }

    /// Returns the directories on all drives but one. With separate drives, the store cannot find
    /// them by path.
    fn given(&self, without: Option<usize>) -> Result<Vec<Arc<dyn Directory>>, StoreError> {
        let mut given = Vec::new();
        if self.layout != Layout::Apart {
            return Ok(given);
        }
        for (_, disk) in self.all.iter().enumerate().filter(|(it, _)| Some(*it) != without) {
            let root = disk.root();
            for entry in root.list()? {
                given.push(root.subdirectory(&entry.name)?);
            }
        }
        Ok(given)
    }

    /// Creates a store on the drives.
    pub(super) fn create(&self, clock: Arc<World>) -> Result<Kvdb, StoreError> {
        match self.layout {
            Layout::Plain => Kvdb::create(self.home().root(), self.options(), clock),
            Layout::Classes | Layout::Apart => {
                Kvdb::create_on(&arrange::volumes(self)?, self.options(), clock)
            }
        }
    }

    /// Opens the store.
    pub(super) fn open(&self, clock: Arc<World>) -> Result<Kvdb, StoreError> {
        Kvdb::open_on(self.home_directory()?, &self.given(None)?, self.options(), clock)
    }

    /// Opens the store while one drive is missing.
    pub(super) fn open_without(
        &self,
        missing: usize,
        read_only: bool,
        clock: Arc<World>,
    ) -> Result<Kvdb, StoreError> {
        let (home, given) = (self.home_directory()?, self.given(Some(missing))?);
        Kvdb::open_with(home, given, self.options(), clock, read_only)
    }

    /// Creates a directory for a further volume.
    pub(super) fn make_place(&self, class: MediaClass, name: u8) -> Result<Volume, StoreError> {
        let root = self.of(class).root();
        let directory = root.subdirectory(&format!("volume-{name}"))?;
        root.sync()?;
        Ok(Volume { class, directory, bytes_max: None })
    }
}
