//! Racy copies in x86-64 assembly: overlapping 16-byte loads for short ones, a loop for long ones.
//! Instructions beyond the baseline (SSE2) are used only after asking the processor at run time.
//!
//! `rep movsb` is not among them: on AMD's Zen 3 and 4 it takes ten times as long if the target
//! begins up to a cache line later in its page than the source does in its own.

use std::arch::asm;

/// Minimum length for AVX, if the processor has it: from here on its larger steps pay off.
const AVX_BYTES_MIN: usize = 320;

/// Copies `len` bytes. The ranges may overlap if `to` is not above `from`, or if `len` is at most
/// 128: then everything is loaded before anything is stored.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes; other threads may access
/// either at once, atomically or by racy copies.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe { copy_inlined(from, to, len) }
}

/// Copies like [`copy`], but always as a part of its caller: for the one copy of a read.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
pub(crate) unsafe fn copy_inlined(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // SAFETY: passed on from the caller; the length suits the callee.
        0..16 => unsafe { copy_below_16(from, to, len) },
        // SAFETY: as above.
        16..=32 => unsafe { copy_16_to_32(from, to, len) },
        // SAFETY: as above.
        33..=64 => unsafe { copy_33_to_64(from, to, len) },
        // SAFETY: as above.
        65..=128 => unsafe { copy_65_to_128(from, to, len) },
        // SAFETY: as above.
        129..AVX_BYTES_MIN => unsafe { copy_by_64(from, to, len) },
        // SAFETY: as above; the processor was asked.
        AVX_BYTES_MIN.. if is_x86_feature_detected!("avx") => unsafe { copy_by_128(from, to, len) },
        // SAFETY: as above.
        AVX_BYTES_MIN.. => unsafe { copy_by_64(from, to, len) },
    }
}

/// Copies `len` bytes that may overlap.
///
/// # Safety
/// As for [`copy`].
pub(crate) unsafe fn copy_overlapping(from: *const u8, to: *mut u8, len: usize) {
    const CHUNK: usize = 128;
    let up = (to as usize).wrapping_sub(from as usize);
    if up >= len {
        // SAFETY: passed on from the caller; `to` lies below `from` or behind its end.
        return unsafe { copy(from, to, len) };
    }
    let mut rest = len;
    while rest > 0 {
        let step = rest.min(CHUNK);
        rest -= step;
        // SAFETY: `rest` is inside of the caller's range.
        let source = unsafe { from.add(rest) };
        // SAFETY: `rest` is inside of the caller's range.
        let target = unsafe { to.add(rest) };
        // SAFETY: the step lies inside of the caller's ranges; being short it may overlap.
        unsafe { copy(source, target, step) };
    }
}

/// # Safety
/// As for [`copy`], with `len` below 16.
#[inline]
unsafe fn copy_below_16(from: *const u8, to: *mut u8, len: usize) {
    if len >= 8 {
        // SAFETY: two words that cover 8 to 16 bytes lie inside of the caller's ranges.
        unsafe {
            asm!(
                "mov {a}, [{from}]", "mov {b}, [{from} + {len} - 8]",
                "mov [{to}], {a}", "mov [{to} + {len} - 8], {b}",
                from = in(reg) from, to = in(reg) to, len = in(reg) len,
                a = out(reg) _, b = out(reg) _, options(nostack, preserves_flags),
            );
        }
    } else if len >= 4 {
        // SAFETY: two half words that cover 4 to 8 bytes lie inside of the caller's ranges.
        unsafe {
            asm!(
                "mov {a:e}, [{from}]", "mov {b:e}, [{from} + {len} - 4]",
                "mov [{to}], {a:e}", "mov [{to} + {len} - 4], {b:e}",
                from = in(reg) from, to = in(reg) to, len = in(reg) len,
                a = out(reg) _, b = out(reg) _, options(nostack, preserves_flags),
            );
        }
    } else if len > 0 {
        // SAFETY: the first, middle and last of 1 to 3 bytes lie inside of the caller's ranges.
        unsafe {
            asm!(
                "movzx {a:e}, byte ptr [{from}]", "movzx {b:e}, byte ptr [{from} + {half}]",
                "movzx {c:e}, byte ptr [{from} + {len} - 1]",
                "mov [{to}], {a:l}", "mov [{to} + {half}], {b:l}", "mov [{to} + {len} - 1], {c:l}",
                from = in(reg) from, to = in(reg) to, len = in(reg) len, half = in(reg) len / 2,
                a = out(reg) _, b = out(reg) _, c = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// # Safety
/// As for [`copy`], with `len` of 16 to 32.
#[inline]
unsafe fn copy_16_to_32(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: two words of 16 bytes that cover `len` lie inside of the caller's ranges.
    unsafe {
        asm!(
            "movups {a}, [{from}]", "movups {b}, [{from} + {len} - 16]",
            "movups [{to}], {a}", "movups [{to} + {len} - 16], {b}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len,
            a = out(xmm_reg) _, b = out(xmm_reg) _, options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As for [`copy`], with `len` of 32 to 64.
#[inline]
unsafe fn copy_33_to_64(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: four words of 16 bytes that cover `len` lie inside of the caller's ranges.
    unsafe {
        asm!(
            "movups {a}, [{from}]", "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + {len} - 32]", "movups {d}, [{from} + {len} - 16]",
            "movups [{to}], {a}", "movups [{to} + 16], {b}",
            "movups [{to} + {len} - 32], {c}", "movups [{to} + {len} - 16], {d}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As for [`copy`], with `len` of 64 to 128.
#[inline]
unsafe fn copy_65_to_128(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: eight words of 16 bytes that cover `len` lie inside of the caller's ranges.
    unsafe {
        asm!(
            "movups {a}, [{from}]", "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]", "movups {d}, [{from} + 48]",
            "movups {e}, [{from} + {len} - 64]", "movups {f}, [{from} + {len} - 48]",
            "movups {g}, [{from} + {len} - 32]", "movups {h}, [{from} + {len} - 16]",
            "movups [{to}], {a}", "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}", "movups [{to} + 48], {d}",
            "movups [{to} + {len} - 64], {e}", "movups [{to} + {len} - 48], {f}",
            "movups [{to} + {len} - 32], {g}", "movups [{to} + {len} - 16], {h}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            e = out(xmm_reg) _, f = out(xmm_reg) _, g = out(xmm_reg) _, h = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies in ascending steps of 64 bytes; the last 64 bytes are loaded before the first store, so
/// that `to` may lie anywhere at or below `from`.
///
/// # Safety
/// As for [`copy`], with `len` of at least 65.
unsafe fn copy_by_64(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the loop stops with 1 to 64 bytes left, so that every step and the last 64 bytes lie
    // inside of the caller's ranges.
    unsafe {
        asm!(
            "movups {e}, [{from} + {len} - 64]", "movups {f}, [{from} + {len} - 48]",
            "movups {g}, [{from} + {len} - 32]", "movups {h}, [{from} + {len} - 16]",
            "2:",
            "movups {a}, [{from}]", "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]", "movups {d}, [{from} + 48]",
            "add {from}, 64",
            "movups [{to}], {a}", "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}", "movups [{to} + 48], {d}",
            "add {to}, 64",
            "sub {len}, 64", "cmp {len}, 64", "ja 2b",
            "movups [{to} + {len} - 64], {e}", "movups [{to} + {len} - 48], {f}",
            "movups [{to} + {len} - 32], {g}", "movups [{to} + {len} - 16], {h}",
            from = inout(reg) from => _, to = inout(reg) to => _, len = inout(reg) len => _,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            e = out(xmm_reg) _, f = out(xmm_reg) _, g = out(xmm_reg) _, h = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Copies in ascending steps of 128 bytes as [`copy_by_64`] does in steps of 64. The upper halves
/// of the registers are cleared at the end, since leaving them in use slows SSE code down.
///
/// # Safety
/// As for [`copy`], with `len` of at least 129; the processor must have AVX.
#[target_feature(enable = "avx")]
unsafe fn copy_by_128(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the loop stops with 1 to 128 bytes left, so that every step and the last 128 bytes
    // lie inside of the caller's ranges.
    unsafe {
        asm!(
            "vmovups ymm4, [rsi + rdx - 128]", "vmovups ymm5, [rsi + rdx - 96]",
            "vmovups ymm6, [rsi + rdx - 64]", "vmovups ymm7, [rsi + rdx - 32]",
            "2:",
            "vmovups ymm0, [rsi]", "vmovups ymm1, [rsi + 32]",
            "vmovups ymm2, [rsi + 64]", "vmovups ymm3, [rsi + 96]",
            "sub rsi, -128",
            "vmovups [rdi], ymm0", "vmovups [rdi + 32], ymm1",
            "vmovups [rdi + 64], ymm2", "vmovups [rdi + 96], ymm3",
            "sub rdi, -128",
            "add rdx, -128", "cmp rdx, 128", "ja 2b",
            "vmovups [rdi + rdx - 128], ymm4", "vmovups [rdi + rdx - 96], ymm5",
            "vmovups [rdi + rdx - 64], ymm6", "vmovups [rdi + rdx - 32], ymm7",
            "vzeroupper",
            inout("rsi") from => _, inout("rdi") to => _, inout("rdx") len => _,
            clobber_abi("sysv64"), options(nostack),
        );
    }
}

/// Returns a mask of the words of two cache lines whose upper 16 bits equal `tag`: bit `w` for word
/// `w` of the first, bit `8 + w` for that of the second.
///
/// Sixteen comparisons in some twenty instructions, and without a branch.
///
/// # Safety
/// Both must be multiples of 16 and valid for reads of 64 bytes; other threads may write them at
/// once.
#[inline(always)]
pub(crate) unsafe fn match_tags(first: *const u8, second: *const u8, tag: u16) -> u32 {
    let mask: u32;
    // SAFETY: all loads are of aligned 16 bytes inside of the two lines.
    unsafe {
        asm!(
            "movd {tags}, {tag:e}", "pshuflw {tags}, {tags}, 0", "punpcklqdq {tags}, {tags}",
            // The upper halves of four words, then their upper halves, sign-extended so that
            // packing leaves them as they are.
            "movaps {a}, [{first}]", "shufps {a}, [{first} + 16], 0xDD", "psrad {a}, 16",
            "movaps {b}, [{first} + 32]", "shufps {b}, [{first} + 48], 0xDD", "psrad {b}, 16",
            "movaps {c}, [{second}]", "shufps {c}, [{second} + 16], 0xDD", "psrad {c}, 16",
            "movaps {d}, [{second} + 32]", "shufps {d}, [{second} + 48], 0xDD", "psrad {d}, 16",
            "packssdw {a}, {b}", "packssdw {c}, {d}",
            "pcmpeqw {a}, {tags}", "pcmpeqw {c}, {tags}",
            "packsswb {a}, {c}", "pmovmskb {mask:e}, {a}",
            first = in(reg) first, second = in(reg) second, tag = in(reg) u32::from(tag),
            tags = out(xmm_reg) _, a = out(xmm_reg) _, b = out(xmm_reg) _,
            c = out(xmm_reg) _, d = out(xmm_reg) _, mask = lateout(reg) mask,
            options(nostack, preserves_flags, readonly),
        );
    }
    mask
}

/// Compares the four pairs of words of a cache line. Bit `4 * pair` of the result is set if the
/// first word equals `first`, bit `4 * pair + 2` if the second is 0.
///
/// # Safety
/// As for [`match_tags`], for one line.
#[inline(always)]
pub(crate) unsafe fn match_pairs(line: *const u8, first: u64) -> u32 {
    let mask: u32;
    // SAFETY: all loads are of aligned 16 bytes inside of the line.
    unsafe {
        asm!(
            // Halves of words are compared; packing leaves two equal bytes of each word's halves.
            "movq {pair}, {first}",
            "movaps {a}, [{line}]", "movaps {b}, [{line} + 16]",
            "movaps {c}, [{line} + 32]", "movaps {d}, [{line} + 48]",
            "pcmpeqd {a}, {pair}", "pcmpeqd {b}, {pair}",
            "pcmpeqd {c}, {pair}", "pcmpeqd {d}, {pair}",
            "packssdw {a}, {b}", "packssdw {c}, {d}",
            "packsswb {a}, {c}", "pmovmskb {mask:e}, {a}",
            line = in(reg) line, first = in(reg) first, pair = out(xmm_reg) _,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            mask = lateout(reg) mask,
            options(nostack, preserves_flags, readonly),
        );
    }
    mask & mask >> 1 & 0x5555
}

/// Returns true if the bytes at `at` equal `bytes`.
///
/// # Safety
/// `at` must be valid for reads of as many bytes; other threads may write them at once.
#[inline]
pub(crate) unsafe fn equal(at: *const u8, bytes: &[u8]) -> bool {
    let (len, other) = (bytes.len(), bytes.as_ptr());
    if len < 16 {
        // SAFETY: passed on from the caller; the second range is the slice.
        return unsafe { equal_below_16(at, other, len) };
    }
    let mut done = 0;
    while done + 32 < len {
        // SAFETY: `done + 32` is below `len`, the length of both ranges.
        if !unsafe { equal_32(at, other, done) } {
            return false;
        }
        done += 32;
    }
    if done + 16 < len {
        // SAFETY: `done + 16` is below `len`, the length of both ranges.
        if !unsafe { equal_16(at, other, done) } {
            return false;
        }
    }
    // SAFETY: both ranges hold at least 16 bytes; these are their last.
    unsafe { equal_16(at, other, len - 16) }
}

/// # Safety
/// `at` and `other` must be valid for reads of 32 bytes behind `index`.
#[inline]
unsafe fn equal_32(at: *const u8, other: *const u8, index: usize) -> bool {
    let equal_bytes: u32;
    // SAFETY: 32 bytes behind `index` are valid in both ranges.
    unsafe {
        asm!(
            "movups {a}, [{at} + {index}]", "movups {b}, [{other} + {index}]",
            "movups {c}, [{at} + {index} + 16]", "movups {d}, [{other} + {index} + 16]",
            "pcmpeqb {a}, {b}", "pcmpeqb {c}, {d}", "pand {a}, {c}", "pmovmskb {mask:e}, {a}",
            at = in(reg) at, other = in(reg) other, index = in(reg) index,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            mask = out(reg) equal_bytes, options(nostack, preserves_flags, readonly),
        );
    }
    equal_bytes == 0xFFFF
}

/// # Safety
/// `at` and `other` must be valid for reads of 16 bytes behind `index`.
#[inline]
unsafe fn equal_16(at: *const u8, other: *const u8, index: usize) -> bool {
    let equal_bytes: u32;
    // SAFETY: 16 bytes behind `index` are valid in both ranges.
    unsafe {
        asm!(
            "movups {a}, [{at} + {index}]", "movups {b}, [{other} + {index}]",
            "pcmpeqb {a}, {b}", "pmovmskb {mask:e}, {a}",
            at = in(reg) at, other = in(reg) other, index = in(reg) index,
            a = out(xmm_reg) _, b = out(xmm_reg) _, mask = out(reg) equal_bytes,
            options(nostack, preserves_flags, readonly),
        );
    }
    equal_bytes == 0xFFFF
}

/// # Safety
/// `at` and `other` must be valid for reads of `len` bytes, `len` being below 16.
#[inline]
unsafe fn equal_below_16(at: *const u8, other: *const u8, len: usize) -> bool {
    if len >= 8 {
        // SAFETY: both words lie inside of the ranges.
        let first = unsafe { difference_8(at, other, 0) };
        // SAFETY: both words lie inside of the ranges.
        let last = unsafe { difference_8(at, other, len - 8) };
        first | last == 0
    } else if len >= 4 {
        // SAFETY: both half words lie inside of the ranges.
        let first = unsafe { difference_4(at, other, 0) };
        // SAFETY: both half words lie inside of the ranges.
        let last = unsafe { difference_4(at, other, len - 4) };
        first | last == 0
    } else {
        (0..len).all(|index| {
            // SAFETY: `index` is below `len`.
            let difference = unsafe { difference_1(at, other, index) };
            difference == 0
        })
    }
}

/// # Safety
/// `at` and `other` must be valid for reads of 8 bytes behind `index`.
#[inline]
unsafe fn difference_8(at: *const u8, other: *const u8, index: usize) -> u64 {
    let difference: u64;
    // SAFETY: 8 bytes behind `index` are valid in both ranges.
    unsafe {
        asm!(
            "mov {a}, [{at} + {index}]", "xor {a}, [{other} + {index}]",
            at = in(reg) at, other = in(reg) other, index = in(reg) index,
            a = out(reg) difference, options(nostack, readonly),
        );
    }
    difference
}

/// # Safety
/// `at` and `other` must be valid for reads of 4 bytes behind `index`.
#[inline]
unsafe fn difference_4(at: *const u8, other: *const u8, index: usize) -> u32 {
    let difference: u32;
    // SAFETY: 4 bytes behind `index` are valid in both ranges.
    unsafe {
        asm!(
            "mov {a:e}, [{at} + {index}]", "xor {a:e}, [{other} + {index}]",
            at = in(reg) at, other = in(reg) other, index = in(reg) index,
            a = out(reg) difference, options(nostack, readonly),
        );
    }
    difference
}

/// # Safety
/// `at` and `other` must be valid for reads of a byte behind `index`.
#[inline]
unsafe fn difference_1(at: *const u8, other: *const u8, index: usize) -> u32 {
    let difference: u32;
    // SAFETY: the byte behind `index` is valid in both ranges.
    unsafe {
        asm!(
            "movzx {a:e}, byte ptr [{at} + {index}]", "movzx {b:e}, byte ptr [{other} + {index}]",
            "xor {a:e}, {b:e}",
            at = in(reg) at, other = in(reg) other, index = in(reg) index,
            a = out(reg) difference, b = out(reg) _, options(nostack, readonly),
        );
    }
    difference
}
