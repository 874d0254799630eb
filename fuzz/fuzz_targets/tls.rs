//! A client's side of TLS under any change of its bytes, and any bytes as a certificate. The
//! server's session never panics, holds little, completes a handshake that was left alone, and
//! hands out no clear text that the client did not send.
#![no_main]

use std::io::Read;
use std::sync::{Arc, LazyLock};

use entresol_base::{Clock, SystemClock};
use entresol_service::tls::{Acceptor, Files, holder};
use libfuzzer_sys::fuzz_target;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};

/// Clear text that the client sends.
const REQUEST: &[u8] = b"mg key v\r\n";
/// Turns of both sides after which a handshake has ended.
const TURNS: usize = 8;

static SIDES: LazyLock<(Acceptor, Arc<ClientConfig>)> =
    LazyLock::new(|| sides().expect("certificates"));

fuzz_target!(|input: &[u8]| {
    let _ = holder(&CertificateDer::from(input));
    let (acceptor, client) = &*SIDES;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("a configuration");
    let mut server = ServerConnection::new(Arc::clone(&acceptor.config)).expect("the same");
    let mut changes = input.chunks_exact(3);
    let (mut is_changed, mut received) = (false, Vec::new());
    for turn in 0..TURNS {
        if turn == 2 {
            std::io::Write::write_all(&mut client.writer(), REQUEST).expect("room");
        }
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).expect("a vector has room");
        }
        if let Some(&[high, low, by]) = changes.next()
            && !flight.is_empty()
        {
            let at = (usize::from(high) << 8 | usize::from(low)) % flight.len();
            is_changed |= by != 0;
            flight[at] ^= by;
        }
        if take(&mut server, &flight, &mut received).is_err() {
            assert!(is_changed, "a handshake that was left alone has failed");
            return;
        }
        let mut answer = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut answer).expect("a vector has room");
        }
        let mut answer = &answer[..];
        while !answer.is_empty() {
            if client.read_tls(&mut answer).is_err() || client.process_new_packets().is_err() {
                assert!(is_changed, "the client refuses an answer");
                return;
            }
        }
    }
    assert!(REQUEST.starts_with(&received), "received {received:?}");
    if !is_changed {
        assert_eq!(received, REQUEST);
        let chain = server.peer_certificates().expect("the client shows one");
        assert_eq!(holder(&chain[0]).as_deref(), Some("fuzz"));
    }
});

/// Lets the server take a flight, and appends the clear text in it.
fn take(
    server: &mut ServerConnection,
    mut flight: &[u8],
    received: &mut Vec<u8>,
) -> Result<(), Box<dyn std::error::Error>> {
    while !flight.is_empty() {
        server.read_tls(&mut flight)?;
        server.process_new_packets()?;
        let mut room = [0; 256];
        while let Ok(count) = server.reader().read(&mut room)
            && count > 0
        {
            received.extend_from_slice(&room[..count]);
        }
    }
    Ok(())
}

/// Makes an authority, and with its certificates a server that asks for one and a client.
fn sides() -> Result<(Acceptor, Arc<ClientConfig>), Box<dyn std::error::Error>> {
    let authority_key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key)?;
    let issuer = Issuer::new(params, authority_key);
    let server_key = KeyPair::generate()?;
    let server =
        CertificateParams::new(vec!["localhost".into()])?.signed_by(&server_key, &issuer)?;
    let client_key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "fuzz");
    let client = params.signed_by(&client_key, &issuer)?;

    let scratch = tempfile::tempdir()?;
    let (certificate, key, client_ca) =
        (scratch.path().join("server"), scratch.path().join("key"), scratch.path().join("ca"));
    std::fs::write(&certificate, server.pem())?;
    std::fs::write(&key, server_key.serialize_pem())?;
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    std::fs::write(&client_ca, authority.pem())?;
    let files = Files { certificate: &certificate, key: &key, client_ca: Some(&client_ca) };
    let now = SystemClock::new().seconds();
    let acceptor = Acceptor::read(files, true, now).map_err(|problem| problem.message)?;

    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(client_key.serialize_der())?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![client.der().clone()], key)?;
    Ok((acceptor, Arc::new(client)))
}
