//! Behaviour particular to slowed files; the suite for all block files checks the rest.

use super::super::{BackendChoice, BlockOptions, open_block_file};
use super::*;
use crate::directory::{Directory, LocalDirectory};
use crate::mapped::MapOptions;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

const FILE_BYTES: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// Makes a file in memory, so that the model alone takes time.
fn open(model: ModelName) -> (tempfile::TempDir, Arc<dyn BlockFile>) {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.expect("directory");
    let options =
        BlockOptions { create: Some(FILE_BYTES), model: Some(model), ..BlockOptions::default() };
    let file = open_block_file(&directory.path().join("a"), &options).expect("opens");
    (directory, file)
}

/// Returns the model's times of these requests, submitted at once after an idle time.
fn model_says(model: ModelName, requests: &[(Access, u64)]) -> Vec<Duration> {
    let mut model = BlockModel::of(model).expect("a drive");
    let at = Picos::from_secs(1);
    let submit = |&(access, offset)| model.submit(at, access, offset, BLOCK as u32).since(at);
    requests.iter().map(submit).map(Duration::from).collect()
}

fn read(queue: &dyn IoQueue, number: u64) -> IoRequest {
    let buffer = queue.buffer(BLOCK);
    IoRequest { access: Access::Read, offset: number * BLOCK as u64, buffer, token: number }
}

fn is_readable(queue: &dyn IoQueue, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).expect("short");
    let mut watched = [PollFd::from_borrowed_fd(queue.event(), PollFlags::IN)];
    poll(&mut watched, Some(&timeout)).expect("polls") == 1
}

#[test]
fn no_call_is_faster_than_the_model() {
    for model in ModelName::ALL.into_iter().filter(|model| !model.is_memory()) {
        let (_directory, file) = open(model);
        let clock = SystemClock::new();
        let mut buffer = file.buffer(BLOCK);
        let least = model_says(model, &[(Access::Read, 0)])[0];
        let before = clock.now();
        file.read_at(0, &mut buffer).expect("reads");
        let took = clock.now().since(before);
        assert!(took >= least, "{model}: {took:?} < {least:?}");
        let least = model_says(model, &[(Access::Write, 0)])[0];
        let before = clock.now();
        file.write_at(0, &buffer).expect("writes");
        file.sync().expect("syncs");
        assert!(clock.now().since(before) >= least, "{model}");
    }
}

#[test]
fn completions_of_many_requests_are_held_back_until_they_are_due() {
    let model = ModelName::Qlc5210;
    let (_directory, file) = open(model);
    let requests: Vec<_> = (0..64).map(|number| (Access::Read, number * BLOCK as u64)).collect();
    let least = model_says(model, &requests);
    let clock = SystemClock::new();
    let mut queue = file.clone().queue(64).expect("queue");
    for number in 0..64 {
        let request = read(&*queue, number);
        queue.submit(request).expect("room");
    }
    let one_more = read(&*queue, 64);
    assert!(queue.submit(one_more).is_err(), "full");
    let before = clock.now();
    queue.kick().expect("starts");
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        assert!(is_readable(&*queue, Duration::from_secs(60)), "wakes");
        let from = done.len();
        queue.reap(&mut done);
        let took = clock.now().since(before);
        for completion in &done[from..] {
            assert_eq!(completion.result.as_ref().ok(), Some(&BLOCK));
            // The file begins somewhere on the drive; which dies serve it may differ from the
            // trial's, so that single requests may be faster, all together hardly.
            let soonest = least.iter().min().expect("some");
            assert!(took >= *soonest, "{took:?}");
        }
    }
    let (took, longest) = (clock.now().since(before), least.iter().max().expect("some"));
    assert!(took >= *longest / 2, "{took:?} of {longest:?}");
    let mut tokens: Vec<u64> = done.iter().map(|completion| completion.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..64).collect::<Vec<_>>());
    // The thread that completed the last one may signal after it was reaped: once, not for ever.
    while is_readable(&*queue, Duration::ZERO) {
        assert!(
            clock.now().since(before) < Duration::from_secs(60),
            "nothing is left to be reaped"
        );
        queue.reap(&mut done);
    }
    assert_eq!(done.len(), 64);
}

#[test]
fn two_queues_share_the_drive() {
    let model = ModelName::Qlc5210;
    let (_directory, file) = open(model);
    let clock = SystemClock::new();
    let requests: Vec<_> = (0..128).map(|number| (Access::Read, number * BLOCK as u64)).collect();
    let alone = *model_says(model, &requests).iter().max().expect("some");
    let timed = |queues: usize| {
        let mut queues: Vec<_> =
            (0..queues).map(|_| file.clone().queue(128).expect("queue")).collect();
        for queue in &mut queues {
            for number in 0..128 {
                let request = read(&**queue, number);
                queue.submit(request).expect("room");
            }
        }
        let before = clock.now();
        queues.iter_mut().for_each(|queue| queue.kick().expect("starts"));
        let mut done = Vec::new();
        for queue in &mut queues {
            while queue.in_flight() > 0 {
                queue.wait(None).expect("waits");
                queue.reap(&mut done);
            }
        }
        clock.now().since(before)
    };
    // A busy machine makes it longer, never shorter.
    let together = timed(4);
    assert!(together > alone * 2, "{together:?} for four, {alone:?} for one on the model");
}

#[test]
fn a_persist_takes_as_long_as_the_drive_takes_to_write_its_range() {
    let parent = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let parent = parent.expect("directory");
    let model = ModelName::Qlc5210;
    let slowed =
        LocalDirectory::open(parent.path()).expect("opens").slowed(model).expect("a drive");
    let options = MapOptions { create: Some(FILE_BYTES), ..MapOptions::default() };
    let file = slowed.map_file("log", &options).expect("maps");
    let clock = SystemClock::new();
    let timed = |len: u64| {
        let before = clock.now();
        file.persist(0, len).expect("persists");
        clock.now().since(before)
    };
    let at = Picos::from_secs(1);
    let mut drive = BlockModel::of(model).expect("a drive");
    let least = Duration::from(drive.submit(at, Access::Write, 0, FILE_BYTES as u32).since(at));
    assert!(least > Duration::from_millis(1), "{least:?}");
    file.write(100, b"there");
    let took = timed(FILE_BYTES);
    assert!(took >= least, "{took:?} < {least:?}");
    // Others may have the processor meanwhile, but not each time.
    let nothing = (0..20).map(|_| timed(0)).min().expect("twenty");
    assert!(nothing < least, "{nothing:?}");
    assert!(file.equals(100, b"there"));
}

#[test]
fn it_is_said_that_the_file_is_slowed() {
    let (_directory, file) = open(ModelName::Qlc5210);
    assert!(file.remarks().iter().any(|remark| remark.starts_with("slowed to model qlc-5210")));
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    let options = BlockOptions {
        create: Some(FILE_BYTES),
        model: Some(ModelName::Aep),
        ..BlockOptions::default()
    };
    let error = open_block_file(&path, &options).expect_err("is memory").to_string();
    assert!(error.contains("aep is a model of memory"), "{error}");
}

/// Event loops with edge-triggered polling, as most have: each wake-up takes all that is there.
#[test]
fn a_watcher_of_edges_misses_nothing() {
    for model in [ModelName::OptaneSsd, ModelName::NandP3700] {
        for backend in [BackendChoice::Auto, BackendChoice::Threads] {
            let directory = tempfile::tempdir().expect("directory");
            let (create, model) = (Some(FILE_BYTES), Some(model));
            let options = BlockOptions { create, model, backend, ..BlockOptions::default() };
            let file = open_block_file(&directory.path().join("a"), &options).expect("opens");
            let mut queue = file.queue(8).expect("queue");
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, queue.event(), epoll::EventData::new_u64(0), flags).expect("adds");
            let (mut started, mut done) = (0, Vec::new());
            while done.len() < 3000 {
                while started < 3000 && queue.in_flight() < 1 + (started as usize / 64) % 8 {
                    let request = read(&*queue, started % 64);
                    queue.submit(request).expect("room");
                    started += 1;
                    // Often one by one, so that some are late when others start.
                    queue.kick().expect("starts");
                }
                let mut events = Vec::with_capacity(4);
                let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
                let spare = rustix::buffer::spare_capacity(&mut events);
                match epoll::wait(&epoll, spare, Some(&timeout)) {
                    Ok(1) | Err(Errno::INTR) => {}
                    other => panic!("{other:?} with {} of {started} done", done.len()),
                }
                queue.reap(&mut done);
            }
        }
    }
}

#[test]
fn files_of_one_folder_share_a_drive_and_others_do_not() {
    let of = |path: &str, model| Drive::of(Path::new(path), model).expect("a drive");
    let one = of("/nowhere/a", ModelName::Qlc5210);
    assert!(Arc::ptr_eq(&one, &of("/nowhere/b", ModelName::Qlc5210)));
    assert!(!Arc::ptr_eq(&one, &of("/elsewhere/a", ModelName::Qlc5210)));
    assert!(!Arc::ptr_eq(&one, &of("/nowhere/a", ModelName::NandP3700)));
    assert!(Drive::of(Path::new("/nowhere/a"), ModelName::Aep).is_err());
}
