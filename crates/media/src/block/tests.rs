//! Block files of this machine; `crates/simulated/tests/alike` has the suite for every kind of queue.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use tempfile::TempDir;

use super::*;

const FILE_BYTES: u64 = 1 << 20;

fn open(directory: &TempDir, name: &str, backend: BackendChoice) -> Arc<dyn BlockFile> {
    let options = BlockOptions { create: Some(FILE_BYTES), backend, ..BlockOptions::default() };
    open_block_file(&directory.path().join(name), &options).expect("opens")
}

#[test]
fn how_a_file_is_served_is_said() {
    let directory = tempfile::tempdir().expect("directory");
    let file = open(&directory, "a", BackendChoice::Auto);
    let refused = file.remarks().iter().any(|remark| remark.contains("io_uring is refused"));
    assert_eq!(refused, file.backend() == Backend::ThreadPool, "{:?}", file.remarks());
    let cached = file.remarks().iter().any(|remark| remark.contains("page cache"));
    assert_eq!(cached, !file.is_direct());
    drop(file);
    let file = open(&directory, "a", BackendChoice::Threads);
    assert_eq!(file.backend(), Backend::ThreadPool);
    let options = BlockOptions::default();
    let second = open_block_file(file.path(), &options).expect_err("in use").to_string();
    assert!(second.contains("in use"), "{second}");
}

#[test]
fn a_foreign_or_missing_file_is_refused() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("letter");
    std::fs::write(&path, "Dear Sir").expect("writes");
    let options = BlockOptions {
        create: Some(FILE_BYTES),
        magic: Some(*b"our file"),
        ..BlockOptions::default()
    };
    let error = open_block_file(&path, &options).expect_err("foreign").to_string();
    assert!(error.contains("holds something else"), "{error}");
    assert_eq!(std::fs::read(&path).expect("reads"), b"Dear Sir");
    let missing = directory.path().join("missing");
    let error = open_block_file(&missing, &BlockOptions::default()).expect_err("missing");
    assert!(error.to_string().contains("does not exist") && !missing.exists());
}

#[test]
fn choices_are_words() {
    for choice in [BackendChoice::Auto, BackendChoice::IoUring, BackendChoice::Threads] {
        assert_eq!(choice.to_string().parse(), Ok(choice));
        let text = serde_json::to_string(&choice).expect("prints");
        assert_eq!(serde_json::from_str::<BackendChoice>(&text).expect("parses"), choice);
    }
    assert!("uring".parse::<BackendChoice>().is_err());
}
