//! Figures of memory, and the loads that produce them.

use entresol_media::cost::LARGE_SIZES;
use entresol_media::probe::{Fences, Order, StoreMethod, Task, Touch};

use super::{Plan, Scope, Side, Take, order_name, task, threads_label, write};
use crate::profile::costs;
use crate::profile::figure::Quantity;
use crate::profile::plan::{Cell, Goal, empty};

/// Sizes from 8 bytes to 16 MiB.
const ALL_BYTES: [usize; 22] = {
    let mut all = [8; 22];
    let mut position = 1;
    while position < all.len() {
        all[position] = all[position - 1] * 2;
        position += 1;
    }
    all
};
/// Fewer sizes, for figures with a line for each number of threads.
const SOME_BYTES: [usize; 8] = [8, 64, 256, 512, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
/// Sizes at which inner fences have an effect: blocks that outgrow a processor's cache.
const FENCED_BYTES: [usize; 7] = [256, 512, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Size of accesses in mixes of readers and writers: the unit of persistent memory.
const MIXED_BYTES: usize = 256;
const ORDERS: [Order; 2] = [Order::Random, Order::Sequential];

/// Returns all measurements of memory except the costs.
pub(in crate::profile) fn plan(scope: &Scope) -> Plan {
    let mut plan = Plan::default();
    read_latency(&mut plan);
    write_latency(&mut plan, scope);
    latency_over_threads(&mut plan, scope);
    for order in ORDERS {
        bandwidth(&mut plan, scope, order);
    }
    fences(&mut plan, scope);
    mixed(&mut plan, scope);
    plan
}

fn sizes(scope: &Scope) -> &'static [usize] {
    if scope.full { &ALL_BYTES } else { &SOME_BYTES }
}

fn read_latency(plan: &mut Plan) {
    let figure = plan.figure(empty(
        "read_latency",
        "Latency of reads, one thread",
        "One thread reads a whole block; where the next block lies depends on what was read. \
         Random: a chain through all blocks in random order. (000: tables 3 and 4, figures 8, 9)",
        (Quantity::GRANULARITY, Quantity::LATENCY_NS),
    ));
    for order in ORDERS {
        for bytes in ALL_BYTES {
            let tasks = vec![task(Touch::ReadInTurn, order, bytes)];
            let take = Take::LatencyNs(Side::Readers);
            plan.cell(figure, order_name(order), bytes as f64, tasks, take);
        }
    }
}

fn write_latency(plan: &mut Plan, scope: &Scope) {
    let figure = plan.figure(empty(
        "write_latency",
        "Latency of writes, one thread",
        "One thread writes a whole block and waits for it with a fence: by stores past the caches \
         (nt-store), or by ordinary stores and a write-back of each line. (000: tables 5 and 6)",
        (Quantity::GRANULARITY, Quantity::LATENCY_NS),
    ));
    let methods = if scope.full { scope.methods.len() } else { 2 };
    for &method in scope.methods.iter().take(methods) {
        for order in ORDERS {
            let label = format!("{} {}", method.name(), order_name(order));
            for bytes in ALL_BYTES {
                let tasks = vec![task(write(method), order, bytes)];
                let take = Take::LatencyNs(Side::Writers);
                plan.cell(figure, &label, bytes as f64, tasks, take);
            }
        }
    }
}

fn latency_over_threads(plan: &mut Plan, scope: &Scope) {
    let axes = (Quantity::GRANULARITY, Quantity::LATENCY_NS);
    let reads = plan.figure(empty(
        "read_latency_by_threads",
        "Latency of random reads by threads",
        "This many threads follow chains of their own at the same time. (000: figures 1, 10)",
        axes,
    ));
    let writes = plan.figure(empty(
        "write_latency_by_threads",
        "Latency of random writes by threads",
        "This many threads write at the same time, each with a fence behind its block. (000: \
         figure 2)",
        axes,
    ));
    for &threads in &scope.threads {
        let label = threads_label(threads);
        for &bytes in sizes(scope) {
            let read = task(Touch::ReadInTurn, Order::Random, bytes);
            let write = task(write(scope.methods[0]), Order::Random, bytes);
            let x = bytes as f64;
            plan.cell(reads, &label, x, vec![read; threads], Take::LatencyNs(Side::Readers));
            plan.cell(writes, &label, x, vec![write; threads], Take::LatencyNs(Side::Writers));
        }
    }
}

fn bandwidth(plan: &mut Plan, scope: &Scope, order: Order) {
    let axes = (Quantity::GRANULARITY, Quantity::BANDWIDTH);
    let about = "Bytes that this many threads move together. Reads do not depend on each other; \
                 writes are stores past the caches with a fence behind each block.";
    let [reads, writes] = match order {
        Order::Random => [
            ("read_bandwidth_random", "Bandwidth of random reads", "3"),
            ("write_bandwidth_random", "Bandwidth of random writes", "4"),
        ],
        Order::Sequential => [
            ("read_bandwidth_sequential", "Bandwidth of sequential reads", "6"),
            ("write_bandwidth_sequential", "Bandwidth of sequential writes", "7"),
        ],
    };
    let mut begin = |(name, title, number): (&'static str, &'static str, &str)| {
        plan.figure(empty(name, title, &format!("{about} (000: figure {number})"), axes))
    };
    let (reads, writes) = (begin(reads), begin(writes));
    for &threads in &scope.threads {
        let label = threads_label(threads);
        for &bytes in sizes(scope) {
            let read = task(Touch::Read, order, bytes);
            let write = task(write(scope.methods[0]), order, bytes);
            let x = bytes as f64;
            plan.cell(reads, &label, x, vec![read; threads], Take::Bandwidth(Side::Readers));
            plan.cell(writes, &label, x, vec![write; threads], Take::Bandwidth(Side::Writers));
        }
    }
}

fn fences(plan: &mut Plan, scope: &Scope) {
    let figure = plan.figure(empty(
        "fence_each_unit",
        "What a fence every 256 bytes does to write bandwidth",
        "Random blocks written past the caches by the most threads: one fence behind each block, \
         or one behind every 256 bytes of it. (000: figure 5)",
        (Quantity::GRANULARITY, Quantity::BANDWIDTH),
    ));
    let settings =
        [("fence each block", Fences::EachBlock), ("fence each 256 B", Fences::EachUnit)];
    for (label, fences) in settings {
        let sizes: &[usize] = if scope.full { &ALL_BYTES } else { &FENCED_BYTES };
        for &bytes in sizes.iter().filter(|&&bytes| bytes >= 256) {
            let touch = Touch::Write(scope.methods[0], fences);
            let tasks = vec![task(touch, Order::Random, bytes); scope.most_threads()];
            plan.cell(figure, label, bytes as f64, tasks, Take::Bandwidth(Side::Writers));
        }
    }
}

/// Adds readers and writers at the same time: bandwidth and latency of one side over the number of
/// the other.
fn mixed(plan: &mut Plan, scope: &Scope) {
    let about = |what: &str, number: &str| {
        format!("Random blocks of 256 bytes, readers and writers at once: {what}. (000: {number})")
    };
    let mut begin = |name, title, what: &str, number: &str, axes| {
        plan.figure(empty(name, title, &about(what, number), axes))
    };
    let (over_writers, over_readers) = (Quantity::WRITERS, Quantity::READERS);
    let figures = [
        begin(
            "mixed_read_bandwidth",
            "Read bandwidth beside writers",
            "what readers move",
            "figure 11",
            (over_writers, Quantity::BANDWIDTH),
        ),
        begin(
            "mixed_write_bandwidth",
            "Write bandwidth beside readers",
            "what writers move",
            "figure 12",
            (over_readers, Quantity::BANDWIDTH),
        ),
        begin(
            "mixed_read_latency",
            "Read latency beside writers",
            "readers follow chains",
            "figure 13",
            (over_writers, Quantity::LATENCY_NS),
        ),
        begin(
            "mixed_write_latency",
            "Write latency beside readers",
            "a write and its fence, beside readers that follow chains",
            "figure 14",
            (over_readers, Quantity::LATENCY_NS),
        ),
    ];
    for readers in counts(scope) {
        for writers in counts(scope).filter(|writers| readers + writers > 0) {
            mixed_cell(plan, scope.methods[0], figures, [readers, writers]);
        }
    }
}

fn counts(scope: &Scope) -> impl Iterator<Item = usize> {
    std::iter::once(0).chain(scope.threads.iter().copied())
}

fn mixed_cell(
    plan: &mut Plan,
    method: StoreMethod,
    [read_bandwidth, write_bandwidth, read_latency, write_latency]: [usize; 4],
    [readers, writers]: [usize; 2],
) {
    let label = |count: usize, who: &str| match count {
        1 => format!("1 {who}"),
        _ => format!("{count} {who}s"),
    };
    let tasks = |touch| -> Vec<Task> {
        let mut tasks = vec![task(touch, Order::Random, MIXED_BYTES); readers];
        tasks.resize(readers + writers, task(write(method), Order::Random, MIXED_BYTES));
        tasks
    };
    let loads = [
        (Touch::Read, [read_bandwidth, write_bandwidth], Take::Bandwidth as fn(Side) -> Take),
        (Touch::ReadInTurn, [read_latency, write_latency], Take::LatencyNs),
    ];
    for (touch, [of_reads, of_writes], take) in loads {
        let mut goals = Vec::new();
        if readers > 0 {
            let series = plan.series(of_reads, &label(readers, "reader"));
            let take = take(Side::Readers);
            goals.push(Goal { figure: of_reads, series, x: writers as f64, take });
        }
        if writers > 0 {
            let series = plan.series(of_writes, &label(writers, "writer"));
            let take = take(Side::Writers);
            goals.push(Goal { figure: of_writes, series, x: readers as f64, take });
        }
        plan.cells.push(Cell { load: tasks(touch), goals });
    }
}

/// Returns the most operations per second, for the cost table, with these numbers of threads.
pub(in crate::profile) fn cost_plan(scope: &Scope, [readers, writers]: [usize; 2]) -> Plan {
    let mut plan = Plan::default();
    let figure = plan.figure(empty(
        costs::FIGURE,
        "Most random accesses per second",
        "Blocks of a power of two lie on multiples of themselves, other multiples of 256 bytes on \
         those, all others anywhere on the grid of cache lines; by the number of threads that \
         moves most. (002: figure 3)",
        (Quantity::SIZE, Quantity::OPERATIONS),
    ));
    for bytes in (64..=4096).step_by(64).chain(LARGE_SIZES) {
        let read = task(Touch::Read, Order::Random, bytes);
        let write = task(write(scope.methods[0]), Order::Random, bytes);
        let x = bytes as f64;
        plan.cell(figure, costs::READS, x, vec![read; readers], Take::Operations);
        plan.cell(figure, costs::WRITES, x, vec![write; writers], Take::Operations);
    }
    plan
}
