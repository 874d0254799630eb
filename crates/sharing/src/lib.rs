//! Fair shares of a medium: the controller, its estimators and its policies.
//!
//! Every access that serves a tenant is charged to the tenant's account on its medium
//! ([`entresol_media::Account`]). At each tick the controller reads those accounts and the tenants'
//! response times, and sets how much of each medium a tenant may use. It knows nothing of caches,
//! stores, connections or devices, starts no thread and reads no clock.
//!
//! - [`Controller`]: readings in, actions out; drives one policy.
//! - [`Settings`]: media, tenants, groups, the policy and its parameters, and what is wrong with
//!   them.
//! - [`scene`]: a simulated world to try policies in.
//! - [`Sketch`]: response times in a form that merges, so that tails are judged within
//!   milliseconds; [`LiveSketch`] is how one thread records them while another follows.
//! - The policies are 002's four (limits, quality of service, fair slow-down, proportional shares),
//!   each beside its form as published, and those that they are compared with.
#![forbid(unsafe_code)]

mod controller;
mod decision;
mod error;
mod estimate;
mod live;
mod policy;
mod reading;
pub mod scene;
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
