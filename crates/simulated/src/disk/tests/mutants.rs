//! Leaving out any sync of a small program is noticed when the machine crashes: its own syncs, and
//! those within the disk's replacing and making of files.

use entresol_base::mutants::try_all;
use entresol_media::mapped::MapOptions;

use super::*;

/// Writes two blocks, then a small file that makes them valid, then renames it.
fn suite() -> Result<(), String> {
    let magic = Some(*b"entresol");
    let disk = disk();
    let root = disk.root();
    let options = BlockOptions { magic, ..options(2 * BLOCK as u64) };
    let text = |error: FileError| error.to_string();
    let file = root.open_block_file("new", &options).map_err(text)?;
    check(&disk, |contents| {
        contents.get("new").is_none_or(|bytes| bytes.starts_with(b"entresol"))
    })?;
    write(&file, 1, 1, 5);
    file.sync().map_err(|error| error.to_string())?;
    root.sync().map_err(text)?;
    root.replace("count", b"1").map_err(text)?;
    check(&disk, |contents| {
        contents.get("count").is_some_and(|bytes| bytes == b"1")
            && contents.get("new").is_some_and(|bytes| bytes[BLOCK] == 5)
    })?;
    root.rename("new", "log").map_err(text)?;
    root.sync().map_err(text)?;
    check(&disk, |contents| contents.contains_key("log"))
}

fn check(disk: &Disk, holds: impl Fn(&Contents) -> bool) -> Result<(), String> {
    match crashed(disk).into_iter().find(|contents| !holds(contents)) {
        None => Ok(()),
        Some(contents) => Err(format!("found {:?}", contents.keys())),
    }
}

#[test]
fn every_sync_is_needed() {
    let trials = try_all(suite).expect("holds with all of them");
    let missed: Vec<String> = trials
        .iter()
        .filter(|trial| trial.noticed.is_none())
        .map(|trial| trial.site.to_string())
        .collect();
    // Two of a replacement, one of a new file, and three of the program's own. The first of the
    // latter is a directory's, which the replacement's sync makes good.
    assert_eq!(trials.len(), 6);
    assert_eq!(missed.len(), 1, "{missed:?}");
    assert!(missed[0].starts_with("DirectorySync at"), "{missed:?}");
}

/// Writes two records, and in another sector a third that makes them valid.
fn mapped_suite() -> Result<(), String> {
    let disk = disk();
    let root = disk.root();
    let options = MapOptions { create: Some(2 * BLOCK as u64), ..MapOptions::default() };
    let file = root.map_file("log", &options).map_err(|error| error.to_string())?;
    root.sync().map_err(|error| error.to_string())?;
    check(&disk, |contents| contents.get("log").is_some_and(|bytes| bytes.len() == 2 * BLOCK))?;
    file.write(100, &[5; 200]);
    file.write(300, &[6; 3000]);
    file.persist(100, 3200).map_err(|error| error.to_string())?;
    file.write(BLOCK as u64, &[1]);
    check(&disk, |contents| {
        let counts = contents.get("log").is_some_and(|bytes| bytes[BLOCK] == 1);
        !counts
            || (contents["log"][100..300] == [5; 200] && contents["log"][300..3300] == [6; 3000])
    })?;
    file.persist(BLOCK as u64, 1).map_err(|error| error.to_string())?;
    check(&disk, |contents| contents.get("log").is_some_and(|bytes| bytes[BLOCK] == 1))
}

#[test]
fn every_sync_of_a_mapped_file_is_needed() {
    let trials = try_all(mapped_suite).expect("holds with all of them");
    // Of the new file, of the directory, and two of the program's own.
    assert_eq!(trials.len(), 4);
    let missed: Vec<String> = trials
        .iter()
        .filter(|trial| trial.noticed.is_none())
        .map(|trial| trial.site.to_string())
        .collect();
    assert_eq!(missed, Vec::<String>::new());
}
