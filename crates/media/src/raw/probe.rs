//! Loads and stores with given instructions, for measuring a medium: the timed instructions must be
//! those named in the report, so the compiler has no choice of them.
//!
//! Lengths are 8, 16, 32 or whole cache lines, addresses are aligned to the length or to a line.
//! Other threads may access the bytes at once, atomically or by racy copies.

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86::{load, store, store_streaming};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) use elsewhere::{load, store, store_streaming};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::asm;

    use super::super::persist::Width;

    const LINE_BYTES: usize = 64;

    /// Loads all of `len` bytes. The result depends on every one of the loads.
    ///
    /// # Safety
    /// The bytes must be mapped, and `len` and `at` be as the head of this file requires.
    #[inline(always)]
    pub(crate) unsafe fn load(at: *const u8, len: usize) -> u64 {
        let folded: u64;
        match len {
            // SAFETY: loads bytes for which the caller vouches.
            8 => unsafe {
                asm!("mov {0}, [{1}]", out(reg) folded, in(reg) at,
                    options(nostack, preserves_flags, readonly));
            },
            // SAFETY: as above, in steps of 16 bytes, of which there are one or more.
            16 | 32 => unsafe {
                asm!(
                    "pxor {sum}, {sum}",
                    "2:",
                    "por {sum}, [{at}]",
                    "add {at}, 16",
                    "sub {left}, 16",
                    "jnz 2b",
                    "movq {out}, {sum}",
                    sum = out(xmm_reg) _, at = inout(reg) at => _, left = inout(reg) len => _,
                    out = lateout(reg) folded, options(nostack, readonly),
                );
            },
            _ if Width::of_this_processor() == Width::Avx512 => {
                // SAFETY: passed on from the caller; the processor has this width.
                folded = unsafe { load_wide(at, len) };
            }
            // SAFETY: as above, in steps of a line.
            _ => unsafe {
                asm!(
                    "pxor {even}, {even}",
                    "pxor {odd}, {odd}",
                    "2:",
                    "por {even}, [{at}]",
                    "por {odd}, [{at} + 16]",
                    "por {even}, [{at} + 32]",
                    "por {odd}, [{at} + 48]",
                    "add {at}, 64",
                    "sub {left}, 64",
                    "jnz 2b",
                    "por {even}, {odd}",
                    "movq {out}, {even}",
                    even = out(xmm_reg) _, odd = out(xmm_reg) _, at = inout(reg) at => _,
                    left = inout(reg) len => _, out = lateout(reg) folded,
                    options(nostack, readonly),
                );
            },
        }
        folded
    }

    /// Loads a whole line at once, which leaves room in the processor's window for more lines.
    ///
    /// # Safety
    /// As for [`load`], for whole lines; the processor must have AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn load_wide(at: *const u8, len: usize) -> u64 {
        let folded: u64;
        // SAFETY: loads whole lines for which the caller vouches.
        unsafe {
            asm!(
                "vpxord {sum:z}, {sum:z}, {sum:z}",
                "2:",
                "vporq {sum:z}, {sum:z}, [{at}]",
                "add {at}, 64",
                "sub {left}, 64",
                "jnz 2b",
                "vmovq {out}, {sum:x}",
                "vzeroupper",
                sum = out(zmm_reg) _, at = inout(reg) at => _, left = inout(reg) len => _,
                out = lateout(reg) folded, options(nostack, readonly),
            );
        }
        folded
    }

    /// Stores ones to all of `len` bytes, by ordinary stores.
    ///
    /// # Safety
    /// As for [`load`]; no code may rely on the old bytes.
    #[inline(always)]
    pub(crate) unsafe fn store(at: *mut u8, len: usize) {
        match len {
            // SAFETY: stores to bytes for which the caller vouches.
            8 => unsafe {
                asm!("mov [{0}], {1}", in(reg) at, in(reg) u64::MAX,
                    options(nostack, preserves_flags));
            },
            // SAFETY: as above, in steps of 16 bytes.
            _ => unsafe {
                asm!(
                    "pcmpeqd {ones}, {ones}",
                    "2:",
                    "movdqa [{at}], {ones}",
                    "add {at}, 16",
                    "sub {left}, 16",
                    "jnz 2b",
                    ones = out(xmm_reg) _, at = inout(reg) at => _, left = inout(reg) len => _,
                    options(nostack),
                );
            },
        }
    }

    /// Stores ones to all of `len` bytes past the caches.
    ///
    /// # Safety
    /// As for [`store`].
    #[inline(always)]
    pub(crate) unsafe fn store_streaming(at: *mut u8, len: usize) {
        match len {
            // SAFETY: stores to bytes for which the caller vouches.
            8 => unsafe {
                asm!("movnti [{0}], {1}", in(reg) at, in(reg) u64::MAX,
                    options(nostack, preserves_flags));
            },
            // SAFETY: passed on from the caller; the processor has this width.
            LINE_BYTES.. if Width::of_this_processor() == Width::Avx512 => unsafe {
                stream_wide(at, len);
            },
            // SAFETY: as above, in steps of 16 bytes.
            _ => unsafe {
                asm!(
                    "pcmpeqd {ones}, {ones}",
                    "2:",
                    "movntdq [{at}], {ones}",
                    "add {at}, 16",
                    "sub {left}, 16",
                    "jnz 2b",
                    ones = out(xmm_reg) _, at = inout(reg) at => _, left = inout(reg) len => _,
                    options(nostack),
                );
            },
        }
    }

    /// # Safety
    /// As for [`store`], for whole lines; the processor must have AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn stream_wide(at: *mut u8, len: usize) {
        // SAFETY: stores whole lines for which the caller vouches.
        unsafe {
            asm!(
                "vpternlogd {ones}, {ones}, {ones}, 255",
                "2:",
                "vmovntdq [{at}], {ones}",
                "add {at}, 64",
                "sub {left}, 64",
                "jnz 2b",
                "vzeroupper",
                ones = out(zmm_reg) _, at = inout(reg) at => _, left = inout(reg) len => _,
                options(nostack),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod elsewhere {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// # Safety
    /// The bytes must be mapped and aligned, and be accessed atomically only.
    pub(crate) unsafe fn load(at: *const u8, len: usize) -> u64 {
        let mut folded = 0;
        for word in 0..len / 8 {
            let word = at.cast::<u64>().cast_mut().wrapping_add(word);
            // SAFETY: one of the caller's words.
            folded |= unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed);
        }
        folded
    }

    /// # Safety
    /// As for [`load`]; no code may rely on the old bytes.
    pub(crate) unsafe fn store(at: *mut u8, len: usize) {
        for word in 0..len / 8 {
            let word = at.cast::<u64>().wrapping_add(word);
            // SAFETY: one of the caller's words.
            unsafe { AtomicU64::from_ptr(word) }.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// # Safety
    /// As for [`store`].
    pub(crate) unsafe fn store_streaming(at: *mut u8, len: usize) {
        // SAFETY: passed on from the caller.
        unsafe { store(at, len) }
    }
}
