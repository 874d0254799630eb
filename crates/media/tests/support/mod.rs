//! Facts of the machine that the tests on real persistent memory share.

use entresol_media::FlushKind;

/// Returns the best instruction for flushing lines that the kernel knows the processor to have.
pub(crate) fn best_flush() -> FlushKind {
    let processor = std::fs::read_to_string("/proc/cpuinfo").expect("a kernel that tells");
    let has = |flag| processor.split_whitespace().any(|word| word == flag);
    match () {
        () if has("clwb") => FlushKind::Clwb,
        () if has("clflushopt") => FlushKind::Clflushopt,
        () => FlushKind::Clflush,
    }
}
