//! Checks a tenant's listeners that speak TLS, and reads the files of their certificates.

use std::path::PathBuf;

use entresol_base::{Clock, SystemClock};
use toml::Spanned;

use super::access::Access;
use super::check::{Checker, span_of};
use super::{RawConfig, RawTenant, Settings, TlsSettings};
use crate::tls::{Acceptor, Files};

/// Checks the keys of a tenant's listeners that speak TLS, all of which need each other.
pub(super) fn check(
    checker: &mut Checker<'_>,
    raw: &RawTenant,
    access: Access,
) -> Option<TlsSettings> {
    let others = [
        ("tls_certificate", raw.tls_certificate.as_ref().map(Spanned::span)),
        ("tls_key", raw.tls_key.as_ref().map(Spanned::span)),
        ("tls_client_ca", raw.tls_client_ca.as_ref().map(Spanned::span)),
        ("tls_certificate_user", raw.tls_certificate_user.as_ref().map(Spanned::span)),
    ];
    let Some(listen) = &raw.tls_listen else {
        for (key, span) in others {
            if let Some(span) = span {
                let (name, listen) = (checker.origin.key(key), checker.origin.key("tls_listen"));
                let message = format!("{name} without {listen}; say where to listen, HOST:PORT");
                checker.problem(key, &span, message);
            }
        }
        return None;
    };
    for (key, given) in others.into_iter().take(2) {
        if given.is_none() {
            let (name, listen) = (checker.origin.key(key), checker.origin.key("tls_listen"));
            let message = format!("{listen} without {name}; name its PEM file");
            checker.problem("tls_listen", &listen_span(raw), message);
        }
    }
    let certificate_user = raw.tls_certificate_user.as_ref().is_some_and(|it| *it.get_ref());
    if certificate_user && (raw.tls_client_ca.is_none() || !access.users) {
        let key = "tls_certificate_user";
        let name = checker.origin.key(key);
        let (ca, users) = (checker.origin.key("tls_client_ca"), checker.origin.key("auth_file"));
        let message = format!("{name} needs {ca}, which is trusted to name users, and {users}");
        checker.problem(key, &span_of(&raw.tls_certificate_user), message);
    }
    let users = access.users || raw.tls_client_ca.is_some();
    let path = |written: &Option<Spanned<String>>| {
        written.as_ref().map(|path| PathBuf::from(path.get_ref()))
    };
    Some(TlsSettings {
        listen: checker.addresses("tls_listen", listen, Access { users, ..access }),
        certificate: path(&raw.tls_certificate).unwrap_or_default(),
        key: path(&raw.tls_key).unwrap_or_default(),
        client_ca: path(&raw.tls_client_ca),
        certificate_user,
        acceptor: None,
    })
}

fn listen_span(raw: &RawTenant) -> std::ops::Range<usize> {
    raw.tls_listen.as_ref().map(Spanned::span).unwrap_or_default()
}

/// Reads the files of all listeners that speak TLS.
pub(super) fn read(checker: &mut Checker<'_>, raw: &RawConfig, settings: &mut Settings) {
    let now = SystemClock::new().seconds();
    for (raw, tenant) in raw.tenant.iter().map(Spanned::get_ref).zip(&mut settings.tenants) {
        let Some(tls) = &mut tenant.tls else { continue };
        let files = Files {
            certificate: &tls.certificate,
            key: &tls.key,
            client_ca: tls.client_ca.as_deref(),
        };
        match Acceptor::read(files, tls.certificate_user, now) {
            Ok(acceptor) => tls.acceptor = Some(acceptor),
            Err(problem) => {
                let span = match problem.key {
                    "tls_key" => span_of(&raw.tls_key),
                    "tls_client_ca" => span_of(&raw.tls_client_ca),
                    _ => span_of(&raw.tls_certificate),
                };
                checker.problem(problem.key, &span, problem.message);
            }
        }
    }
}
