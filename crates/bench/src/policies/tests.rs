//! Simulated policies against libCacheSim's, and what all of them must do.

use super::{Access, PolicyName};

const OBJECTS: u32 = 2_000;
const REQUESTS: u32 = 40_000;

/// Requests whose popularity falls with the cube of the rank; every fifth asks for an object that
/// never returns. The size of an object follows from its number.
fn trace(bytes: impl Fn(u64) -> u64) -> Vec<Access> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut numbers = std::collections::HashMap::new();
    let mut accesses: Vec<Access> = (0..REQUESTS)
        .map(|number| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let drawn = (state >> 11) as f64 / (1_u64 << 53) as f64;
            let drawn = (f64::from(OBJECTS) * drawn * drawn * drawn) as u32;
            let name = if number % 5 == 4 { OBJECTS + number } else { drawn };
            let dense = numbers.len() as u32;
            let object = *numbers.entry(name).or_insert(dense);
            let number = u64::from(number);
            Access { object, bytes: bytes(u64::from(name)), number, next: u64::MAX }
        })
        .collect();
    let mut next = vec![u64::MAX; numbers.len()];
    for access in accesses.iter_mut().rev() {
        access.next = std::mem::replace(&mut next[access.object as usize], access.number);
    }
    accesses
}

fn miss_ratio(name: PolicyName, capacity: u64, accesses: &[Access]) -> f64 {
    let mut cache = name.build(capacity);
    let missed = accesses.iter().filter(|&&access| {
        let is_hit = cache.hit(access);
        if !is_hit {
            cache.admit(access);
        }
        !is_hit
    });
    missed.count() as f64 / accesses.len() as f64
}

/// Miss ratios of libCacheSim 0.3.5 (its Python package) for the same requests.
#[test]
fn misses_are_those_of_libcachesim() {
    let equal = trace(|_| 100);
    let sized = trace(|name| 50 + name * 7919 % 950);
    for (name, of_equal, of_sized) in [
        (PolicyName::Fifo, 0.794_800, 0.798_150),
        (PolicyName::Lru, 0.771_525, 0.774_600),
        (PolicyName::Clock, 0.761_025, 0.763_900),
        (PolicyName::Sieve, 0.674_850, 0.674_425),
        (PolicyName::S3Fifo, 0.667_825, 0.669_550),
        (PolicyName::WTinyLfu, 0.660_075, 0.662_075),
        (PolicyName::Gdsf, 0.723_425, 0.684_200),
        (PolicyName::Belady, 0.530_700, 0.533_325),
    ] {
        // Its W-TinyLFU counts in a sketch that is sized by bytes; here every count is exact.
        let most = if name == PolicyName::WTinyLfu { 5e-4 } else { 2e-6 };
        for (theirs, ours) in [
            (of_equal, miss_ratio(name, 20_000, &equal)),
            (of_sized, miss_ratio(name, 100_000, &sized)),
        ] {
            assert!((theirs - ours).abs() < most, "{name}: libCacheSim {theirs}, here {ours}");
        }
    }
}

#[test]
fn removed_objects_miss_and_give_their_room_back() {
    for name in PolicyName::ALL {
        let access = |object| Access { object, bytes: 10, number: 0, next: u64::MAX };
        let mut cache = name.build(2_000);
        for object in 0..50 {
            assert!(!cache.hit(access(object)), "{name}");
            cache.admit(access(object));
        }
        for object in (0..50).step_by(2) {
            cache.remove(object);
        }
        for object in 0..50 {
            assert_eq!(cache.hit(access(object)), object % 2 == 1, "{name} {object}");
        }
        for object in 50..225 {
            cache.admit(access(object));
        }
        let held = (0..225).filter(|&object| cache.hit(access(object))).count();
        assert_eq!(held, 200, "{name}");
    }
}

#[test]
fn an_object_larger_than_the_cache_is_refused_and_evicts_nothing() {
    for name in PolicyName::ALL {
        let mut cache = name.build(1_000);
        let small = Access { object: 0, bytes: 5, number: 0, next: 7 };
        cache.admit(small);
        let large = Access { object: 1, bytes: 1_001, number: 1, next: 8 };
        assert!(!cache.hit(large), "{name}");
        cache.admit(large);
        assert!(!cache.hit(large) && cache.hit(small), "{name}");
    }
}

#[test]
fn names_read_back() {
    for name in PolicyName::ALL {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    assert!("arc".parse::<PolicyName>().unwrap_err().contains("s3-fifo"));
}
