//! A server from start to stop, and its changes in between. Every step that can be refused is tried
//! before any takes effect.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use entresol_base::Clock;
use entresol_cache::{Cache, CloseError};
use entresol_service::auth::Gate;
use entresol_service::config::{AdminAddress, ConnectionLimits, Settings, TenantSettings};
use entresol_service::maintenance::Maintenance;
use entresol_service::opening::{self, Opened};
use entresol_service::registry::Registry;
use entresol_service::sharing::{Sharing, SharingThread};
use entresol_service::tenant::{ServerFacts, Tenant};
use entresol_service::verifiers::Verifiers;

use crate::admin::Admin;
use crate::event_loop::{self, Doorkeeper, LoopBell, LoopHandle, Order};
use crate::listener::{self, Bound, Lent, LentSocket, SocketFile};
use crate::{StartError, descriptors};

/// A running server. Dropping it without [`Running::stop`] leaves its threads running.
pub struct Running {
    pub(crate) settings: Settings,
    pub(crate) registry: Arc<Registry>,
    pub(crate) loops: Vec<LoopHandle>,
    /// Tenants by their place in the loops.
    members: Vec<Option<Member>>,
    admin: Option<Admin>,
    maintenance: Option<Maintenance>,
    pub(crate) sharing: Option<SharingThread>,
    verifiers: Option<Arc<Verifiers>>,
}

/// A tenant that is being served.
struct Member {
    tenant: Arc<Tenant>,
    tcp_addresses: Vec<SocketAddr>,
    socket_file: Option<Arc<SocketFile>>,
}

/// A tenant whose listeners are bound and whose cache is open, but which is not served yet.
pub(crate) struct Prepared {
    settings: TenantSettings,
    pub(crate) bound: Bound,
    opened: Opened,
}

/// Starts a server.
///
/// # Errors
/// When a listener, a medium or a thread is not available; nothing is left behind.
pub fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Running, StartError> {
    descriptors::provide(&settings)?;
    let admin_listener = settings.admin.map(bind_admin).transpose()?;
    let all: Vec<&TenantSettings> = settings.tenants.iter().collect();
    let prepared = prepare(&all, &settings, &clock, Lent::default())?;
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
        verifiers: None,
        registry: Arc::clone(&registry),
        settings,
    };
    if let Err(error) = running.begin(prepared, admin_listener) {
        running.end_threads(Duration::ZERO);
        return Err(error);
    }
    Ok(running)
}

/// Gate of the configured users, if clients must authenticate.
pub(crate) fn gate_of(settings: &Settings) -> io::Result<Option<Arc<Gate>>> {
    let users = settings.auth.as_ref().map(|auth| auth.users.clone());
    users.map(|users| Gate::new(users).map(Arc::new)).transpose()
}

fn bind_admin(AdminAddress(address): AdminAddress) -> Result<std::net::TcpListener, StartError> {
    std::net::TcpListener::bind(address)
        .map_err(|cause| StartError::AdminListener { address, cause })
}

/// Binds and opens tenants, all or none. `lent` holds the listeners of leaving tenants.
pub(crate) fn prepare(
    tenants: &[&TenantSettings],
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    mut lent: Lent,
) -> Result<Vec<Prepared>, StartError> {
    let mut bound = Vec::new();
    for tenant in tenants {
        let listen = |cause| StartError::Listen { tenant: tenant.name.clone(), cause };
        bound.push(listener::bind(tenant, settings.threads, &mut lent).map_err(listen)?);
    }
    let opened = opening::open(tenants, settings, clock)?;
    let prepare = |((tenant, bound), opened): ((&&TenantSettings, _), _)| Prepared {
        settings: (*tenant).clone(),
        bound,
        opened,
    };
    Ok(tenants.iter().zip(bound).zip(opened).map(prepare).collect())
}

impl Running {
    /// Starts all threads, and then to serve the tenants, which is the last step that may fail.
    fn begin(
        &mut self,
        prepared: Vec<Prepared>,
        admin_listener: Option<std::net::TcpListener>,
    ) -> Result<(), StartError> {
        let registry = Arc::clone(&self.registry);
        for number in 0..self.settings.threads {
            let (limits, slow_log) = (self.settings.limits, self.settings.slow_log);
            let started = event_loop::start(number, Arc::clone(&registry), limits, slow_log)?;
            self.loops.push(started);
        }
        if let Some(gate) = gate_of(&self.settings)? {
            self.verifiers = Some(Arc::new(Verifiers::start(&registry)?));
            self.guard(&gate);
        }
        self.maintenance = Some(Maintenance::start(Arc::clone(&registry))?);
        let bells: Vec<LoopBell> = self.loops.iter().map(LoopHandle::bell).collect();
        let released = Box::new(move || bells.iter().for_each(LoopBell::limits_changed));
        let sharing = Sharing::new(&self.settings.sharing, Arc::clone(&registry), released)?;
        self.sharing = Some(SharingThread::start(Arc::clone(&sharing))?);
        let policy = self.settings.sharing.policy.name();
        tracing::info!(policy, "sharing");
        if let Some(listener) = admin_listener {
            self.admin = Some(Admin::start(
                listener,
                registry,
                sharing,
                self.settings.admin_token.as_ref(),
            )?);
        }
        self.admit_all(prepared, self.settings.limits)?;
        self.publish();
        // Logged last: a client that waits for this line finds every tenant.
        if let Some(admin) = &self.admin {
            tracing::info!(address = %admin.address, "admin listener");
        }
        Ok(())
    }

    /// Ends all threads. Requests that have arrived are answered `within` this time.
    fn end_threads(&mut self, within: Duration) {
        for handle in &self.loops {
            drop(handle.order(Order::Drain { within }));
        }
        for handle in &mut self.loops {
            handle.join();
        }
        self.sharing = None;
        self.maintenance = None;
        self.admin = None;
    }

    /// Lets only the users of this gate speak, and closes the connections of all others.
    pub(crate) fn guard(&self, gate: &Arc<Gate>) {
        let Some(verifiers) = &self.verifiers else { return };
        let guard = |handle: &LoopHandle| {
            let (gate, verifiers) = (Arc::clone(gate), Arc::clone(verifiers));
            handle.order(Order::Guard {
                doorkeeper: Doorkeeper { gate, verifiers, bell: handle.bell() },
            })
        };
        let answers: Vec<_> = self.loops.iter().map(guard).collect();
        for answer in answers {
            // It cannot be refused, and a loop that has ended has no connections.
            let _ = answer.recv();
        }
    }

    /// Duplicates the listeners of the tenants with these names.
    pub(crate) fn lend(&self, names: &[String]) -> io::Result<Lent> {
        let mut lent = Lent::default();
        for (place, member) in self.members.iter().enumerate() {
            let Some(member) = member else { continue };
            let settings = member.tenant.settings();
            if !names.contains(&settings.name) {
                continue;
            }
            let mut tcp: Vec<_> = settings.addresses().map(|it| (*it, Vec::new())).collect();
            let mut unix = Vec::new();
            for handle in &self.loops {
                let (listeners, answer) = std::sync::mpsc::channel();
                let done = handle.order(Order::Lend { place, listeners }).recv();
                done.unwrap_or_else(|_| Err(loop_is_gone()))?;
                let own = answer.recv().map_err(|_| loop_is_gone())?;
                for ((_, all), listener) in tcp.iter_mut().zip(own.tcp.into_iter().chain(own.tls)) {
                    all.push(listener);
                }
                unix.extend(own.unix);
            }
            lent.tcp.append(&mut tcp);
            if let (Some(path), Some(file)) = (settings.unix_socket, &member.socket_file) {
                let (mode, file) = (settings.unix_socket_mode, Arc::clone(file));
                lent.unix.push(LentSocket { path, mode, listeners: unix, file });
            }
        }
        Ok(lent)
    }

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

    /// Starts to serve prepared tenants, all or none.
    pub(crate) fn admit_all(
        &mut self,
        prepared: Vec<Prepared>,
        limits: ConnectionLimits,
    ) -> Result<(), StartError> {
        let mut admitted = Vec::new();
        for prepared in prepared {
            match self.admit(prepared, limits) {
                Ok(one) => admitted.push(one),
                Err(error) => {
                    for (place, _) in &admitted {
                        self.withdraw(*place);
                    }
                    return Err(error);
                }
            }
        }
        let mut opening = Vec::new();
        for (place, opened) in admitted {
            opened.keep();
            opening.extend(self.loops.iter().map(|handle| handle.order(Order::Open { place })));
        }
        for order in opening {
            // A loop that has ended accepts nothing, and is reported elsewhere.
            let _ = order.recv();
        }
        Ok(())
    }

    /// Starts to serve a prepared tenant. Returns its place, and its cache to be kept.
    fn admit(
        &mut self,
        prepared: Prepared,
        limits: ConnectionLimits,
    ) -> Result<(usize, Opened), StartError> {
        let Prepared { settings, bound, opened } = prepared;
        let place = self.members.iter().position(Option::is_none).unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() - 1
        });
        log_tenant(&settings, &bound, opened.cache());
        let tenant =
            Tenant::new(settings, limits, Arc::clone(opened.cache()), self.registry.facts.clone());
        tenant.set_addresses(bound.places);
        let orders = self.loops.iter().zip(bound.loops).map(|(handle, listeners)| {
            handle.order(Order::Admit { place, tenant: Arc::clone(&tenant), listeners })
        });
        let orders: Vec<_> = orders.collect();
        self.members[place] = Some(Member {
            tenant,
            tcp_addresses: bound.tcp_addresses,
            socket_file: bound.socket_file,
        });
        let answer = |order: Receiver<_>| order.recv().unwrap_or_else(|_| Err(loop_is_gone()));
        let answers: Vec<io::Result<()>> = orders.into_iter().map(answer).collect();
        if let Some(error) = answers.into_iter().find_map(Result::err) {
            self.withdraw(place);
            return Err(error.into());
        }
        Ok((place, opened))
    }

    /// Takes a tenant out of every loop; its cache stays open.
    fn withdraw(&mut self, place: usize) -> Option<Member> {
        let member = self.members.get_mut(place)?.take()?;
        let orders: Vec<_> =
            self.loops.iter().map(|handle| handle.order(Order::Dismiss { place })).collect();
        for order in orders {
            // A loop that has ended has dismissed all its tenants.
            let _ = order.recv();
        }
        Some(member)
    }

    /// Stops serving the tenant of this name and closes its cache.
    pub(crate) fn dismiss(&mut self, name: &str) {
        let is_it = |member: &Option<Member>| {
            member.as_ref().is_some_and(|member| member.tenant.name() == name)
        };
        let place = self.members.iter().position(is_it);
        let Some(member) = place.and_then(|place| self.withdraw(place)) else { return };
        self.publish();
        match member.tenant.cache().close() {
            Ok(()) => tracing::info!(tenant = %name, "stopped serving a tenant"),
            Err(error) => tracing::error!(tenant = %name, %error, "cannot close a cache cleanly"),
        }
    }

    /// Tenants in the loops.
    pub(crate) fn served(&self) -> Vec<Arc<Tenant>> {
        self.members.iter().flatten().map(|member| Arc::clone(&member.tenant)).collect()
    }

    /// Publishes the current tenants to the admin listener and the background threads.
    pub(crate) fn publish(&self) {
        self.registry.set_tenants(self.served());
    }

    /// Accepts no more connections, answers pending requests, closes the caches, and ends.
    ///
    /// # Errors
    /// When a cache's state could not be saved; everything else is done nevertheless.
    pub fn stop(mut self) -> Result<(), CloseError> {
        self.end_threads(self.settings.drain_time);
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

fn log_tenant(settings: &TenantSettings, bound: &Bound, cache: &Cache) {
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
    for remark in cache.restore_remarks() {
        tracing::warn!(tenant = %settings.name, "{remark}");
    }
    if let Some(file) = cache.file() {
        for remark in file.remarks() {
            tracing::warn!(tenant = %settings.name, "{remark}");
        }
    }
}

fn loop_is_gone() -> io::Error {
    io::Error::other("an event loop has ended")
}
