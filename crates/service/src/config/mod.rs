//! Configuration of a server, read from a TOML file or from flags. It is checked as a whole and
//! becomes [`Settings`] that later code can trust.
//!
//! Deliberately absent: opening anything. A configuration can be checked on a machine that does
//! not run it; names of hosts are looked up where it is checked.

mod access;
mod admission;
mod check;
mod file;
mod locate;
mod parameters;
mod places;
mod settings;
mod sharing;
mod tls;

pub use access::read_token;
pub use check::Machine;
pub(crate) use file::Origin;
pub use file::{
    RawConfig, RawGroup, RawLimits, RawParameters, RawSharing, RawTenant, SizeText, TextOrList,
};
pub use settings::{
    AdminAddress, AdminToken, Authentication, ConnectionLimits, Settings, TCP_BACKLOG,
    TenantSettings, TlsSettings,
};
pub use toml::Spanned;

use std::fmt;

use entresol_base::list;

/// One thing that is wrong with a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `FILE:LINE`, a flag's name, or the file alone if no line is to blame.
    pub place: String,
    /// Description of the problem and its fix, on one line.
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
        // A flag's name is the place and often begins the message too.
        if message.starts_with(&self.place) {
            return f.write_str(&message);
        }
        write!(f, "{}: {message}", self.place)
    }
}

/// All problems of a configuration; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// Problems in the order of the file.
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
/// All problems of the configuration.
pub fn parse(name: &str, text: &str, machine: &Machine) -> Result<Settings, ConfigError> {
    let origin = Origin::file(name, text);
    let raw = file::read(&origin)?;
    check::check(&raw, &origin, machine)
}

/// Checks a configuration that was given by flags, also against this machine.
///
/// # Errors
/// All problems of the configuration.
pub fn from_flags(raw: &RawConfig, machine: &Machine) -> Result<Settings, ConfigError> {
    let mut settings = check::check(raw, &Origin::Flags, machine)?;
    places::check(raw, &mut settings, &Origin::Flags)?;
    Ok(settings)
}

/// Reads a configuration file and lets `override_with` put flags over it. The result is checked,
/// also against the files of this machine that it names.
///
/// # Errors
/// All problems of the configuration.
pub fn parse_with(
    name: &str,
    text: &str,
    machine: &Machine,
    override_with: impl FnOnce(&mut RawConfig),
) -> Result<Settings, ConfigError> {
    let origin = Origin::file(name, text);
    let mut raw = file::read(&origin)?;
    override_with(&mut raw);
    let mut settings = check::check(&raw, &origin, machine)?;
    places::check(&raw, &mut settings, &origin)?;
    Ok(settings)
}

#[cfg(test)]
mod tests;
