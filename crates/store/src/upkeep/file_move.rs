//! Files that move whole from one place of a store to another.
//!
//! A flushed file is never changed, so a copy is as good as the file itself, and nothing that leads
//! to it has to be written anew. It is copied under another name; once its bytes are durable it
//! gets its own, and once that is durable the old one is removed. So after a crash there is the old
//! file, the new one, or both, and of two the next opening removes one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::mutation_site;

use crate::StoreError;
use crate::repair::file_copy::{Source, copy};
use crate::run;
use crate::types::{KvsId, RunNumber, SegmentNumber};
use crate::upkeep::charging::{Bill, Traffic};
use crate::version::core::Core;
use crate::version::view::{View, ViewRun};
use crate::volumes::policy::Classes;
use crate::volumes::{Cause, Held, What};
use crate::wal::segment;
use crate::wal::segment::Segment;

/// What the name of a file begins with that is on its way.
const ON_ITS_WAY: &str = "moving-";

/// A flushed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whole {
    /// Values.
    Segment(SegmentNumber),
    /// Keys of a `Kvs`.
    Run(KvsId, RunNumber),
}

/// A file that is to move, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileMove {
    pub(crate) file: Whole,
    pub(crate) to: Classes,
    pub(crate) cause: Cause,
}

/// The name of a file while it is on its way.
pub(crate) fn on_its_way(name: &str) -> String {
    format!("{ON_ITS_WAY}{name}")
}

/// Whether a name is that of a file on its way.
pub(crate) fn is_on_its_way(name: &str) -> bool {
    name.starts_with(ON_ITS_WAY)
}

impl Whole {
    /// The file's name.
    pub(crate) fn name(self) -> String {
        match self {
            Whole::Segment(number) => segment::file_name(number),
            Whole::Run(_, number) => run::file_name(number),
        }
    }

    fn find(self, view: &View) -> Option<Found> {
        match self {
            Whole::Segment(number) => view.segments.get(&number).cloned().map(Found::Segment),
            Whole::Run(kvs, number) => {
                let mut runs = view.runs.get(&kvs)?.iter();
                runs.find(|run| run.number() == number).cloned().map(|run| Found::Run(kvs, run))
            }
        }
    }
}

/// A flushed file that is open.
enum Found {
    Segment(Arc<Segment>),
    Run(KvsId, ViewRun),
}

impl Found {
    /// The same file in another place.
    fn open_in(&self, core: &Core, place: &Held) -> Result<Found, StoreError> {
        let directory = &place.directory;
        Ok(match self {
            Found::Segment(segment) => {
                let (store, number) = (segment.address(0).store, segment.number());
                Found::Segment(Arc::new(Segment::open_blocks(&**directory, store, number)?))
            }
            Found::Run(kvs, run) => {
                Found::Run(*kvs, ViewRun::open(directory, run.state(), &core.pages)?)
            }
        })
    }

    fn source(&self) -> &dyn Source {
        match self {
            Found::Segment(segment) => &**segment,
            Found::Run(_, run) => &*run.run,
        }
    }
}

impl FileMove {
    /// Where the file goes, if there is room for so many bytes and it is not there already. What
    /// cannot stay goes wherever there is room.
    pub(crate) fn target(&self, core: &Core, bytes: u64) -> Option<Arc<Held>> {
        let what = match self.file {
            Whole::Segment(_) => What::Values,
            Whole::Run(..) => What::Keys,
        };
        let now = core.volumes.find(&self.file.name())?;
        let target = match now.is_retiring() {
            true => core.volumes.choose(what, self.to, bytes),
            false => core.volumes.choose_strictly(what, self.to, bytes),
        };
        target.ok().filter(|target| target.class != now.class || now.is_retiring())
    }
}

/// Moves files, as long as `go_on` wants to, which is told the bytes of each piece. Answers whether
/// it came to its end. The caller holds the lock of those who merge.
///
/// # Errors
/// If a disk fails or has no room. What has not moved is where it was.
pub(crate) fn move_all_files(
    core: &Core,
    file_moves: &[FileMove],
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, StoreError> {
    for file_move in file_moves {
        core.failure.check()?;
        if core.work.is_over() || !move_one_file(core, *file_move, go_on)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn move_one_file(
    core: &Core,
    file_move: FileMove,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, StoreError> {
    let name = file_move.file.name();
    let view = core.current.get();
    let (Some(found), Some(from)) = (file_move.file.find(&view), core.volumes.find(&name)) else {
        // It was dropped meanwhile.
        return Ok(true);
    };
    let bytes = found.source().bytes();
    let Some(to) = file_move.target(core, bytes) else { return Ok(true) };
    let unfinished = on_its_way(&name);
    let mut bill = Bill::new(core, |core| core.background.is_awaited());
    let mut traffic = Traffic::default();
    let mut go_on = |piece| {
        traffic.read(from.class, piece);
        traffic.wrote(to.class, piece);
        bill.moved(&traffic);
        go_on(piece) && !core.work.is_over() && core.failure.check().is_ok()
    };
    let copied = copy(found.source(), &*to.directory, &unfinished, &mut go_on);
    if !matches!(copied, Ok(true)) {
        // What cannot be removed now is at the next opening.
        let _ = to.directory.remove(&unfinished);
        return copied;
    }
    bill.settle(&traffic);
    core.counters.compaction_read.fetch_add(bytes, Relaxed);
    to.directory.rename(&unfinished, &name)?;
    if !mutation_site!("a moved file's new name is durable before the old one goes") {
        to.sync_names()?;
    }
    let moved = found.open_in(core, &to)?;
    if install(core, file_move.file, moved, &to, bytes) {
        to.written.moved[file_move.cause as usize].fetch_add(bytes, Relaxed);
        if let Found::Segment(segment) = &found {
            from.written.values_read.fetch_add(segment.bytes_read(), Relaxed);
        }
        from.directory.remove(&name)?;
    } else {
        to.directory.remove(&name)?;
    }
    Ok(true)
}

/// Lets readers find a file that was copied; says whether it was wanted still.
fn install(core: &Core, file: Whole, moved: Found, to: &Arc<Held>, bytes: u64) -> bool {
    let _manifest = core.manifest.lock();
    if file.find(&core.current.get()).is_none() {
        return false;
    }
    core.current.change(|view| match moved {
        Found::Segment(moved) => {
            let number = moved.number();
            let before = Arc::make_mut(&mut view.segments).insert(number, moved);
            assert!(
                before.is_some(),
                "segment {} was moved, but the view does not have it",
                number.0
            );
        }
        Found::Run(kvs, moved) => {
            let of_kvs = view.runs.get_mut(&kvs).map(Arc::make_mut);
            let mut runs = of_kvs.into_iter().flatten();
            if let Some(run) = runs.find(|run| run.number() == moved.number()) {
                *run = moved;
            }
        }
    });
    core.volumes.made(file.name(), to, bytes);
    true
}
