//! What is wrong with a configuration of sharing, and the fix.

/// One mistake: where, what, and what to write instead.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// There is no such policy.
    #[error("there is no policy '{name}': {hint}")]
    UnknownPolicy {
        /// What was written.
        name: String,
        /// The nearest one, or all of them.
        hint: String,
    },
    /// A tenant's setting cannot be.
    #[error("tenant '{tenant}': {what}; {fix}")]
    Tenant {
        /// Which tenant.
        tenant: String,
        /// The setting's name, for finding its line.
        key: &'static str,
        /// What is wrong.
        what: String,
        /// What to do.
        fix: String,
    },
    /// A policy's parameter cannot be.
    #[error("policy '{policy}': {what}; {fix}")]
    Policy {
        /// Which policy.
        policy: &'static str,
        /// The parameter's name, for finding its line.
        key: &'static str,
        /// What is wrong.
        what: String,
        /// What to do.
        fix: String,
    },
    /// What is wrong concerns several tenants together.
    #[error("{what}; {fix}")]
    Together {
        /// The setting's name, for finding its lines.
        key: &'static str,
        /// What is wrong.
        what: String,
        /// What to do.
        fix: String,
    },
}

/// Every mistake of a configuration at once.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", self.lines())]
pub struct SettingsErrors(pub Vec<SettingsError>);

impl SettingsErrors {
    fn lines(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }
}
