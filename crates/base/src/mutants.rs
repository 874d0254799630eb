//! Mutation sites: steps that tests leave out on purpose, to see that a suite notices.
//!
//! Such a place is a [`Site`]: what it does, and where in the source. Steps have names
//! ([`mutation_site!`](crate::mutation_site)); the rest is known by its caller. With the cargo
//! feature `mutants` a run notes the sites that it reaches, and one of them can be left out.
//! Without the feature nothing is ever left out, and no code is left that asks.

use std::fmt;

use crate::place::Place;

/// Kind of a mutation site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SiteKind {
    /// Flush of cache lines.
    Flush,
    /// Wait for flushed lines.
    Drain,
    /// Sync of a file's bytes.
    Sync,
    /// Sync of a directory's entries.
    DirectorySync,
    /// Comparison of a checksum.
    Checksum,
    /// Keeps an order, takes a lock, compares a number: the sentence that says what others rely on,
    /// given to [`mutation_site!`](crate::mutation_site).
    Step(&'static str),
}

/// A call that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Kind of the site.
    pub kind: SiteKind,
    /// Place of the call in the source.
    pub place: Place,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SiteKind::Step(name) => write!(f, "\"{name}\" at {}", self.place),
            kind => write!(f, "{kind:?} at {}", self.place),
        }
    }
}

/// Returns true if the call is to be left out now.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[must_use]
pub const fn removed(_kind: SiteKind, _place: Place) -> bool {
    false
}

/// Names a step on which others rely, by a sentence that is true unless the step goes wrong. True
/// if it is to go wrong now; a constant `false` without the feature `mutants`. A crate gives each
/// name once, as a literal that begins with a small letter; `cargo xtask tidy` checks that.
///
/// ```
/// use entresol_base::mutation_site;
///
/// fn publish(synced: &mut bool) {
///     if !mutation_site!("what is published was synced") {
///         *synced = true;
///     }
/// }
/// # let mut synced = false;
/// # publish(&mut synced);
/// # assert!(synced);
/// ```
#[macro_export]
macro_rules! mutation_site {
    ($name:literal) => {
        $crate::mutants::removed(
            $crate::mutants::SiteKind::Step($name),
            ::std::panic::Location::caller(),
        )
    };
}

#[cfg(feature = "mutants")]
pub use armed::{Part, Trial, removed, try_all, try_parts, try_those};

#[cfg(feature = "mutants")]
mod armed {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::{Place, Site, SiteKind};

    /// A run with one site left out.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Trial {
        /// Site that was left out.
        pub site: Site,
        /// Number of times that it was reached while nothing was left out.
        pub reached: u64,
        /// Error of the suite without it; none if the suite did not notice.
        pub noticed: Option<String>,
    }

    #[derive(Default)]
    struct State {
        left_out: Option<Site>,
        /// Sites and their counts, while a run is on.
        reached: Option<BTreeMap<Site, u64>>,
    }

    thread_local! {
        // Threads of a world share the state; tests on other threads are left alone.
        static STATE: RefCell<State> = RefCell::default();
    }

    /// Returns true if the call is to be left out now, in a run of [`try_all`] on this thread.
    #[must_use]
    pub fn removed(kind: SiteKind, place: Place) -> bool {
        STATE.with_borrow_mut(|state| {
            let Some(reached) = &mut state.reached else { return false };
            let site = Site { kind, place };
            *reached.entry(site).or_default() += 1;
            state.left_out == Some(site)
        })
    }

    /// Runs `suite` as it is, then again without each site that it reached, one at a time. A suite
    /// notices by an error or by a panic. It must run on the calling thread, or in a world there.
    ///
    /// # Errors
    /// The suite's error when nothing is left out.
    pub fn try_all(suite: impl FnMut() -> Result<(), String>) -> Result<Vec<Trial>, String> {
        try_those(|_| true, suite)
    }

    /// Runs `suite` like [`try_all`], leaving out only the chosen sites.
    ///
    /// # Errors
    /// The suite's error when nothing is left out.
    pub fn try_those(
        is_chosen: impl Fn(&Site) -> bool,
        mut suite: impl FnMut() -> Result<(), String>,
    ) -> Result<Vec<Trial>, String> {
        let (whole, reached) = run(None, &mut suite);
        whole?;
        let chosen = reached.into_iter().filter(|(site, _)| is_chosen(site));
        let trials = chosen.map(|(site, reached)| {
            let (without, _) = run(Some(site), &mut suite);
            Trial { site, reached, noticed: without.err() }
        });
        Ok(trials.collect())
    }

    /// Name of a part of a suite, and the function that runs it.
    pub type Part<'a> = (String, Box<dyn Fn() -> Result<(), String> + 'a>);

    /// Runs a suite in parts like [`try_those`], the cheapest part first. Without a site only the
    /// parts that reach it are run, up to the first that notices.
    ///
    /// # Errors
    /// A part's error when nothing is left out.
    pub fn try_parts(
        is_chosen: impl Fn(&Site) -> bool,
        parts: &[Part<'_>],
    ) -> Result<Vec<Trial>, String> {
        let mut sites: BTreeMap<Site, (u64, Vec<usize>)> = BTreeMap::new();
        for (number, (name, part)) in parts.iter().enumerate() {
            let (whole, reached) = run(None, &mut || part());
            whole.map_err(|what| format!("{name}: {what}"))?;
            for (site, times) in reached.into_iter().filter(|(site, _)| is_chosen(site)) {
                let (sum, of_parts) = sites.entry(site).or_default();
                *sum += times;
                of_parts.push(number);
            }
        }
        let trials = sites.into_iter().map(|(site, (reached, of_parts))| {
            let noticed = of_parts.into_iter().find_map(|number| {
                let (name, part) = &parts[number];
                let (without, _) = run(Some(site), &mut || part());
                without.err().map(|what| format!("{name}: {what}"))
            });
            Trial { site, reached, noticed }
        });
        Ok(trials.collect())
    }

    fn run(
        left_out: Option<Site>,
        suite: &mut impl FnMut() -> Result<(), String>,
    ) -> (Result<(), String>, BTreeMap<Site, u64>) {
        STATE.set(State { left_out, reached: Some(BTreeMap::new()) });
        let outcome = catch_unwind(AssertUnwindSafe(suite));
        let State { reached, .. } = STATE.take();
        (outcome.unwrap_or_else(|_| Err("a panic".to_owned())), reached.unwrap_or_default())
    }
}

#[cfg(all(test, feature = "mutants"))]
mod tests {
    use super::*;
    use crate::checksum::{crc32c, matches};

    #[test]
    fn each_site_is_left_out_once_and_survivors_are_told() {
        let (good, bad) = (crc32c(b"abc"), crc32c(b"abd"));
        let runs = std::cell::Cell::new(0);
        let trials = try_all(|| {
            runs.set(runs.get() + 1);
            // The first sees no damaged bytes, so the suite does not miss it.
            let first = matches(good, b"abc");
            let second = matches(good, b"abc") && !matches(bad, b"abc");
            if first && second { Ok(()) } else { Err("damage was let through".to_owned()) }
        })
        .expect("passes as it is");
        assert_eq!((trials.len(), runs.get()), (3, 4), "{trials:?}");
        let survivors: Vec<&Trial> = trials.iter().filter(|t| t.noticed.is_none()).collect();
        assert_eq!(survivors.len(), 2);
        let text = trials[2].site.to_string();
        assert!(text.starts_with("Checksum at") && text.contains("mutants.rs"), "{text}");
        assert!(trials[2].noticed.is_some() && trials[2].reached == 1);
        assert!(!matches(bad, b"abc"), "nothing is left out afterwards");
        assert!(try_all(|| Err("broken".to_owned())).is_err());
        let panics = try_all(|| {
            assert!(!matches(bad, b"abc"));
            Ok(())
        });
        assert!(panics.expect("passes as it is")[0].noticed.is_some());
    }

    #[test]
    fn a_step_is_known_by_its_name() {
        let trials = try_all(|| {
            let mut written = 0;
            if !mutation_site!("everything is written") {
                written += 1;
            }
            if written == 1 { Ok(()) } else { Err("nothing was written".to_owned()) }
        });
        let trials = trials.expect("passes as it is");
        let [trial] = &trials[..] else { panic!("{trials:?}") };
        assert_eq!(trial.site.kind, SiteKind::Step("everything is written"));
        assert_eq!(trial.noticed.as_deref(), Some("nothing was written"));
        let text = trial.site.to_string();
        assert!(text.starts_with("\"everything is written\" at "), "{text}");
        assert!(text.contains(&format!("mutants.rs:{}:", trial.site.place.line())), "{text}");
    }

    #[test]
    fn a_site_is_tried_on_the_parts_that_reach_it_until_one_notices() {
        let (good, bad) = (crc32c(b"abc"), crc32c(b"abd"));
        let runs = std::cell::Cell::new([0; 3]);
        let count = |part: usize| -> Result<(), String> {
            let mut counts = runs.get();
            counts[part] += 1;
            runs.set(counts);
            Ok(())
        };
        let is_right = |crc: u32| matches(crc, b"abc");
        let require = |holds: bool| if holds { Ok(()) } else { Err("damage".to_owned()) };
        let parts: [Part<'_>; 3] = [
            ("none".to_owned(), Box::new(|| count(0))),
            ("first".to_owned(), Box::new(|| require(!is_right(bad)).and_then(|()| count(1)))),
            ("second".to_owned(), Box::new(|| require(is_right(good)).and_then(|()| count(2)))),
        ];
        let trials = try_parts(|_| true, &parts).expect("passes as it is");
        assert_eq!((trials.len(), trials[0].reached), (1, 2));
        assert_eq!(trials[0].noticed.as_deref(), Some("first: damage"));
        // Parts that do not reach the site, or come later, are not run again.
        assert_eq!(runs.get(), [1, 1, 1]);
    }
}
