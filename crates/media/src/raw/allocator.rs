//! Tuning of the C library's allocator.

/// Minimum size of an allocation that is mapped separately, and unmapped when it is freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 256 * 1024;

/// Makes the allocator return large buffers to the system when they are freed. By default glibc
/// raises its threshold for mapping with every large buffer that is freed, until all of them come
/// from its arenas, which keep freed memory below any block that is still in use.
pub(crate) fn give_large_buffers_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallopt takes two numbers and a lock of its own; it may be called at any time.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) };
    }
}
