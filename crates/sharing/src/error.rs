//! Errors of a sharing configuration, with their fixes.

/// A mistake: its place, what is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The policy does not exist.
    #[error("there is no policy '{name}': {hint}")]
    UnknownPolicy {
        /// Name as written.
        name: String,
        /// Nearest policy, or all of them.
        hint: String,
    },
    /// A tenant's setting is invalid.
    #[error("tenant '{tenant}': {what}; {fix}")]
    Tenant {
        /// Name of the tenant.
        tenant: String,
        /// Name of the setting, for finding its line.
        key: &'static str,
        /// Description of the mistake.
        what: String,
        /// Fix of the mistake.
        fix: String,
    },
    /// A policy's parameter is invalid.
    #[error("policy '{policy}': {what}; {fix}")]
    Policy {
        /// Name of the policy.
        policy: &'static str,
        /// Name of the parameter, for finding its line.
        key: &'static str,
        /// Description of the mistake.
        what: String,
        /// Fix of the mistake.
        fix: String,
    },
    /// Settings of several tenants are invalid together.
    #[error("{what}; {fix}")]
    Together {
        /// Name of the setting, for finding its lines.
        key: &'static str,
        /// Description of the mistake.
        what: String,
        /// Fix of the mistake.
        fix: String,
    },
}

/// All mistakes of a configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", self.lines())]
pub struct SettingsErrors(pub Vec<SettingsError>);

impl SettingsErrors {
    fn lines(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }
}
