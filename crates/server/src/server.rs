//! A server from start to stop, and its changes in between. Every step that can be refused is tried
//! before any takes effect.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use entresol_base::Clock;
use entresol_cache::{Cache, CloseError, Config as CacheConfig};
use entresol_media::MediumSpec;
use entresol_media::cost::{self, CostTable};

use crate::admin::Admin;
use crate::config::{AdminAddress, Settings, TenantSettings};
use crate::event_loop::{self, LoopHandle, Order};
use crate::listener::{self, Bound, SocketFile};
use crate::maintenance::Maintenance;
use crate::registry::Registry;
use crate::sharing::{Sharing, SharingThread};
use crate::tenant::{ServerFacts, Tenant};
use crate::{ReloadError, StartError, descriptors};

/// A running server. Dropping it without [`Running::stop`] leaves its threads running.
pub struct Running {
    pub(crate) settings: Settings,
    pub(crate) registry: Arc<Registry>,
    pub(crate) loops: Vec<LoopHandle>,
    /// Tenants by their place in the loops.
    pub(crate) members: Vec<Option<Member>>,
    admin: Option<Admin>,
    maintenance: Option<Maintenance>,
    pub(crate) sharing: Option<SharingThread>,
}

/// A tenant that is being served.
pub(crate) struct Member {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) tcp_addresses: Vec<SocketAddr>,
    _socket_file: Option<SocketFile>,
}

/// A tenant whose listeners are bound and whose cache is open, but which is not served yet.
pub(crate) struct Prepared {
    settings: TenantSettings,
    bound: Bound,
    cache: Arc<Cache>,
}

/// Starts a server.
///
/// # Errors
/// When a listener, a medium or a thread is not available; nothing is left behind.
pub fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Running, StartError> {
    descriptors::provide(&settings)?;
    let admin_listener = settings.admin.map(bind_admin).transpose()?;
    let prepared = prepare(&settings.tenants.iter().collect::<Vec<_>>(), &settings, &clock)?;
    let facts = ServerFacts {
        started: clock.seconds(),
        started_nanos: clock.now(),
        threads: settings.threads,
    };
    let registry = Registry::new(facts, Arc::clone(&clock));
    let mut running = Running {
        loops: Vec::new(),
        members: Vec::new(),
        admin: None,
        maintenance: None,
        sharing: None,
        registry: Arc::clone(&registry),
        settings,
    };
    for number in 0..running.settings.threads {
        let (limits, slow_log) = (running.settings.limits, running.settings.slow_log);
        let started = event_loop::start(number, Arc::clone(&registry), limits, slow_log)?;
        running.loops.push(started);
    }
    for prepared in prepared {
        running.admit(prepared)?;
    }
    running.publish();
    running.maintenance = Some(Maintenance::start(Arc::clone(&registry))?);
    let bells = running.loops.iter().map(LoopHandle::bell).collect();
    let sharing = Sharing::new(&running.settings.sharing, Arc::clone(&registry), bells)?;
    registry.set_sharing(&sharing);
    running.sharing = Some(SharingThread::start(sharing)?);
    let policy = running.settings.sharing.policy.name();
    tracing::info!(policy, "sharing");
    if let Some(listener) = admin_listener {
        let admin = Admin::start(listener, registry)?;
        tracing::info!(address = %admin.address, "admin listener");
        running.admin = Some(admin);
    }
    Ok(running)
}

fn bind_admin(AdminAddress(address): AdminAddress) -> Result<std::net::TcpListener, StartError> {
    std::net::TcpListener::bind(address)
        .map_err(|cause| StartError::AdminListener { address, cause })
}

/// Finds the measured cost table by which a tenant's accesses are charged, if there is one: the
/// tenant's own, or that of another tenant on the same device. The log says which.
fn find_costs(
    tenant: &TenantSettings,
    settings: &Settings,
) -> Result<Option<Arc<CostTable>>, StartError> {
    let device = tenant.device();
    let others = settings.tenants.iter().filter(|other| other.device() == device);
    let mut found = None;
    for of in std::iter::once(tenant).chain(others) {
        let failed = |cause| StartError::Costs { tenant: of.name.clone(), cause };
        found = cost::find(&of.medium, of.cost_table.as_deref()).map_err(failed)?;
        if found.is_some() {
            break;
        }
    }
    let Some((table, path)) = found else {
        tracing::info!(
            tenant = %tenant.name,
            medium = %tenant.medium,
            "no measured cost table; charging by a published one (`entresol profile` measures one)"
        );
        return Ok(None);
    };
    let source = table.source();
    tracing::info!(
        tenant = %tenant.name,
        table = %path.display(),
        measured = %source.medium,
        date = %source.date,
        spread = source.spread,
        "charging by a measured cost table"
    );
    Ok(Some(Arc::new(table)))
}

/// Binds and opens tenants, all or none.
pub(crate) fn prepare(
    tenants: &[&TenantSettings],
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Prepared>, StartError> {
    let mut bound = Vec::new();
    for tenant in tenants {
        let listen = |cause| StartError::Listen { tenant: tenant.name.clone(), cause };
        bound.push(listener::bind(tenant, settings.threads).map_err(listen)?);
    }
    let mut costs = Vec::new();
    for tenant in tenants {
        costs.push(find_costs(tenant, settings)?);
    }
    let mut prepared: Vec<Prepared> = Vec::new();
    let mut created: Vec<PathBuf> = Vec::new();
    for ((tenant, bound), costs) in tenants.iter().zip(bound).zip(costs) {
        created.extend(file_to_be_created(tenant));
        let config = CacheConfig { costs, ..tenant.cache(settings) };
        match Cache::open(config, Arc::clone(clock)) {
            Ok(cache) => {
                prepared.push(Prepared { settings: (*tenant).clone(), bound, cache });
            }
            Err(cause) => {
                drop(prepared);
                for path in created {
                    // The file may not have been created.
                    let _ = entresol_media::files::remove(&path);
                }
                return Err(StartError::Cache { tenant: tenant.name.clone(), cause });
            }
        }
    }
    Ok(prepared)
}

/// File of the medium, if opening the cache will create it.
fn file_to_be_created(tenant: &TenantSettings) -> Option<PathBuf> {
    match &tenant.medium {
        MediumSpec::Pmem { path, .. } | MediumSpec::File { path, .. }
            if !entresol_media::files::exists(path) =>
        {
            Some(path.clone())
        }
        _ => None,
    }
}

impl Running {
    /// TCP addresses of each tenant by name, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> Vec<(String, Vec<SocketAddr>)> {
        let member = |member: &Member| (member.tenant.name(), member.tcp_addresses.clone());
        self.members.iter().flatten().map(member).collect()
    }

    /// Address of the admin listener, if there is one.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// Tenants that are served.
    #[must_use]
    pub fn tenants(&self) -> Vec<Arc<Tenant>> {
        self.registry.tenants()
    }

    /// Settings that the server runs with now.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns true while every thread runs as it should.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.registry.is_healthy()
    }

    /// Starts to serve a prepared tenant.
    pub(crate) fn admit(&mut self, prepared: Prepared) -> Result<(), StartError> {
        let Prepared { settings, bound, cache } = prepared;
        let place = self.members.iter().position(Option::is_none).unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() - 1
        });
        let statistics = cache.statistics();
        tracing::info!(
            tenant = %settings.name,
            listen = %bound.places.join(" "),
            medium = %settings.medium,
            access = %statistics.access,
            dram_quota = %settings.dram_quota,
            medium_quota = %settings.medium_quota,
            restored_items = statistics.restored_items,
            "serving a tenant"
        );
        if let Some(file) = cache.file() {
            for remark in file.remarks() {
                tracing::warn!(tenant = %settings.name, "{remark}");
            }
        }
        let tenant = Tenant::new(
            settings,
            self.settings.limits,
            cache,
            self.registry.facts.clone(),
            Arc::clone(&self.registry.clock),
        );
        tenant.set_addresses(bound.places);
        let orders = self.loops.iter().zip(bound.loops).map(|(handle, listeners)| {
            handle.order(Order::Admit { place, tenant: Arc::clone(&tenant), listeners })
        });
        let answers: Vec<_> = orders.collect();
        self.members[place] = Some(Member {
            tenant,
            tcp_addresses: bound.tcp_addresses,
            _socket_file: bound.socket_file,
        });
        for answer in answers {
            answer.recv().unwrap_or_else(|_| Err(loop_is_gone()))?;
        }
        Ok(())
    }

    /// Stops serving a tenant and closes its cache.
    pub(crate) fn dismiss(&mut self, place: usize) {
        let Some(member) = self.members.get_mut(place).and_then(Option::take) else { return };
        let answers: Vec<_> =
            self.loops.iter().map(|handle| handle.order(Order::Dismiss { place })).collect();
        for answer in answers {
            // A loop that has ended has dismissed all its tenants.
            let _ = answer.recv();
        }
        self.publish();
        let name = member.tenant.name();
        match member.tenant.cache().close() {
            Ok(()) => tracing::info!(tenant = %name, "stopped serving a tenant"),
            Err(error) => tracing::error!(tenant = %name, %error, "cannot close a cache cleanly"),
        }
    }

    /// Publishes the current tenants to the admin listener and the background threads.
    pub(crate) fn publish(&self) {
        let tenants = self.members.iter().flatten().map(|member| Arc::clone(&member.tenant));
        self.registry.set_tenants(tenants.collect());
    }

    /// Changes the running server so that it runs with `settings`.
    ///
    /// # Errors
    /// When a setting cannot be changed live or is refused; the server then goes on as before.
    pub fn reload(&mut self, settings: Settings) -> Result<(), ReloadError> {
        crate::reload::reload(self, settings)
    }

    /// Accepts no more connections, answers pending requests, closes the caches, and ends.
    ///
    /// # Errors
    /// When a cache's state could not be saved; everything else is done nevertheless.
    pub fn stop(mut self) -> Result<(), CloseError> {
        let within = self.settings.drain_time;
        for handle in &self.loops {
            drop(handle.order(Order::Drain { within }));
        }
        for handle in &mut self.loops {
            handle.join();
        }
        self.sharing = None;
        self.maintenance = None;
        self.admin = None;
        let mut result = Ok(());
        for member in self.members.drain(..).flatten() {
            let closed = member.tenant.cache().close();
            if let Err(error) = &closed {
                let tenant = member.tenant.name();
                tracing::error!(%tenant, %error, "cannot close a cache cleanly");
            }
            result = result.and(closed);
        }
        result
    }
}

fn loop_is_gone() -> std::io::Error {
    std::io::Error::other("an event loop has ended")
}
