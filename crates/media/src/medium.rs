//! Media as configurations name them: their specification and their kind.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use entresol_base::suggest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::ModelName;

/// A medium as written in configurations: `dram`, `pmem:PATH`, `pmem:PATH,assume-dax`, `file:PATH`,
/// `file:PATH,model=NAME` or `model:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MediumSpec {
    /// The process's own memory.
    #[default]
    Dram,
    /// Persistent memory, as a file on a DAX file system or as a DAX device.
    Pmem {
        /// The file or device that is mapped.
        path: PathBuf,
        /// True if a file outside a DAX file system, or a device of volatile memory, is accepted as
        /// persistent memory, for trials. Everything that is reported about it says «emulated».
        assume_dax: bool,
    },
    /// A file on a disk that is read and written in blocks.
    File {
        /// The file.
        path: PathBuf,
        /// Drive model to which the file is slowed, in real time. Everything that is reported about
        /// it says so.
        model: Option<ModelName>,
    },
    /// A model of a device, in virtual time: for measurements and experiments. It stores nothing.
    Model(ModelName),
}

/// Kind of a medium, without its location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MediumKind {
    /// The process's own memory.
    Dram,
    /// Persistent memory.
    Pmem,
    /// A file that is read and written in blocks.
    File,
}

impl MediumKind {
    /// Returns this kind's name in configurations and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MediumKind::Dram => "dram",
            MediumKind::Pmem => "pmem",
            MediumKind::File => "file",
        }
    }
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl MediumSpec {
    /// Returns the medium's kind.
    #[must_use]
    pub const fn kind(&self) -> MediumKind {
        match self {
            MediumSpec::Dram => MediumKind::Dram,
            MediumSpec::Pmem { .. } => MediumKind::Pmem,
            MediumSpec::File { .. } => MediumKind::File,
            MediumSpec::Model(ModelName::Dram) => MediumKind::Dram,
            MediumSpec::Model(name) if name.is_memory() => MediumKind::Pmem,
            MediumSpec::Model(_) => MediumKind::File,
        }
    }

    /// Returns the device of this medium, as far as the name tells. All of the process's memory is
    /// one device, as are the files of one folder that are slowed to one model. A path below `/dev`
    /// is a device of its own. Media on one device share its time.
    #[must_use]
    pub fn device(&self) -> String {
        let kind = self.kind();
        match self {
            MediumSpec::Dram => kind.to_string(),
            MediumSpec::Pmem { path, .. } | MediumSpec::File { path, model: None } => {
                format!("{kind}:{}", whereabouts(path).display())
            }
            MediumSpec::File { path, model: Some(model) } => {
                format!("{kind}:{},model={model}", whereabouts(path).display())
            }
            MediumSpec::Model(name) => format!("model:{name}"),
        }
    }
}

/// Returns true if the path is that of a device by its name.
pub(crate) fn is_device(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// Returns the folder of a file, or a device's own path.
fn whereabouts(path: &Path) -> &Path {
    if is_device(path) {
        return path;
    }
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    }
}

/// Error for a text that names no medium.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a medium: {reason}")]
pub struct ParseMediumError {
    text: String,
    reason: Cow<'static, str>,
}

const PATH_MISSING: &str = "a path must follow the colon (file:/var/cache/entresol/a.dat)";
const ASSUME_DAX: &str = "assume-dax";
const FORMS: &str = "write dram, pmem:PATH, pmem:PATH,assume-dax, file:PATH, \
                     file:PATH,model=NAME or model:NAME";
const OPTION_UNKNOWN: &str = "pmem takes one option behind a comma, assume-dax; \
                              a path that holds a comma cannot be used";

impl FromStr for MediumSpec {
    type Err = ParseMediumError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let spec = match text.split_once(':') {
            None if text == "dram" => Ok(MediumSpec::Dram),
            Some(("pmem", place)) => parse_pmem(place),
            Some(("file", place)) => parse_file(place),
            Some(("model", name)) => parse_model(name).map(MediumSpec::Model),
            _ => Err(FORMS.into()),
        };
        spec.map_err(|reason| ParseMediumError { text: text.to_owned(), reason })
    }
}

fn parse_pmem(place: &str) -> Result<MediumSpec, Cow<'static, str>> {
    let (path, assume_dax) = match place.split_once(',') {
        None => (place, false),
        Some((path, ASSUME_DAX)) => (path, true),
        Some((_, option)) => {
            let meant = suggest::nearest(option, [ASSUME_DAX]);
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"));
            return Err(format!("{OPTION_UNKNOWN}{meant}").into());
        }
    };
    Ok(MediumSpec::Pmem { path: parse_path(path)?, assume_dax })
}

/// Parses the text after `file:`. Text behind the last comma is an option only if it looks like
/// one, so that paths may hold commas. Text that looks like an option but is none is refused: it
/// would silently become part of the file's name.
fn parse_file(place: &str) -> Result<MediumSpec, Cow<'static, str>> {
    let (path, model) = match place.rsplit_once(",model=") {
        None => (place, None),
        Some((path, name)) => (path, Some(parse_model(name)?)),
    };
    if let Some(option) = path.rsplit_once(',').and_then(|(_, last)| misspelt_option(last)) {
        let meant = match suggest::nearest(option, ["model", ASSUME_DAX]) {
            Some("model") => "; did you mean ,model=NAME?",
            Some(_) => "; assume-dax belongs to pmem:PATH",
            None => "",
        };
        return Err(format!(
            "'{option}' is not an option of a file; it takes one behind the last comma, \
             model=NAME{meant}"
        )
        .into());
    }
    if let Some(model) = model.filter(|model| model.is_memory()) {
        let reason = format!(
            "{model} is a model of memory, and a file is slowed to a disk: {}",
            names(|model| !model.is_memory())
        );
        return Err(reason.into());
    }
    Ok(MediumSpec::File { path: parse_path(path)?, model })
}

/// Returns the name of a text that looks like an option: `word=value`, or nearly `assume-dax`.
fn misspelt_option(text: &str) -> Option<&str> {
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphabetic() || b"-_".contains(&b))
    };
    match text.split_once('=') {
        Some((word, value)) => (is_word(word) && !value.contains('/')).then_some(word),
        None => suggest::nearest(text, [ASSUME_DAX]).map(|_| text),
    }
}

fn parse_path(path: &str) -> Result<PathBuf, Cow<'static, str>> {
    if path.is_empty() { Err(PATH_MISSING.into()) } else { Ok(path.into()) }
}

fn parse_model(name: &str) -> Result<ModelName, Cow<'static, str>> {
    name.parse().map_err(|error| Cow::Owned(format!("{error}")))
}

fn names(filter: impl Fn(&ModelName) -> bool) -> String {
    let names: Vec<String> =
        ModelName::ALL.into_iter().filter(filter).map(|name| name.to_string()).collect();
    names.join(", ")
}

impl fmt::Display for MediumSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MediumSpec::Dram => f.write_str("dram"),
            MediumSpec::Pmem { path, assume_dax: false } => write!(f, "pmem:{}", path.display()),
            MediumSpec::Pmem { path, assume_dax: true } => {
                write!(f, "pmem:{},assume-dax", path.display())
            }
            MediumSpec::File { path, model: None } => write!(f, "file:{}", path.display()),
            MediumSpec::File { path, model: Some(model) } => {
                write!(f, "file:{},model={model}", path.display())
            }
            MediumSpec::Model(name) => write!(f, "model:{name}"),
        }
    }
}

impl Serialize for MediumSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MediumSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, medium: &MediumSpec) {
        assert_eq!(text.parse().as_ref(), Ok(medium), "{text}");
        assert_eq!(medium.to_string(), text);
    }

    fn file(path: &str, model: Option<ModelName>) -> MediumSpec {
        MediumSpec::File { path: path.into(), model }
    }

    #[test]
    fn files_of_one_folder_lie_on_one_device() {
        let check = |medium: &str, device: &str| {
            let medium: MediumSpec = medium.parse().expect("a medium");
            assert_eq!(medium.device(), device, "{medium}");
        };
        check("dram", "dram");
        check("pmem:/mnt/pmem0/a", "pmem:/mnt/pmem0");
        check("pmem:/mnt/pmem0/a,assume-dax", "pmem:/mnt/pmem0");
        check("file:/mnt/ssd/a", "file:/mnt/ssd");
        check("file:a", "file:.");
        check("file:/mnt/ssd/a,model=qlc-5210", "file:/mnt/ssd,model=qlc-5210");
        check("pmem:/dev/dax0.0", "pmem:/dev/dax0.0");
        check("file:/dev/nvme0n1", "file:/dev/nvme0n1");
        check("file:/dev/shm/a", "file:/dev/shm");
    }

    #[test]
    fn media_as_people_name_them() {
        check("dram", &MediumSpec::Dram);
        check("file:/a b/c,d", &file("/a b/c,d", None));
        check("file:/a,model", &file("/a,model", None));
        check("file:a,model=qlc-5210", &file("a", Some(ModelName::Qlc5210)));
        check("file:a,b,model=nvme-9300", &file("a,b", Some(ModelName::Nvme9300)));
        check("pmem:/mnt/x", &MediumSpec::Pmem { path: "/mnt/x".into(), assume_dax: false });
        check("pmem:x,assume-dax", &MediumSpec::Pmem { path: "x".into(), assume_dax: true });
        check("model:optane-ssd", &MediumSpec::Model(ModelName::OptaneSsd));
        check("model:aep", &MediumSpec::Model(ModelName::Aep));
    }

    #[test]
    fn nonsense_is_refused_with_the_forms_that_exist() {
        for text in ["", "DRAM", "ssd:/x", "pmem", "pmem:", "file:", "pmem:/x,dax", "pmem:,x"] {
            let error = text.parse::<MediumSpec>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("'{text}' is not a medium")), "{error}");
        }
    }

    #[test]
    fn a_model_that_does_not_suit_is_refused_with_those_that_do() {
        let refused = |text: &str, reason: &str| {
            let error = text.parse::<MediumSpec>().expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        };
        refused("model:", "optane-ssd");
        refused("model:qlc-5201", "did you mean 'qlc-5210'?");
        refused("file:/x,model=qlc5210", "did you mean 'qlc-5210'?");
        refused("file:/x,model=", "optane-ssd");
        refused("file:/x,model=aep", "aep is a model of memory, and a file is slowed to a disk");
        refused("file:,model=qlc-5210", "a path must follow the colon");
    }

    #[test]
    fn a_misspelt_option_is_refused_and_not_taken_for_a_part_of_the_path() {
        let refused = |text: &str, reason: &str| {
            let error = text.parse::<MediumSpec>().expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        };
        for option in ["modle", "Model", "mode", "models"] {
            let text = format!("file:/x,{option}=qlc-5210");
            refused(&text, &format!("'{option}' is not an option of a file"));
            refused(&text, "did you mean ,model=NAME?");
        }
        refused("file:/x,colour=blue", "it takes one behind the last comma, model=NAME");
        refused("file:/x,assume-dax", "belongs to pmem:PATH");
        refused("pmem:/x,asume-dax", "did you mean assume-dax?");
        // A path may hold commas and equals signs where no option can stand.
        check("file:/a,b=c/d", &file("/a,b=c/d", None));
    }

    #[test]
    fn media_travel_as_strings() {
        let medium: MediumSpec = serde_json::from_str("\"pmem:/x,assume-dax\"").expect("parses");
        assert_eq!(serde_json::to_string(&medium).expect("prints"), "\"pmem:/x,assume-dax\"");
    }
}
