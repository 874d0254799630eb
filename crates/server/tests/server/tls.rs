//! Listeners that speak TLS, with and without certificates of clients.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use entresol_base::{ManualClock, Seconds};
use entresol_media::files;
use entresol_server::Running;
use entresol_service::auth;
use entresol_service::config::{self, Settings};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{Client, MACHINE, eventually};

/// An authority, and the folder in which it leaves what it issues.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub(crate) folder: tempfile::TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Authority { issuer, folder: tempfile::tempdir().unwrap() };
        authority.write("ca.pem", &authority.issuer.pem());
        authority.issue("server", &["localhost"], |_| {});
        authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        files::write_private(&self.path(name), text.as_bytes()).unwrap();
    }

    /// Issues `NAME.pem` and `NAME.key` to the holder of a common name, unless that is empty.
    pub(crate) fn issue(
        &self,
        common: &str,
        others: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let others: Vec<String> = others.iter().map(|name| (*name).to_owned()).collect();
        let file = if common.is_empty() { others[0].clone() } else { common.to_owned() };
        let mut params = CertificateParams::new(others).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !common.is_empty() {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write(&format!("{file}.pem"), &certificate.pem());
        self.write(&format!("{file}.key"), &key.serialize_pem());
    }

    /// A tenant with a listener that speaks TLS, on a port that the system chooses.
    pub(crate) fn tenant(&self, name: &str, more: &str) -> String {
        let folder = self.folder.path().display();
        format!(
            "[[tenant]]\nname = \"{name}\"\ndram_quota = \"64MiB\"\nvalue_limit = \"1MiB\"\ntls_listen = \
             \"127.0.0.1:0\"\ntls_certificate = \"{folder}/server.pem\"\ntls_key = \
             \"{folder}/server.key\"\n{more}\n"
        )
    }

    /// Line of the configuration by which clients must have a certificate of this authority.
    pub(crate) fn client_ca(&self) -> String {
        format!("tls_client_ca = \"{}\"\n", self.path("ca.pem").display())
    }

    /// Configuration of a client that trusts this authority and has a certificate of `holder`.
    pub(crate) fn client(&self, holder: Option<&Path>) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match holder {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let read = |ending| files::read(&path.with_extension(ending)).unwrap();
                let chain = vec![CertificateDer::from_pem_slice(&read("pem")).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(&read("key")).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }

    fn connect(&self, address: SocketAddr, holder: Option<&str>) -> Secure {
        secure(
            address,
            self.client(holder.map(|name| self.path(&format!("{name}.pem"))).as_deref()),
        )
    }
}

/// Settings whose files are read as when a server starts.
fn settings(text: &str) -> Result<Settings, String> {
    let threads = if text.contains("threads =") { "" } else { "threads = 2\n" };
    let text = format!("admin = \"off\"\n{threads}{text}");
    config::parse_with("test", &text, &MACHINE, |_| {}).map_err(|error| error.to_string())
}

pub(crate) fn start(text: &str) -> Running {
    let clock = Arc::new(entresol_base::SystemClock::new());
    entresol_server::start(settings(text).unwrap(), clock).unwrap()
}

pub(crate) fn address(running: &Running) -> SocketAddr {
    running.addresses()[0].1[0]
}

/// A client that speaks TLS.
pub(crate) struct Secure(pub(crate) StreamOwned<ClientConnection, TcpStream>);

pub(crate) fn secure(address: SocketAddr, config: Arc<ClientConfig>) -> Secure {
    let tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    tcp.set_nodelay(true).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    Secure(StreamOwned::new(ClientConnection::new(config, name).unwrap(), tcp))
}

impl Secure {
    pub(crate) fn ask(&mut self, request: &str, reply: &str) {
        self.0.write_all(request.replace('\n', "\r\n").as_bytes()).unwrap();
        self.expect(&reply.replace('\n', "\r\n"));
    }

    fn expect(&mut self, expected: &str) {
        let mut reply = vec![0; expected.len()];
        self.0.read_exact(&mut reply).unwrap();
        assert!(reply == expected.as_bytes(), "{:.200}", String::from_utf8_lossy(&reply));
    }

    /// Asks for a version; returns false if the connection is closed instead.
    fn is_served(&mut self) -> bool {
        let asked = self.0.write_all(b"mn\r\n").and_then(|()| self.0.flush());
        asked.is_ok() && self.0.read_exact(&mut [0; 4]).is_ok()
    }

    fn rest(&mut self) -> String {
        let mut reply = Vec::new();
        let _ = self.0.read_to_end(&mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    }
}

#[test]
fn requests_and_replies_are_those_of_clear_text() {
    let authority = Authority::new();
    let running = start(&authority.tenant("a", "listen = \"127.0.0.1:0\""));
    let addresses = running.addresses()[0].1.clone();
    let (clear, tls) = (addresses[0], addresses[1]);
    let mut client = authority.connect(tls, None);
    client.ask("set k 0 0 1\nv\nget k\n", "STORED\nVALUE k 0 1\nv\nEND\n");
    // A pipeline in many records, and one whose replies are larger than any buffer.
    let large = "x".repeat(1 << 20);
    client.ask(&format!("set large 0 0 {}\n{large}\n", large.len()), "STORED\n");
    Client::to(clear).ask("get k\n", "VALUE k 0 1\nv\nEND\n");
    let reply = format!("VALUE large 0 {}\n{large}\n", large.len());
    client.ask(&"get large\n".repeat(12), &format!("{reply}END\n").repeat(12));
    client.ask("get large k large\n", &format!("{reply}VALUE k 0 1\nv\n{reply}END\n"));
    client.ask(&"mn\n".repeat(20_000), &"MN\n".repeat(20_000));
    // The end of a session is said, so that no reply can be cut off unnoticed.
    client.0.write_all(b"mn\r\nquit\r\n").unwrap();
    let mut rest = Vec::new();
    client.0.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"MN\r\n");
    running.stop().unwrap();
}

#[test]
fn a_client_that_says_it_sends_no_more_gets_its_replies() {
    let authority = Authority::new();
    let running = start(&authority.tenant("a", ""));
    let mut client = authority.connect(address(&running), None);
    client.ask("mn\n", "MN\n");
    client.0.write_all(b"mn\r\nmn\r\n").unwrap();
    client.0.conn.send_close_notify();
    client.0.flush().unwrap();
    assert_eq!(client.rest(), "MN\r\nMN\r\n");
    // So does one whose socket ends without that word.
    let mut client = authority.connect(address(&running), None);
    client.0.write_all(b"mn\r\nmn\r\n").unwrap();
    client.0.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), "MN\r\nMN\r\n");
    running.stop().unwrap();
}

#[test]
fn a_slow_client_gets_large_replies_whole_while_the_buffers_stay_bounded() {
    let authority = Authority::new();
    let running = start(&format!("[limits]\noutput = \"64KiB\"\n{}", authority.tenant("a", "")));
    let mut client = authority.connect(address(&running), None);
    let large = "y".repeat(1 << 20);
    client.ask(&format!("set large 0 0 {}\n{large}\n", large.len()), "STORED\n");
    client.0.write_all("get large\r\n".repeat(30).as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    // Others are served meanwhile.
    authority.connect(address(&running), None).ask("mn\n", "MN\n");
    client.expect(&format!("VALUE large 0 {}\r\n{large}\r\nEND\r\n", large.len()).repeat(30));
    client.ask("mn\n", "MN\n");
    running.stop().unwrap();
}

#[test]
fn values_of_any_length_come_from_a_file() {
    let authority = Authority::new();
    let path = authority.path("values").display().to_string();
    let medium = format!("medium = \"file:{path}\"\nmedium_quota = \"64MiB\"");
    let running = start(&authority.tenant("a", &medium));
    let mut client = authority.connect(address(&running), None);
    let lengths = [100, 20_000, 50_000, 900_000];
    let value = |number: usize| number.to_string().repeat(lengths[number % 4]);
    let reply = |number| format!("VALUE v{number} 0 {}\n{}\n", value(number).len(), value(number));
    // The first have left the buffers in which they are gathered.
    for number in 0..9 {
        let value = value(number);
        client.ask(&format!("set v{number} 0 0 {}\n{value}\n", value.len()), "STORED\n");
    }
    let filler = "f".repeat(100_000);
    for number in 0..300 {
        client.ask(&format!("set f{number} 0 0 {}\n{filler}\n", filler.len()), "STORED\n");
    }
    let keys: String = (0..9).map(|number| format!(" v{number}")).collect();
    let replies: String = (0..9).map(reply).collect();
    for _ in 0..3 {
        client.ask(&format!("get{keys}\n"), &format!("{replies}END\n"));
    }
    let counts = running.tenants()[0].cache().statistics().events;
    assert!(counts.file_reads >= 27, "{counts:?}");
    running.stop().unwrap();
}

#[test]
fn a_record_that_is_not_whole_counts_in_buffers_and_is_not_waited_for_for_ever() {
    let authority = Authority::new();
    let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
    let limits = "threads = 1\n[limits]\nprogress_time = \"1s\"\n";
    let text = format!("{limits}{}", authority.tenant("a", ""));
    let running = entresol_server::start(settings(&text).unwrap(), clock.clone()).unwrap();
    let mut other = authority.connect(address(&running), None);
    let held = || running.tenants()[0].buffers().load(Ordering::Relaxed);
    let mut half = authority.connect(address(&running), None);
    half.ask("mn\n", "MN\n");
    eventually("an idle client holds nothing", || held() == 0);
    let mut record = Vec::new();
    let text = format!("set k 0 0 8000\r\n{}\r\n", "v".repeat(8000));
    half.0.conn.writer().write_all(text.as_bytes()).unwrap();
    half.0.conn.write_tls(&mut record).unwrap();
    half.0.sock.write_all(&record[..6000]).unwrap();
    eventually("the part is counted", || held() == 6000);
    eventually("it is closed, and nothing of it is left", || {
        clock.advance(Duration::from_secs(1));
        other.ask("mn\n", "MN\n");
        held() == 0 && running.tenants()[0].counts().idle_kicks == 1
    });
    assert_eq!(half.rest(), "");
    running.stop().unwrap();
}

#[test]
fn with_an_authority_only_clients_with_its_certificate_speak() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.issue("ann", &[], |_| {});
    other.issue("ann", &[], |_| {});
    authority.issue("late", &[], |params| params.not_after = date_time_ymd(2001, 1, 1));
    let running = start(&authority.tenant("a", &authority.client_ca()));
    let served = |holder: Option<PathBuf>| {
        secure(address(&running), authority.client(holder.as_deref())).is_served()
    };
    assert!(served(Some(authority.path("ann.pem"))));
    assert!(!served(None));
    assert!(!served(Some(other.path("ann.pem"))));
    assert!(!served(Some(authority.path("late.pem"))));
    running.stop().unwrap();
}

#[test]
fn a_certificate_names_the_user_and_thereby_the_tenant() {
    let authority = Authority::new();
    let users = authority.path("users");
    auth::add(&users, "foo", b"bar", Some("a")).unwrap();
    auth::add(&users, "bob", b"two", Some("b")).unwrap();
    auth::add(&users, "host.bob", b"two", Some("b")).unwrap();
    authority.issue("foo", &[], |_| {});
    authority.issue("bob", &["foo"], |_| {});
    authority.issue("", &["host.bob"], |_| {});
    authority.issue("eve", &["foo"], |_| {});
    let more = format!("{}tls_certificate_user = true\n", authority.client_ca());
    let text = |users: &Path| {
        let unreachable = "[[tenant]]\nname = \"b\"\ndram_quota = \"32MiB\"\n";
        let auth = format!("auth_file = \"{}\"\n", users.display());
        format!("{auth}{}{unreachable}", authority.tenant("a", &more))
    };
    let mut running = start(&text(&users));
    let connect = |running, holder| authority.connect(address(running), Some(holder));
    let mut foo = connect(&running, "foo");
    foo.ask("set k 0 0 1\nf\nget k\n", "STORED\nVALUE k 0 1\nf\nEND\n");
    let mut bob = connect(&running, "bob");
    bob.ask("get k\nset k 0 0 1\nb\n", "END\nSTORED\n");
    connect(&running, "host.bob").ask("get k\n", "VALUE k 0 1\nb\nEND\n");
    let mut eve = connect(&running, "eve");
    eve.0.write_all(b"get k\r\n").unwrap();
    assert_eq!(eve.rest(), "CLIENT_ERROR the certificate names no user\r\n");
    // A reload that removes a user closes its connections.
    auth::remove(&users, "bob").unwrap();
    running.reload(settings(&text(&users)).unwrap()).unwrap();
    assert_eq!(bob.rest(), "");
    foo.ask("get k\n", "VALUE k 0 1\nf\nEND\n");
    running.stop().unwrap();
}

#[test]
fn a_password_is_asked_for_within_tls() {
    let authority = Authority::new();
    let users = authority.path("users");
    auth::add(&users, "foo", b"bar", None).unwrap();
    let auth = format!("auth_file = \"{}\"\n", users.display());
    let running = start(&format!("{auth}{}", authority.tenant("a", "")));
    let mut client = authority.connect(address(&running), None);
    client.ask("get k\n", "CLIENT_ERROR unauthenticated\n");
    client.ask("set auth 0 0 7\nfoo bar\nget k\n", "STORED\nEND\n");
    running.stop().unwrap();
}

#[test]
fn a_reload_takes_new_certificates_for_new_connections_and_refuses_wrong_ones() {
    let (authority, other) = (Authority::new(), Authority::new());
    let text = authority.tenant("a", "");
    let mut running = start(&text);
    let mut old = authority.connect(address(&running), None);
    old.ask("mn\n", "MN\n");
    let take = |from: &Authority, name: &str| {
        let read = files::read_to_string(&from.path(name)).unwrap();
        authority.write(name, &read);
    };
    take(&other, "server.pem");
    let error = settings(&text).unwrap_err();
    assert!(error.contains("does not fit") && error.contains("server.key"), "{error}");
    assert!(authority.connect(address(&running), None).is_served(), "the old one stays");
    take(&other, "server.key");
    running.reload(settings(&text).unwrap()).unwrap();
    assert!(!authority.connect(address(&running), None).is_served());
    assert!(other.connect(address(&running), None).is_served());
    old.ask("mn\n", "MN\n");
    running.stop().unwrap();
}

#[test]
fn a_configuration_says_which_file_is_wrong_and_what_to_do() {
    let authority = Authority::new();
    authority.issue("old", &[], |params| params.not_after = date_time_ymd(2001, 2, 3));
    authority.issue("new", &[], |params| params.not_before = date_time_ymd(2101, 2, 3));
    authority.write("empty.pem", "");
    let text = authority.tenant("a", "");
    let wrong = |from: &str, to: &str, parts: &[&str]| {
        assert!(text.contains(from), "{from}");
        let error = settings(&text.replace(from, to)).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    settings(&text).unwrap();
    wrong("server.pem", "none.pem", &["test:", "cannot read", "none.pem"]);
    wrong("server.pem", "empty.pem", &["empty.pem holds no certificate"]);
    wrong("server.pem", "server.key", &["server.key holds no certificate"]);
    wrong("server.pem", "old.pem", &["old.pem", "expired on 2001-02-03", "renew"]);
    wrong("server.pem", "new.pem", &["new.pem", "not valid before 2101-02-03"]);
    wrong("server.key", "none.key", &["cannot read", "none.key"]);
    wrong("server.key", "server.pem", &["server.pem holds no private key"]);
    wrong("server.key", "old.key", &["old.key does not fit", "server.pem"]);
    wrong("tls_key", "#tls_key", &["tls_listen without tls_key"]);
    wrong("tls_listen", "listen = \"127.0.0.1:0\"\n#", &["tls_certificate without tls_listen"]);
    wrong("tls_key", "tls_certificate_user = true\ntls_key", &["tls_client_ca", "auth_file"]);
    files::set_mode(&authority.path("server.key"), 0o644).unwrap();
    wrong("server", "server", &["server.key", "chmod 600"]);
}
