//! The media of values: DRAM beside the keys, persistent memory, or whole segments on a block file.

pub(crate) mod file;
pub(crate) mod pmem;

use std::sync::Arc;

use entresol_base::ByteSize;
use entresol_base::checksum::crc32c;
use entresol_media::{
    Access, Account, AccountHandle, BlockOptions, CostTable, MediumKind, MediumSpec,
};

use crate::config::Config;
use crate::config::plan::Plan;
use crate::error::{OpenError, ResizeError};
use crate::label::{LABEL_BYTES, Label, MAGIC};
use crate::media::Medium;
use crate::values::file::FileValues;
use crate::values::pmem::PmemValues;

/// Values of a cache, by medium.
pub(crate) enum Values {
    /// Values in the records themselves.
    Inline,
    /// Values in a mapped region of persistent memory.
    Pmem(PmemValues),
    /// Values on a block file, except those still in write buffers.
    File(FileValues),
}

/// Result of fetching one value.
pub(crate) enum ValueAt {
    /// Copied from DRAM.
    Memory,
    /// Copied from this offset of persistent memory; the checksum is the one that it must have.
    Pmem { offset: u64, checksum: u32 },
    /// Left to be read from this offset of the block file.
    File { offset: u64, checksum: u32, segment: u32, sequence: u64 },
    /// Lost: the record was torn, or its segment was recycled.
    Gone,
}

impl ValueAt {
    /// Returns true if the bytes that were copied are those that were written. Values in DRAM have
    /// no checksum, and those in pieces are checked piece by piece.
    #[inline]
    pub(crate) fn is_intact(&self, bytes: &[u8]) -> bool {
        match self {
            ValueAt::Pmem { checksum, .. } => crc32c(bytes) == *checksum,
            _ => true,
        }
    }

    /// Charges the read of a value and, where its key lies beside it, of that.
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
                Values::File(FileValues::open(path, &options, plan)?)
            }
            medium => {
                let (tenant, medium) = (config.name.clone(), medium.to_string());
                return Err(OpenError::Medium { tenant, medium });
            }
        };
        let account = values.account(config);
        Ok((values, account))
    }

    /// Takes a medium that the caller has opened, and opens its account.
    pub(crate) fn over(
        medium: Medium,
        config: &Config,
        plan: &Plan,
    ) -> Result<(Values, Arc<Account>), OpenError> {
        let bytes = LABEL_BYTES + plan.medium_bytes;
        let values = match medium {
            Medium::Dram => Values::Inline,
            Medium::Region(region) if region.len() < bytes => {
                return Err(OpenError::QuotaTooLarge {
                    quota: "medium quota",
                    tenant: config.name.clone(),
                    given: ByteSize(plan.medium_bytes),
                    limit: "the region",
                    available: ByteSize(region.len()),
                });
            }
            Medium::Region(region) => Values::Pmem(PmemValues::Given(region)),
            Medium::File(file) => {
                if file.len() < bytes {
                    file.set_len(bytes)?;
                }
                Values::File(FileValues::over(file, plan)?)
            }
        };
        if values.kind() != config.medium.kind() {
            let (tenant, medium) = (config.name.clone(), config.medium.to_string());
            return Err(OpenError::Medium { tenant, medium });
        }
        let account = values.account(config);
        Ok((values, account))
    }

    fn account(&self, config: &Config) -> Arc<Account> {
        let published = || Arc::new(CostTable::default_for(self.kind()));
        let costs = config.costs.clone().unwrap_or_else(published);
        Account::new(config.medium.to_string(), costs)
    }

    /// Returns the label on the medium; none in DRAM.
    pub(crate) fn label(&self) -> Option<Label> {
        match self {
            Values::Inline => None,
            Values::Pmem(pmem) => Some(pmem.label()),
            // A label that cannot be read belongs to no cache.
            Values::File(file) => Some(file.label().unwrap_or(Label { format: 0, life: 0 })),
        }
    }

    /// Writes a label to the medium.
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

    /// Ensures that the medium has this many bytes for segments.
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

    /// Names the way the medium is reached, for logs and statistics.
    pub(crate) fn access(&self) -> &'static str {
        match self {
            Values::Inline => "anonymous memory",
            Values::Pmem(pmem) => pmem.access(),
            Values::File(file) => file.access(),
        }
    }

    /// Returns the offset of the first segment on the medium.
    #[inline]
    pub(crate) fn data_start(&self) -> u64 {
        LABEL_BYTES
    }

    /// Returns the alignment of reads from a block file.
    pub(crate) fn read_alignment(&self) -> u64 {
        match self {
            Values::File(file) => file.read_alignment(),
            Values::Inline | Values::Pmem(_) => 1,
        }
    }

    /// Returns true while segments are being written to the medium.
    pub(crate) fn is_writing(&self) -> bool {
        matches!(self, Values::File(file) if file.is_writing())
    }

    /// Stops the background writer after it has finished what it was given.
    pub(crate) fn stop(&self) {
        if let Values::File(file) = self {
            file.stop();
        }
    }
}
