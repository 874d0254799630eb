//! Names of the models, as used after `model:` and in reports.

use std::fmt;
use std::str::FromStr;

use entresol_base::suggest;

/// A device for which there is a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ModelName {
    /// The DRAM beside which seed 000 measured its AEP module.
    Dram,
    /// One Optane DC persistent memory module (AEP), processor prefetch off: seed 000.
    Aep,
    /// Two interleaved modules, prefetch on: seed 002.
    Aep2,
    /// An Optane SSD, P4800X: seed 004.
    OptaneSsd,
    /// A NAND SSD, P3700: seed 004.
    NandP3700,
    /// A NAND SSD, P3600: seed 004.
    NandP3600,
    /// A SATA NAND SSD, S3700: seed 004.
    NandS3700,
    /// The staging drive of seed 001, an `NVMe` SSD.
    Nvme9300,
    /// The capacity drive of seed 001, a SATA QLC SSD.
    Qlc5210,
}

impl ModelName {
    /// All models, memory first.
    pub const ALL: [ModelName; 9] = [
        ModelName::Dram,
        ModelName::Aep,
        ModelName::Aep2,
        ModelName::OptaneSsd,
        ModelName::NandP3700,
        ModelName::NandP3600,
        ModelName::NandS3700,
        ModelName::Nvme9300,
        ModelName::Qlc5210,
    ];

    /// Returns the name as it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ModelName::Dram => "dram",
            ModelName::Aep => "aep",
            ModelName::Aep2 => "aep2",
            ModelName::OptaneSsd => "optane-ssd",
            ModelName::NandP3700 => "nand-p3700",
            ModelName::NandP3600 => "nand-p3600",
            ModelName::NandS3700 => "nand-s3700",
            ModelName::Nvme9300 => "nvme-9300",
            ModelName::Qlc5210 => "qlc-5210",
        }
    }

    /// Returns true if the device is byte-addressable memory; the others are read and written in
    /// blocks.
    #[must_use]
    pub const fn is_memory(self) -> bool {
        matches!(self, ModelName::Dram | ModelName::Aep | ModelName::Aep2)
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a text that names no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a model: {}", hint(.nearest))]
pub struct ParseModelNameError {
    text: String,
    nearest: Option<&'static str>,
}

fn hint(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!("did you mean '{name}'?"),
        None => format!("there are {}", ModelName::ALL.map(ModelName::name).join(", ")),
    }
}

impl FromStr for ModelName {
    type Err = ParseModelNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        ModelName::ALL.into_iter().find(|model| model.name() == text).ok_or_else(|| {
            let names = ModelName::ALL.map(ModelName::name);
            ParseModelNameError { text: text.to_owned(), nearest: suggest::nearest(text, names) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_it_is_printed() {
        for model in ModelName::ALL {
            assert_eq!(model.to_string().parse(), Ok(model));
        }
    }

    #[test]
    fn a_misspelt_model_is_answered_with_the_nearest_or_with_all() {
        let message = |text: &str| text.parse::<ModelName>().expect_err(text).to_string();
        assert_eq!(message("qlc5210"), "'qlc5210' is not a model: did you mean 'qlc-5210'?");
        assert!(message("spinning rust of old").contains("dram, aep, aep2"));
    }
}
