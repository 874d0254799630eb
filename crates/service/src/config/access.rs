//! Checks who may reach a listener, and reads the files that say so.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use entresol_media::files;

use super::check::{Checker, span_of};
use super::{Origin, RawConfig, RawLimits, Settings};
use crate::auth::{User, Users};

const AUTH_TIME_DEFAULT: Duration = Duration::from_secs(10);
/// Characters of the admin listener's token.
const TOKEN_CHARS_MIN: usize = 16;
const TOKEN_CHARS_MAX: usize = 1024;
/// Bits of a file's mode that let every user of the machine read, write or execute it.
const OTHERS: u32 = 0o007;

/// Permissions of the whole server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    /// True if every client that reaches the machine may speak.
    pub(super) remote: bool,
    /// True if only users with a password may speak.
    pub(super) users: bool,
}

/// Refuses a tenant's listener that other machines can reach, if it has neither users nor
/// permission.
pub(super) fn may_listen(
    checker: &mut Checker<'_>,
    key: &str,
    span: &Range<usize>,
    address: SocketAddr,
    access: Access,
) {
    if address.ip().is_loopback() || access.users || access.remote {
        return;
    }
    let (users, allow) = match checker.origin {
        Origin::Flags => ("--auth-file FILE", "--allow-remote"),
        Origin::File { .. } => ("auth_file at the top", "allow_remote = true there"),
    };
    let certificates = match key {
        "tls_listen" => {
            format!("{} for clients with certificates, ", checker.origin.key("tls_client_ca"))
        }
        _ => String::new(),
    };
    let message = format!(
        "{address} is reachable from other machines and asks for no password; listen on \
         127.0.0.1, set {users}, {certificates}or set {allow} if the network is trusted"
    );
    checker.problem(key, span, message);
}

/// Refuses an admin listener that other machines can reach without a token.
pub(super) fn may_administer(
    checker: &mut Checker<'_>,
    span: &Range<usize>,
    address: SocketAddr,
    has_token: bool,
) {
    if address.ip().is_loopback() || has_token {
        return;
    }
    let token = match checker.origin {
        Origin::Flags => "--admin-token-file FILE",
        Origin::File { .. } => "admin_token_file at the top",
    };
    let message = format!(
        "{address} is reachable from other machines and asks for no token; use 127.0.0.1, or \
         set {token}"
    );
    checker.problem("admin", span, message);
}

/// Time within which a client must authenticate.
pub(super) fn auth_time(checker: &mut Checker<'_>, raw: &RawLimits) -> Duration {
    let time = checker.duration("auth_time", &raw.auth_time, AUTH_TIME_DEFAULT);
    if time.is_zero() {
        let message = "auth_time is 0s; give clients some time to authenticate, such as 10s";
        checker.problem("auth_time", &span_of(&raw.auth_time), message.to_owned());
    }
    time
}

/// Reads the file of users, each of whom must have a tenant.
pub(super) fn read_users(checker: &mut Checker<'_>, raw: &RawConfig, settings: &mut Settings) {
    let Some(auth) = &mut settings.auth else { return };
    let span = span_of(&raw.auth_file);
    let users = match Users::read(&auth.file) {
        Ok(users) => users,
        Err(error) => return checker.problem("auth_file", &span, error.to_string()),
    };
    let mut names = settings.tenants.iter().map(|tenant| tenant.name.as_str());
    let only = settings.tenants.len() == 1;
    let problem = |user: &User| match &user.tenant {
        None if only => None,
        None => Some("names no tenant, and there are several".to_owned()),
        Some(tenant) => (!names.clone().any(|name| name == tenant))
            .then(|| format!("names the tenant '{tenant}', which there is not")),
    };
    let wrong = users.iter().find_map(|user| Some((user, problem(user)?)));
    if let Some((user, problem)) = wrong {
        let (file, first) = (auth.file.display(), names.next().unwrap_or_default());
        let message = format!(
            "{file}: user '{}' {problem}; set it with `entresol user add --tenant`, such as \
             --tenant {first}",
            user.name
        );
        return checker.problem("auth_file", &span, message);
    }
    auth.users = users;
}

/// Reads the admin listener's token.
pub(super) fn read_admin_token(
    checker: &mut Checker<'_>,
    raw: &RawConfig,
    settings: &mut Settings,
) {
    let Some(token) = &mut settings.admin_token else { return };
    match read_token(&token.file) {
        Ok(secret) => token.secret = secret,
        Err(problem) => {
            let message = format!("{}: {problem}", token.file.display());
            checker.problem("admin_token_file", &span_of(&raw.admin_token_file), message);
        }
    }
}
/// Reads the token of an admin listener, from a file that only its owner and group may read.
///
/// # Errors
/// If it cannot be read, or is no token.
pub fn read_token(file: &Path) -> Result<String, String> {
    let mode = files::mode(file).map_err(|error| error.to_string())?;
    if mode & OTHERS != 0 {
        return Err(format!(
            "its mode is {mode:o}, so that every user of this machine may read or change it; set \
             it with chmod 600"
        ));
    }
    let text = files::read_to_string(file).map_err(|error| error.to_string())?;
    let token = text.trim_end();
    let (length, graphic) = (token.len(), token.bytes().all(|byte| byte.is_ascii_graphic()));
    if !(TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&length) || !graphic {
        return Err(format!(
            "a token is one line of {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} printable ASCII \
             characters without spaces; `openssl rand -hex 32` makes one"
        ));
    }
    Ok(token.to_owned())
}
