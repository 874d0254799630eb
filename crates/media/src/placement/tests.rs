//! Media files: made whole or not at all, and never at the cost of what was there.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use super::*;
use std::fs;
use std::os::unix::fs::MetadataExt;

const MAGIC: [u8; 8] = *b"a medium";

fn wanted(create: u64) -> Placement {
    Placement { create: Some(create), magic: Some(MAGIC), ..Placement::default() }
}

/// Checks that the file is unchanged afterwards.
fn check_refused(path: &Path, wanted: &Placement, reason: &str) {
    let before = fs::read(path).ok();
    let error = wanted.prepare(path).expect_err(reason).to_string();
    assert!(error.contains(reason), "{error}");
    assert!(!error.contains('\n') && error.contains(&*path.to_string_lossy()), "{error}");
    assert_eq!(fs::read(path).ok(), before);
}

#[test]
fn a_file_is_made_whole_allocated_and_recognised_again() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    let prepared = wanted(10_000).prepare(&path).expect("made");
    assert_eq!(prepared.len(), 12_288);
    assert!(!path.exists(), "it has no name before it is kept");
    drop(prepared.keep().expect("kept"));
    let metadata = fs::metadata(&path).expect("there");
    assert!(metadata.len() == 12_288 && metadata.blocks() * 512 >= 12_288, "{metadata:?}");
    assert!(fs::read(&path).expect("reads").starts_with(&MAGIC));
    let again = wanted(10_000).prepare(&path).expect("recognised");
    assert_eq!(again.len(), 12_288);
}

#[test]
fn what_is_not_kept_leaves_no_trace() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    drop(wanted(1 << 20).prepare(&path).expect("made"));
    assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 0);

    fs::write(&path, "").expect("writes");
    drop(wanted(1 << 20).prepare(&path).expect("an empty file is nobody's"));
    assert_eq!(fs::metadata(&path).expect("there").len(), 0);

    drop(wanted(8192).prepare(&path).expect("made").keep().expect("kept"));
    let grown = Placement { grow: true, ..wanted(1 << 20) };
    assert_eq!(grown.prepare(&path).expect("grown").len(), 1 << 20);
    assert_eq!(fs::metadata(&path).expect("there").len(), 8192);
    drop(grown.prepare(&path).expect("grown").keep().expect("kept"));
    assert_eq!(fs::metadata(&path).expect("there").len(), 1 << 20);
}

/// Makes a file of ours with this many pages, some of which hold data.
fn sparse(path: &Path, pages: u64, has_data: impl Fn(u64) -> bool) -> File {
    let file = File::create(path).expect("new");
    file.set_len(pages * PAGE_BYTES).expect("has a length");
    for page in (0..pages).filter(|page| has_data(*page)) {
        file.write_all_at(&[7; PAGE_BYTES as usize], page * PAGE_BYTES).expect("room");
    }
    file.write_all_at(&MAGIC, 0).expect("room");
    file
}

/// A mapped file must own its space: an access on a full disk ends the process.
#[test]
fn a_file_that_was_there_has_all_its_space_afterwards_and_a_whole_one_is_not_touched() {
    const PAGES: u64 = 64;
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    let blocks = |file: &File| file.metadata().expect("there").blocks() * 512;
    let changed = |file: &File| {
        let metadata = file.metadata().expect("there");
        (metadata.ctime(), metadata.ctime_nsec())
    };
    let adopt = || drop(wanted(8192).prepare(&path).expect("ours").keep().expect("kept"));
    let holes: [fn(u64) -> bool; 4] =
        [|_| false, |page| page != 7, |page| page % 2 == 0, |page| page < PAGES - 1];
    for has_data in holes {
        let file = sparse(&path, PAGES, has_data);
        assert!(blocks(&file) < PAGES * PAGE_BYTES, "there is no hole");
        adopt();
        assert!(blocks(&file) >= PAGES * PAGE_BYTES, "{} bytes have space", blocks(&file));
    }
    // Blocks behind the end hide a hole unless their positions are checked.
    let file = sparse(&path, PAGES, |page| page != 7);
    let behind = (PAGES * PAGE_BYTES, 4 * PAGE_BYTES);
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, behind.0, behind.1).expect("room");
    let before = blocks(&file);
    assert!(before >= PAGES * PAGE_BYTES);
    adopt();
    assert!(blocks(&file) >= before + PAGE_BYTES, "{before}, then {}", blocks(&file));

    let file = sparse(&path, PAGES, |_| true);
    let before = changed(&file);
    // The clock that dates files advances in steps.
    std::thread::sleep(Duration::from_millis(20));
    adopt();
    assert_eq!(changed(&file), before, "a file that lacks nothing was changed");
}

#[test]
fn what_is_somebody_elses_stays_as_it_is() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("letter.txt");
    for text in ["Dear Sir", "a", &"long ".repeat(10_000), "\0\0\0\0\0\0\0\0\0\0"] {
        fs::write(&path, text).expect("writes");
        check_refused(&path, &wanted(1 << 20), "holds something else");
        check_refused(&path, &Placement { grow: true, ..wanted(1 << 20) }, "left alone");
    }
}

#[test]
fn each_obstacle_is_named_with_the_way_out() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    check_refused(&path, &Placement::default(), "give a size");
    check_refused(&path, &wanted(1 << 60), "lower the quota");
    check_refused(&directory.path().join("none/a"), &wanted(1), "make it first");
    check_refused(directory.path(), &wanted(1), "is a directory; name a regular file");
    check_refused(Path::new("/dev/null"), &wanted(1), "is a character device; name a regular file");
    assert!(!path.exists());
    fs::write(&path, "").expect("writes");
    check_refused(&path, &Placement::default(), "has 0 bytes");
    check_refused(&path, &wanted(1 << 60), "lower the quota");
    drop(wanted(8192).prepare(&path).expect("made").keep().expect("kept"));
    check_refused(&path, &wanted(8193), "has 8192 bytes, 12288 are needed");
}

#[test]
fn a_file_in_use_is_refused() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    let held = wanted(8192).prepare(&path).expect("made").keep().expect("kept");
    check_refused(&path, &wanted(8192), "in use by another process or tenant");
    drop(held);
    drop(wanted(8192).prepare(&path).expect("free again"));
}

#[test]
fn of_two_who_make_a_file_at_once_one_wins() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    let first = wanted(8192).prepare(&path).expect("made");
    let second = wanted(4096).prepare(&path).expect("made");
    let first = first.keep().expect("kept");
    let error = second.keep().expect_err("the name is taken").to_string();
    assert!(error.starts_with("cannot make "), "{error}");
    assert_eq!(first.metadata().expect("there").len(), 8192);
}

#[test]
fn where_files_cannot_be_nameless_a_failed_one_is_removed() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    let made = || {
        let (file, undo) = open_named(&path).expect("new");
        Prepared { undo: UndoAt { undo, path: path.clone() }, file, len: 0, read_only: false }
    };
    wanted(1 << 60).fill(made(), 1 << 60).expect_err("too large");
    assert!(!path.exists());
    drop(wanted(8192).fill(made(), 8192).expect("made"));
    assert!(!path.exists());
    drop(wanted(8192).fill(made(), 8192).expect("made").keep().expect("kept"));
    assert_eq!(fs::metadata(&path).expect("there").len(), 8192);
    assert!(open_named(&path).is_err(), "what is there is never taken over");
}
