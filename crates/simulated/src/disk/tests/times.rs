//! Files on the models of drives, in virtual time.

use entresol_media::mapped::MapOptions;
use entresol_media::model::block::BlockModel;

use super::*;

/// Runs threads that read and write with queues and without on one drive. Returns a hash of every
/// completion's time and token, in the order in which they were seen.
fn history(model: ModelName, seed: u64) -> u32 {
    let world = World::new(WorldOptions::seeded(seed));
    let options = DiskOptions { model: Some(model), ..DiskOptions::default() };
    let disk = Disk::new(&world, options).expect("a drive");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (inner, log) = (world.clone(), Arc::clone(&seen));
    let ran = world.run(move || {
        let root = disk.root();
        let files: Vec<_> = (0..2)
            .map(|number| root.open_block_file(&format!("f{number}"), &options_of(256)))
            .map(|file| file.expect("makes"))
            .collect();
        let threads: Vec<_> = (0..6)
            .map(|number| {
                let (file, world, log) =
                    (Arc::clone(&files[number % 2]), inner.clone(), Arc::clone(&log));
                thread::spawn(&format!("client-{number}"), move || {
                    client(number as u64, &file, &world, &log);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("ends"));
        root.sync().expect("syncs");
    });
    ran.expect("runs");
    let seen = seen.lock().expect("alive");
    assert!(seen.len() >= 6 * 40 * 16);
    let bytes: Vec<u8> = seen.iter().copied().flat_map(u64::to_le_bytes).collect();
    checksum::crc32c(&bytes)
}

fn options_of(blocks: u64) -> BlockOptions {
    options(blocks * BLOCK as u64)
}

fn client(number: u64, file: &Arc<dyn BlockFile>, world: &World, log: &Mutex<Vec<u64>>) {
    let mut rng = world.rng(&format!("client-{number}"));
    let mut queue = Arc::clone(file).queue(16).expect("queue");
    let mut done = Vec::new();
    for round in 0..40 {
        for token in 0..16 {
            let access = if rng.one_in(3) { Access::Write } else { Access::Read };
            let offset = rng.below(256) * BLOCK as u64;
            let buffer = buffer(BLOCK, rng.below(256) as u8);
            queue.submit(IoRequest { access, offset, buffer, token }).expect("room");
        }
        while queue.in_flight() > 0 {
            queue.wait(None).expect("waits");
            let from = done.len();
            queue.reap(&mut done);
            let now = world.now().0;
            let tokens = done[from..].iter().map(|completion| completion.token);
            log.lock().expect("alive").extend(tokens.map(|token| now ^ (number << 60) ^ token));
        }
        if round % 8 == 0 {
            let mut block = IoBuffer::new(BLOCK);
            file.read_at(rng.below(256) * BLOCK as u64, &mut block).expect("reads");
            file.sync().expect("syncs");
            log.lock().expect("alive").push(world.now().0);
        }
    }
}

#[test]
fn the_same_input_takes_the_same_picoseconds_on_every_machine() {
    let found = history(ModelName::NandP3700, 1);
    assert_eq!(history(ModelName::NandP3700, 1), found);
    assert_ne!(history(ModelName::NandP3700, 2), found);
    let qlc = history(ModelName::Qlc5210, 1);
    // These numbers change only if a model is changed on purpose.
    assert_eq!((found, qlc), (0x1068_ec0a, 0xf081_b47d), "{found:#x}, {qlc:#x}");
}

#[test]
fn calls_take_the_models_time_and_none_without_a_model() {
    let time = |model: Option<ModelName>| {
        let world = world();
        let inner = world.clone();
        let ran = world.run(move || {
            let options = DiskOptions { model, ..DiskOptions::default() };
            let disk = Disk::new(&inner, options).expect("a drive");
            let file = disk.root().open_block_file("a", &options_of(8)).expect("makes");
            let before = inner.now();
            file.read_at(0, &mut IoBuffer::new(BLOCK)).expect("reads");
            inner.now().since(before)
        });
        ran.expect("runs")
    };
    assert_eq!(time(None), Picos(0));
    let mut model = BlockModel::of(ModelName::NandS3700).expect("a drive");
    let expected = model.submit(Picos(0), Access::Read, 0, BLOCK as u32);
    assert_eq!(time(Some(ModelName::NandS3700)), expected);
    assert!(time(Some(ModelName::OptaneSsd)) < expected);
    let memory = DiskOptions { model: Some(ModelName::Aep), ..DiskOptions::default() };
    let error = Disk::new(&world(), memory).expect_err("is memory").to_string();
    assert!(error.contains("aep is a model of memory"), "{error}");
}

#[test]
fn completions_come_in_the_models_order() {
    let world = world();
    let inner = world.clone();
    let ran = world.run(move || {
        let options = DiskOptions { model: Some(ModelName::NandP3700), ..DiskOptions::default() };
        let disk = Disk::new(&inner, options).expect("a drive");
        let file = disk.root().open_block_file("a", &options_of(256)).expect("makes");
        let mut queue = file.clone().queue(64).expect("queue");
        for token in 0..64 {
            // Many to one die, so that some wait for others.
            let offset = if token % 4 == 0 { 0 } else { token * BLOCK as u64 };
            let buffer = IoBuffer::new(BLOCK);
            let access = Access::Read;
            queue.submit(IoRequest { access, offset, buffer, token }).expect("room");
        }
        let mut done: Vec<IoCompletion> = Vec::new();
        let mut times = Vec::new();
        while queue.in_flight() > 0 {
            queue.wait(None).expect("waits");
            queue.reap(&mut done);
            times.push(inner.now());
        }
        assert!(times.is_sorted() && times.len() > 8, "one after the other");
        done.iter().map(|completion| completion.token).collect::<Vec<_>>()
    });
    let tokens = ran.expect("runs");
    assert!(!tokens.is_sorted(), "not in the order of submission");
    assert_eq!(BTreeSet::from_iter(tokens).len(), 64);
}

#[test]
fn pages_of_mapped_files_take_time_once_they_have_left_memory() {
    let world = world();
    let inner = world.clone();
    let ran = world.run(move || {
        let model = Some(ModelName::NandS3700);
        let cache = Some(PageCache::new(8 * BLOCK as u64));
        let disk = Disk::new(&inner, DiskOptions { model, cache, ..DiskOptions::default() });
        let disk = disk.expect("a drive");
        let create = Some(16 * BLOCK as u64);
        let map_options = MapOptions { create, ..MapOptions::default() };
        let file = disk.root().map_file("a", &map_options).expect("makes");
        let time_of = |page: u64| {
            let before = inner.now();
            file.read(page * BLOCK as u64, &mut [0; 8]);
            inner.now().since(before)
        };
        (0..16).for_each(|page| file.write(page * BLOCK as u64, &[1; BLOCK]));
        file.persist(0, file.len()).expect("persists");
        assert_eq!(disk.written_bytes(), 16 * BLOCK as u64);
        assert_eq!(time_of(15), Picos(0), "what was written last is there");
        let first = time_of(0);
        assert!(first > Picos::from_micros(100), "{first:?}: what was written first is not");
        assert_eq!(time_of(0), Picos(0), "it was read just now");
    });
    ran.expect("runs");
}

#[test]
fn reads_that_are_begun_together_take_less_than_one_by_one() {
    let world = world();
    let inner = world.clone();
    let ran = world.run(move || {
        let model = Some(ModelName::NandP3700);
        let cache = Some(PageCache::new(8 * BLOCK as u64));
        let disk = Disk::new(&inner, DiskOptions { model, cache, ..DiskOptions::default() });
        let disk = disk.expect("a drive");
        let options = BlockOptions { cached: true, ..options_of(4096) };
        let file = disk.root().open_block_file("a", &options).expect("makes");
        let map_options = MapOptions { create: Some(4096 * BLOCK as u64), ..MapOptions::default() };
        let mapped = disk.root().map_file("b", &map_options).expect("makes");
        let read = |number: u64, is_begun: bool, is_mapped: bool| {
            let (offset, out) = (number * 509 % 4096 * BLOCK as u64 + 7, &mut Vec::new());
            match (is_begun, is_mapped) {
                (true, false) => assert!(!file.try_read_out(offset, 100, out)),
                (true, true) => assert!(!mapped.try_read_out(offset, 100, out)),
                (false, false) => assert_eq!(file.read_out(offset, 100, out).expect("reads"), 100),
                (false, true) => mapped.read_out(offset, 100, out).expect("reads"),
            }
            assert_eq!(out.len(), if is_begun { 0 } else { 100 });
        };
        for is_mapped in [false, true] {
            let time_of = |numbers: std::ops::Range<u64>, is_begun: bool| {
                let before = inner.now();
                if is_begun {
                    numbers.clone().for_each(|number| read(number, true, is_mapped));
                    assert_eq!(inner.now(), before, "nobody has waited yet");
                }
                numbers.for_each(|number| read(number, false, is_mapped));
                inner.now().since(before)
            };
            let one = time_of(0..1, false);
            assert!(one > Picos::from_micros(20), "{one:?}");
            assert!(time_of(1..2, true) >= one, "what is begun is waited for");
            let alone = time_of(100..106, false);
            let together = time_of(200..206, true);
            assert!(together.0 * 3 < alone.0, "{together:?}, {alone:?}");
        }
    });
    ran.expect("runs");
}

#[test]
fn what_is_read_holds_no_sync_up() {
    let world = world();
    let inner = world.clone();
    let ran = world.run(move || {
        let model = Some(ModelName::NandS3700);
        let disk = Disk::new(&inner, DiskOptions { model, ..DiskOptions::default() });
        let file = disk.expect("a drive").root().open_block_file("a", &options_of(64));
        let file = file.expect("makes");
        let mut queue = Arc::clone(&file).queue(1).expect("queue");
        let buffer = IoBuffer::new(BLOCK);
        let request = IoRequest { access: Access::Read, offset: 0, buffer, token: 0 };
        queue.submit(request).expect("room");
        queue.kick().expect("begins");
        let before = inner.now();
        file.sync().expect("syncs");
        assert_eq!(inner.now(), before, "nothing was written");
    });
    ran.expect("runs");
}
