//! Small traces whose hits are known.

use std::fmt::Write;

use super::*;

fn options(folder: &std::path::Path, format: TraceFormat, trace: &[u8]) -> ReplayOptions {
    let file = folder.join("trace");
    entresol_media::files::write_atomically(&file, trace).unwrap();
    ReplayOptions {
        file,
        format,
        sizes: None,
        value_bytes: None,
        store_on_miss: true,
        requests_max: None,
        loops: 1,
        warm_up: 0.0,
        policies: Vec::new(),
        overhead_bytes: OVERHEAD_BYTES,
        curve: false,
        seed: 1,
        tenant: Tenant::Direct(DirectTenant {
            medium: MediumSpec::Dram,
            dram_bytes: ByteSize::mib(16),
            medium_bytes: ByteSize(0),
            footprint_percent: None,
            segment_bytes: None,
            value_bytes_max: None,
            favour: Favour::Objects,
            threads: 1,
        }),
    }
}

fn run(options: &ReplayOptions) -> ReplayResult {
    replay(options, &Progress::hidden()).unwrap()
}

#[test]
fn misses_are_stored_and_lives_pass_by_the_traces_clock() {
    let folder = tempfile::tempdir().unwrap();
    let trace = "100,a,5,10,1,get,60\n100,a,5,10,1,get,60\n159,a,5,10,1,get,60\n\
                 161,a,5,10,1,get,60\n162,b,5,10,1,set,0\n163,b,5,10,1,get,0\n\
                 164,b,5,10,1,delete,0\n165,b,5,10,1,get,0\n166,n,5,10,1,incr,0\n";
    let mut options = options(folder.path(), TraceFormat::Twitter, trace.as_bytes());
    options.policies = PolicyName::ALL.to_vec();
    let result = run(&options);
    // a: miss, hit, hit, expired after 60 s; b: hit, absent after the delete.
    assert_eq!((result.hits.all.gets, result.hits.all.hits), (6, 3), "{result:?}");
    assert_eq!((result.stores, result.deletes, result.counts), (4, 1, 1));
    assert_eq!((result.trace_s, result.stores_refused, result.composed), (66, 0, false));
    // Simulated caches that have room know the same lives and deletes.
    assert_eq!(result.policies.len(), 2 * PolicyName::ALL.len());
    for policy in result.policies.iter().filter(|it| it.sizing == Sizing::EqualMemory) {
        assert_eq!(policy.hits.all.hits, 3, "{}", policy.policy);
    }
    options.store_on_miss = false;
    assert_eq!(run(&options).hits.all.hits, 1, "only b was ever set");
}

#[test]
fn bare_keys_take_their_sizes_from_a_distribution_or_one_size_and_are_called_composed() {
    let folder = tempfile::tempdir().unwrap();
    let keys = [1_u32, 2, 1, 3, 2, 1].map(u32::to_be_bytes).concat();
    let mut options = options(folder.path(), TraceFormat::Keys, &keys);
    let error = replay(&options, &Progress::hidden()).unwrap_err();
    assert!(error.to_string().contains("record 1") && error.is_usage(), "{error}");
    options.value_bytes = Some(700);
    let fixed = run(&options);
    assert!(fixed.composed);
    assert_eq!((fixed.requests, fixed.hits.all.hits, fixed.stored_bytes), (6, 3, 2100));
    assert_eq!(fixed.held_bytes, Some(3 * (16 + 700)));
    let sizes = folder.path().join("sizes.json");
    let text = r#"{"valSizeRange":[500],"valSizeRangeProbability":[1]}"#;
    entresol_media::files::write_atomically(&sizes, text.as_bytes()).unwrap();
    options.sizes = Some(sizes);
    assert_eq!(run(&options).stored_bytes, 1500);
}

fn cycle(objects: u32, requests: u32) -> String {
    let mut trace = String::from("key,op,size\n");
    for number in 0..requests {
        let _ = writeln!(trace, "{},GET,1000", number % objects);
    }
    trace
}

#[test]
fn a_cache_too_small_for_a_cycle_misses_and_says_what_it_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let trace = cycle(30_000, 60_000);
    let mut options = options(folder.path(), TraceFormat::Csv, trace.as_bytes());
    options.policies = vec![PolicyName::Lru, PolicyName::Belady];
    let result = run(&options);
    assert!(result.hits.all.hit_ratio < 0.45, "{}", result.hits.all.hit_ratio);
    assert!(result.statistics.as_ref().is_some_and(|found| found.events.evicted_items > 1000));
    let hits = |policy: &str, sizing| {
        let found = result.policies.iter().find(|it| it.policy == policy && it.sizing == sizing);
        found.map(|it| it.hits.all.hits).unwrap()
    };
    // A cycle that does not fit: LRU never hits; Belady keeps what fits and hits it once each.
    assert_eq!(hits("lru", Sizing::EqualMemory), 0);
    let key_bytes = 5;
    let fits = (16 << 20) / (key_bytes + 1000 + OVERHEAD_BYTES);
    let of_belady = hits("belady", Sizing::EqualMemory);
    assert!(of_belady.abs_diff(fits) < fits / 50, "{of_belady} hits where {fits} objects fit");
    options.requests_max = Some(10);
    assert_eq!(run(&options).requests, 10);
}

#[test]
fn a_curve_falls_with_capacity_and_ends_at_the_first_misses() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = String::from("key,op,size\n");
    for number in 0_u64..20_000 {
        let drawn = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let _ = writeln!(trace, "{},GET,100", drawn * drawn % 1_000);
    }
    let mut options = options(folder.path(), TraceFormat::Csv, trace.as_bytes());
    options.policies = vec![PolicyName::Lru];
    options.curve = true;
    options.warm_up = 0.5;
    let result = run(&options);
    let curve = &result.curves[0];
    assert!(curve.points.windows(2).all(|pair| pair[0].miss_ratio >= pair[1].miss_ratio));
    let last = curve.points.last().unwrap();
    let first_misses = f64::from(result.objects) / 20_000.0;
    assert!((last.miss_ratio - first_misses).abs() < 1e-9, "{last:?} {first_misses}");
    assert_eq!(result.hits.warm.map(|warm| (warm.gets, warm.hits)), Some((10_000, 10_000)));
    assert!(result.page().render().contains("Miss ratio by capacity"));
}

#[test]
fn a_quota_may_be_a_share_of_the_footprint_and_a_trace_may_be_looped() {
    let folder = tempfile::tempdir().unwrap();
    let trace = cycle(20_000, 20_000);
    let mut options = options(folder.path(), TraceFormat::Csv, trace.as_bytes());
    options.loops = 3;
    let Tenant::Direct(tenant) = &mut options.tenant else { unreachable!() };
    tenant.footprint_percent = Some(200.0);
    let result = run(&options);
    assert_eq!((result.requests, result.hits.all.hits), (60_000, 40_000));
    assert_eq!(result.footprint_bytes, trace_bytes(20_000));
}

fn trace_bytes(objects: u64) -> u64 {
    let key_bytes: u64 = (0..objects).map(|key| key.to_string().len() as u64).sum();
    key_bytes + objects * (1000 + OVERHEAD_BYTES)
}
