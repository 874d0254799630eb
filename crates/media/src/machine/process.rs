//! The mark of a process, which its children do not inherit.

use std::sync::atomic::Ordering::Relaxed;

use rustix::mm::Advice;

use crate::raw::mapping::Mapping;

/// Bytes of the page that holds the mark.
const PAGE_BYTES: usize = 4096;

/// Mark of the process that made it. A child made by `fork` sees that it is another process.
///
/// The mark is a word in a page that the kernel wipes in children, so a look takes one load and no
/// system call.
#[derive(Debug)]
pub struct ProcessMark(Option<Mapping>);

impl ProcessMark {
    /// Creates the mark of this process.
    #[must_use]
    pub fn new() -> ProcessMark {
        let page = Mapping::anonymous(PAGE_BYTES, false).ok().filter(|page| {
            page.atomic_u64(0).store(1, Relaxed);
            page.advise(0, PAGE_BYTES, Advice::LinuxWipeOnFork).is_ok()
        });
        ProcessMark(page)
    }

    /// Makes the mark look as it does in a child, or as it did before. For tests.
    #[doc(hidden)]
    pub fn pretend(&self, is_another: bool) {
        if let Some(page) = &self.0 {
            page.atomic_u64(0).store(u64::from(!is_another), Relaxed);
        }
    }

    /// Returns true in a child of the process that made the mark. A kernel that wipes no pages
    /// (before Linux 4.14) leaves this unknown, and then it is false.
    #[inline]
    #[must_use]
    pub fn is_another(&self) -> bool {
        self.0.as_ref().is_some_and(|page| page.atomic_u64(0).load(Relaxed) == 0)
    }
}

impl Default for ProcessMark {
    fn default() -> ProcessMark {
        ProcessMark::new()
    }
}
