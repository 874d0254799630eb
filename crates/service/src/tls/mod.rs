//! Certificates of the listeners that speak TLS, and the names of clients that have one. Records
//! and handshakes are the server's.

mod certificate;

use std::path::Path;
use std::sync::Arc;

use entresol_base::Seconds;
use entresol_media::files;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

/// Bytes of the server's certificate and those of its issuers together: a client that has shown
/// nothing yet makes the server hold them.
const CHAIN_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a file of certificates or of a key.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Bits of a file's mode that let every user of the machine read, write or execute it.
const OTHERS: u32 = 0o007;

/// A listener's certificate and key, and what it asks of clients.
#[derive(Clone)]
pub struct Acceptor {
    /// Configuration of a connection.
    pub config: Arc<ServerConfig>,
    /// True if a client's certificate names its user.
    pub names_user: bool,
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("names_user", &self.names_user).finish_non_exhaustive()
    }
}

impl PartialEq for Acceptor {
    /// Two that were read apart differ, since their files may have changed in between.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.names_user == other.names_user
    }
}

impl Eq for Acceptor {}

/// Problem of one of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsProblem {
    /// Key of the configuration that names the file.
    pub key: &'static str,
    /// Description with the file and the fix.
    pub message: String,
}

/// Files of a listener's certificates.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// The server's certificate and those of its issuers, its own first.
    pub certificate: &'a Path,
    /// Key of the server's certificate.
    pub key: &'a Path,
    /// Authorities of which clients must have a certificate.
    pub client_ca: Option<&'a Path>,
}

impl Acceptor {
    /// Reads the files and checks that they belong together and are valid at `now`.
    ///
    /// # Errors
    /// The first problem.
    pub fn read(files: Files<'_>, names_user: bool, now: Seconds) -> Result<Self, TlsProblem> {
        let certificate = files.certificate.display();
        let problem = |key, message: String| TlsProblem { key, message };
        let of_certificate = |message| problem("tls_certificate", message);
        let chain = read_certificates(files.certificate, now).map_err(of_certificate)?;
        let bytes: usize = chain.iter().map(|one| one.len()).sum();
        if bytes > CHAIN_BYTES_MAX {
            return Err(of_certificate(format!(
                "{certificate} holds {bytes} bytes of certificates; {CHAIN_BYTES_MAX} are allowed: \
                 leave out the root and what is not an issuer of the first"
            )));
        }
        let key = read_key(files.key).map_err(|message| problem("tls_key", message))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| of_certificate(format!("TLS 1.3 is not available: {error}")))?;
        let builder = match files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let of_ca = |message| problem("tls_client_ca", message);
                let mut roots = RootCertStore::empty();
                for one in read_certificates(path, now).map_err(of_ca)? {
                    roots.add(one).map_err(|error| of_ca(unusable(path, &error)))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        // Names of authorities would make every handshake longer.
                        .clear_root_hint_subjects()
                        .build()
                        .map_err(|error| of_ca(unusable(path, &error)))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => problem(
                "tls_key",
                format!(
                    "the key in {} does not fit the first certificate in {certificate}; name the \
                     key that the certificate was made for, and put that certificate first",
                    files.key.display()
                ),
            ),
            error => of_certificate(unusable(files.certificate, &error)),
        })?;
        // Each connection shows its certificate: a resumed session would outlive a reload.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Acceptor { config: Arc::new(config), names_user })
    }
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}; make the certificate anew, for instance with openssl", path.display())
}

/// Name that a client's certificate gives its holder.
#[must_use]
pub fn holder(certificate: &CertificateDer<'_>) -> Option<String> {
    certificate::holder(certificate)
}

fn read_file(path: &Path, fix: &str) -> Result<Vec<u8>, String> {
    let failed = |error| format!("cannot read {}: {error}; {fix}", path.display());
    let bytes = files::len(path).map_err(failed)?;
    if bytes > FILE_BYTES_MAX {
        let path = path.display();
        return Err(format!("{path} has {bytes} bytes; {FILE_BYTES_MAX} are allowed; {fix}"));
    }
    files::read(path).map_err(failed)
}

/// Reads certificates, all of which must be valid at `now`.
fn read_certificates(path: &Path, now: Seconds) -> Result<Vec<CertificateDer<'static>>, String> {
    let fix = "name a PEM file of certificates that the server's account may read";
    let text = read_file(path, fix)?;
    let name = path.display();
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| format!("{name} is not PEM: {error}; {fix}"))?;
    if all.is_empty() {
        return Err(format!("{name} holds no certificate; {fix}"));
    }
    for one in &all {
        let Some(validity) = certificate::validity(one) else {
            return Err(format!("{name} holds a certificate that cannot be read; {fix}"));
        };
        if validity.until < now {
            let date = validity.until.date();
            return Err(format!("{name} holds a certificate that expired on {date}; renew it"));
        }
        if validity.from > now {
            let date = validity.from.date();
            return Err(format!(
                "{name} holds a certificate that is not valid before {date}; wait until then, or \
                 set this machine's clock"
            ));
        }
    }
    Ok(all)
}

/// Reads a key, from a file that only its owner and group may read.
fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let fix = "name a PEM file of an unencrypted key that the server's account may read";
    let name = path.display();
    let text = read_file(path, fix)?;
    let mode = files::mode(path).map_err(|error| format!("cannot read {name}: {error}; {fix}"))?;
    if mode & OTHERS != 0 {
        return Err(format!(
            "{name}: its mode is {mode:o}, so that every user of this machine may read or change \
             it; set it with chmod 600"
        ));
    }
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|error| format!("{name} holds no private key: {error}; {fix}"))
}
