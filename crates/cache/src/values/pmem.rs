//! Values in persistent memory: a mapped file of segments, written with non-temporal stores.
//!
//! NyxCache (Wu et al., FAST 2022, section 3.5) measures the reason: persistent memory is worst at
//! small reads such as those of keys, so keys lie in DRAM; and cached stores of values cost up to
//! three times as much as non-temporal ones.

use std::path::Path;

use entresol_media::region::{PmemMode, RegionOptions};
use entresol_media::{Direct, FlushKind, RegionKind};

use crate::error::OpenError;
use crate::label::{LABEL_BYTES, Label, MAGIC};

/// A mapped file of segments.
pub(crate) struct PmemValues {
    region: Direct,
}

impl PmemValues {
    pub(crate) fn open(path: &Path, assume_dax: bool, bytes: u64) -> Result<Self, OpenError> {
        let options = RegionOptions {
            create: Some(LABEL_BYTES + bytes),
            grow: true,
            magic: Some(MAGIC),
            pmem: Some(PmemMode { assume_dax }),
            ..RegionOptions::default()
        };
        Ok(PmemValues { region: Direct::open(path, &options)? })
    }

    /// Returns the bytes for segments.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.region.len() - LABEL_BYTES
    }

    pub(crate) fn access(&self) -> &'static str {
        match (self.region.kind(), self.region.flush_kind()) {
            (RegionKind::Dax, FlushKind::Clwb) => "dax, clwb",
            (RegionKind::Dax, FlushKind::Clflushopt) => "dax, clflushopt",
            (RegionKind::Dax, _) => "dax",
            _ => "emulated",
        }
    }

    pub(crate) fn label(&self) -> Label {
        let mut bytes = [0; Label::BYTES];
        self.region.read(0, &mut bytes);
        Label::decode(&bytes)
    }

    pub(crate) fn write_label(&self, label: &Label) {
        self.region.write(0, &label.encode());
        self.region.persist(0, Label::BYTES);
    }

    /// Writes bytes past the processor's caches.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        self.region.write_streaming(at, bytes);
    }

    /// Waits until all written bytes are durable.
    pub(crate) fn drain(&self) {
        self.region.drain();
    }

    /// Appends bytes to `out`; returns false if the region has none there.
    #[inline]
    pub(crate) fn append_to(&self, at: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let inside = at + len as u64 <= self.region.len();
        if inside {
            self.region.append_to(at, len, out);
        }
        inside
    }

    /// Reads bytes.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) {
        self.region.read(at, out);
    }
}
