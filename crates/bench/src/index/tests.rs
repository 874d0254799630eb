//! Small runs of everything.

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
    let indexes = vec![IndexName::Ods];
    let odd = IndexOptions { node_bytes: Some(100), indexes, ..options() };
    refused(odd, "a multiple of 64 from 128 to 512");
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
