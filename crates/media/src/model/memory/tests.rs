//! The memory models reproduce the measured tables, and always give the same answers.

use entresol_base::checksum::crc32c;

use super::*;

fn one(op: MemoryOp, offset: u64, bytes: u64) -> MemoryAccess {
    let stores = matches!(op, MemoryOp::NtStore | MemoryOp::StoreFlush);
    let fence = if stores { Fence::AtEnd } else { Fence::None };
    MemoryAccess { op, offset, bytes, fence }
}

/// Returns the mean time of an access of each list, whose ops may differ. `threads` threads of each
/// make one access after the other, each far from the others, once the buffers are full.
fn closed_loop(parameters: Parameters, threads: &[(MemoryOp, u64, u64)]) -> Vec<f64> {
    const ROUNDS: u64 = 600;
    let mut model = MemoryModel::new(parameters);
    let mut next = vec![(Picos::ZERO, 0_u64); threads.len()];
    let mut begun = vec![Picos::ZERO; threads.len()];
    let mut done = vec![0_u64; threads.len()];
    while done.iter().any(|&done| done < 2 * ROUNDS) {
        let soonest = (0..threads.len()).min_by_key(|&thread| next[thread].0).unwrap();
        let (op, bytes, stride) = threads[soonest];
        let (now, count) = next[soonest];
        let offset = ((soonest as u64) << 32) + count * stride;
        let later = model.access(now, Accessor(soonest as u32), one(op, offset, bytes));
        next[soonest] = (later, count + 1);
        done[soonest] += 1;
        if done[soonest] == ROUNDS {
            begun[soonest] = later;
        }
    }
    let mean = |thread: usize| next[thread].0.since(begun[thread]).0 as f64 / 1e3;
    (0..threads.len()).map(|t| mean(t) / (done[t] - ROUNDS) as f64).collect()
}

fn alone(parameters: Parameters, op: MemoryOp, bytes: u64, stride: u64) -> f64 {
    closed_loop(parameters, &[(op, bytes, stride)])[0]
}

#[test]
fn the_unit_of_access_is_256_bytes() {
    let random = |bytes| alone(AEP, MemoryOp::Load, bytes, 4096 + 768);
    assert!(random(64) / random(256) > 0.75);
    assert!(random(512) / random(256) > 1.2);
    // Read one after the other, the lines of a unit come out of the module's buffer.
    assert!(alone(AEP, MemoryOp::Load, 64, 64) < 0.6 * random(64));
    assert!(alone(AEP, MemoryOp::Load, 8, 8) < 0.2 * random(8));
}

/// Sizes from a line to 16 MiB: every line up to three pages, then ever wider steps of odd sizes,
/// and both sides of every power of two.
fn growing_sizes() -> Vec<u64> {
    let mut sizes: Vec<u64> = (64..=12 << 10).step_by(64).collect();
    let wider = |&bytes: &u64| Some(bytes + bytes / 11 / 64 * 64 + 64);
    sizes.extend(std::iter::successors(Some(12 << 10), wider).take_while(|&b| b <= 16 << 20));
    sizes.extend((6..=24).flat_map(|power| [(1 << power) - 64, 1 << power, (1 << power) + 64]));
    sizes.retain(|bytes| (64..=16 << 20).contains(bytes));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[test]
fn a_larger_read_never_costs_less_than_a_smaller_one() {
    for (name, parameters) in [("aep", AEP), ("aep2", AEP2), ("dram", DRAM)] {
        for offset in [0, 192, 3_904] {
            let mut least = [Picos::ZERO; 2];
            for bytes in growing_sizes() {
                let mut model = MemoryModel::new(parameters);
                let load = one(MemoryOp::Load, (1 << 30) + offset, bytes);
                let cold = model.access(Picos::ZERO, Accessor(0), load);
                // Long after, so that the medium is idle again: what is left is in caches.
                let later = cold.after(Picos::from_micros(100));
                let again = model.access(later, Accessor(0), load).since(later);
                assert!(cold >= least[0], "{name} {bytes} B at {offset}: {cold:?} < {least:?}");
                // What a cache still has of a block that nearly fills it depends on which lines
                // share a set.
                let slack = Picos(least[1].0 / 200);
                assert!(
                    again.after(slack) >= least[1],
                    "{name} {bytes} B at {offset}, again: {again:?} < {least:?}"
                );
                least = [cold, again.max(least[1])];
            }
        }
    }
}

#[test]
fn what_the_cache_holds_is_found_there_whatever_the_size() {
    for (name, parameters) in [("aep", AEP), ("aep2", AEP2), ("dram", DRAM)] {
        let mut before = Picos::ZERO;
        for bytes in [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10] {
            let mut model = MemoryModel::new(parameters);
            let load = one(MemoryOp::Load, 0, bytes);
            let cold = model.access(Picos::ZERO, Accessor(0), load);
            let units = model.counts().units_read;
            let again = model.access(cold, Accessor(0), load).since(cold);
            let share = again.0 as f64 / cold.0 as f64;
            assert!(share < if bytes > 64 { 0.9 } else { 1.1 }, "{name} {bytes} B: {share}");
            assert!(again > before, "{name}: more lines take longer, {bytes} B");
            assert!(model.counts().units_read - units <= units / 10, "{name} {bytes} B");
            before = again;
        }
    }
}

#[test]
fn a_part_of_a_line_costs_a_store_past_the_caches_most() {
    let random = |bytes| alone(AEP, MemoryOp::NtStore, bytes, 4096 + 768);
    assert!(random(8) > 3.0 * random(64));
}

#[test]
fn many_threads_share_the_bandwidth() {
    let bandwidth = |op, bytes: u64, stride, threads: usize| {
        let means = closed_loop(AEP, &vec![(op, bytes, stride); threads]);
        means.iter().map(|mean| bytes as f64 / mean).sum::<f64>()
    };
    let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.02;
    assert!(near(bandwidth(MemoryOp::Load, 256, 5 * 256, 16), 7.0));
    assert!(near(bandwidth(MemoryOp::Load, 64, 5 * 256, 16), 7.0 / 4.0));
    assert!(near(bandwidth(MemoryOp::Load, 64, 64, 16), 7.0));
    assert!(near(bandwidth(MemoryOp::NtStore, 256, 5 * 256, 16), 2.04));
    assert!(near(bandwidth(MemoryOp::NtStore, 64, 64, 16), 2.04));
    assert!(bandwidth(MemoryOp::NtStore, 64, 5 * 256, 16) < 0.3 * 2.04);
}

#[test]
fn neither_reads_nor_writes_fall_under_their_floor() {
    let mixed = |readers, writers| {
        let mut threads = vec![(MemoryOp::Load, 256, 5 * 256); readers];
        threads.extend(vec![(MemoryOp::NtStore, 256, 5 * 256); writers]);
        let means = closed_loop(AEP, &threads);
        let rate = |means: &[f64]| means.iter().map(|mean| 256e9 / mean).sum::<f64>();
        (rate(&means[..readers]), rate(&means[readers..]))
    };
    let (read_alone, _) = mixed(4, 0);
    let (read, _) = mixed(4, 1);
    assert!(read < 0.8 * read_alone, "{read} of {read_alone}");
    let (read, written) = mixed(4, 16);
    let module = AEP.module;
    assert!(read > 0.98 * module.read_floor_bytes_s() as f64, "{read}");
    let (_, least) = mixed(16, 4);
    assert!(least > 0.98 * module.write_floor_bytes_s() as f64, "{least}");
    assert!(written / 2.04e9 + read / 7e9 < 1.02, "no more than the medium has");
}

#[test]
fn large_copies_without_fences_tear_units_and_those_with_fences_do_not() {
    let amplification = |step: u64| {
        let mut model = MemoryModel::new(AEP);
        let (mut now, block) = (Picos::ZERO, 4 << 20);
        for start in (0..block).step_by(step as usize) {
            now = model.access(now, Accessor(0), one(MemoryOp::NtStore, start, step));
        }
        model.counts().units_written as f64 / (block / 256) as f64
    };
    assert!(amplification(4 << 20) > 1.05);
    assert!((amplification(256) - 1.0).abs() < 1e-9);
}

#[test]
fn stores_are_safe_once_they_are_flushed_and_fenced() {
    let mut model = MemoryModel::new(AEP);
    let thread = Accessor(0);
    let stored = model.access(Picos::ZERO, thread, one(MemoryOp::Store, 0, 8));
    assert_eq!(model.counts().units_written, 0);
    assert_eq!(model.fence(stored, thread), stored, "nothing was flushed");
    let flushed = model.flush(stored, thread, 0, 8);
    let safe = model.fence(flushed, thread);
    assert_eq!(safe.since(flushed), AEP.module.store_latency);
    // The line stays: the next store finds it.
    let again = model.access(safe, thread, one(MemoryOp::Store, 0, 8));
    assert_eq!(again.since(safe), AEP.processor.cached_word);
}

#[test]
fn changed_lines_that_leave_the_cache_are_written_as_parts_of_units() {
    let mut model = MemoryModel::new(AEP);
    let mut now = Picos::ZERO;
    for unit in 0..40_000 {
        now = model.access(now, Accessor(0), one(MemoryOp::Store, unit * 256, 8));
    }
    let counts = model.counts();
    assert!(counts.units_written > 20_000, "{counts:?}");
    assert_eq!(counts.units_written, counts.units_read_to_write);
}

#[test]
fn the_same_accesses_take_the_same_time_on_any_machine() {
    let mut model = MemoryModel::new(AEP);
    let (mut now, mut state, mut times) = (Picos::ZERO, 1_u64, Vec::new());
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let op = [MemoryOp::Load, MemoryOp::NtStore, MemoryOp::Store, MemoryOp::StoreFlush]
            [(state >> 60) as usize % 4];
        let bytes = 8 << ((state >> 40) % 11);
        let offset = (state >> 20) % (1 << 24) / 8 * 8;
        let accessor = Accessor((state >> 50) as u32 % 3);
        now = model.access(now, accessor, one(op, offset, bytes));
        times.extend_from_slice(&now.0.to_le_bytes());
    }
    assert_eq!((crc32c(&times), now.0), (3_294_109_334, 31_053_758_699));
}

#[test]
fn twenty_numbers_are_all_that_aep_is_made_of() {
    // Every field is named, so that a new one has to be counted here.
    let Parameters { processor, module, interleave: None, prefetch: None, further: None } = AEP
    else {
        panic!("one module, no prefetcher, nothing further");
    };
    let Processor {
        cached_word,
        cached_line,
        cache_bytes,
        refetch_milli,
        read_ahead_from,
        store_line,
        store_pace,
        late_milli,
    } = processor;
    let Module {
        unit_bytes,
        unit_read,
        jump,
        unit_read_ahead,
        line_read,
        buffered_line,
        store_latency,
        partial_line,
        read_bytes_s,
        write_bytes_s,
        buffer_units,
        read_share_milli,
    } = module;
    let times = [cached_word, cached_line, store_line, store_pace, unit_read, jump];
    let more = [unit_read_ahead, line_read, buffered_line, store_latency, partial_line];
    let bytes = [cache_bytes, read_ahead_from, unit_bytes, read_bytes_s, write_bytes_s];
    let others = [refetch_milli, late_milli, buffer_units as u64, read_share_milli];
    assert_eq!(times.len() + more.len() + bytes.len() + others.len(), 20);
}
