//! Reload of the configuration while the server runs: all of it takes effect, or nothing does.

use entresol_service::ChangeError;
use entresol_service::config::Settings;
use entresol_service::reload::{self, Changes};

use crate::event_loop::{LoopHandle, Order};
use crate::server::{Prepared, Running, gate_of, prepare};
use crate::{ReloadError, StartError};

impl Running {
    /// Changes the running server so that it runs with `settings`.
    ///
    /// # Errors
    /// Fails if a setting cannot be changed live or is refused; the server then goes on as before.
    pub fn reload(&mut self, settings: Settings) -> Result<(), ReloadError> {
        let changes = reload::decide(&self.settings, &self.served(), &settings)?;
        let lent = self.lend(&changes.removed).map_err(StartError::Thread)?;
        let prepared = prepare(&changes.added, &settings, &self.registry.clock, lent)?;
        self.change(&settings, &changes, prepared)?;
        let policy = settings.sharing.policy.name();
        tracing::info!(tenants = settings.tenants.len(), policy, "configuration reloaded");
        Ok(())
    }

    /// Brings a change into effect. Steps that can be refused come first, and are taken back if a
    /// later one is.
    fn change(
        &mut self,
        settings: &Settings,
        changes: &Changes<'_>,
        prepared: Vec<Prepared>,
    ) -> Result<(), ReloadError> {
        let kept = self.served();
        let gate = gate_of(settings).map_err(StartError::Thread)?;
        let resized = reload::resize(&kept, changes)?;
        if let Err(error) = self.admit_all(prepared, settings.limits) {
            resized.undo();
            return Err(error.into());
        }
        if let Some(gate) = gate {
            self.guard(&gate);
        }
        reload::apply(&kept, changes, settings);
        let (limits, slow_log) = (settings.limits, settings.slow_log);
        let change = |handle: &LoopHandle| handle.order(Order::Change { limits, slow_log });
        let answers: Vec<_> = self.loops.iter().map(change).collect();
        for answer in answers {
            // Limits cannot be refused, and a loop that has ended is reported elsewhere.
            let _ = answer.recv();
        }
        for name in &changes.removed {
            self.dismiss(name);
        }
        self.settings = settings.clone();
        self.publish();
        if let Some(thread) = &self.sharing {
            // The decision has checked these settings, so they are not refused here.
            thread.sharing().replace(&settings.sharing).map_err(ChangeError::from)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use entresol_base::{ByteSize, SystemClock};
    use entresol_service::config::{self, Machine};

    use super::*;
    use crate::event_loop::tests::unwatchable;
    use crate::listener::Lent;

    fn settings(more: &str, tenants: &[(&str, &str)]) -> Settings {
        let machine = Machine { memory: ByteSize::gib(64), processors: 2 };
        let mut text = format!("threads = 2\nadmin = \"off\"\n{more}\n");
        for (name, quota) in tenants {
            let listen = "listen = \"127.0.0.1:0\"";
            text += &format!("[[tenant]]\nname = \"{name}\"\n{listen}\ndram_quota = \"{quota}\"\n");
        }
        config::parse("test", &text, &machine).unwrap()
    }

    /// The second of two new tenants cannot be served by the second of two loops, which only the
    /// loop finds out.
    #[test]
    fn a_reload_that_a_loop_refuses_changes_nothing() {
        let old = settings("slow_log = \"1s\"", &[("stays", "32MiB"), ("goes", "32MiB")]);
        let mut running = crate::start(old.clone(), Arc::new(SystemClock::new())).unwrap();
        let before = running.addresses();
        let tenants = [("stays", "48MiB"), ("comes", "32MiB"), ("fails", "32MiB")];
        let new = settings("slow_log = \"2s\"\ndrain_time = \"1s\"", &tenants);
        let changes = reload::decide(&old, &running.served(), &new).unwrap();
        // A tenant may have lowered its limit below its quota.
        let lowered = ByteSize::mib(24);
        running.tenants()[0].cache().resize(lowered, ByteSize(0)).unwrap();
        for refused in [true, false] {
            let clock = &running.registry.clock;
            let mut prepared = prepare(&changes.added, &new, clock, Lent::default()).unwrap();
            if refused {
                prepared[1].bound.loops[1].tcp.push(unwatchable());
            }
            let result = running.change(&new, &changes, prepared);
            assert_eq!(result.is_err(), refused, "{result:?}");
            if refused {
                assert_eq!(*running.settings(), old);
                assert_eq!(running.addresses(), before);
                let stays = &running.tenants()[0];
                assert_eq!(stays.settings(), old.tenants[0]);
                assert_eq!(stays.cache().statistics().dram_limit_bytes, lowered.0);
            }
        }
        let names: Vec<String> = running.tenants().iter().map(|it| it.name()).collect();
        assert_eq!(names, ["stays", "comes", "fails"]);
        assert_eq!(*running.settings(), new);
        running.stop().unwrap();
    }
}
