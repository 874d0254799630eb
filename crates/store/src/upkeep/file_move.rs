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
use crate::names;
use crate::policy::Classes;
use crate::segment::Segment;
use crate::types::{KvsId, RunNumber, SegmentNumber};
use crate::upkeep::charging::{Bill, Traffic};
use crate::upkeep::context::CompactionContext;
use crate::upkeep::file_copy::{Source, copy};
use crate::version::files::Files;
use crate::version::view::{View, ViewRun};
use crate::volumes::{FileKind, Leaving, MoveCause, OpenVolume, Volumes};

/// Flushed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushedFile {
    /// Segment with values.
    Segment(SegmentNumber),
    /// Run with keys of a `Kvs`.
    Run(KvsId, RunNumber),
}

/// Planned move of a file, with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileMove {
    pub(crate) file: FlushedFile,
    pub(crate) to: Classes,
    pub(crate) cause: MoveCause,
}

impl FlushedFile {
    /// Returns the name of the file.
    pub(crate) fn name(self) -> String {
        match self {
            FlushedFile::Segment(number) => names::of_segment(number),
            FlushedFile::Run(_, number) => names::of_run(number),
        }
    }

    /// Returns the purpose of the file.
    pub(crate) fn kind(self) -> FileKind {
        match self {
            FlushedFile::Segment(_) => FileKind::Values,
            FlushedFile::Run(..) => FileKind::Keys,
        }
    }

    fn find(self, view: &View) -> Option<OpenFlushedFile> {
        match self {
            FlushedFile::Segment(number) => {
                view.segments.get(&number).cloned().map(OpenFlushedFile::Segment)
            }
            FlushedFile::Run(kvs, number) => {
                let mut runs = view.runs.get(&kvs)?.iter();
                runs.find(|run| run.number() == number)
                    .cloned()
                    .map(|run| OpenFlushedFile::Run(kvs, run))
            }
        }
    }
}

/// Flushed file that is open.
enum OpenFlushedFile {
    Segment(Arc<Segment>),
    Run(KvsId, ViewRun),
}

impl OpenFlushedFile {
    /// Opens the file's copy on another volume.
    fn open_in(&self, files: &Files, place: &OpenVolume) -> Result<OpenFlushedFile, StoreError> {
        let directory = &place.directory;
        Ok(match self {
            OpenFlushedFile::Segment(segment) => {
                let (store, number) = (segment.store(), segment.number());
                OpenFlushedFile::Segment(Arc::new(Segment::open_blocks(
                    &**directory,
                    store,
                    number,
                )?))
            }
            OpenFlushedFile::Run(kvs, run) => {
                OpenFlushedFile::Run(*kvs, ViewRun::open(directory, run.state(), &files.pages)?)
            }
        })
    }

    fn source(&self) -> &dyn Source {
        match self {
            OpenFlushedFile::Segment(segment) => &**segment,
            OpenFlushedFile::Run(_, run) => &*run.run,
        }
    }
}

impl FileMove {
    /// Returns the volume that the file moves to, if that has room for `bytes` bytes and is of
    /// another class. A file on a retiring volume goes wherever there is room.
    pub(crate) fn target(&self, volumes: &Volumes, bytes: u64) -> Option<Arc<OpenVolume>> {
        let what = match self.file {
            FlushedFile::Segment(_) => FileKind::Values,
            FlushedFile::Run(..) => FileKind::Keys,
        };
        let now = volumes.find(&self.file.name())?;
        let target = match now.is_retiring() {
            true => volumes.choose(what, self.to, bytes),
            false => volumes.choose_strictly(what, self.to, bytes),
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
    context: &CompactionContext<'_>,
    file_moves: &[FileMove],
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, StoreError> {
    for file_move in file_moves {
        context.files.failure.check()?;
        if context.background.scheduler.is_over() || !move_one_file(context, *file_move, go_on)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn move_one_file(
    context: &CompactionContext<'_>,
    file_move: FileMove,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, StoreError> {
    let name = file_move.file.name();
    let view = context.files.current.get();
    let (Some(found), Some(from)) = (file_move.file.find(&view), context.files.volumes.find(&name))
    else {
        // The file was dropped meanwhile.
        return Ok(true);
    };
    let bytes = found.source().bytes();
    let Some(to) = file_move.target(&context.files.volumes, bytes) else { return Ok(true) };
    let unfinished = names::on_its_way(&name);
    let mut bill =
        Bill::new(context.files, context.background, || context.background.accounts.is_awaited());
    let mut traffic = Traffic::default();
    let mut go_on = |piece| {
        traffic.read(from.class, piece);
        traffic.wrote(to.class, piece);
        bill.moved(&traffic);
        go_on(piece)
            && !context.background.scheduler.is_over()
            && context.files.failure.check().is_ok()
    };
    to.growing().fetch_add(bytes, Relaxed);
    let copied = copy(found.source(), &*to.directory, &unfinished, &mut go_on);
    if !matches!(copied, Ok(true)) {
        // A copy that cannot be removed now is removed at the next opening.
        if to.directory.remove(&unfinished).is_ok() {
            to.growing().fetch_sub(bytes, Relaxed);
        }
        return copied;
    }
    bill.settle(&traffic);
    context.background.bytes_read.fetch_add(bytes, Relaxed);
    to.directory.rename(&unfinished, &name)?;
    if !mutation_site!("a moved file's new name is durable before the old one goes") {
        to.sync_names()?;
    }
    let moved = found.open_in(context.files, &to)?;
    if let Some(old) = install(context.files, file_move.file, moved, &to, bytes) {
        to.growing().fetch_sub(bytes, Relaxed);
        to.life.written.moved[file_move.cause as usize].fetch_add(bytes, Relaxed);
        if let OpenFlushedFile::Segment(segment) = &found {
            from.life.written.values_read.fetch_add(segment.bytes_read(), Relaxed);
        }
        from.directory.remove(&name)?;
        old.removed(&context.files.volumes);
    } else {
        to.directory.remove(&name)?;
        to.growing().fetch_sub(bytes, Relaxed);
    }
    Ok(true)
}

/// Shows the copy to readers. Returns the old file, to be removed; `None` if it was dropped
/// meanwhile.
fn install(
    files: &Files,
    file: FlushedFile,
    moved: OpenFlushedFile,
    to: &Arc<OpenVolume>,
    bytes: u64,
) -> Option<Leaving> {
    let _manifest = files.manifest.lock();
    file.find(&files.current.get())?;
    files.current.change(|view| match moved {
        OpenFlushedFile::Segment(moved) => {
            let number = moved.number();
            let before = Arc::make_mut(&mut view.segments).insert(number, moved);
            assert!(
                before.is_some(),
                "segment {} was moved, but the view does not have it",
                number.0
            );
        }
        OpenFlushedFile::Run(kvs, moved) => {
            let of_kvs = view.runs.get_mut(&kvs).map(Arc::make_mut);
            let mut runs = of_kvs.into_iter().flatten();
            if let Some(run) = runs.find(|run| run.number() == moved.number()) {
                *run = run.moved_to(moved);
            }
        }
    });
    let old = files.volumes.made_elsewhere(file.name(), to, bytes);
    assert!(old.is_some(), "{file:?} was moved, and was on no volume");
    old
}
