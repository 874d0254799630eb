//! Judges what a configuration promises against what this machine has: space, descriptors, address
//! space, and the time of a device. What cannot be kept is a problem; what may not be is a doubt.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use entresol_base::{ByteSize, duration};
use entresol_cache::Cache;
use entresol_media::cost::{self, CostTable};
use entresol_media::{Access, MediumSpec, files, machine};
use toml::Spanned;

use super::check::{Checker, span_of};
use super::{Machine, RawConfig, Settings, TenantSettings};

/// Descriptors of the process besides connections: standard streams, logs, the admin listener and
/// its clients.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Descriptors of a loop: epoll, waker and events of block files.
const DESCRIPTORS_PER_LOOP: u64 = 8;
/// Descriptors of a tenant: medium, journal, lock and ring.
const DESCRIPTORS_PER_TENANT: u64 = 16;
/// Address space of a process with one loop besides its caches: the program, stacks and the
/// allocator.
const ADDRESS_SPACE_RESERVED: u64 = 256 << 20;
/// Address space of a further loop: its stack and the allocator's arena.
const ADDRESS_SPACE_PER_LOOP: u64 = 80 << 20;
/// Value by whose reading a target is judged.
const VALUE_BYTES: usize = 64;

impl Settings {
    /// Maximum number of descriptors that a server with these settings needs.
    #[must_use]
    pub fn descriptors(&self) -> u64 {
        let threads = self.threads as u64;
        let tenants = self.tenants.iter().map(|tenant| {
            let listeners = tenant.listen.len() as u64 + u64::from(tenant.unix_socket.is_some());
            tenant.connections as u64 + threads * listeners + DESCRIPTORS_PER_TENANT
        });
        DESCRIPTORS_RESERVED + threads * DESCRIPTORS_PER_LOOP + tenants.sum::<u64>()
    }

    /// Promises that may not be kept on `machine`, each in one line.
    #[must_use]
    pub fn doubts(&self, machine: &Machine) -> Vec<String> {
        let dram: u64 = self.tenants.iter().map(|tenant| tenant.dram_quota.0).sum();
        let mut doubts = Vec::new();
        if dram > machine.memory.0 / 10 * 9 {
            doubts.push(format!(
                "the tenants' DRAM quotas take {} of {} of memory, which leaves little for buffers \
                 and the system",
                ByteSize::mib(dram >> 20),
                ByteSize::mib(machine.memory.0 >> 20),
            ));
        }
        if let Some(folder) = &self.restart_from
            && let Ok(space) = files::free_space(&existing(folder))
        {
            let inline = |tenant: &&TenantSettings| matches!(tenant.medium, MediumSpec::Dram);
            let saved = self.tenants.iter().filter(inline).map(|tenant| tenant.dram_quota.0);
            let saved: u64 = saved.sum();
            if saved > space.free_bytes {
                doubts.push(format!(
                    "full caches take up to {} in {} when the server stops, where {} are free; \
                     what does not fit is lost",
                    ByteSize::mib(saved >> 20),
                    folder.display(),
                    ByteSize::mib(space.free_bytes >> 20),
                ));
            }
        }
        doubts
    }
}

/// File that a tenant's values lie on.
fn medium_path(tenant: &TenantSettings) -> Option<&Path> {
    match &tenant.medium {
        MediumSpec::Pmem { path, .. } | MediumSpec::File { path, .. } => Some(path),
        _ => None,
    }
}

/// Nearest folder above a path that exists.
fn existing(path: &Path) -> PathBuf {
    let mut above = path.ancestors().filter(|it| !it.as_os_str().is_empty());
    above.find(|it| files::exists(it)).unwrap_or(Path::new(".")).to_owned()
}

/// Reports promises that cannot be kept.
pub(super) fn check(checker: &mut Checker<'_>, raw: &RawConfig, settings: &Settings) {
    let mut admission = Admission { checker, raw, settings };
    admission.space();
    admission.descriptors();
    admission.address_space();
    admission.targets();
}

/// Judge of one configuration: its settings, their places in the text, and where problems go.
struct Admission<'c, 'o, 'r> {
    checker: &'c mut Checker<'o>,
    raw: &'r RawConfig,
    settings: &'r Settings,
}

impl Admission<'_, '_, '_> {
    /// Compares the quotas of the files on each file system with the space that is free there.
    fn space(&mut self) {
        let mut wanted: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (raw, tenant) in
            self.raw.tenant.iter().map(Spanned::get_ref).zip(&self.settings.tenants)
        {
            let Some(path) = medium_path(tenant) else { continue };
            // A device has the size that it has, and what a file holds already is not free.
            let held = match files::allocated_bytes(path) {
                Ok(Some(held)) => held,
                Ok(None) => continue,
                Err(_) => 0,
            };
            let Ok(space) = files::free_space(&existing(path)) else { continue };
            let needed = tenant.medium_quota.0.saturating_sub(held);
            let (all, tenants) = wanted.entry(space.device).or_default();
            *all = all.saturating_add(needed);
            *tenants += 1;
            if *all > space.free_bytes && needed > 0 {
                let together = if *tenants > 1 { ", together with those before it," } else { "" };
                let message = format!(
                    "tenant '{}' needs{together} {} more on the file system of {}, where {} are \
                     free; lower medium_quota, or free some",
                    tenant.name,
                    ByteSize::mib(*all >> 20),
                    path.display(),
                    ByteSize::mib(space.free_bytes >> 20),
                );
                self.checker.problem("medium_quota", &span_of(&raw.medium_quota), message);
            }
        }
    }

    fn descriptors(&mut self) {
        let (needed, limit) = (self.settings.descriptors(), machine::descriptor_limit().hard);
        if needed > limit {
            let message = format!(
                "the configured connections need {needed} file descriptors, but the limit is \
                 {limit}; lower connections or raise the limit (ulimit -n {needed})"
            );
            let most = self.raw.tenant.iter().map(Spanned::get_ref).max_by_key(|tenant| {
                tenant.connections.as_ref().map_or(0, |written| *written.get_ref())
            });
            let span = most.map(|tenant| span_of(&tenant.connections)).unwrap_or_default();
            self.checker.problem("connections", &span, message);
        }
    }

    fn address_space(&mut self) {
        let Some(limit) = machine::address_space_limit() else { return };
        let loops = (self.settings.threads as u64).saturating_sub(1);
        let mut needed = ADDRESS_SPACE_RESERVED + ADDRESS_SPACE_PER_LOOP * loops;
        for tenant in &self.settings.tenants {
            // Sizes that a cache cannot have are reported elsewhere.
            needed += Cache::address_space(&tenant.cache(self.settings)).unwrap_or(0);
        }
        if needed > limit {
            let message = format!(
                "the caches need {} of address space, but the limit is {}; lower dram_quota or \
                 raise the limit (ulimit -v {})",
                ByteSize::mib(needed >> 20),
                ByteSize::mib(limit >> 20),
                needed.div_ceil(1024),
            );
            let span = self.raw.tenant.last().map(|it| span_of(&it.get_ref().dram_quota));
            self.checker.problem("dram_quota", &span.unwrap_or_default(), message);
        }
    }

    /// Compares each target with the time that its device takes for one small read.
    fn targets(&mut self) {
        for (raw, tenant) in
            self.raw.tenant.iter().map(Spanned::get_ref).zip(&self.settings.tenants)
        {
            let promised = self.settings.sharing.tenants.iter().find(|it| it.name == tenant.name);
            let Some(target) = promised.and_then(|it| it.target) else { continue };
            let found = cost::find(&tenant.medium, tenant.cost_table.as_deref());
            let table = match found {
                Ok(Some((table, _))) => table,
                Ok(None) => CostTable::default_for(tenant.medium.kind()),
                // Reported with the table.
                Err(_) => continue,
            };
            let read_ns = table.cost_ns(Access::Read, VALUE_BYTES);
            if (target.latency.as_nanos() as f64) < read_ns {
                let message = format!(
                    "tenant '{}' cannot be answered within {}: its medium takes {:.1} us for one \
                     read, by the costs of {}; raise target",
                    tenant.name,
                    duration::format(target.latency),
                    read_ns / 1e3,
                    table.source().medium,
                );
                self.checker.problem("target", &span_of(&raw.target), message);
            }
        }
    }
}
