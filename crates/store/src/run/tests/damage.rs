//! Tests with flipped bits, and with files that are not what they should be.

use super::*;

/// Creates a run of about 20 KiB that has everything: two levels, a filter and all three lists.
fn small() -> (Disk, Model) {
    let disk = disk();
    let model = sample(60, 5);
    let options = RunOptions { sequence_base: Sequence(900), ..RunOptions::default() };
    let mut writer = RunWriter::create(&disk.root(), NUMBER, KVS, options).expect("makes");
    for (place, value) in &model {
        writer.push(&entry(place, value)).expect("writes");
    }
    writer.push_range_delete(b"gone", Sequence(950)).expect("few");
    writer.finish(&pages()).expect("writes");
    (disk, model)
}

/// Reads parts of everything. Each answer must be correct or an error, and the verification must
/// fail.
fn check_damaged(disk: &Disk, model: &Model, salt: usize) -> Result<(), String> {
    let Ok(run) = Run::open(&disk.root(), NUMBER, &BlockCache::new(0)) else { return Ok(()) };
    for (place, _) in model.iter().skip(salt % 16).step_by(16) {
        if let Ok(found) = get(&run, &place.0, place.1.0)
            && found != expected(model, &place.0, place.1.0)
        {
            return Err(format!("found {found:?} in place of {place:?}"));
        }
    }
    if let Ok(Some(found)) = get(&run, b"user00000001", u64::MAX) {
        return Err(format!("found {found:?}, which never was"));
    }
    if let Ok(all) = all_of(&run)
        && all != *model
    {
        return Err("a scan found other entries".to_owned());
    }
    if run.range_deletes().len() != 1 || *run.range_deletes()[0].prefix != *b"gone" {
        return Err("other prefixes are gone".to_owned());
    }
    match run.verify(&mut |_| {}) {
        Ok(()) => Err("nothing is wrong".to_owned()),
        Err(_) => Ok(()),
    }
}

/// Flips one bit of every byte, another one from byte to byte.
#[test]
fn a_bit_of_every_byte_that_turns_over_is_noticed() {
    turn_over(|byte, bit| byte % 8 == u64::from(bit));
}

#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_every_bit_that_turns_over_is_noticed() {
    turn_over(|_, _| true);
}

fn turn_over(wanted: impl Fn(u64, u8) -> bool) {
    let (disk, model) = small();
    let name = file_name(NUMBER);
    let bytes = disk.contents()[&name].len() as u64;
    assert!((20 << 10..60 << 10).contains(&bytes), "{bytes} bytes");
    for byte in 0..bytes {
        for bit in (0..8).filter(|bit| wanted(byte, *bit)) {
            disk.flip(&name, byte, bit).expect("is there");
            check_damaged(&disk, &model, (byte * 8) as usize + usize::from(bit))
                .unwrap_or_else(|error| panic!("bit {bit} of byte {byte}: {error}"));
            disk.flip(&name, byte, bit).expect("is there");
        }
    }
    let run = Run::open(&disk.root(), NUMBER, &pages()).expect("whole again");
    run.verify(&mut |_| {}).expect("is what it says");
}

/// Flips a few bits of each page, one at a time, and reads.
#[cfg(feature = "mutants")]
pub(super) fn one_bit_of_each_page() -> Result<(), String> {
    let (disk, model) = small();
    let name = file_name(NUMBER);
    for byte in (0..disk.contents()[&name].len() as u64).step_by(4096) {
        // Among the entries, in the padding, and in the field of the format version.
        for (behind, bit) in [(100, 0), (4090, 1), (30, 0)] {
            disk.flip(&name, byte + behind, bit).map_err(|error| error.to_string())?;
            check_damaged(&disk, &model, byte as usize)
                .map_err(|error| format!("byte {}: {error}", byte + behind))?;
            disk.flip(&name, byte + behind, bit).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

#[test]
fn damage_stays_where_it_is() {
    let disk = disk();
    let model = sample(5000, 6);
    let _ = write(&disk.root(), &model, RunOptions::default()).expect("writes");
    // This is in the third block of entries.
    disk.flip(&file_name(NUMBER), 3 * 4096 + 777, 3).expect("is there");
    let run = Run::open(&disk.root(), NUMBER, &pages()).expect("the ends are whole");
    let mut lost = 0;
    for (place, value) in &model {
        match get(&run, &place.0, place.1.0) {
            Ok(found) => assert_eq!(found, Some((place.clone(), value.clone()))),
            Err(StoreError::Damaged { path, offset, .. }) => {
                assert!(path.ends_with(file_name(NUMBER)));
                assert_eq!(offset, 3 * 4096);
                lost += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..100).contains(&lost), "{lost} entries cannot be read");
    let mut cursor = run.cursor();
    let mut seen = 0;
    let mut more = cursor.seek_first();
    while let Ok(true) = more {
        seen += 1;
        more = cursor.next();
    }
    assert!(more.is_err() && cursor.entry().is_none(), "after {seen}");
    assert!(cursor.seek_last().expect("lies elsewhere"));
    run.verify(&mut |_| {}).expect_err("is not what it says");
}

#[test]
fn blocks_of_elsewhere_are_refused() {
    let (disk, model) = small();
    let name = file_name(NUMBER);
    let whole = disk.contents()[&name].clone();
    let blocks = whole.len() / 4096;
    let other_disk = self::disk();
    let other_root = other_disk.root();
    for (to, from) in (0..blocks).flat_map(|to| (0..blocks).map(move |from| (to, from))) {
        if to == from {
            continue;
        }
        let mut bytes = whole.clone();
        bytes.copy_within(from * 4096..(from + 1) * 4096, to * 4096);
        put(&other_root, &name, &bytes);
        check_damaged(&other_disk, &model, to)
            .unwrap_or_else(|error| panic!("{from} at {to}: {error}"));
        other_root.remove(&name).expect("removes");
        other_root.sync().expect("syncs");
    }
    // The file of another run holds the same blocks.
    put(&other_root, &file_name(RunNumber(43)), &whole);
    Run::open(&other_root, RunNumber(43), &pages()).expect_err("is run 42");
    // The file was cut.
    for pages_left in 1..blocks {
        put(&other_root, &name, &whole[..pages_left * 4096]);
        Run::open(&other_root, NUMBER, &pages()).expect_err("is not whole");
        other_root.remove(&name).expect("removes");
        other_root.sync().expect("syncs");
    }
}

fn put(root: &Arc<dyn Directory>, name: &str, bytes: &[u8]) {
    let create = Some(bytes.len() as u64);
    let options = entresol_media::BlockOptions { create, ..Default::default() };
    let file = root.open_block_file(name, &options).expect("makes");
    let mut buffer = file.buffer(bytes.len());
    buffer.copy_from_slice(bytes);
    file.write_at(0, &buffer).expect("writes");
}

#[test]
fn bytes_that_pass_their_checksum_never_panic() {
    // The checksums are computed anew after the damage, so that any bytes may stand in place of any
    // others.
    let (disk, model) = small();
    let name = file_name(NUMBER);
    let whole = disk.contents()[&name].clone();
    let other = self::disk();
    let root = other.root();
    let mut rng = Rng::named(3, "bytes");
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        let page = rng.below((bytes.len() / 4096) as u64) as usize;
        for _ in 0..=rng.below(3) {
            let at = page * 4096 + [rng.below(64), rng.below(4092)][rng.below(2) as usize] as usize;
            let with = [0, 1, 0x7f, 0x80, 0xff, rng.below(256) as u8][rng.below(6) as usize];
            bytes[at] = with;
        }
        let address = crate::run::format::block::Address { run: NUMBER, page: page as u64 };
        crate::run::format::block::seal(address, &mut bytes[page * 4096..(page + 1) * 4096]);
        put(&root, &name, &bytes);
        if let Ok(run) = Run::open(&root, NUMBER, &pages()) {
            let _ = all_of(&run);
            let mut cursor = run.cursor();
            let mut more = cursor.seek_last();
            let mut steps = 0;
            while let (Ok(true), 0..10_000) = (&more, steps) {
                more = cursor.prev();
                steps += 1;
            }
            for (key, sequence) in model.keys().step_by(9) {
                let _ = get(&run, key, sequence.0);
                let _ = cursor.seek_last_before(key, Sequence(sequence.0));
            }
            let _ = run.verify(&mut |_| {});
        }
        root.remove(&name).expect("removes");
        root.sync().expect("syncs");
    }
}

#[test]
fn another_version_is_refused_as_such() {
    for page in ["first", "last"] {
        let (disk, _) = small();
        let name = file_name(NUMBER);
        let bytes = disk.contents()[&name].len() as u64;
        let at = if page == "first" { 8 } else { bytes - 4096 + 8 };
        disk.flip(&name, at, 2).expect("is there");
        let error = Run::open(&disk.root(), NUMBER, &pages()).expect_err("unknown");
        assert!(matches!(error, StoreError::Version { found: 5, known: 1, .. }), "{page}: {error}");
    }
}
