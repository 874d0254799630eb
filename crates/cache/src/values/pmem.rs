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
use crate::media::ValueRegion;

/// A region of segments.
pub(crate) enum PmemValues {
    /// A mapped file.
    Mapped(Direct),
    /// A region that the caller has opened, with its size.
    Given(Box<dyn ValueRegion>),
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
        Ok(PmemValues::Mapped(Direct::open(path, &options)?))
    }

    /// Returns the bytes for segments.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.len() - LABEL_BYTES
    }

    #[inline]
    fn len(&self) -> u64 {
        match self {
            PmemValues::Mapped(region) => region.len(),
            PmemValues::Given(region) => region.len(),
        }
    }

    pub(crate) fn access(&self) -> &'static str {
        let PmemValues::Mapped(region) = self else { return "observed" };
        match (region.kind(), region.flush_kind()) {
            (RegionKind::Dax, FlushKind::Clwb) => "dax, clwb",
            (RegionKind::Dax, FlushKind::Clflushopt) => "dax, clflushopt",
            (RegionKind::Dax, _) => "dax",
            _ => "emulated",
        }
    }

    pub(crate) fn label(&self) -> Label {
        let mut bytes = [0; Label::BYTES];
        self.read(0, &mut bytes);
        Label::decode(&bytes)
    }

    pub(crate) fn write_label(&self, label: &Label) {
        match self {
            PmemValues::Mapped(region) => region.write_durably(0, &label.encode()),
            PmemValues::Given(region) => region.write_durably(0, &label.encode()),
        }
    }

    /// Writes bytes past the processor's caches.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        match self {
            PmemValues::Mapped(region) => region.write_streaming(at, bytes),
            PmemValues::Given(region) => region.write_streaming(at, bytes),
        }
    }

    /// Waits until all written bytes are durable.
    pub(crate) fn drain(&self) {
        match self {
            PmemValues::Mapped(region) => region.drain(),
            PmemValues::Given(region) => region.drain(),
        }
    }

    /// Appends bytes to `out`; returns false if the region has none there.
    #[inline]
    pub(crate) fn append_to(&self, at: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let inside = at + len as u64 <= self.len();
        if inside {
            match self {
                PmemValues::Mapped(region) => region.append_to(at, len, out),
                PmemValues::Given(region) => region.append_to(at, len, out),
            }
        }
        inside
    }

    /// Reads bytes.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) {
        match self {
            PmemValues::Mapped(region) => region.read(at, out),
            PmemValues::Given(region) => region.read(at, out),
        }
    }
}
