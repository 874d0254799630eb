//! Files that a command writes for its user: none may be one of a store's, under any of its names.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use entresol_measure::BenchError;
use entresol_media::files;
use entresol_store::{check_outside, is_begun_as_own};
use rustix::fs::{FileType, stat};

/// Bytes by which a file is known.
const BEGINNING_BYTES: u64 = 16;

/// Refuses a file to be written that lies in a store, or is a link to a file of one.
pub(crate) fn check_file(path: &Path) -> anyhow::Result<()> {
    let path = &files::written_path(path);
    check_outside(path)?;
    match is_stores_by_link(path) {
        true => Err(anyhow!(
            "{} is a link to a file of a store: give a path that leads to no store",
            path.display()
        )),
        false => Ok(()),
    }
}

/// Refuses a folder for a command's own files inside a store.
pub(crate) fn check_folder(path: &Path) -> anyhow::Result<()> {
    // The folder itself may be a store's, which has its files.
    Ok(check_outside(&path.join("file"))?)
}

/// Fails if a file could not be written once the folders of its path are made. That is tried in the
/// nearest one that exists.
pub(crate) fn check_writable(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty() && !files::exists(it));
    let there = match folder {
        Some(folder) => nearest(folder).join(path.file_name().unwrap_or_default()),
        None => path.to_owned(),
    };
    Ok(files::check_writable(&there).map_err(|source| BenchError::File { path: there, source })?)
}

/// Returns the part of a path that exists.
pub(crate) fn nearest(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.ancestors().find(|it| files::exists(it)).map_or_else(|| whole.clone(), Path::to_owned)
}

/// Returns true if a path lies in a directory or is it, though neither need exist.
pub(crate) fn is_within(path: &Path, directory: &Path) -> bool {
    let followed = |path: &Path| {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let there = nearest(path);
        // Links are followed for the part of the path that exists.
        let rest = whole.strip_prefix(&there).map(Path::to_owned).unwrap_or_default();
        files::canonical(&there).unwrap_or(there).join(rest)
    };
    followed(path).starts_with(followed(directory))
}

/// Returns true if a file has another name as well, and begins as those of a store do.
fn is_stores_by_link(path: &Path) -> bool {
    let is_linked = stat(path).is_ok_and(|there| {
        FileType::from_raw_mode(there.st_mode) == FileType::RegularFile && there.st_nlink > 1
    });
    let mut bytes = Vec::new();
    // Writing it reports what is wrong with it.
    is_linked
        && files::open_reader(path)
            .and_then(|file| file.take(BEGINNING_BYTES).read_to_end(&mut bytes))
            .is_ok_and(|_| is_begun_as_own(&bytes))
}
