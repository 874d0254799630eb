//! Fair shares of a medium: the controller, its estimators and its policies.
//!
//! Every access that serves a tenant is charged to the tenant's account on its medium
//! ([`entresol_media::Account`]). At each tick the controller reads those accounts and the tenants'
//! response times, and sets the share of each medium that a tenant may use. It knows nothing of
//! caches, stores, connections or devices, and reads no clock.
//!
//! - [`Controller`]: readings in, actions out; drives one policy.
//! - [`Settings`]: media, tenants, groups and the policy with its parameters, and the errors in
//!   them.
//! - [`Sketch`]: response times in a form that merges, so that tails are judged within
//!   milliseconds. One thread records them in a [`LiveSketch`] while another follows.
//! - The policies are the paper's four (limits, quality of service, fair slowdown, proportional
//!   shares), each beside its form as published, and those that they are compared with.
//!
//! A program that has the tenants inside itself paces its own threads: each asks its account before
//! an access, waits as long as it says, and charges what was done. One thread drives the
//! controller.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use entresol_base::{Clock, SystemClock};
//! use entresol_media::{Access, Account, Admission, CostTable};
//! use entresol_sharing::{
//!     Controller, PolicySettings, Reading, Settings, TenantId, TenantSettings,
//! };
//!
//! let clock = SystemClock::new();
//! let (id, share) = (TenantId(1), 0.05);
//! let scan = TenantSettings { share_max: vec![Some(share)], ..TenantSettings::new(id, "scan") };
//! let settings = Settings::new("dram", PolicySettings::named("limit")?, vec![scan]);
//! let mut controller = Controller::new(settings)?;
//! let account = Account::new("dram", Arc::new(CostTable::published()));
//!
//! let mut handle = account.handle();
//! let (began, mut look_at) = (clock.now(), clock.now());
//! while clock.now().since(began) < Duration::from_millis(200) {
//!     let now = clock.now();
//!     if now >= look_at {
//!         let used = vec![account.usage()];
//!         let turn = controller.tick(now, &[Reading { tenant: id, used, ..Reading::default() }]);
//!         for action in turn.actions {
//!             account.set_limit(action.throttle.limit());
//!         }
//!         look_at = turn.next;
//!     }
//!     match handle.admit(now) {
//!         // Here the thread reads 64 KiB.
//!         Admission::Go => handle.charge(Access::Read, 65_536),
//!         Admission::Wait { until } => std::thread::sleep(until.min(look_at).since(now)),
//!         Admission::Stopped => std::thread::sleep(look_at.since(now)),
//!     }
//! }
//! let took = clock.now().since(began) + Duration::from_millis(10);
//! let used = Duration::from_nanos(account.used_ns());
//! assert!(used <= took.mul_f64(share) + Duration::from_micros(150), "{used:?} in {took:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod controller;
mod decision;
mod error;
mod estimate;
mod live;
mod policy;
mod reading;
pub mod settings;
mod sketch;
mod tenant;
mod throttle;
mod view;
mod window;

pub use controller::{Controller, Turn};
pub use decision::{Decision, Decisions};
pub use error::{SettingsError, SettingsErrors};
pub use live::{Follower, LiveSketch};
pub use reading::Reading;
pub use settings::{GroupSettings, PolicySettings, Settings};
pub use sketch::Sketch;
pub use tenant::{Class, MediumId, Target, TenantId, TenantSettings};
pub use throttle::{Action, DELAY_UNIT, Throttle};
pub use view::TenantView;
