//! What a server is configured with: read from a TOML file or from flags, checked as a whole, and
//! turned into [`Settings`] that nothing downstream needs to doubt.
//!
//! Deliberately absent: opening anything. A configuration can be checked on a machine that does
//! not run it; names of hosts are looked up where it is checked.

mod check;
mod file;
mod locate;
mod parameters;
mod places;
mod settings;
mod sharing;

pub use check::Machine;
pub use file::{
    Origin, RawConfig, RawGroup, RawLimits, RawParameters, RawSharing, RawTenant, SizeText,
    TextOrList,
};
pub use settings::{AdminAddress, ConnectionLimits, Settings, TenantSettings};
pub use toml::Spanned;

use std::fmt;

use entresol_base::list;

/// One thing that is wrong with a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `FILE:LINE`, a flag's name, or the file alone where no line is to blame.
    pub place: String,
    /// What is wrong and how to put it right, on one line.
    pub message: String,
}

impl Problem {
    /// The message without what differs between like problems: names in quotes, and numbers.
    fn kind(&self) -> String {
        let unquoted = self.message.split(['\'', '"']).step_by(2);
        unquoted.flat_map(str::chars).filter(|it| !it.is_ascii_digit()).collect()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.replace('\n', " ");
        // A flag's name is the place and often begins the message, too.
        if message.starts_with(&self.place) {
            return f.write_str(&message);
        }
        write!(f, "{}: {message}", self.place)
    }
}

/// Everything that is wrong with a configuration; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The problems, in the order of the file.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&list::shortened_by(&self.problems, |it| it.kind()).join("\n"))
    }
}

/// Reads and checks the text of a configuration file called `name`, for `machine`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(name: &str, text: &str, machine: &Machine) -> Result<Settings, ConfigError> {
    let origin = Origin::file(name, text);
    let raw = file::read(&origin)?;
    check::check(&raw, &origin, machine)
}

/// Checks what was given by flags.
///
/// # Errors
/// Everything that is wrong with it.
pub fn from_flags(raw: &RawConfig, machine: &Machine) -> Result<Settings, ConfigError> {
    check::check(raw, &Origin::Flags, machine)
}

/// Reads the text of a configuration file, lets `override_with` put flags over it, and checks the
/// result, also against the files that it names on this machine.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse_with(
    name: &str,
    text: &str,
    machine: &Machine,
    override_with: impl FnOnce(&mut RawConfig),
) -> Result<Settings, ConfigError> {
    let origin = Origin::file(name, text);
    let mut raw = file::read(&origin)?;
    override_with(&mut raw);
    let settings = check::check(&raw, &origin, machine)?;
    places::check(&raw, &settings, &origin)?;
    Ok(settings)
}

#[cfg(test)]
mod tests;
