//! One suite for directories of this machine and of a simulated disk: they must behave alike.

use std::io;
use std::sync::Arc;

use entresol_base::world::{World, WorldOptions};
use entresol_media::directory::{Entry, EntryKind, NAME_BYTES_MAX, SMALL_FILE_BYTES_MAX};
use entresol_media::{BlockOptions, Directory, FileError, LocalDirectory};
use entresol_simulated::disk::{Disk, DiskOptions, FaultPlan, SectorSize};

use crate::mapped::options;

/// Runs a test in an empty directory of each kind.
pub(crate) fn everywhere(test: impl Fn(Arc<dyn Directory>)) {
    let mut parents = vec![tempfile::tempdir().expect("directory")];
    parents.extend(tempfile::tempdir_in("/dev/shm"));
    for parent in &parents {
        let local = LocalDirectory::open(&parent.path().join("d")).expect("made");
        test(Arc::new(local));
    }
    for sector in [SectorSize::Small, SectorSize::Large, SectorSize::Line] {
        // Without a model nothing waits, so that the world need not run.
        let world = World::new(WorldOptions::seeded(1));
        let options = DiskOptions {
            sector,
            faults: FaultPlan { capacity: Some(64 << 20), ..FaultPlan::default() },
            ..DiskOptions::default()
        };
        let disk = Disk::new(&world, options).expect("no model");
        test(disk.root().subdirectory("d").expect("made"));
    }
}

pub(crate) fn names(directory: &Arc<dyn Directory>) -> Vec<String> {
    directory.list().expect("lists").into_iter().map(|entry| entry.name).collect()
}

pub(crate) fn block_options(bytes: u64) -> BlockOptions {
    BlockOptions { create: Some(bytes), ..BlockOptions::default() }
}

#[test]
fn small_files_come_go_and_change_their_names() {
    everywhere(|directory| {
        directory.replace("b", b"two").expect("writes");
        directory.replace("a", b"one").expect("writes");
        directory.replace("a", b"three").expect("writes");
        directory.replace("empty", b"").expect("writes");
        assert_eq!(names(&directory), ["a", "b", "empty"]);
        assert_eq!(directory.read("empty").expect("reads"), b"");
        directory.rename("a", "b").expect("renames");
        assert_eq!(directory.read("b").expect("reads"), b"three");
        assert_eq!(directory.find("a").expect("looks"), None);
        assert_eq!(directory.find("b").expect("looks"), Some(EntryKind::File));
        for name in ["b", "b", "empty"] {
            directory.remove(name).expect("removes what is there and what is not");
        }
        directory.sync().expect("syncs");
        assert!(names(&directory).is_empty());
    });
}

#[test]
fn small_files_grow_at_their_ends_alone() {
    everywhere(|directory| {
        directory.replace("a", b"one").expect("writes");
        directory.append("a", 3, b", two").expect("appends");
        directory.append("a", 8, &[b'x'; 5000]).expect("appends");
        directory.append("a", 5008, b"").expect("appends nothing");
        for wrong in [0, 5007, 5009] {
            let error = directory.append("a", wrong, b"no").expect_err("another end").to_string();
            assert!(error.contains("it ends at 5008"), "{error}");
        }
        let found = directory.read("a").expect("reads");
        assert_eq!((&found[..9], found.len()), (&b"one, twox"[..], 5008));
        let error = directory.append("a", 5008, &vec![0; SMALL_FILE_BYTES_MAX as usize]);
        assert!(matches!(error, Err(FileError::TooLarge { .. })), "{error:?}");
        directory.replace("a", b"new").expect("writes");
        assert_eq!(directory.read("a").expect("reads"), b"new");
    });
}

#[test]
fn what_is_not_there_is_said_to_be_so() {
    everywhere(|directory| {
        let absent = [
            directory.read("x").map(drop),
            directory.rename("x", "y"),
            directory.append("x", 0, b"y"),
        ];
        for result in absent {
            let error = result.expect_err("absent");
            assert!(matches!(error, FileError::NoFile { .. }), "{error}");
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert!(error.to_string().contains("/x does not exist"), "{error}");
        }
        let error = directory.open_block_file("x", &BlockOptions::default()).expect_err("absent");
        assert!(matches!(error, FileError::NotFound { .. }), "{error}");
    });
}

#[test]
fn block_files_are_made_found_again_and_renamed_while_open() {
    everywhere(|directory| {
        let file = directory.open_block_file("new", &block_options(10_000)).expect("makes");
        assert_eq!(file.len(), 12_288, "whole pages");
        let mut block = file.buffer(4096);
        block.fill(7);
        file.write_at(4096, &block).expect("writes");
        file.sync().expect("syncs");
        directory.rename("new", "log").expect("renames");
        directory.sync().expect("syncs");
        let error = directory.open_block_file("log", &BlockOptions::default()).expect_err("open");
        assert!(matches!(error, FileError::Locked { .. }), "{error}");
        directory.replace("small", b"x").expect("writes");
        file.write_at(8192, &block).expect("still the same file");
        drop(file);
        let file = directory.open_block_file("log", &BlockOptions::default()).expect("is there");
        assert_eq!(file.len(), 12_288);
        let mut found = file.buffer(12_288);
        assert_eq!(file.read_at(0, &mut found).expect("reads"), 12_288);
        assert!(found[..4096].iter().all(|&byte| byte == 0));
        assert!(found[4096..].iter().all(|&byte| byte == 7));
        assert_eq!(names(&directory), ["log", "small"]);
    });
}

#[test]
fn a_removed_file_serves_those_who_have_it_open_and_its_name_is_free() {
    everywhere(|directory| {
        let old = directory.open_block_file("a", &block_options(4096)).expect("makes");
        let mut block = old.buffer(4096);
        block.fill(1);
        old.write_at(0, &block).expect("writes");
        directory.remove("a").expect("removes");
        let new = directory.open_block_file("a", &block_options(4096)).expect("makes another");
        new.read_at(0, &mut block).expect("reads");
        assert!(block.iter().all(|&byte| byte == 0));
        old.read_at(0, &mut block).expect("reads");
        assert!(block.iter().all(|&byte| byte == 1));
    });
}

#[test]
fn foreign_and_short_files_are_left_alone() {
    everywhere(|directory| {
        directory.replace("page", &[9; 4096]).expect("writes");
        let magic = Some(*b"entresol");
        let options = BlockOptions { magic, ..block_options(4096) };
        let error = directory.open_block_file("page", &options).expect_err("somebody else's");
        assert!(matches!(error, FileError::Foreign { .. }), "{error}");
        let error = directory.open_block_file("page", &block_options(8192)).expect_err("short");
        assert!(matches!(error, FileError::TooSmall { found: 4096, .. }), "{error}");
        let grown = BlockOptions { grow: true, ..block_options(8192) };
        assert_eq!(directory.open_block_file("page", &grown).expect("grows").len(), 8192);
        let ours = directory.open_block_file("ours", &options).expect("makes");
        let mut block = ours.buffer(4096);
        ours.read_at(0, &mut block).expect("reads");
        assert!(block.starts_with(b"entresol"));
        drop(ours);
        directory.open_block_file("ours", &options).expect("recognised");
    });
}

#[test]
fn directories_hold_directories() {
    everywhere(|directory| {
        let inner = directory.subdirectory("inner").expect("makes");
        inner.replace("x", b"1").expect("writes");
        directory.replace("x", b"2").expect("writes");
        let again = directory.subdirectory("inner").expect("opens");
        assert_eq!(again.read("x").expect("reads"), b"1");
        assert_eq!(directory.find("inner").expect("looks"), Some(EntryKind::Directory));
        let kinds: Vec<_> = directory.list().expect("lists").iter().map(Entry::kind).collect();
        assert_eq!(kinds, [EntryKind::Directory, EntryKind::File]);
        assert!(inner.path().ends_with("inner"));
        let refused = [
            directory.remove_subdirectory("inner"),
            directory.subdirectory("x").map(drop),
            directory.remove("inner"),
            directory.replace("inner", b"3"),
            directory.read("inner").map(drop),
            directory.open_block_file("inner", &block_options(4096)).map(drop),
        ];
        for (number, result) in refused.into_iter().enumerate() {
            assert!(result.is_err(), "refusal {number}");
        }
        inner.remove("x").expect("removes");
        directory.remove_subdirectory("inner").expect("is empty now");
        directory.remove_subdirectory("inner").expect("is gone already");
        assert_eq!(names(&directory), ["x"], "nothing is left of a refused replacement");
    });
}

#[test]
fn no_name_leads_out() {
    everywhere(|directory| {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b", ".unfinished-x", &long] {
            let results = [
                directory.read(name).map(drop),
                directory.remove(name),
                directory.replace(name, b""),
                directory.append(name, 0, b""),
                directory.rename("a", name),
                directory.rename(name, "a"),
                directory.find(name).map(drop),
                directory.subdirectory(name).map(drop),
                directory.remove_subdirectory(name),
                directory.open_block_file(name, &block_options(4096)).map(drop),
                directory.map_file(name, &options(4096)).map(drop),
            ];
            for result in results {
                let error = result.expect_err(name);
                assert!(matches!(error, FileError::Name { .. }), "{name}: {error}");
            }
        }
    });
}

#[test]
fn a_second_lock_is_refused_while_the_first_lives() {
    everywhere(|directory| {
        let inner = directory.subdirectory("inner").expect("makes");
        let first = directory.lock().expect("locks");
        let error = directory.lock().expect_err("locked");
        assert!(error.to_string().contains("in use by another process or tenant"), "{error}");
        inner.lock().expect("another directory");
        drop(first);
        directory.lock().expect("free again");
    });
}

#[test]
fn what_is_too_large_for_a_small_file_is_refused() {
    everywhere(|directory| {
        let bytes = SMALL_FILE_BYTES_MAX + 1;
        let error = directory.replace("a", &vec![0; bytes as usize]).expect_err("too large");
        assert!(matches!(error, FileError::TooLarge { .. }), "{error}");
        directory.open_block_file("b", &block_options(bytes)).expect("makes");
        let error = directory.read("b").expect_err("too large").to_string();
        assert!(error.contains("more than the 33554432"), "{error}");
        assert!(directory.free_bytes().expect("says") > 0);
    });
}
