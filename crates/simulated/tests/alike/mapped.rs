//! Mapped files, in directories of each kind.

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use entresol_base::world::{World, WorldOptions};
use entresol_media::{BlockOptions, FileError, MapOptions, MappedFile, MappedKind, PmemMode};
use entresol_simulated::disk::{Disk, DiskOptions};

use crate::directory::{block_options, everywhere, names};

pub(crate) fn options(bytes: u64) -> MapOptions {
    MapOptions { create: Some(bytes), ..MapOptions::default() }
}

fn read(file: &Arc<dyn MappedFile>, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read(offset, &mut bytes);
    bytes
}

#[test]
fn bytes_are_read_back_wherever_they_lie() {
    everywhere(|directory| {
        let file = directory.map_file("log", &options(10_000)).expect("makes");
        assert_eq!((file.len(), file.kind()), (12_288, MappedKind::File));
        assert!(file.path().ends_with("d/log"));
        let bytes: Vec<u8> = (0..12_288_u32).map(|at| (at * 7 + at / 256) as u8).collect();
        let mut at = 0;
        for len in (0..).map(|step: usize| step * 37 % 1500) {
            let len = len.min(bytes.len() - at);
            file.write(at as u64, &bytes[at..at + len]);
            at += len;
            if at == bytes.len() {
                break;
            }
        }
        for (offset, len) in [(0, 12_288), (4095, 2), (511, 4000), (12_288, 0), (77, 1)] {
            let expected = &bytes[offset as usize..offset as usize + len];
            assert_eq!(read(&file, offset, len), expected, "{len} bytes at {offset}");
            let mut out = b"before".to_vec();
            file.append_to(offset, len, &mut out);
            assert_eq!(out[..6], *b"before");
            assert_eq!(out[6..], *expected);
            assert!(file.equals(offset, expected));
            file.persist(offset, len as u64).expect("persists");
        }
        file.write(5000, b"anew");
        assert_eq!(read(&file, 4999, 6), [bytes[4999], b'a', b'n', b'e', b'w', bytes[5004]]);
    });
}

#[test]
fn keys_are_compared_where_they_lie() {
    everywhere(|directory| {
        let file = directory.map_file("log", &options(4096)).expect("makes");
        let long = [b"x".repeat(100), b"m".to_vec(), b"x".repeat(50)].concat();
        let keys: [&[u8]; 6] = [b"", b"a", b"ab", b"b", &long[..100], &long];
        let offset = 3;
        for (number, &key) in keys.iter().enumerate() {
            file.write(offset, key);
            for (other_number, &other) in keys.iter().enumerate() {
                let expected = number.cmp(&other_number);
                assert_eq!(file.compare(offset, key.len(), other), expected, "{key:?} {other:?}");
                let same = key.len() == other.len() && expected.is_eq();
                assert_eq!(file.equals(offset, other), same || key.starts_with(other));
            }
            for at in 0..key.len() {
                let (mut less, mut greater) = (key.to_vec(), key.to_vec());
                less[at] -= 1;
                greater[at] += 1;
                assert_eq!(file.compare(offset, key.len(), &less), Ordering::Greater, "{at}");
                assert_eq!(file.compare(offset, key.len(), &greater), Ordering::Less, "{at}");
                assert!(!file.equals(offset, &less));
            }
        }
    });
}

#[test]
fn blocks_show_what_was_written_through_the_mapping_and_the_other_way_round() {
    everywhere(|directory| {
        let file = directory.map_file("log", &options(8192)).expect("makes");
        file.write(4000, &[7; 200]);
        let refused = [
            directory.map_file("log", &MapOptions::default()).map(drop),
            directory.open_block_file("log", &BlockOptions::default()).map(drop),
        ];
        for result in refused {
            let error = result.expect_err("is mapped");
            assert!(matches!(error, FileError::Locked { .. }), "{error}");
        }
        // Nothing of it is persisted: it is there all the same.
        drop(file);
        let blocks = directory.open_block_file("log", &BlockOptions::default()).expect("opens");
        assert_eq!(blocks.len(), 8192);
        let mut found = blocks.buffer(8192);
        assert_eq!(blocks.read_at(0, &mut found).expect("reads"), 8192);
        assert!(found[..4000].iter().chain(&found[4200..]).all(|&byte| byte == 0));
        assert_eq!(found[4000..4200], [7; 200]);
        found.fill(9);
        blocks.write_at(0, &found).expect("writes");
        let error = directory.map_file("log", &MapOptions::default()).expect_err("is open");
        assert!(matches!(error, FileError::Locked { .. }), "{error}");
        drop(blocks);
        let file = directory.map_file("log", &options(8192)).expect("maps");
        assert_eq!(read(&file, 0, 8192), [9; 8192]);
    });
}

#[test]
fn a_file_serves_a_new_segment_under_another_name() {
    everywhere(|directory| {
        let magic = Some(*b"entresol");
        let segment = MapOptions { magic, ..options(8192) };
        let old = directory.map_file("1", &segment).expect("makes");
        assert_eq!(read(&old, 0, 8), *b"entresol");
        old.write(100, b"old");
        old.persist(0, 8192).expect("persists");
        directory.rename("1", "2").expect("renames what is mapped");
        old.write(200, b"still");
        drop(old);
        let new = directory.map_file("2", &segment).expect("maps");
        assert_eq!((read(&new, 100, 3), read(&new, 200, 5)), (b"old".into(), b"still".into()));
        new.write(100, b"new");
        new.persist(100, 3).expect("persists");
        directory.remove("2").expect("removes what is mapped");
        assert!(new.equals(100, b"new"));
        assert!(names(&directory).is_empty());
        let fresh = directory.map_file("2", &segment).expect("makes another");
        assert_eq!(read(&fresh, 100, 3), [0; 3]);
    });
}

#[test]
fn what_cannot_be_mapped_is_refused_and_left_alone() {
    everywhere(|directory| {
        let magic = Some(*b"entresol");
        directory.replace("page", &[9; 4096]).expect("writes");
        directory.replace("short", &[9; 100]).expect("writes");
        directory.replace("empty", b"").expect("writes");
        directory.subdirectory("inner").expect("makes");
        let check = |name: &str, options: MapOptions, reason: &str| {
            let error = directory.map_file(name, &options).expect_err(name).to_string();
            assert!(error.contains(reason), "{name}: {error}");
        };
        check("page", MapOptions { magic, ..options(4096) }, "holds something else");
        check("page", options(8192), "has 4096 bytes, 8192 are needed");
        check("short", MapOptions::default(), "has 100 bytes, 4096 are needed");
        check("empty", MapOptions::default(), "has 0 bytes, 4096 are needed");
        check("inner", options(4096), "is a directory");
        check("absent", MapOptions::default(), "does not exist");
        let pmem = Some(PmemMode { assume_dax: false });
        match directory.map_file("pmem", &MapOptions { pmem, ..options(4096) }) {
            Ok(file) => {
                assert_eq!(file.kind(), MappedKind::Dax);
                directory.remove("pmem").expect("removes");
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        }
        assert_eq!(names(&directory), ["empty", "inner", "page", "short"]);
        assert_eq!(directory.read("page").expect("reads"), [9; 4096]);
        let filled = directory.map_file("empty", &options(4096)).expect("fills");
        assert_eq!(filled.len(), 4096);
    });
}

#[test]
fn space_that_was_given_back_is_had_again_before_it_is_mapped() {
    everywhere(|directory| {
        let blocks = directory.open_block_file("log", &block_options(1 << 20)).expect("makes");
        blocks.discard(0, 1 << 20).expect("discards");
        drop(blocks);
        let before = directory.free_bytes().expect("says");
        let file = directory.map_file("log", &MapOptions::default()).expect("maps");
        // Others use the machine's file systems too; the simulated one is this test's alone.
        if directory.path().starts_with("/disk") {
            assert_eq!(directory.free_bytes().expect("says"), before - (1 << 20));
        }
        file.write(1 << 19, b"there");
        assert_eq!(read(&file, (1 << 19) - 1, 6), *b"\0there");
    });
}

#[test]
#[should_panic(expected = "2 bytes at 4095 are outside of a mapped file of 4096 bytes")]
fn no_access_leads_out_of_a_simulated_file() {
    let world = World::new(WorldOptions::seeded(1));
    let disk = Disk::new(&world, DiskOptions::default()).expect("no model");
    let file = disk.root().map_file("log", &options(4096)).expect("makes");
    file.write(4095, b"ab");
}
