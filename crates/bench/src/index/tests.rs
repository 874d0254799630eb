//! Tests of small runs.

use entresol_media::{FileError, RegionError};

use super::*;

fn options() -> IndexOptions {
    IndexOptions {
        indexes: IndexName::ALL.to_vec(),
        keys: 3_000,
        operations: 600,
        rounds: 1,
        ..IndexOptions::default()
    }
}

#[test]
fn every_index_answers_every_workload_in_real_time() {
    let results = run_indexes(&options(), &Progress::hidden()).expect("a run");
    assert_eq!(results.indexes.len(), IndexName::ALL.len());
    for index in &results.indexes {
        assert_eq!(index.workloads.len(), Workload::ALL.len(), "{}", index.index);
        assert!(index.workloads.iter().all(|it| it.ns.median > 0.0), "{index:?}");
        assert!(index.shape.keys > 2_500, "{index:?}");
        let keeps = IndexName::PERSISTENT.contains(&index.index);
        assert_eq!(index.first_answer_ns.is_some(), keeps, "{index:?}");
    }
    assert!(results.tables().iter().any(|table| table.to_string().contains("w1")));
}

#[test]
fn every_index_answers_on_several_threads_on_a_model_the_same_at_each_run() {
    let medium = MediumSpec::Model(ModelName::Aep);
    let options = IndexOptions { medium, threads: 3, ..options() };
    let results = run_indexes(&options, &Progress::hidden()).expect("a run");
    let again = run_indexes(&options, &Progress::hidden()).expect("a run");
    assert_eq!(results, again);
    assert!(results.is_virtual);
}

/// Checks that nodes of twice the size are about half as many.
#[test]
fn nodes_have_the_bytes_that_were_asked_for() {
    let indexes = [
        IndexName::FastFair,
        IndexName::Ods,
        IndexName::SvTree,
        IndexName::WbTree,
        IndexName::FpTree,
        IndexName::HybridIndexPlus,
    ];
    let nodes = |node_bytes| {
        let options = IndexOptions {
            node_bytes: Some(node_bytes),
            indexes: indexes.to_vec(),
            workloads: vec![Workload::Read],
            ..options()
        };
        let results = run_indexes(&options, &Progress::hidden()).expect("a run");
        results.indexes.into_iter().map(|index| index.shape.nodes as f64).collect::<Vec<_>>()
    };
    for ((index, small), large) in indexes.iter().zip(nodes(256)).zip(nodes(512)) {
        assert!((0.35..0.6).contains(&(large / small)), "{index}: {small} and {large} nodes");
    }
}

#[test]
fn what_there_is_no_room_for_is_told_with_what_would_make_some() {
    let cause = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
    let path = PathBuf::from("/mnt/pmem/index");
    let full = FileError::NoSpace { path, bytes: 3 << 30, cause: cause() };
    for (error, place) in [
        (
            RegionError::Reserve { bytes: 3 << 30, cause: cause() },
            "3GiB that the index may need in memory",
        ),
        (RegionError::File(full), "in /mnt/pmem/index"),
    ] {
        let said = no_region(error).to_string();
        assert!(said.contains(place) && said.contains("fewer --keys or --operations"), "{said}");
        assert!(!said.contains("quota"), "{said}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let refused = |options: IndexOptions, why: &str| {
        let error = run_indexes(&options, &Progress::hidden()).expect_err(why);
        assert!(error.is_usage() && error.to_string().contains(why), "{error}");
    };
    refused(IndexOptions { keys: 0, ..options() }, "--keys");
    refused(IndexOptions { keys: 1 << 60, ..options() }, "must come to");
    refused(IndexOptions { cache_fraction: 2.0, ..options() }, "--cache-fraction");
    refused(IndexOptions { cache_fraction: 1e-5, ..options() }, "of 3000 keys is none");
    refused(IndexOptions { node_bytes: Some(512), ..options() }, "leave --node-bytes out");
    for (index, why) in [
        (IndexName::Ods, "a multiple of 64 from 128 to 512"),
        (IndexName::FastFair, "a multiple of 64 from 128 to 512"),
        (IndexName::HybridIndexPlus, "a multiple of 64 from 128 to 512"),
        (IndexName::WbTree, "a multiple of 64 from 128 to 512"),
        (IndexName::FpTree, "a multiple of 64 from 128 to 1024"),
        (IndexName::SvTree, "use 256, 512 or 1024"),
        (IndexName::SkipList, "skip-list: it has no nodes of a size to choose"),
        (IndexName::HybridIndex, "hybrid-index: it has no nodes of a size to choose"),
        (IndexName::BTreeMap, "btree-map: it has no nodes of a size to choose"),
    ] {
        for node_bytes in [100, 96 << 30] {
            let (node_bytes, indexes) = (Some(node_bytes), vec![index]);
            refused(IndexOptions { node_bytes, indexes, ..options() }, why);
        }
    }
    let workloads = vec![Workload::Delete];
    refused(IndexOptions { operations: 4_000, workloads, ..options() }, "delete needs 4000 keys");
    let workloads = vec![Workload::Delete, Workload::Read];
    let gone = IndexOptions { operations: 3_000, workloads: workloads.clone(), ..options() };
    refused(gone, "read needs 1 keys, and 0 are left then");
    let crowd = IndexOptions { operations: 2_998, threads: 3, workloads, ..options() };
    refused(crowd, "read needs 3 keys, and 2 are left then");
    refused(IndexOptions { keys: 1 << 36, ..options() }, "and this machine has");
    refused(IndexOptions { probing: Probing::Parallel, ..options() }, "--cache-fraction");
    let medium = MediumSpec::Model(ModelName::Qlc5210);
    refused(IndexOptions { medium, ..options() }, "an index lies in memory");
}
