//! One suite for every kind of queue on every file system at hand: they must behave alike.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::world::{World, WorldOptions};
use entresol_media::block::QUEUE_DEPTH_MAX;
use entresol_media::{
    Access, Backend, BackendChoice, BlockFile, BlockOptions, Direct, IoBuffer, IoCompletion,
    IoQueue, IoRequest, ModelName, open_block_file,
};
use entresol_simulated::disk::{Disk, DiskOptions, SectorSize};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;

const FILE_BYTES: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Longest wait for a descriptor that never becomes readable.
const HANG: Duration = Duration::from_secs(60);

/// Runs a test for each kind of queue on each file system.
fn everywhere(test: impl Fn(Arc<dyn BlockFile>)) {
    let mut directories = vec![tempfile::tempdir().expect("directory")];
    directories.extend(tempfile::tempdir_in("/dev/shm"));
    for directory in &directories {
        for backend in backends() {
            let file = open(directory, &format!("{backend}"), backend);
            test(file);
            let path = directory.path().join(format!("slow-{backend}"));
            let model = Some(ModelName::OptaneSsd);
            let create = Some(FILE_BYTES);
            let options = BlockOptions { create, backend, model, ..BlockOptions::default() };
            test(open_block_file(&path, &options).expect("opens"));
            let path = directory.path().join(format!("cached-{backend}"));
            let cached = true;
            let options = BlockOptions { create, backend, cached, ..BlockOptions::default() };
            test(open_block_file(&path, &options).expect("opens"));
        }
    }
    for sector in [SectorSize::Small, SectorSize::Large, SectorSize::Line] {
        // Without a model nothing waits, so that the world need not run.
        let world = World::new(WorldOptions::seeded(1));
        let disk = Disk::new(&world, DiskOptions { sector, ..DiskOptions::default() });
        let options = BlockOptions { create: Some(FILE_BYTES), ..BlockOptions::default() };
        let root = disk.expect("no model").root();
        test(root.open_block_file("simulated", &options).expect("opens"));
    }
}

/// Lists the backends to test: io_uring only if the kernel allows it. Another test covers a
/// needless refusal.
fn backends() -> Vec<BackendChoice> {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("probe");
    let options = BlockOptions { create: Some(FILE_BYTES), ..BlockOptions::default() };
    match open_block_file(&path, &options).expect("opens").backend() {
        Backend::IoUring => vec![BackendChoice::IoUring, BackendChoice::Threads],
        _ => vec![BackendChoice::Threads],
    }
}

fn open(directory: &TempDir, name: &str, backend: BackendChoice) -> Arc<dyn BlockFile> {
    let options = BlockOptions { create: Some(FILE_BYTES), backend, ..BlockOptions::default() };
    open_block_file(&directory.path().join(name), &options).expect("opens")
}

fn filled(buffer: IoBuffer, with: u64) -> IoBuffer {
    let mut buffer = buffer;
    for (index, word) in buffer.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(with * 1_000_003 + index as u64).to_le_bytes());
    }
    buffer
}

fn request(access: Access, offset: u64, buffer: IoBuffer, token: u64) -> IoRequest {
    IoRequest { access, offset, buffer, token }
}

/// Waits for everything in flight.
fn finish(queue: &mut dyn IoQueue) -> Vec<IoCompletion> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.wait(None).expect("waits");
        queue.reap(&mut done);
    }
    done
}

fn one(queue: &mut dyn IoQueue, request: IoRequest) -> IoCompletion {
    queue.submit(request).expect("room");
    let mut done = finish(queue);
    assert_eq!(done.len(), 1);
    done.pop().expect("one")
}

fn read(queue: &mut dyn IoQueue, offset: u64, len: usize, token: u64) -> IoCompletion {
    let buffer = queue.buffer(len);
    one(queue, request(Access::Read, offset, buffer, token))
}

fn is_readable(queue: &dyn IoQueue, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).expect("short");
    let mut watched = [PollFd::from_borrowed_fd(queue.event(), PollFlags::IN)];
    poll(&mut watched, Some(&timeout)).expect("polls") == 1
}

#[test]
fn bytes_of_a_region_are_written_as_those_of_a_buffer_are() {
    let region = Direct::anonymous(FILE_BYTES, false).expect("maps");
    let bytes = filled(IoBuffer::new(8 * BLOCK), 5);
    region.write(0, &bytes);
    everywhere(|file| {
        for from in [0, BLOCK, 100] {
            let offset = 3 * BLOCK as u64;
            file.write_from(offset, &region, from as u64, 2 * BLOCK).expect("writes");
            let mut buffer = file.buffer(2 * BLOCK);
            file.read_at(offset, &mut buffer).expect("reads");
            assert!(buffer[..] == bytes[from..from + 2 * BLOCK], "from {from}");
        }
        for (offset, len) in [(1, BLOCK), (0, 100), (FILE_BYTES, BLOCK)] {
            let refused = file.write_from(offset, &region, 0, len).expect_err("out of place");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{len} bytes at {offset}");
        }
    });
}

#[test]
fn what_is_written_is_read_by_the_queue_and_without() {
    everywhere(|file| {
        let mut queue = file.clone().queue(4).expect("queue");
        for (number, blocks) in [1_usize, 2, 7, 8, 9, 100].into_iter().enumerate() {
            let (offset, len) = ((number * 8 * BLOCK) as u64, blocks * BLOCK);
            let written = filled(queue.buffer(len), number as u64);
            let expected = written.to_vec();
            let done = one(&mut *queue, request(Access::Write, offset, written, 7));
            assert_eq!((done.token, done.result.expect("writes")), (7, len));
            let read = read(&mut *queue, offset, len, 8);
            assert_eq!(read.result.expect("reads"), len);
            assert!(read.buffer[..] == expected);
            let mut buffer = file.buffer(len);
            assert_eq!(file.read_at(offset, &mut buffer).expect("reads"), len);
            assert!(buffer[..] == expected);
            file.write_at(offset, &filled(file.buffer(len), 99)).expect("writes");
        }
        file.sync().expect("syncs");
    });
}

#[test]
fn reads_are_short_at_the_end_and_empty_beyond() {
    everywhere(|file| {
        let mut queue = file.clone().queue(4).expect("queue");
        for (offset, expected) in [
            (FILE_BYTES - BLOCK as u64, BLOCK),
            (FILE_BYTES, 0),
            (FILE_BYTES + BLOCK as u64, 0),
            (0, 3 * BLOCK),
        ] {
            let done = read(&mut *queue, offset, 3 * BLOCK, 1);
            assert_eq!(done.result.expect("reads"), expected, "{file:?}");
            let mut buffer = file.buffer(3 * BLOCK);
            assert_eq!(file.read_at(offset, &mut buffer).expect("reads"), expected);
        }
    });
}

#[test]
fn bytes_anywhere_are_read_out_whether_or_not_that_was_begun() {
    everywhere(|file| {
        let block = filled(file.buffer(FILE_BYTES as usize), 3);
        file.write_at(0, &block).expect("writes");
        let places = [(0, 1), (511, 2), (4095, 9000), (FILE_BYTES - 7, 7), (FILE_BYTES - 3, 9)];
        for is_begun in [false, true] {
            for (offset, len) in places {
                let bytes = block.get(offset as usize..(offset as usize + len).min(block.len()));
                let bytes = bytes.expect("inside");
                let mut out = b"before".to_vec();
                let is_read = is_begun && file.try_read_out(offset, len, &mut out);
                if !is_read {
                    assert_eq!(out, b"before", "nothing is appended but all of it");
                    let read = file.read_out(offset, len, &mut out).expect("reads");
                    assert_eq!(read, bytes.len());
                }
                assert!(out.starts_with(b"before") && out[6..] == *bytes, "{len} at {offset}");
            }
        }
        assert!(!file.try_read_out(FILE_BYTES - 3, 9, &mut Vec::new()), "not all is there");
    });
}

#[test]
fn what_is_not_aligned_or_behind_the_end_is_refused_and_harms_nobody() {
    everywhere(|file| {
        let block = file.alignment().offset;
        assert!(block.is_power_of_two() && (512..=4096).contains(&block));
        let mut queue = file.clone().queue(8).expect("queue");
        let wrong = [
            (Access::Read, 1, BLOCK),
            (Access::Read, 0, BLOCK - 1),
            (Access::Write, block / 2, BLOCK),
            (Access::Write, 0, 100),
            (Access::Read, 0, 0),
            (Access::Write, FILE_BYTES, BLOCK),
            (Access::Write, FILE_BYTES - block, BLOCK + block as usize),
            (Access::Write, u64::MAX - block + 1, BLOCK),
        ];
        for (token, (access, offset, len)) in wrong.into_iter().enumerate() {
            let buffer = filled(queue.buffer(len), 5);
            queue.submit(request(access, offset, buffer, token as u64)).expect("room");
        }
        assert!(queue.submit(request(Access::Read, 0, file.buffer(BLOCK), 0)).is_err(), "full");
        let done = finish(&mut *queue);
        assert_eq!(done.len(), wrong.len());
        for completion in done {
            let error = completion.result.expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            assert_eq!(completion.buffer.len(), wrong[completion.token as usize].2);
        }
        assert!(file.read_at(1, &mut file.buffer(BLOCK)).is_err());
        assert!(file.write_at(FILE_BYTES, &file.buffer(BLOCK)).is_err());
        assert_eq!(file.len(), FILE_BYTES);
    });
}

#[test]
fn a_full_queue_gives_the_request_back() {
    everywhere(|file| {
        for depth in [1, 3, 64] {
            let mut queue = file.clone().queue(depth).expect("queue");
            for token in 0..depth as u64 {
                queue.submit(request(Access::Read, 0, queue.buffer(BLOCK), token)).expect("room");
            }
            let refused =
                queue.submit(request(Access::Read, 4096, filled(queue.buffer(64), 3), 77));
            let refused = refused.expect_err("full");
            assert_eq!((refused.token, refused.offset, refused.buffer.len()), (77, 4096, 64));
            assert_eq!(queue.in_flight(), depth);
            assert_eq!(finish(&mut *queue).len(), depth);
            queue.submit(request(Access::Read, 0, queue.buffer(BLOCK), 1)).expect("room again");
            finish(&mut *queue);
        }
        assert!(file.clone().queue(0).is_err());
        assert!(file.clone().queue(QUEUE_DEPTH_MAX + 1).is_err());
    });
}

#[test]
fn many_in_flight_keep_their_tokens_and_bytes() {
    everywhere(|file| {
        let blocks = FILE_BYTES / BLOCK as u64;
        let mut queue = file.clone().queue(100).expect("queue");
        for access in [Access::Write, Access::Read, Access::Read] {
            let (mut next, mut seen, mut done) = (0, HashMap::new(), Vec::new());
            while seen.len() < blocks as usize {
                while next < blocks {
                    let buffer = match access {
                        Access::Write => filled(queue.buffer(BLOCK), next),
                        Access::Read => queue.buffer(BLOCK),
                    };
                    let offset = next * BLOCK as u64;
                    if queue.submit(request(access, offset, buffer, next)).is_err() {
                        break;
                    }
                    next += 1;
                }
                queue.wait(Some(HANG)).expect("waits");
                queue.reap(&mut done);
                for completion in done.drain(..) {
                    assert_eq!(completion.result.expect("moves"), BLOCK);
                    let expected = filled(IoBuffer::new(BLOCK), completion.token);
                    assert!(completion.buffer[..] == expected[..], "{}", completion.token);
                    *seen.entry(completion.token).or_insert(0) += 1;
                }
            }
            assert!(seen.values().all(|&times| times == 1) && queue.in_flight() == 0);
        }
    });
}

#[test]
fn a_queue_that_is_dropped_carries_out_what_it_accepted() {
    everywhere(|file| {
        for kicked in [0, 13, 64] {
            let mut queue = file.clone().queue(64).expect("queue");
            for token in 0..64_u64 {
                let buffer = filled(queue.buffer(BLOCK), token + kicked);
                let write = request(Access::Write, token * BLOCK as u64, buffer, token);
                queue.submit(write).expect("room");
                if token + 1 == kicked {
                    queue.kick().expect("starts");
                }
            }
            drop(queue);
            for token in 0..64_u64 {
                let mut buffer = file.buffer(BLOCK);
                file.read_at(token * BLOCK as u64, &mut buffer).expect("reads");
                assert!(buffer[..] == filled(IoBuffer::new(BLOCK), token + kicked)[..]);
            }
        }
    });
}

#[test]
fn buffers_outlive_their_queue_and_serve_others() {
    everywhere(|file| {
        let first = file.clone().queue(2).expect("queue");
        let mut second = file.clone().queue(2).expect("queue");
        let write = request(Access::Write, 0, filled(first.buffer(BLOCK), 4), 1);
        let done = one(&mut *second, write);
        drop(first);
        let read = one(&mut *second, request(Access::Read, 0, done.buffer, 2));
        drop(second);
        assert!(read.buffer[..] == filled(IoBuffer::new(BLOCK), 4)[..]);
    });
}

#[test]
fn what_the_kernel_says_comes_back() {
    everywhere(|file| {
        if file.backend() == Backend::Simulated {
            return;
        }
        let backend = match file.backend() {
            Backend::IoUring => BackendChoice::IoUring,
            _ => BackendChoice::Threads,
        };
        let path = file.path().to_owned();
        drop(file);
        // The same file through a descriptor that must not write.
        let options = BlockOptions { backend, read_only: true, ..BlockOptions::default() };
        let read_only = open_block_file(&path, &options).expect("opens");
        let mut queue = read_only.clone().queue(2).expect("queue");
        let write = request(Access::Write, 0, filled(queue.buffer(BLOCK), 6), 9);
        let done = one(&mut *queue, write);
        assert_eq!(done.token, 9);
        let error = done.result.expect_err("must not write");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()), "{error}");
        assert!(done.buffer[..] == filled(IoBuffer::new(BLOCK), 6)[..], "the buffer comes back");
        assert!(read_only.write_at(0, &read_only.buffer(BLOCK)).is_err());
        let read = read(&mut *queue, 0, BLOCK, 1);
        assert_eq!(read.result.expect("reads"), BLOCK, "the queue goes on");
    });
}

#[test]
fn the_descriptor_is_readable_while_there_is_something_to_reap() {
    everywhere(|file| {
        let mut queue = file.clone().queue(4).expect("queue");
        let none = Duration::ZERO;
        assert!(!is_readable(&*queue, none));
        for offset in [0, 1] {
            // The second one is not aligned.
            queue.submit(request(Access::Read, offset, queue.buffer(BLOCK), 1)).expect("room");
            queue.kick().expect("starts");
            let mut done = Vec::new();
            // It may be readable early: once for what was reaped before, and once when a slowed
            // file has served what is not due yet.
            for _ in 0..3 {
                assert!(is_readable(&*queue, HANG), "{file:?}");
                queue.wait(None).expect("waits");
                assert!(is_readable(&*queue, HANG), "waiting reaps nothing");
                queue.reap(&mut done);
                if !done.is_empty() {
                    break;
                }
            }
            assert_eq!(done.len(), 1, "{file:?}");
        }
        queue.wait(None).expect("nothing in flight: returns at once");
    });
}

#[test]
fn waiting_ends_with_its_time() {
    everywhere(|file| {
        let mut queue = file.clone().queue(4).expect("queue");
        queue.submit(request(Access::Read, 0, queue.buffer(BLOCK), 1)).expect("room");
        // Either may come first; the test is that it returns at all.
        queue.wait(Some(Duration::from_nanos(1))).expect("waits");
        assert_eq!(finish(&mut *queue).len(), 1);
    });
}

#[test]
fn threads_have_queues_of_their_own() {
    everywhere(|file| {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let mut queue = file.clone().queue(8).expect("queue");
                scope.spawn(move || {
                    for round in 0..50 {
                        let offset = (thread * 50 + round) * BLOCK as u64;
                        let write = filled(queue.buffer(BLOCK), offset);
                        one(&mut *queue, request(Access::Write, offset, write, 0));
                        let read = read(&mut *queue, offset, BLOCK, 0);
                        assert!(read.buffer[..] == filled(IoBuffer::new(BLOCK), offset)[..]);
                    }
                });
            }
        });
    });
}

#[test]
fn a_file_grows_shrinks_discards_and_allocates() {
    everywhere(|file| {
        file.write_at(0, &filled(file.buffer(BLOCK), 1)).expect("writes");
        file.set_len(2 * FILE_BYTES).expect("grows");
        assert_eq!(file.len(), 2 * FILE_BYTES);
        file.write_at(FILE_BYTES, &filled(file.buffer(BLOCK), 2)).expect("writes");
        file.discard(0, FILE_BYTES / 2).expect("discards");
        let mut buffer = file.buffer(BLOCK);
        assert_eq!(file.read_at(0, &mut buffer).expect("reads"), BLOCK);
        assert!(buffer.iter().all(|&byte| byte == 0));
        file.allocate(0, FILE_BYTES / 2).expect("space");
        file.read_at(FILE_BYTES, &mut buffer).expect("reads");
        assert!(buffer[..] == filled(IoBuffer::new(BLOCK), 2)[..]);
        assert!(file.set_len(1 << 62).is_err());
        assert_eq!(file.len(), 2 * FILE_BYTES);
        if file.backend() != Backend::Simulated {
            let from_outside = File::open(file.path()).expect("opens");
            assert_eq!(from_outside.metadata().expect("looks").len(), file.len());
        }
        file.set_len(FILE_BYTES).expect("shrinks");
        assert!(file.write_at(FILE_BYTES, &file.buffer(BLOCK)).is_err());
        assert!(file.discard(7, 4096).is_err() && file.discard(0, 100).is_err());
        assert!(file.discard(FILE_BYTES, 4096).is_err() && file.discard(0, 0).is_ok());
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_random_history_agrees_with_a_model(
        history in prop::collection::vec((any::<bool>(), 0u64..250, 1usize..6, 1usize..20), 1..60),
    ) {
        everywhere(|file| {
            let mut model = vec![0_u8; FILE_BYTES as usize];
            let mut queue = file.clone().queue(16).expect("queue");
            let mut pending = 0;
            for (number, &(write, block, blocks, batch)) in history.iter().enumerate() {
                let (at, len) = (block as usize * BLOCK, blocks * BLOCK);
                if write {
                    let buffer = filled(queue.buffer(len), number as u64);
                    model[at..at + len].copy_from_slice(&buffer);
                    queue.submit(request(Access::Write, at as u64, buffer, 0)).expect("room");
                } else {
                    let read = request(Access::Read, at as u64, queue.buffer(len), 0);
                    queue.submit(read).expect("room");
                }
                pending += 1;
                // Requests in flight together have no order unless they are disjoint.
                let overlaps = history.get(number + 1).is_some_and(|next| {
                    let from = number + 1 - pending;
                    history[from..=number].iter().any(|earlier| {
                        (earlier.0 || next.0)
                            && earlier.1 < next.1 + next.2 as u64
                            && next.1 < earlier.1 + earlier.2 as u64
                    })
                });
                if pending >= batch.min(16) || overlaps {
                    finish(&mut *queue);
                    pending = 0;
                }
            }
            drop(queue);
            let mut buffer = file.buffer(FILE_BYTES as usize);
            file.read_at(0, &mut buffer).expect("reads");
            assert!(buffer[..] == model[..]);
        });
    }
}
