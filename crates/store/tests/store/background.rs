//! Background work as a tenant of its medium, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::thread;
use entresol_base::world::World;
use entresol_media::account::{BURST_NS, Limit};
use entresol_media::{Account, CostTable, ModelName};
use entresol_simulated::disk::{Disk, DiskOptions};
use entresol_store::{Kvdb, KvdbOptions, Kvs, KvsOptions};

use crate::common::in_world;

const KEYS: u32 = 20_000;
const VALUE: [u8; 100] = [7; 100];
/// Share of the medium's time.
const SHARE: f64 = 0.01;

/// Creates a store with a limit for its background work, and its `Kvs`.
fn store(world: &World, disk: &Disk, waiting: u32, limit: Limit) -> (Kvdb, Kvs, Arc<Account>) {
    let options = KvdbOptions {
        segment_bytes: 64 << 10,
        generation_bytes: 256 << 10,
        generations_waiting_max: waiting,
        ..KvdbOptions::default()
    };
    let store = Kvdb::create(disk.root(), options, Arc::new(world.clone())).expect("a store");
    let account = Account::new("disk", Arc::new(CostTable::published()));
    account.set_limit(limit);
    store.charge_background_to(entresol_store::MediaClass::Capacity, Some(&account));
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    (store, kvs, account)
}

fn fill(kvs: &Kvs, pause: Duration) {
    for number in 0..KEYS {
        kvs.put(&number.to_be_bytes(), &VALUE).expect("room");
        if number % 100 == 0 {
            thread::sleep(pause);
        }
    }
}

#[test]
fn flushing_and_compacting_keep_to_the_share_of_their_account() {
    in_world(|world, disk| {
        let (store, kvs, account) = store(&world, &disk, 1000, Limit::Share(SHARE));
        let began = world.now();
        fill(&kvs, Duration::from_millis(2));
        let waited = |store: &Kvdb| store.statistics().expect("open").stalls.background;
        let elapsed = world.now().since(began).as_nanos() as f64;
        let used = account.used_ns() as f64;
        // The last charge may exceed the share by one piece.
        let piece = CostTable::published().cost_ns(entresol_media::Access::Write, 1 << 20);
        let most = SHARE * (elapsed + BURST_NS as f64) + 2.0 * piece;
        assert!(used > 0.3 * SHARE * elapsed && used <= most, "{used} of {most}");
        let stalls = store.statistics().expect("open").stalls;
        assert!(waited(&store).total_us > 1000, "{stalls:?}");
        assert_eq!((stalls.slope.count, stalls.wall.count), (0, 0), "{stalls:?}");
        // A caller that waits for a full flush is not held up, and all moved bytes were charged.
        store.compact().expect("room");
        let written = store.statistics().expect("open").media[0].written;
        let moved = account.usage().written_bytes;
        assert_eq!(moved, written.flush_bytes + written.compaction_bytes + written.collected_bytes);
        store.close().expect("durable");
    });
}

#[test]
fn background_work_that_is_stopped_makes_no_writer_wait_for_ever() {
    in_world(|world, disk| {
        let (store, kvs, account) = store(&world, &disk, 4, Limit::Stopped);
        fill(&kvs, Duration::ZERO);
        assert!(account.usage().written_bytes > u64::from(KEYS) * 50, "{:?}", account.usage());
        assert_eq!(kvs.get(&7_u32.to_be_bytes()).expect("readable").as_deref(), Some(&VALUE[..]));
        store.close().expect("durable");
    });
}

#[test]
fn a_store_is_closed_while_its_background_work_is_stopped() {
    in_world(|world, disk| {
        let (store, kvs, _account) = store(&world, &disk, 1000, Limit::Stopped);
        fill(&kvs, Duration::from_micros(100));
        store.close().expect("durable");
    });
}

#[test]
fn a_small_store_is_merged_once_and_then_left_alone() {
    in_world(|world, _| {
        // Compactions take time on this drive.
        let model = Some(ModelName::NandP3700);
        let options = DiskOptions { model, ..DiskOptions::default() };
        let disk = Disk::new(&world, options).expect("a drive");
        let clock = Arc::new(world.clone());
        let store = Kvdb::create(disk.root(), KvdbOptions::default(), clock).expect("a store");
        let options = KvsOptions { inline_bytes: 10, ..KvsOptions::default() };
        let all = ["one", "two"].map(|name| store.create_kvs(name, options).expect("a Kvs"));
        for number in 0..40_u32 {
            for kvs in &all {
                kvs.put(&number.to_be_bytes(), &[1; 300]).expect("room");
            }
        }
        store.compact().expect("merges");
        let written = || store.statistics().expect("open").media[0].written.sum();
        thread::sleep(Duration::from_secs(1));
        let after = written();
        thread::sleep(Duration::from_secs(1));
        assert_eq!(written(), after, "nobody has written anything, and everything is merged");
    });
}
