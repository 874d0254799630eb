//! The file of the manifest: a manifest as a whole, and behind it a line for each later edit.
//!
//! An edit is synced before the next one is written, and an opening for writing begins with a file
//! that is whole. So a crash can tear the last line only, and nothing relies on an edit whose line
//! is torn. Any other line that is invalid is damage. A lack of room may tear a line as well, and
//! the file is written as a whole after that.

use std::path::Path;

use entresol_base::{checksum, mutation_site};
use entresol_media::directory::SMALL_FILE_BYTES_MAX;
use entresol_media::{Directory, FileError};

use super::edit::Edit;
use super::{FORMAT, FORMAT_OF_EDITS, Manifest, digits_of, is_begun, read_checked, save_checked};
use crate::StoreError;
use crate::names::MANIFEST;

/// Beginning of the line of an edit. Its checksum (eight digits), a space and a JSON object follow.
const EDIT: &str = "edit ";
/// Bytes of edits up to which a file is not written as a whole, however small it began.
const EDITS_BYTES_MIN: u64 = 16 << 10;
/// Bytes of a word, which a torn append leaves either new or zero.
const WORD_BYTES: usize = 8;

/// State of the file that an open store writes to.
#[derive(Debug, Default)]
pub(crate) struct ManifestFile {
    /// Last manifest that was saved; unknown until the file is written as a whole.
    saved: Option<Saved>,
    /// Most bytes that the file may have by now; 0 if it was not written to.
    bytes: u64,
}

#[derive(Debug)]
struct Saved {
    /// Manifest that a reader of the file finds.
    manifest: Manifest,
    /// Bytes of the file when it was written as a whole.
    whole_bytes: u64,
    /// Bytes of the file.
    bytes: u64,
    /// Checksum of the last line, which that of the next edit goes on from.
    crc: u32,
}

/// Line of an edit.
struct Line {
    text: String,
    crc: u32,
}

impl ManifestFile {
    /// Makes a manifest durable: as an edit behind those before, or as a whole once the edits take
    /// more bytes than the manifest did. Returns the bytes written.
    ///
    /// # Errors
    /// Fails if the disk fails. Either manifest may then be on the disk, unless the error
    /// [leaves the last one](StoreError::leaves_the_manifest).
    pub(crate) fn save(
        &mut self,
        next: &Manifest,
        directory: &dyn Directory,
    ) -> Result<u64, StoreError> {
        // Unknown again, should this fail: a part of a line may be there.
        let before = self.saved.take();
        let Some((mut saved, line)) = before.and_then(|saved| saved.with_edit(next)) else {
            let (bytes, crc) = save_checked(next, directory, MANIFEST)?;
            self.bytes = bytes;
            self.saved = Some(Saved { manifest: next.clone(), whole_bytes: bytes, bytes, crc });
            return Ok(bytes);
        };
        self.bytes = saved.bytes + line.text.len() as u64;
        if let Err(error) = directory.append(MANIFEST, saved.bytes, line.text.as_bytes()) {
            if mutation_site!("nothing is appended behind an edit that was torn") {
                self.saved = Some(saved);
            }
            return Err(error.into());
        }
        saved.bytes = self.bytes;
        saved.crc = line.crc;
        saved.manifest.clone_from(next);
        self.saved = Some(saved);
        Ok(line.text.len() as u64)
    }

    /// Returns the most bytes that the file may have by now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets the file's state, so that the next manifest is written as a whole.
    pub(crate) fn begin_anew(&mut self) {
        self.saved = None;
    }
}

impl Saved {
    /// Returns the line by which the file comes to hold the next manifest; `None` if it is to be
    /// written as a whole.
    fn with_edit(self, next: &Manifest) -> Option<(Saved, Line)> {
        let edit = Edit::between(&self.manifest, next)?;
        let object = serde_json::to_string(&edit).ok()?;
        let crc = checksum::crc32c_append(self.crc, object.as_bytes());
        let text = format!("{EDIT}{crc:08x} {object}\n");
        let bytes = self.bytes + text.len() as u64;
        let is_short = bytes - self.whole_bytes <= self.whole_bytes.max(EDITS_BYTES_MIN);
        (is_short && bytes <= SMALL_FILE_BYTES_MAX).then_some((self, Line { text, crc }))
    }
}

/// Reads the manifest of a directory. Returns `None` if there is none.
///
/// # Errors
/// Fails if the file cannot be read, is damaged, or has an unknown format version.
pub(super) fn load(directory: &dyn Directory) -> Result<Option<Manifest>, StoreError> {
    let bytes = match directory.read(MANIFEST) {
        Ok(bytes) => bytes,
        Err(FileError::NoFile { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match parse(&bytes, &directory.path().join(MANIFEST))? {
        (_, Some(damage)) => Err(damage),
        (manifest, None) => Ok(Some(manifest)),
    }
}

/// Reads what is intact of a damaged manifest: the object, wherever in the file it begins, and the
/// edits before the first one that is damaged.
pub(super) fn load_intact(directory: &dyn Directory) -> Option<Manifest> {
    let bytes = directory.read(MANIFEST).ok()?;
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let mut begins = std::iter::once(0).chain(ends.map(|(place, _)| place + 1));
    begins.find_map(|begin| {
        let rest = bytes.get(begin..).filter(|rest| is_begun(rest))?;
        parse(rest, directory.path()).ok().map(|(manifest, _)| manifest)
    })
}

/// Reads a manifest up to the first edit that is damaged, and returns the error of that one.
///
/// # Errors
/// Fails if there is damage before the edits, or the format version is unknown.
fn parse(bytes: &[u8], path: &Path) -> Result<(Manifest, Option<StoreError>), StoreError> {
    let (whole, edits) = bytes.split_at(whole_bytes(bytes));
    let (mut manifest, mut crc): (Manifest, u32) = read_checked(whole, path)?;
    let damaged = |offset: usize, what: String| {
        Some(StoreError::Damaged { path: path.to_owned(), offset: offset as u64, what })
    };
    if manifest.format < FORMAT_OF_EDITS && !edits.is_empty() {
        let damage = damaged(whole.len(), "it is more than two lines".to_owned());
        return Ok((manifest, damage));
    }
    let mut offset = whole.len();
    for line in edits.split_inclusive(|&byte| byte == b'\n') {
        let is_last = offset + line.len() == bytes.len();
        match read_edit(line, crc) {
            Ok((edit, of_edit)) => {
                if let Err(what) = edit.apply(&mut manifest) {
                    return Ok((manifest, damaged(offset, what)));
                }
                crc = of_edit;
            }
            Err(_) if is_last && is_torn(line, offset, crc) => {}
            Err(what) => return Ok((manifest, damaged(offset, what))),
        }
        offset += line.len();
    }
    manifest.format = FORMAT;
    Ok((manifest, None))
}

/// Returns the length of the first two lines, which hold a manifest as a whole.
fn whole_bytes(bytes: &[u8]) -> usize {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(place, _)| place + 1).nth(1).unwrap_or(bytes.len())
}

/// Reads the line of an edit, and returns its checksum with it.
fn read_edit(line: &[u8], before: u32) -> Result<(Edit, u32), String> {
    let Some((crc, object)) = parts_of_edit(line) else {
        return Err("it is not the line of an edit".to_owned());
    };
    if !checksum::matches_behind(before, crc, object) {
        return Err("the checksum of an edit is wrong".to_owned());
    }
    let edit = serde_json::from_slice(object).map_err(|error| error.to_string())?;
    Ok((edit, crc))
}

/// Splits a line into the checksum and the object.
fn parts_of_edit(line: &[u8]) -> Option<(u32, &[u8])> {
    let rest = line.strip_prefix(EDIT.as_bytes())?.strip_suffix(b"\n")?;
    let (digits, object) = rest.split_at_checked(8)?;
    Some((digits_of(digits)?, object.strip_prefix(b" ")?))
}

/// Returns true if an invalid line at `offset` can be one that a crash has torn, which no damage of
/// one bit looks like: no line has a byte of zero, and its first and its last cannot become zero.
fn is_torn(line: &[u8], offset: usize, before: u32) -> bool {
    if mutation_site!("a damaged edit is not taken for a torn one") {
        return true;
    }
    match line.split_last() {
        Some((b'\n', _)) => has_zero_word(line, offset),
        // Without its last byte it is whole: that was its end.
        Some((1.., text)) => read_edit(&[text, b"\n"].concat(), before).is_err(),
        _ => true,
    }
}

/// Returns true if all bytes that lie in one word of the file are zero.
fn has_zero_word(line: &[u8], offset: usize) -> bool {
    let (first, rest) = line.split_at((WORD_BYTES - offset % WORD_BYTES).min(line.len()));
    let mut words = std::iter::once(first).chain(rest.chunks(WORD_BYTES));
    words.any(|word| word.iter().all(|&byte| byte == 0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use entresol_base::world::{World, WorldOptions};
    use entresol_simulated::disk::{Disk, DiskOptions};

    use super::*;
    use crate::repair::check::guess;
    use crate::types::KvsId;

    fn root() -> Arc<dyn Directory> {
        let world = World::new(WorldOptions::seeded(1));
        Disk::new(&world, DiskOptions::default()).expect("a disk").root()
    }

    /// Saves manifests that differ in all of their parts, and returns the last one.
    fn edited(root: &dyn Directory) -> Manifest {
        let (mut file, mut manifest) = (ManifestFile::default(), Manifest::new(7));
        let mut save = |change: fn(&mut Manifest)| {
            change(&mut manifest);
            file.save(&manifest, root).expect("room");
            assert_eq!(load(root).expect("whole").as_ref(), Some(&manifest));
            manifest.clone()
        };
        save(|_| ());
        save(|it| it.kvs.extend((1..5).map(|number| guess::state(KvsId(number), Vec::new()))));
        save(|it| it.segments.extend([9, 3, 6]));
        save(|it| it.kvs[2].name = "another\nname".to_owned());
        save(|it| {
            it.kvs.remove(1);
            it.segments.remove(0);
            it.volumes[0].bytes_max = Some(3);
            it.log.durable = 8;
            it.seconds = 5;
        });
        save(|it| it.segments.extend([1, 12]))
    }

    fn lines(root: &dyn Directory) -> Vec<Vec<u8>> {
        let bytes = root.read(MANIFEST).expect("there");
        bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn edits_lead_to_the_manifest_and_are_as_long_as_what_changes() {
        let root = root();
        edited(&*root);
        let lines = lines(&*root);
        assert_eq!(lines.len(), 2 + 5);
        let last = String::from_utf8_lossy(&lines[6]);
        assert!(last.ends_with(" {\"segments\":{\"put\":[1,12]}}\n"), "{last}");
    }

    #[test]
    fn no_edit_is_left_out_comes_twice_or_changes_its_place() {
        let root = root();
        edited(&*root);
        let lines = lines(&*root);
        for orders in [[0, 1, 3, 4, 5, 6].as_slice(), &[0, 1, 2, 2, 3, 4], &[0, 1, 3, 2, 4, 5]] {
            let bytes: Vec<u8> = orders.iter().flat_map(|line| lines[*line].clone()).collect();
            root.replace(MANIFEST, &bytes).expect("room");
            let error = load(&*root).expect_err("not as it was written");
            let text = error.to_string();
            assert!(
                text.contains("the checksum of an edit") && text.contains("MANIFEST"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_list_in_another_order_or_many_edits_are_written_as_a_whole() {
        let root = root();
        let mut manifest = edited(&*root);
        let mut file = ManifestFile::default();
        file.save(&manifest, &*root).expect("room");
        manifest.segments.reverse();
        file.save(&manifest, &*root).expect("room");
        assert_eq!(lines(&*root).len(), 2);
        let mut bytes = 0;
        let whole = root.read(MANIFEST).expect("there").len() as u64;
        for number in 0..1000 {
            manifest.log.flushed = number;
            bytes += file.save(&manifest, &*root).expect("room");
            assert_eq!(load(&*root).expect("whole").as_ref(), Some(&manifest));
            let length = root.read(MANIFEST).expect("there").len() as u64;
            assert!(length <= whole + 100 + EDITS_BYTES_MIN, "{length} bytes");
        }
        assert!(bytes < 100_000, "{bytes} bytes were written");
    }
}
