//! Where values lie: beside their keys in DRAM, in persistent memory, or in whole segments on a
//! block file.

use std::sync::Arc;

use entresol_base::ByteSize;
use entresol_media::{
    Access, Account, AccountHandle, BlockOptions, CostTable, MediumKind, MediumSpec,
};

use crate::cache::Shared;
use crate::config::Config;
use crate::error::{OpenError, ResizeError};
use crate::file::FileValues;
use crate::label::{LABEL_BYTES, Label, MAGIC};
use crate::plan::Plan;
use crate::pmem::PmemValues;

/// Where a cache's values lie.
pub(crate) enum Values {
    /// In the records themselves.
    Inline,
    /// In a mapped region.
    Pmem(PmemValues),
    /// On a block file, but for those in write buffers.
    File(FileValues),
}

/// Where one value was found.
pub(crate) enum ValueAt {
    /// It was copied.
    Memory,
    /// It was copied from this place of persistent memory, and this is its checksum.
    Pmem { offset: u64, checksum: u32 },
    /// It must be read from here.
    File { offset: u64, checksum: u32, segment: u32, sequence: u64 },
    /// The record was torn, or its segment is gone.
    Gone,
}

impl ValueAt {
    /// What a value that was copied must have as its checksum, if it came from a medium that can
    /// damage it.
    #[inline]
    pub(crate) fn checksum(&self) -> Option<u32> {
        match self {
            ValueAt::Pmem { checksum, .. } => Some(*checksum),
            _ => None,
        }
    }

    /// Charges the reading of a value and, where it lies beside it, its key.
    #[inline]
    pub(crate) fn charge_read(&self, account: &mut AccountHandle, key_len: usize, len: usize) {
        match self {
            ValueAt::Pmem { offset, .. } => account.charge_units(Access::Read, *offset, len),
            _ => account.charge(Access::Read, key_len + len),
        }
    }
}

impl Values {
    /// Opens the medium and its account.
    pub(crate) fn open(config: &Config, plan: &Plan) -> Result<(Values, Arc<Account>), OpenError> {
        let bytes = plan.medium_bytes;
        let values = match &config.medium {
            MediumSpec::Dram => Values::Inline,
            MediumSpec::Pmem { path, assume_dax } => {
                Values::Pmem(PmemValues::open(path, *assume_dax, bytes)?)
            }
            MediumSpec::File { path, model } => {
                let options = BlockOptions {
                    create: Some(LABEL_BYTES + bytes),
                    grow: true,
                    magic: Some(MAGIC),
                    backend: config.io_backend,
                    model: *model,
                    ..BlockOptions::default()
                };
                let segment_bytes = plan.segment_bytes;
                Values::File(FileValues::open(path, &options, plan.buffers, segment_bytes)?)
            }
            medium => {
                let (tenant, medium) = (config.name.clone(), medium.to_string());
                return Err(OpenError::Medium { tenant, medium });
            }
        };
        let published = || Arc::new(CostTable::default_for(values.kind()));
        let costs = config.costs.clone().unwrap_or_else(published);
        Ok((values, Account::new(config.medium.to_string(), costs)))
    }

    /// The label that the medium bears; none in DRAM.
    pub(crate) fn label(&self) -> Option<Label> {
        match self {
            Values::Inline => None,
            Values::Pmem(pmem) => Some(pmem.label()),
            // A label that cannot be read is nobody's.
            Values::File(file) => Some(file.label().unwrap_or(Label { format: 0, life: 0 })),
        }
    }

    /// Labels the medium.
    pub(crate) fn write_label(&self, label: &Label) -> std::io::Result<()> {
        match self {
            Values::Inline => Ok(()),
            Values::Pmem(pmem) => {
                pmem.write_label(label);
                Ok(())
            }
            Values::File(file) => file.write_label(label),
        }
    }

    /// Sees to it that the medium has this many bytes for segments.
    pub(crate) fn provide(&self, bytes: u64) -> Result<(), ResizeError> {
        match self {
            Values::Inline => Ok(()),
            Values::Pmem(pmem) if pmem.capacity_bytes() < bytes => Err(ResizeError::TooLarge {
                quota: "medium quota",
                given: ByteSize(bytes),
                most: ByteSize(pmem.capacity_bytes()),
            }),
            Values::Pmem(_) => Ok(()),
            Values::File(file) => file.provide(bytes),
        }
    }

    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        !matches!(self, Values::Inline)
    }

    pub(crate) fn kind(&self) -> MediumKind {
        match self {
            Values::Inline => MediumKind::Dram,
            Values::Pmem(_) => MediumKind::Pmem,
            Values::File(_) => MediumKind::File,
        }
    }

    /// How the medium is reached, for logs and statistics.
    pub(crate) fn access(&self) -> &'static str {
        match self {
            Values::Inline => "anonymous memory",
            Values::Pmem(pmem) => pmem.access(),
            Values::File(file) => file.access(),
        }
    }

    /// Where the first segment starts on the medium.
    #[inline]
    pub(crate) fn data_start(&self) -> u64 {
        LABEL_BYTES
    }

    /// What reads of a block file must be multiples of.
    pub(crate) fn read_alignment(&self) -> u64 {
        match self {
            Values::File(file) => file.read_alignment(),
            Values::Inline | Values::Pmem(_) => 1,
        }
    }

    /// Whether segments are on their way to the medium.
    pub(crate) fn is_writing(&self) -> bool {
        matches!(self, Values::File(file) if file.is_writing())
    }

    /// Starts what works in the background.
    pub(crate) fn start(&self, shared: &Arc<Shared>) -> Result<(), OpenError> {
        match self {
            Values::File(file) => file.start(shared),
            Values::Inline | Values::Pmem(_) => Ok(()),
        }
    }

    /// Ends it, once what was begun is done.
    pub(crate) fn stop(&self) {
        if let Values::File(file) = self {
            file.stop();
        }
    }
}
