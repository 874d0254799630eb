//! Files on persistent memory after crashes, and the threads whose drains make lines durable.

use entresol_media::mapped::{MapOptions, MappedFile, MappedKind};
use entresol_media::region::PmemMode;

use super::*;

const LINE: usize = 64;

fn pmem_options() -> MapOptions {
    let pmem = Some(PmemMode { assume_dax: false });
    MapOptions { create: Some(BLOCK as u64), pmem, ..MapOptions::default() }
}

/// Makes a durable file `a` of a page of ones.
fn settled(disk: &Disk) -> Arc<dyn MappedFile> {
    let root = disk.root();
    let file = root.map_file("a", &pmem_options()).expect("makes");
    assert_eq!(file.kind(), MappedKind::Dax);
    file.write(0, &[1; BLOCK]);
    file.persist(0, 0).expect("drains");
    root.sync().expect("syncs");
    assert!(disk.units().is_empty(), "all is durable");
    file
}

/// Runs a test with a settled file, in a world, so that it may start threads.
fn with_threads(test: impl FnOnce(&Disk, &Arc<dyn MappedFile>) + 'static) {
    let world = world();
    let options = DiskOptions { sector: SectorSize::Line, ..DiskOptions::default() };
    let disk = Disk::new(&world, options).expect("no model");
    world.run(move || test(&disk, &settled(&disk))).expect("runs");
}

/// Returns the first words of the first lines, in all states that a crash may leave.
fn first_words(disk: &Disk, lines: usize) -> BTreeSet<Vec<u8>> {
    let word = |contents: &BTreeMap<String, Vec<u8>>, line| contents["a"][line * LINE];
    let left = crashed(disk);
    left.iter().map(|left| (0..lines).map(|line| word(left, line)).collect()).collect()
}

fn states<const LINES: usize>(states: &[[u8; LINES]]) -> BTreeSet<Vec<u8>> {
    states.iter().map(|state| state.to_vec()).collect()
}

#[test]
fn other_disks_are_no_persistent_memory() {
    for sector in [SectorSize::Small, SectorSize::Large] {
        let error = disk_of(sector).root().map_file("a", &pmem_options()).expect_err("is none");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}

#[test]
fn of_a_write_a_crash_leaves_any_words_of_each_line() {
    let disk = disk_of(SectorSize::Line);
    let file = settled(&disk);
    let (mut torn, mut apart) = (BTreeSet::new(), false);
    for round in 2..200 {
        let before = round - 1;
        file.write(0, &[round; 2 * LINE]);
        for contents in crashed(&disk) {
            let words: Vec<u8> = contents["a"][..2 * LINE].chunks(8).map(|word| word[0]).collect();
            assert!(words.iter().all(|&word| word == before || word == round), "{words:?}");
            let new: Vec<bool> = words.iter().map(|&word| word == round).collect();
            apart |= new[..8].iter().all(|new| !new) && new[8..].iter().all(|new| *new);
            torn.insert(new[..8].to_vec());
        }
        file.persist(0, 0).expect("drains");
        assert!(disk.units().is_empty(), "what was drained is durable");
    }
    assert!(torn.len() > 100, "only {} of 256 states of a line", torn.len());
    assert!(apart, "lines know nothing of each other");
}

#[test]
fn a_drain_is_that_of_the_thread_and_of_what_it_has_flushed() {
    with_threads(|disk, file| {
        let other = Arc::clone(file);
        // One word, so that it is not torn, in each of two lines.
        thread::spawn("other", move || other.write(LINE as u64, &[2; 8])).join().expect("ends");
        file.write(0, &[2; 8]);
        let any = states(&[[1, 1], [1, 2], [2, 1], [2, 2]]);
        assert_eq!(first_words(disk, 2), any);
        file.persist(0, file.len()).expect("drains");
        assert_eq!(first_words(disk, 2), states(&[[2, 1], [2, 2]]), "the other's is not durable");
        file.flush(0, 1);
        file.persist(0, 1).expect("drains");
        assert_eq!(first_words(disk, 2), states(&[[2, 1], [2, 2]]), "another line was flushed");
        file.flush(0, file.len());
        assert_eq!(first_words(disk, 2).len(), 2, "not before the drain");
        file.persist(0, 0).expect("drains");
        assert_eq!(first_words(disk, 2), states(&[[2, 2]]));
    });
}

#[test]
fn a_line_is_written_back_as_a_whole_in_the_state_in_which_it_was_flushed() {
    with_threads(|disk, file| {
        let by_another = |at: u64, with: u8| {
            let file = Arc::clone(file);
            let writing = thread::spawn("other", move || file.write(at, &[with; 8]));
            writing.join().expect("ends");
        };
        let words = |disk: &Disk| -> BTreeSet<Vec<u8>> {
            let left = crashed(disk);
            left.iter().map(|left| left["a"][..24].chunks(8).map(|it| it[0]).collect()).collect()
        };
        by_another(0, 2);
        file.write(8, &[2; 8]);
        by_another(16, 2);
        file.persist(0, 0).expect("drains");
        assert_eq!(words(disk), states(&[[2, 2, 1], [2, 2, 2]]), "all before it, nothing since");
    });
}
