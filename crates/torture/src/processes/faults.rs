//! System calls that fail: which of a child's calls to its store's files do, with which error, and
//! for how long. A seed decides all of it.

use std::collections::BTreeMap;

use entresol_base::rng::Rng;
use entresol_store::{StoreError, trial};
use nix::errno::Errno;
use nix::libc;

/// A kind of system call that changes files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    Open,
    Write,
    Sync,
    Allocate,
    SetLength,
    Rename,
    Unlink,
    Link,
}

/// Place of the file among the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// Number of the argument that is a descriptor.
    Descriptor(usize),
    /// Number of the argument that is the address of a path.
    Path(usize),
    /// Mapped memory, which only the store has from files.
    Mapping,
}

/// The calls by number. Newer processors lack the older ones.
pub(super) const CALLS: &[(i64, Call, Subject)] = &[
    (libc::SYS_openat, Call::Open, Subject::Path(1)),
    (libc::SYS_write, Call::Write, Subject::Descriptor(0)),
    (libc::SYS_pwrite64, Call::Write, Subject::Descriptor(0)),
    (libc::SYS_fsync, Call::Sync, Subject::Descriptor(0)),
    (libc::SYS_fdatasync, Call::Sync, Subject::Descriptor(0)),
    (libc::SYS_msync, Call::Sync, Subject::Mapping),
    (libc::SYS_fallocate, Call::Allocate, Subject::Descriptor(0)),
    (libc::SYS_ftruncate, Call::SetLength, Subject::Descriptor(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, Call::Rename, Subject::Path(0)),
    (libc::SYS_renameat, Call::Rename, Subject::Path(1)),
    (libc::SYS_renameat2, Call::Rename, Subject::Path(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, Call::Unlink, Subject::Path(0)),
    (libc::SYS_unlinkat, Call::Unlink, Subject::Path(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, Call::Link, Subject::Path(1)),
    (libc::SYS_linkat, Call::Link, Subject::Path(3)),
];

const KINDS: [Call; 8] = [
    Call::Open,
    Call::Write,
    Call::Sync,
    Call::Allocate,
    Call::SetLength,
    Call::Rename,
    Call::Unlink,
    Call::Link,
];

impl Call {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Call::Open => "open",
            Call::Write => "write",
            Call::Sync => "sync",
            Call::Allocate => "allocate",
            Call::SetLength => "set length",
            Call::Rename => "rename",
            Call::Unlink => "unlink",
            Call::Link => "link",
        }
    }
}

/// Duration of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasting {
    Once,
    ForEver,
}

/// Faults of one child.
#[derive(Debug, Clone)]
pub(super) struct Faults {
    /// Kind of calls that fail; `None` means all.
    only: Option<Call>,
    /// Number of such calls that succeed before.
    before: u64,
    error: Errno,
    pub(super) lasting: Lasting,
    /// Number of such calls that were seen.
    seen: u64,
    /// Calls that failed.
    pub(super) struck: BTreeMap<&'static str, u64>,
}

impl Faults {
    /// Returns the faults of a round. Few calls precede some, many others.
    pub(super) fn of(seed: u64, round: u64) -> Faults {
        let mut rng = Rng::named(seed, &format!("faults {round}"));
        let before_most = 2 << rng.below(8);
        Faults {
            only: if rng.one_in(4) { None } else { rng.choose(&KINDS).copied() },
            before: rng.below(before_most),
            error: [Errno::EIO, Errno::ENOSPC, Errno::EDQUOT][rng.index(3)],
            lasting: if rng.one_in(2) { Lasting::Once } else { Lasting::ForEver },
            seen: 0,
            struck: BTreeMap::new(),
        }
    }

    /// Counts a call. Returns the error with which it is to fail, if it is.
    pub(super) fn meet(&mut self, call: Call) -> Option<Errno> {
        if self.only.is_some_and(|only| only != call) {
            return None;
        }
        self.seen += 1;
        let is_struck = match self.lasting {
            Lasting::Once => self.seen == self.before + 1,
            Lasting::ForEver => self.seen > self.before,
        };
        if is_struck {
            *self.struck.entry(call.name()).or_default() += 1;
        }
        is_struck.then_some(self.error)
    }

    /// Returns what is wrong with an error of the store, if these faults do not explain it.
    pub(super) fn judge(&self, error: &StoreError) -> Option<&'static str> {
        let is_full = self.error != Errno::EIO;
        match error {
            _ if !trial::is_of_trouble(error) => Some("a failed call was told as something else"),
            // These last until the store is opened again, whatever the cause.
            StoreError::Failed { .. } | StoreError::DirectoryFailed { .. } => None,
            _ if error.is_no_room() == is_full => None,
            _ if is_full => Some("a lack of room was not told as one"),
            _ => Some("a failed disk was told as a lack of room"),
        }
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Faults { only, before, error, lasting, struck, .. } = self;
        let kind = only.map_or("any call", Call::name);
        let end = if *lasting == Lasting::Once { "once" } else { "for ever" };
        write!(f, "{kind} number {} fails with {error:?}, {end}; failed: {struck:?}", before + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(only: Option<Call>, lasting: Lasting, error: Errno) -> Faults {
        Faults { only, before: 2, error, lasting, seen: 0, struck: BTreeMap::new() }
    }

    #[test]
    fn the_call_of_a_number_fails_once_or_from_then_on() {
        let check = |only, lasting, struck: [bool; 6]| {
            let mut faults = faults(only, lasting, Errno::EIO);
            let calls = [Call::Sync, Call::Sync, Call::Write, Call::Sync, Call::Write, Call::Sync];
            let met = calls.map(|call| faults.meet(call).is_some());
            assert_eq!(met, struck, "{faults}");
            let count = struck.into_iter().filter(|it| *it).count() as u64;
            assert_eq!(faults.struck.values().sum::<u64>(), count);
        };
        check(None, Lasting::Once, [false, false, true, false, false, false]);
        check(None, Lasting::ForEver, [false, false, true, true, true, true]);
        check(Some(Call::Sync), Lasting::Once, [false, false, false, true, false, false]);
        check(Some(Call::Sync), Lasting::ForEver, [false, false, false, true, false, true]);
        check(Some(Call::Link), Lasting::ForEver, [false; 6]);
    }

    #[test]
    fn an_error_must_say_whether_there_is_room() {
        let told = |errno: Errno| StoreError::Io {
            doing: "write",
            path: "a".into(),
            offset: 0,
            cause: errno.into(),
        };
        let refused = StoreError::NoRoom { what: "a put".to_owned() };
        let check = |failed: Errno, error: &StoreError, is_right: bool| {
            let judged = faults(None, Lasting::Once, failed).judge(error);
            assert_eq!(judged.is_none(), is_right, "{failed}: {error}: {judged:?}");
        };
        for full in [Errno::ENOSPC, Errno::EDQUOT] {
            check(full, &told(full), true);
            check(full, &refused, true);
            check(full, &told(Errno::EIO), false);
            check(Errno::EIO, &told(full), false);
        }
        check(Errno::EIO, &told(Errno::EIO), true);
        check(Errno::EIO, &refused, false);
        for failed in [Errno::EIO, Errno::ENOSPC] {
            check(failed, &StoreError::Failed { what: "a sync".to_owned() }, true);
            let damaged =
                StoreError::Damaged { path: "a".into(), offset: 0, what: "a page".to_owned() };
            check(failed, &damaged, false);
        }
    }

    #[test]
    fn a_seed_has_all_kinds_of_faults_among_its_rounds() {
        let all = Vec::from_iter((0..200).map(|round| Faults::of(1, round)));
        for kind in KINDS {
            assert!(all.iter().any(|it| it.only == Some(kind)), "{kind:?}");
        }
        for error in [Errno::EIO, Errno::ENOSPC, Errno::EDQUOT] {
            for lasting in [Lasting::Once, Lasting::ForEver] {
                assert!(all.iter().any(|it| (it.error, it.lasting) == (error, lasting)));
            }
        }
        assert!(all.iter().any(|it| it.only.is_none() && it.before == 0), "the first call fails");
        assert_eq!(Faults::of(1, 7).to_string(), all[7].to_string());
    }
}
