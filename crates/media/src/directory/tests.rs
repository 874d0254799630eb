//! Directories of this machine; `crates/simulated/tests/alike` has the suite for every kind.
#![expect(clippy::disallowed_methods, reason = "directories are looked at from outside here")]

use std::fs;

use super::*;

fn block_options(bytes: u64) -> BlockOptions {
    BlockOptions { create: Some(bytes), ..BlockOptions::default() }
}

#[test]
fn whoever_locks_a_directory_finds_no_unfinished_replacements() {
    let parent = tempfile::tempdir().expect("directory");
    let directory = LocalDirectory::open(parent.path()).expect("opens");
    let left = parent.path().join(".unfinished-a");
    fs::write(&left, "half").expect("writes");
    assert!(directory.list().expect("lists").is_empty());
    let _lock = directory.lock().expect("locks");
    assert!(!left.exists());
}

#[test]
fn what_cannot_be_a_directory_is_an_error_with_the_way_out() {
    let parent = tempfile::tempdir().expect("directory");
    let file = parent.path().join("file");
    fs::write(&file, "x").expect("writes");
    let check = |path: &Path, reason: &str| {
        let error = LocalDirectory::open(path).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    };
    check(&file, "is no directory");
    check(&parent.path().join("a/b"), "make it first");
    LocalDirectory::open_existing(&parent.path().join("a")).expect_err("is not made");
}

#[test]
fn a_directory_whose_path_leads_elsewhere_now_touches_nothing_there() {
    let scratch = tempfile::tempdir().expect("directory");
    let at = |name: &str| scratch.path().join(name);
    let directory: Arc<dyn Directory> = Arc::new(LocalDirectory::open(&at("d")).expect("made"));
    directory.replace("file", b"ours").expect("writes");
    let block = directory.open_block_file("block", &block_options(4096)).expect("made");
    fs::rename(at("d"), at("away")).expect("renames");
    for is_taken in [false, true] {
        if is_taken {
            fs::create_dir(at("d")).expect("makes");
            fs::write(at("d/file"), b"theirs").expect("writes");
            fs::write(at("d/.unfinished-file"), b"theirs").expect("writes");
        }
        let map = MapOptions { create: Some(4096), ..MapOptions::default() };
        let refused = [
            directory.open_block_file("new", &block_options(4096)).map(drop),
            directory.map_file("new", &map).map(drop),
            directory.subdirectory("new").map(drop),
            directory.list().map(drop),
            directory.find("file").map(drop),
            directory.read("file").map(drop),
            directory.replace("file", b"ours"),
            directory.rename("file", "new"),
            directory.remove("file"),
            directory.remove_subdirectory("file"),
            directory.lock().map(drop),
        ];
        for (number, refused) in refused.into_iter().enumerate() {
            assert!(matches!(refused, Err(FileError::Moved { .. })), "{number}: {refused:?}");
        }
    }
    assert_eq!(fs::read(at("d/file")).expect("reads"), b"theirs");
    assert_eq!(fs::read_dir(at("d")).expect("lists").count(), 2);
    // An open file stays open, and when the directory is back everything works again.
    block.sync().expect("syncs");
    fs::remove_dir_all(at("d")).expect("removes");
    fs::rename(at("away"), at("d")).expect("renames");
    assert_eq!(directory.read("file").expect("reads"), b"ours");
}

#[test]
fn a_directory_stays_the_same_wherever_the_process_goes() {
    let here = LocalDirectory::open_existing(Path::new(".")).expect("opens");
    assert!(here.path().is_absolute(), "{}", here.path().display());
    let again = LocalDirectory::open_existing(here.path()).expect("opens");
    let above = LocalDirectory::open_existing(Path::new("..")).expect("opens");
    assert!(here.id() == again.id() && here.id() != above.id());
}

#[test]
fn what_is_only_read_takes_no_space_and_cannot_be_written() {
    use std::os::unix::fs::MetadataExt;
    let scratch = tempfile::tempdir().expect("directory");
    let path = scratch.path().join("sparse");
    fs::File::create(&path).and_then(|file| file.set_len(1 << 20)).expect("is made");
    let directory: Arc<dyn Directory> =
        Arc::new(LocalDirectory::open(scratch.path()).expect("opens"));
    let blocks = BlockOptions { read_only: true, ..BlockOptions::default() };
    let file = directory.open_block_file("sparse", &blocks).expect("opens");
    let mut buffer = file.buffer(4096);
    assert_eq!(file.read_at(0, &mut buffer).expect("reads"), 4096);
    file.write_at(0, &buffer).expect_err("it is only read");
    drop(file);
    let map = MapOptions { read_only: true, ..MapOptions::default() };
    let file = directory.map_file("sparse", &map).expect("maps");
    assert!(file.equals(1 << 19, &[0; 100]));
    let write = std::panic::AssertUnwindSafe(|| file.write(0, b"text"));
    std::panic::catch_unwind(write).expect_err("it is only read");
    drop(file);
    assert_eq!(fs::metadata(&path).expect("looks").blocks(), 0);
    let foreign = BlockOptions { magic: Some(*b"ourfiles"), ..blocks };
    let error = directory.open_block_file("sparse", &foreign).map(drop);
    assert!(matches!(error, Err(FileError::Foreign { .. })), "{error:?}");
}
