//! Shared state of a scene's simulated threads: the device, the accounts and the counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{Nanos, Picos};
use entresol_media::model::memory::MemoryModel;
use entresol_media::{Account, Usage};
use entresol_sharing::{Action, Controller, MediumId, Reading, Sketch, TenantId};

use super::Scene;
use super::cached::{Client, Open};
use super::story::{CacheStory, Moment, TenantMoment};

pub(super) struct Stage {
    pub(super) model: MemoryModel,
    tenants: Vec<OnStage>,
    pub(super) moments: Vec<Moment>,
    noted_at: Nanos,
    /// Time of the controller's next tick.
    pub(super) next_tick: Picos,
}

struct OnStage {
    tenant: TenantId,
    account: Arc<Account>,
    cache: Option<Open>,
    /// Gets that the cache was asked for, and those that it had.
    gets: (u64, u64),
    delay: Duration,
    operations: u64,
    last_response: Picos,
    /// Bytes that the background has to clean up.
    debt_bytes: f64,
    /// Response times since the last tick.
    latency: Sketch,
    /// Response times since the last moment of the story.
    told: Sketch,
    told_operations: u64,
    told_usage: Usage,
}

impl Stage {
    /// Makes the stage of a scene, with the caches of its actors in their order.
    pub(super) fn new(scene: &Scene, caches: Vec<Option<Open>>) -> Stage {
        let medium = scene.settings.media.first().cloned().unwrap_or_default();
        let own = || Account::new(medium.clone(), Arc::clone(&scene.costs));
        let tenants = scene.actors.iter().zip(caches).map(|(actor, cache)| OnStage {
            tenant: actor.tenant,
            account: cache.as_ref().map_or_else(own, Open::account),
            cache,
            gets: (0, 0),
            delay: Duration::ZERO,
            operations: 0,
            last_response: Picos::MAX,
            debt_bytes: 0.0,
            latency: Sketch::new(),
            told: Sketch::new(),
            told_operations: 0,
            told_usage: Usage::default(),
        });
        Stage {
            model: MemoryModel::new(scene.device),
            tenants: tenants.collect(),
            moments: Vec::new(),
            noted_at: Nanos(0),
            next_tick: Picos::ZERO,
        }
    }

    pub(super) fn account(&self, place: usize) -> &Arc<Account> {
        &self.tenants[place].account
    }

    /// Returns a client of the tenant's cache, if it has one.
    pub(super) fn client(&self, place: usize, seed: u64) -> Option<Client> {
        self.tenants[place].cache.as_ref().map(|cache| cache.client(seed))
    }

    /// Notes the answer of a tenant's cache; of a get also whether it had the item.
    pub(super) fn asked(&mut self, place: usize, took: Picos, found: Option<bool>) {
        let gets = &mut self.tenants[place].gets;
        gets.0 += u64::from(found.is_some());
        gets.1 += u64::from(found == Some(true));
        self.answered(place, took);
    }

    /// Returns what the tenants' caches did, by tenant.
    pub(super) fn kept(&self) -> BTreeMap<TenantId, CacheStory> {
        let with_cache = self.tenants.iter().filter_map(|on| Some((on, on.cache.as_ref()?)));
        with_cache
            .map(|(on, cache)| {
                let events = cache.cache().statistics().events;
                let (gets, hits) = on.gets;
                let evicted = events.evicted_items;
                (on.tenant, CacheStory { gets, hits, evicted })
            })
            .collect()
    }

    pub(super) fn delay(&self, place: usize) -> Duration {
        self.tenants[place].delay
    }

    pub(super) fn answered(&mut self, place: usize, took: Picos) {
        let tenant = &mut self.tenants[place];
        tenant.operations += 1;
        tenant.last_response = took;
        tenant.latency.record(took.into());
    }

    pub(super) fn last_response(&self, place: usize) -> Picos {
        self.tenants[place].last_response
    }

    /// Adds bytes to be cleaned up behind a tenant.
    pub(super) fn owe(&mut self, place: usize, bytes: f64) {
        self.tenants[place].debt_bytes += bytes;
    }

    /// Takes bytes to be cleaned up, if there are that many.
    pub(super) fn take_debt(&mut self, place: usize, bytes: u64) -> bool {
        let tenant = &mut self.tenants[place];
        let enough = tenant.debt_bytes >= bytes as f64;
        tenant.debt_bytes -= if enough { bytes as f64 } else { 0.0 };
        enough
    }

    /// Readings for the controller.
    pub(super) fn readings(&mut self) -> Vec<Reading> {
        let read = |on: &mut OnStage| {
            let latency = on.latency.clone();
            on.told.merge(&latency);
            on.latency.clear();
            let used = vec![on.account.usage()];
            Reading { tenant: on.tenant, used, operations: Some(on.operations), latency }
        };
        self.tenants.iter_mut().map(read).collect()
    }

    pub(super) fn act(&mut self, actions: &[Action]) {
        for action in actions.iter().filter(|action| action.medium == MediumId(0)) {
            if let Some(on) = self.tenants.iter_mut().find(|on| on.tenant == action.tenant) {
                on.account.set_limit(action.throttle.limit());
                on.delay = action.throttle.delay();
            }
        }
    }

    /// Time of the next moment of the story.
    pub(super) fn note_at(&self, apart: Duration) -> Nanos {
        self.noted_at.after(apart)
    }

    /// Adds a moment to the story, if the last one is long enough ago.
    pub(super) fn note(&mut self, now: Nanos, apart: Duration, controller: &Controller) {
        let passed = now.since(self.noted_at);
        if passed < apart {
            return;
        }
        let seconds = passed.as_secs_f64();
        let tell = |on: &mut OnStage| {
            let usage = on.account.usage();
            let bytes = |usage: &Usage| usage.read_bytes + usage.written_bytes;
            let moment = TenantMoment {
                operations_s: (on.operations - on.told_operations) as f64 / seconds,
                bytes_s: (bytes(&usage) - bytes(&on.told_usage)) as f64 / seconds,
                share: (usage.used_ns - on.told_usage.used_ns) as f64 / 1e9 / seconds,
                latency_ns_p99: on.told.percentile_ns(99.0),
                slowdown: controller.slowdown(on.tenant),
                throttle: controller.throttle(on.tenant, MediumId(0)),
            };
            on.told_operations = on.operations;
            on.told_usage = usage;
            on.told.clear();
            (on.tenant, moment)
        };
        let tenants = self.tenants.iter_mut().map(tell).collect();
        self.moments.push(Moment { at: now, tenants });
        self.noted_at = now;
    }
}
