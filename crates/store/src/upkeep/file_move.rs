//! File moves: whole files that move from one volume of a store to another.
//!
//! A flushed file never changes, so a copy is as good as the file, and nothing that refers to it
//! must be rewritten. The file is copied under another name. Once its bytes are durable, the copy
//! gets the file's name; once that name is durable, the old file is removed. A crash therefore
//! leaves the old file, the new one, or both, and the next opening removes one of two.

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

/// Prefix of the name of a copy in progress.
const ON_ITS_WAY: &str = "moving-";

/// Flushed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whole {
    /// Segment with values.
    Segment(SegmentNumber),
    /// Run with keys of a `Kvs`.
    Run(KvsId, RunNumber),
}

/// Planned move of a file, with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileMove {
    pub(crate) file: Whole,
    pub(crate) to: Classes,
    pub(crate) cause: Cause,
}

/// Returns the name of a file's copy in progress.
pub(crate) fn on_its_way(name: &str) -> String {
    format!("{ON_ITS_WAY}{name}")
}

/// Returns true if a name is that of a copy in progress.
pub(crate) fn is_on_its_way(name: &str) -> bool {
    name.starts_with(ON_ITS_WAY)
}

impl Whole {
    /// Returns the name of the file.
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

/// Flushed file that is open.
enum Found {
    Segment(Arc<Segment>),
    Run(KvsId, ViewRun),
}

impl Found {
    /// Opens the file's copy on another volume.
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
    /// Returns the volume that the file moves to, if that has room for `bytes` bytes and is of
    /// another class. A file on a retiring volume goes wherever there is room.
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

/// Moves files while `go_on` returns true. `go_on` receives the bytes of each piece. Returns false
/// if the moves ended early. The caller holds the lock of compactions.
///
/// # Errors
/// Fails if a disk fails or has no room. Files that have not moved stay where they were.
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
        // The file was dropped meanwhile.
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
        // A copy that cannot be removed now is removed at the next opening.
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

/// Shows the copy to readers. Returns false if the file was dropped meanwhile.
fn install(core: &Core, file: Whole, moved: Found, to: &Arc<Held>, bytes: u64) -> bool {
    let _manifest = core.manifest.lock();
    if file.find(&core.current.get()).is_none() {
        return false;
    }
    core.current.change(|view| match moved {
        Found::Segment(moved) => {
            let number = moved.number();
            let before = Arc::make_mut(&mut view.segments).insert(number, moved);
            assert!(before.is_some(), "segment {} has moved, and nobody had it", number.0);
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
