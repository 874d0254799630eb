//! Posts by themselves, in memory that was used before: after any crash there is no name that was
//! not given, and none that was taken away.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Release;

use entresol_simulated::crash::{
    Crash, ExploreOptions, Explorer, Power, RecordedRegion, Recorder, RecorderOptions, Report,
    Subject,
};

use super::super::posts::{BLOCK_BYTES, Post, Posts};
use super::*;
use crate::PoolOptions;

/// Low and leaf of each post that may be there now.
type Names = Arc<Mutex<BTreeSet<(u64, u64)>>>;

struct Named {
    first_at: u64,
    names: Names,
}

impl Subject for Named {
    type Opened = Vec<Post>;

    fn recover(&self, crash: &Crash<'_>) -> Result<Vec<Post>, String> {
        let pool = Pool::open(crash.region(0).clone()).map_err(|error| error.to_string())?;
        let loaded = Posts::load(&pool, self.first_at).map_err(|error| error.to_string())?;
        Ok(loaded.1)
    }

    fn check(&self, posts: Vec<Post>, _: &Crash<'_>) -> Result<(), String> {
        let names = self.names.lock().expect("no panic");
        match posts.iter().find(|post| !names.contains(&(post.low, post.leaf))) {
            None => Ok(()),
            Some(wrong) => Err(format!("{wrong:?}, which is not named")),
        }
    }
}

/// Makes a pool whose free memory is full of bytes that look like posts.
fn used_pool(power: &Power) -> (Pool<RecordedRegion>, u64) {
    let region = Recorder::region(64 << 10, RecorderOptions::default(), power).expect("memory");
    let options = PoolOptions { chunk_bytes: 4096 };
    let pool = Pool::create(Arc::new(region), options).expect("a pool");
    let anchor = pool.allocate(64).expect("room");
    pool.region().zero(anchor, 64);
    pool.region().persist(anchor, 64);
    let blocks: Vec<u64> = std::iter::from_fn(|| pool.allocate(BLOCK_BYTES).ok()).collect();
    for &block in &blocks {
        (0..BLOCK_BYTES / 8)
            .for_each(|word| pool.region().store_u64(block + 8 * word, 77, Release));
        pool.region().persist(block, BLOCK_BYTES as usize);
    }
    blocks.into_iter().for_each(|block| pool.free(block));
    (pool, anchor)
}

pub(super) fn in_used_memory() -> Result<Report, String> {
    let power = Power::new();
    let (pool, first_at) = used_pool(&power);
    let names = Names::default();
    let (posts, none) = Posts::load(&pool, first_at).map_err(|error| error.to_string())?;
    assert!(none.is_empty());
    let subject = Named { first_at, names: Arc::clone(&names) };
    let explorer = Explorer::new(Arc::new(subject), ExploreOptions::default());
    explorer.watch(&power);
    // Two blocks of them, and pairs that are used again.
    for number in 0..100_u64 {
        let post = Post { low: 1000 + number, leaf: 64 * (1 + number) };
        names.lock().expect("no panic").insert((post.low, post.leaf));
        posts.add(&pool, post);
        if number % 3 == 2 {
            let gone = number - 1;
            assert!(posts.remove(&pool, 64 * (1 + gone)));
            names.lock().expect("no panic").remove(&(1000 + gone, 64 * (1 + gone)));
        }
    }
    let mut blocks = 0;
    posts.blocks(&pool, &mut |_| blocks += 1).map_err(|error| error.to_string())?;
    assert_eq!(blocks, 2);
    let report = explorer.finish(&power);
    report.failure.as_ref().map_or(Ok(()), |failure| Err(failure.to_string()))?;
    Ok(report)
}

#[test]
fn names_in_used_memory_are_those_that_were_given() {
    let report = in_used_memory().unwrap_or_else(|what| panic!("{what}"));
    assert!(report.images > 200, "{report:?}");
}
