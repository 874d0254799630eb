//! Writing cache lines back to memory, and stores that go past the caches.
//!
//! The processor is asked once, at the first use, for the instructions that it has. Nothing is
//! assumed at compile time, so that the program runs under emulators that know fewer. On other
//! architectures than x86-64 there is no persistent memory: there flushing does nothing and
//! streaming is copying.

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86::{LineFlush, Width, fence, flush_lines, stream};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) use elsewhere::{LineFlush, fence, flush_lines, stream};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    use std::sync::OnceLock;

    use super::super::racy;
    use crate::streaming::{CopyStep, copy_steps};

    const LINE_BYTES: usize = 64;

    /// Instruction that writes a line back.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum LineFlush {
        Clwb,
        Clflushopt,
        Clflush,
    }

    impl LineFlush {
        /// Lists all instructions that this processor has, the best first.
        pub(crate) fn all_of_this_processor() -> &'static [LineFlush] {
            match LineFlush::of_this_processor() {
                LineFlush::Clwb => &[LineFlush::Clwb, LineFlush::Clflushopt, LineFlush::Clflush],
                LineFlush::Clflushopt => &[LineFlush::Clflushopt, LineFlush::Clflush],
                LineFlush::Clflush => &[LineFlush::Clflush],
            }
        }

        /// Returns the best instruction that this processor has.
        pub(crate) fn of_this_processor() -> LineFlush {
            static FOUND: OnceLock<LineFlush> = OnceLock::new();
            *FOUND.get_or_init(|| {
                let (clwb, clflushopt) = (1 << 24, 1 << 23);
                let features = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
                if features & clwb != 0 {
                    LineFlush::Clwb
                } else if features & clflushopt != 0 {
                    LineFlush::Clflushopt
                } else {
                    LineFlush::Clflush
                }
            })
        }
    }

    /// Width of stores past the caches.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Width {
        Sse2,
        Avx,
        Avx512,
    }

    impl Width {
        /// Returns the widest that this processor has and the kernel lets programs use.
        pub(crate) fn of_this_processor() -> Width {
            // The macro asks the processor and the kernel (XCR0), and caches the answer.
            if is_x86_feature_detected!("avx512f") {
                Width::Avx512
            } else if is_x86_feature_detected!("avx") {
                Width::Avx
            } else {
                Width::Sse2
            }
        }
    }

    /// Waits until lines flushed and stores streamed by this thread have arrived.
    #[inline]
    pub(crate) fn fence() {
        // SAFETY: the instruction orders stores and touches nothing.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) }
    }

    /// Begins to write back the lines that hold `len` bytes at `at`.
    ///
    /// # Safety
    /// The bytes must be mapped.
    pub(crate) unsafe fn flush_lines(how: LineFlush, at: *const u8, len: usize) {
        if len == 0 {
            return;
        }
        let before = at as usize % LINE_BYTES;
        let first = at.wrapping_sub(before);
        for line in 0..(before + len).div_ceil(LINE_BYTES) {
            // SAFETY: the line holds some of the caller's bytes; the processor has `how`.
            unsafe { flush_line(how, first.wrapping_add(line * LINE_BYTES)) };
        }
    }

    /// # Safety
    /// The line must be mapped, and the processor must have the instruction.
    #[inline]
    unsafe fn flush_line(how: LineFlush, line: *const u8) {
        match how {
            // SAFETY: passed on from the caller; writing a line back changes no byte.
            LineFlush::Clwb => unsafe {
                asm!("clwb [{line}]", line = in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: as above.
            LineFlush::Clflushopt => unsafe {
                asm!("clflushopt [{line}]", line = in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: as above.
            LineFlush::Clflush => unsafe {
                asm!("clflush [{line}]", line = in(reg) line, options(nostack, preserves_flags));
            },
        }
    }

    /// Copies `len` bytes past the caches, with a fence after each whole unit and at the end: when
    /// it returns the bytes are on their way to memory, ahead of any later store. Partial lines at
    /// both ends are stored and flushed. Returns the number of fences.
    ///
    /// # Safety
    /// `from` must be valid for reads and `to` for writes of `len` bytes that do not overlap; other
    /// threads may access them atomically or by racy copies.
    pub(crate) unsafe fn stream(how: LineFlush, from: *const u8, to: *mut u8, len: usize) -> usize {
        // SAFETY: passed on from the caller; the processor has this width.
        unsafe { stream_as(Width::of_this_processor(), how, from, to, len) }
    }

    /// # Safety
    /// As for [`stream`], and the processor must have this width.
    pub(super) unsafe fn stream_as(
        width: Width,
        how: LineFlush,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> usize {
        let mut fences = 0;
        for step in copy_steps(to as usize, len) {
            match step {
                CopyStep::Part(part) => {
                    let (from, to) = (from.wrapping_add(part.start), to.wrapping_add(part.start));
                    // SAFETY: the part lies within the caller's ranges.
                    unsafe { store_and_flush(how, from, to, part.len()) };
                }
                CopyStep::Lines(part) => {
                    let (from, to) = (from.wrapping_add(part.start), to.wrapping_add(part.start));
                    // SAFETY: these are whole lines of the caller's ranges, aligned at `to`.
                    unsafe { stream_lines(width, from, to, part.len() / LINE_BYTES) };
                }
                CopyStep::Fence => {
                    fence();
                    fences += 1;
                }
            }
        }
        fences
    }

    /// # Safety
    /// As for [`stream`].
    unsafe fn store_and_flush(how: LineFlush, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: passed on from the caller.
        unsafe { racy::copy(from, to, len) };
        // SAFETY: passed on from the caller.
        unsafe { flush_lines(how, to, len) };
    }

    /// # Safety
    /// As for [`stream`], for this many lines, at least one; `to` must be aligned to a line, and
    /// the processor must have this width.
    unsafe fn stream_lines(width: Width, from: *const u8, to: *mut u8, lines: usize) {
        match width {
            // SAFETY: passed on from the caller.
            Width::Sse2 => unsafe { stream_lines_sse2(from, to, lines) },
            // SAFETY: as above.
            Width::Avx => unsafe { stream_lines_avx(from, to, lines) },
            // SAFETY: as above.
            Width::Avx512 => unsafe { stream_lines_avx512(from, to, lines) },
        }
    }

    /// # Safety
    /// As for [`stream_lines`].
    unsafe fn stream_lines_sse2(from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: `lines` lines are valid at `from` and, aligned, at `to`.
        unsafe {
            asm!(
                "2:",
                "movups xmm0, [rsi]", "movups xmm1, [rsi + 16]",
                "movups xmm2, [rsi + 32]", "movups xmm3, [rsi + 48]",
                "movntps [rdi], xmm0", "movntps [rdi + 16], xmm1",
                "movntps [rdi + 32], xmm2", "movntps [rdi + 48], xmm3",
                "add rsi, 64", "add rdi, 64", "dec rdx", "jnz 2b",
                inout("rsi") from => _, inout("rdi") to => _, inout("rdx") lines => _,
                clobber_abi("sysv64"), options(nostack),
            );
        }
    }

    /// # Safety
    /// As for [`stream_lines`]; the processor must have AVX.
    #[target_feature(enable = "avx")]
    unsafe fn stream_lines_avx(from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: `lines` lines are valid at `from` and, aligned, at `to`.
        unsafe {
            asm!(
                "2:",
                "vmovups ymm0, [rsi]", "vmovups ymm1, [rsi + 32]",
                "vmovntps [rdi], ymm0", "vmovntps [rdi + 32], ymm1",
                "add rsi, 64", "add rdi, 64", "dec rdx", "jnz 2b",
                "vzeroupper",
                inout("rsi") from => _, inout("rdi") to => _, inout("rdx") lines => _,
                clobber_abi("sysv64"), options(nostack),
            );
        }
    }

    /// # Safety
    /// As for [`stream_lines`]; the processor must have AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn stream_lines_avx512(from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: `lines` lines are valid at `from` and, aligned, at `to`.
        unsafe {
            asm!(
                "2:",
                "vmovups zmm0, [rsi]", "vmovntps [rdi], zmm0",
                "add rsi, 64", "add rdi, 64", "dec rdx", "jnz 2b",
                "vzeroupper",
                inout("rsi") from => _, inout("rdi") to => _, inout("rdx") lines => _,
                clobber_abi("sysv64"), options(nostack),
            );
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::streaming::UNIT_BYTES;

        fn widths() -> Vec<Width> {
            let mut widths = vec![Width::Sse2];
            widths.extend(is_x86_feature_detected!("avx").then_some(Width::Avx));
            widths.extend(is_x86_feature_detected!("avx512f").then_some(Width::Avx512));
            widths
        }

        fn check(width: Width, shift: usize, len: usize) -> usize {
            let source: Vec<u8> = (0..len).map(|i| (i * 13 + len) as u8).collect();
            let mut target = vec![0xEE_u8; len + 1024];
            let start = target.as_ptr().align_offset(UNIT_BYTES) + shift;
            let how = LineFlush::of_this_processor();
            let to = target[start..].as_mut_ptr();
            // SAFETY: both vectors hold `len` bytes from there, and no other code knows them.
            let fences = unsafe { stream_as(width, how, source.as_ptr(), to, len) };
            assert_eq!(target[start..start + len], source, "{width:?} {shift} {len}");
            assert!(target[..start].iter().chain(&target[start + len..]).all(|&b| b == 0xEE));
            fences
        }

        #[test]
        fn streams_copy_every_length_and_alignment() {
            for width in widths() {
                for len in (0..600).chain([4096, 10_000]) {
                    for shift in [0, 1, 16, 63, 64, 100, 192, 255] {
                        check(width, shift, len);
                    }
                }
            }
        }

        #[test]
        fn a_large_stream_has_one_fence_for_each_unit() {
            for width in widths() {
                assert_eq!(check(width, 0, 64 << 10), (64 << 10) / UNIT_BYTES);
                assert_eq!(check(width, 0, 256), 1);
                assert_eq!(check(width, 64, 256), 2, "a unit's end lies in between");
                assert_eq!(check(width, 10, 20), 1);
            }
        }

        #[test]
        fn every_flush_instruction_of_this_processor_leaves_the_bytes_alone() {
            let bytes = [7_u8; 500];
            let best = LineFlush::of_this_processor();
            let mut all = vec![LineFlush::Clflush, best];
            if best == LineFlush::Clwb {
                all.push(LineFlush::Clflushopt);
            }
            for how in all {
                // SAFETY: the array is mapped; a processor with `clwb` has `clflushopt` too.
                unsafe { flush_lines(how, bytes[3..].as_ptr(), 490) };
                fence();
                assert_eq!(bytes, [7; 500]);
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod elsewhere {
    use super::super::racy;

    /// Instruction that writes a line back: none.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum LineFlush {
        None,
    }

    impl LineFlush {
        pub(crate) fn all_of_this_processor() -> &'static [LineFlush] {
            &[LineFlush::None]
        }

        pub(crate) fn of_this_processor() -> LineFlush {
            LineFlush::None
        }
    }

    pub(crate) fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// # Safety
    /// None; the x86-64 implementation has requirements.
    pub(crate) unsafe fn flush_lines(_how: LineFlush, _at: *const u8, _len: usize) {}

    /// # Safety
    /// As for [`racy::copy`].
    pub(crate) unsafe fn stream(
        _how: LineFlush,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { racy::copy(from, to, len) };
        fence();
        1
    }
}
