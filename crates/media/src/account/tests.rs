//! Accounts: charges equal use, and no more is admitted than promised.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

use entresol_base::Clock;
use entresol_base::clock::ManualClock;

fn account() -> Arc<Account> {
    Account::new("dram", Arc::new(CostTable::published()))
}

fn access(write: bool) -> Access {
    if write { Access::Write } else { Access::Read }
}

/// Spends all that `handle` is admitted to at `now`, in accesses of these sizes in turn.
fn spend(handle: &mut AccountHandle, now: Nanos, sizes: &mut impl Iterator<Item = usize>) -> u32 {
    let mut accesses = 0;
    while handle.admit(now) == Admission::Go {
        handle.charge(Access::Write, sizes.next().expect("endless"));
        accesses += 1;
        assert!(accesses < 1_000_000, "admission at one instant must come to an end");
    }
    accesses
}

#[test]
fn what_is_charged_is_what_was_used_while_threads_come_and_go() {
    let account = account();
    let per_thread = 20_000_u64;
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let account = &account;
            scope.spawn(move || {
                let mut handle = account.handle();
                for index in 0..per_thread as usize {
                    if index % 1000 == 0 {
                        handle = account.handle();
                    }
                    handle.charge(access(index % 3 == 0), (index + thread) % 5000);
                }
            });
        }
        for _ in 0..100 {
            let before = account.usage();
            assert!(account.usage().used_ns >= before.used_ns, "usage never falls");
        }
    });
    let (mut units, mut bytes) = (0, [0; 2]);
    for thread in 0..4 {
        for index in 0..per_thread as usize {
            let (access, size) = (access(index % 3 == 0), (index + thread) % 5000);
            units += account.costs.cost_units(access, size);
            bytes[access as usize] += size as u64;
        }
    }
    let usage = account.usage();
    assert_eq!(usage.used_ns, units / UNITS_PER_NS);
    assert_eq!(usage.reads + usage.writes, 4 * per_thread);
    assert_eq!((usage.read_bytes, usage.written_bytes), (bytes[0], bytes[1]));
    assert!(account.bucket().slots.is_empty(), "handles that are gone leave no slot");
}

#[test]
fn parts_of_an_access_cost_together_what_it_costs_as_a_whole() {
    let (whole, parts) = (account(), account());
    let mut handle = whole.handle();
    handle.charge(Access::Write, 1 << 20);
    let mut handle = parts.handle();
    let mut left = 1_usize << 20;
    for bytes in [1, 64, 100, 4096, 65_536].into_iter().cycle() {
        let bytes = left.min(bytes);
        handle.charge_part(Access::Write, bytes, WholeBytes(1 << 20));
        left -= bytes;
        if left == 0 {
            break;
        }
    }
    let (whole, parts) = (whole.usage(), parts.usage());
    assert_eq!(whole.written_bytes, parts.written_bytes);
    let missing = whole.used_ns - parts.used_ns;
    assert!(missing <= parts.writes / UNITS_PER_NS + 1, "{missing} ns of {}", whole.used_ns);
}

/// Runs `threads` greedy threads against a share for as long as the steps last, and checks their
/// use in every interval against the promise.
fn check_share(share: f64, threads: usize, steps_us: &[u64], sizes: &[usize]) {
    let account = account();
    account.set_limit(Limit::Share(share));
    let clock = ManualClock::default();
    let mut handles: Vec<_> = (0..threads).map(|_| account.handle()).collect();
    let mut sizes = sizes.iter().copied().cycle();
    let largest = account.costs.cost_ns(Access::Write, 100_000);
    let slack = threads as f64 * (GRANT_NS as f64 + largest);
    let mut history = vec![(0_u64, 0_u64)];
    for (step, &step_us) in steps_us.iter().enumerate() {
        clock.advance(Duration::from_micros(step_us));
        for turn in 0..threads {
            spend(&mut handles[(turn + step) % threads], clock.now(), &mut sizes);
        }
        history.push((clock.now().0, account.used_ns()));
    }
    for (index, &(from, used_from)) in history.iter().enumerate() {
        for &(to, used_to) in &history[index..] {
            let promised = share * (to - from + BURST_NS) as f64 + slack;
            let used = (used_to - used_from) as f64;
            assert!(used <= promised, "{used} ns in {} ns, not {promised}", to - from);
        }
    }
    // Greedy threads that come at least as often as the burst lasts get their share, too.
    if steps_us.iter().all(|&step| step * 1000 <= BURST_NS / 2) {
        let (elapsed, used) = history[history.len() - 1];
        let owed = share * elapsed.saturating_sub(steps_us[0] * 1000) as f64 - slack;
        assert!(used as f64 >= owed, "{used} ns of the {owed} that are due");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_share_is_kept_in_every_interval(
        share in 0.001f64..2.0,
        threads in 1usize..6,
        steps_us in prop::collection::vec(1u64..20_000, 1..120),
        sizes in prop::collection::vec(1usize..100_000, 1..20),
    ) {
        check_share(share, threads, &steps_us, &sizes);
    }

    #[test]
    fn greedy_threads_get_their_whole_share(
        share in 0.01f64..1.0,
        threads in 1usize..4,
        step_us in 10u64..5_000,
    ) {
        check_share(share, threads, &vec![step_us; 300], &[64, 256, 4096]);
    }

    #[test]
    fn changing_limits_create_no_credit(
        changes in prop::collection::vec((0u8..3, 1u64..3000), 1..80),
    ) {
        // Three shares in turn, never above a half, with stops in between: whatever the order, no
        // more than a half is used.
        let account = account();
        account.set_limit(Limit::Share(0.5));
        let clock = ManualClock::default();
        let mut handle = account.handle();
        for (choice, step_us) in changes {
            let limits = [Limit::Share(0.5), Limit::Share(0.1), Limit::Stopped];
            account.set_limit(limits[usize::from(choice)]);
            clock.advance(Duration::from_micros(step_us));
            spend(&mut handle, clock.now(), &mut std::iter::repeat(256));
            let promised = 0.5 * (clock.now().0 + BURST_NS) as f64 + GRANT_NS as f64 + 100.0;
            prop_assert!((account.used_ns() as f64) < promised);
        }
    }
}

#[test]
fn unlimited_goes_on_and_on() {
    let account = account();
    let mut handle = account.handle();
    for _ in 0..10_000 {
        assert_eq!(handle.admit(Nanos(0)), Admission::Go);
        handle.charge(Access::Write, 1 << 30);
    }
    assert_eq!(account.limit(), Limit::Unlimited);
}

#[test]
fn stopped_stops_everybody_at_once_whatever_credit_they_hold() {
    for before in [Limit::Unlimited, Limit::Share(1.0)] {
        let account = account();
        account.set_limit(before);
        let mut handles = [account.handle(), account.handle()];
        for handle in &mut handles {
            handle.admit(Nanos(1));
            assert_eq!(handle.admit(Nanos(50_000_000)), Admission::Go);
        }
        account.set_limit(Limit::Stopped);
        let mut late = account.handle();
        assert_eq!(late.admit(Nanos(u64::MAX)), Admission::Stopped);
        for handle in &mut handles {
            assert_eq!(handle.admit(Nanos(u64::MAX)), Admission::Stopped);
            assert_eq!(handle.admit(Nanos(u64::MAX)), Admission::Stopped, "and stays so");
        }
        account.set_limit(Limit::Unlimited);
        assert!(handles.iter_mut().all(|handle| handle.admit(Nanos(0)) == Admission::Go));
    }
}

#[test]
fn nothing_and_no_number_are_stops() {
    for share in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        let account = account();
        account.set_limit(Limit::Share(share));
        assert_eq!(account.handle().admit(Nanos(7)), Admission::Stopped, "{share}");
    }
    let account = account();
    account.set_limit(Limit::Share(f64::INFINITY));
    let mut handle = account.handle();
    let _ = handle.admit(Nanos(0));
    assert_eq!(handle.admit(Nanos(u64::MAX)), Admission::Go);
}

#[test]
fn whoever_waits_until_the_given_time_is_admitted_then_and_not_before() {
    let account = account();
    account.set_limit(Limit::Share(0.05));
    let mut handles = [account.handle(), account.handle(), account.handle()];
    let mut last = Nanos(0);
    for handle in &mut handles {
        let Admission::Wait { until } = handle.admit(Nanos(0)) else { panic!("nothing accrued") };
        assert!(until > last, "the threads queue up");
        last = until;
        assert_eq!(handle.admit(Nanos(until.0 - 1)), Admission::Wait { until });
        assert_eq!(handle.admit(until), Admission::Go);
    }
}

#[test]
fn what_is_overdrawn_is_paid_before_anything_else() {
    let account = account();
    account.set_limit(Limit::Share(0.5));
    let mut handle = account.handle();
    handle.admit(Nanos(0));
    assert_eq!(handle.admit(Nanos(1_000_000)), Admission::Go);
    handle.charge(Access::Write, 16 << 20);
    let Admission::Wait { until } = handle.admit(Nanos(1_000_000)) else { panic!("overdrawn") };
    let cost = account.costs.cost_ns(Access::Write, 16 << 20);
    assert!(until.0 as f64 >= 2.0 * cost, "{until:?} is too early for {cost} ns at a half");
}

#[test]
fn an_idle_thread_leaves_its_credit_to_the_others() {
    let account = account();
    account.set_limit(Limit::Share(0.01));
    let (mut idle, mut busy) = (account.handle(), account.handle());
    let Admission::Wait { until } = idle.admit(Nanos(0)) else { panic!("nothing accrued") };
    idle.settle();
    let Admission::Wait { until: same } = busy.admit(Nanos(0)) else { panic!("nothing accrued") };
    assert_eq!(until, same);
    drop(idle);
    assert_eq!(busy.admit(same), Admission::Go);
}

#[test]
fn stops_and_limits_hold_while_threads_run() {
    use std::sync::atomic::{AtomicBool, AtomicU64};
    let (account, clock) = (account(), ManualClock::default());
    let (ended, stopped) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut handle = account.handle();
                while !ended.load(Ordering::Relaxed) {
                    match handle.admit(clock.now()) {
                        Admission::Go => handle.charge(Access::Read, 100),
                        Admission::Wait { .. } => std::thread::yield_now(),
                        Admission::Stopped => {
                            stopped.fetch_add(1, Ordering::SeqCst);
                            std::thread::yield_now();
                        }
                    }
                }
            });
        }
        for round in 0..200 {
            let limits = [Limit::Unlimited, Limit::Share(0.3)];
            account.set_limit(limits[round % 2]);
            clock.advance(Duration::from_micros(300));
            std::thread::yield_now();
            account.set_limit(Limit::Stopped);
            // Each thread may still finish the one access that it was admitted to.
            let seen = stopped.load(Ordering::SeqCst);
            while stopped.load(Ordering::SeqCst) < seen + 3 {
                std::thread::yield_now();
            }
            let used = account.used_ns();
            clock.advance(Duration::from_micros(100));
            std::thread::yield_now();
            let cost = account.costs.cost_ns(Access::Read, 100) as u64 + 1;
            assert!(account.used_ns() <= used + 3 * cost, "stopped, and yet used");
        }
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn persistent_memory_is_charged_by_the_units_that_an_access_touches() {
    let account = account();
    let mut handle = account.handle();
    let mut used = 0;
    for (offset, bytes, units) in
        [(0, 256, 1), (64, 192, 1), (192, 64, 1), (192, 65, 2), (128, 256, 2), (4000, 512, 3)]
    {
        handle.charge_units(Access::Write, offset, bytes);
        let units_of_cost = account.costs.cost_units(Access::Write, units * 256);
        used += units_of_cost;
        assert_eq!(account.bucket().totals().units, used, "{bytes} B at {offset}");
    }
    handle.charge_units(Access::Read, 128, 0);
    assert_eq!(account.usage().written_bytes, 256 + 192 + 64 + 65 + 256 + 512);
    assert_eq!((account.usage().writes, account.usage().reads), (6, 1));
}
