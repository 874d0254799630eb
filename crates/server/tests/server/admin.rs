//! The admin listener.

use std::io::{Read, Write};
use std::net::TcpStream;

use entresol_service::config;

use crate::support::{Client, MACHINE, start, tenant};

fn fetch(running: &entresol_server::Running, path: &str) -> String {
    let mut stream = TcpStream::connect(running.admin_address().unwrap()).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn metrics_health_and_statistics() {
    let text = format!("admin = \"127.0.0.1:0\"\n{}{}", tenant("a", ""), tenant("b", ""));
    let running = start(&text);
    Client::of(&running, "a").ask("set k 0 0 1\nv\nget k\n", "STORED\nVALUE k 0 1\nv\nEND\n");

    let metrics = fetch(&running, "/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 "), "{metrics}");
    for line in [
        "# TYPE entresol_get_hits_total counter",
        "entresol_get_hits_total{tenant=\"a\"} 1",
        "entresol_get_hits_total{tenant=\"b\"} 0",
        "entresol_cache_items{tenant=\"a\"} 1",
        "entresol_medium_info{tenant=\"a\",medium=\"dram\",",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(fetch(&running, "/healthz").ends_with("ok\n"));
    let json = fetch(&running, "/stats.json");
    let body = json.split("\r\n\r\n").nth(1).unwrap();
    let value: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(value["tenants"][0]["counts"]["cmd_set"], 1);
    assert!(fetch(&running, "/nothing").starts_with("HTTP/1.1 404 "));
    running.stop().unwrap();
}

#[test]
fn a_token_is_asked_of_everybody_if_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    entresol_media::files::write_private(&path, b"0123456789abcdef\n").unwrap();
    let file = path.display();
    let text =
        format!("admin = \"127.0.0.1:0\"\nadmin_token_file = \"{file}\"\n{}", tenant("a", ""));
    let parse = || config::parse_with("test", &text, &MACHINE, |_| {});
    let clock = std::sync::Arc::new(entresol_base::SystemClock::new());
    let running = entresol_server::start(parse().unwrap(), clock).unwrap();
    let asked = |path: &str, more: &str| fetch(&running, &format!("{path} HTTP/1.1\r\n{more}X:"));
    for path in ["/", "/metrics", "/healthz", "/stats.json", "/sharing.json", "/nothing"] {
        for wrong in [
            "",
            "Authorization: \r\n",
            "Authorization: Bearer\r\n",
            "Authorization: Bearer 0123456789abcde\r\n",
            "Authorization: Bearer 0123456789abcdef0\r\n",
            "Authorization: bearer 0123456789abcdeF\r\n",
            "Authorization: 0123456789abcdef\r\n",
        ] {
            let reply = asked(path, wrong);
            assert!(reply.starts_with("HTTP/1.1 401 "), "{path} {wrong}: {reply}");
            assert!(!reply.contains("tenant"), "{reply}");
        }
    }
    // `entresol:0123456789abcdef`, as a browser sends it.
    for right in ["Bearer 0123456789abcdef", "Basic ZW50cmVzb2w6MDEyMzQ1Njc4OWFiY2RlZg=="] {
        let reply = asked("/healthz", &format!("Authorization: {right}\r\n"));
        assert!(reply.ends_with("ok\n"), "{reply}");
    }
    let address = running.admin_address().unwrap();
    assert!(entresol_server::view::fetch(address, Some("0123456789abcdef")).is_ok());
    let error = entresol_server::view::fetch(address, None).unwrap_err().to_string();
    assert!(error.contains("admin_token_file"), "{error}");
    running.stop().unwrap();

    entresol_media::files::set_mode(&path, 0o604).unwrap();
    assert!(parse().unwrap_err().to_string().contains("chmod 600"));
    entresol_media::files::write_private(&path, b"short").unwrap();
    entresol_media::files::set_mode(&path, 0o600).unwrap();
    assert!(parse().unwrap_err().to_string().contains("openssl rand"));
}

#[test]
fn clients_that_send_nothing_or_half_a_request_are_closed() {
    let running = start(&format!("admin = \"127.0.0.1:0\"\n{}", tenant("a", "")));
    let address = running.admin_address().unwrap();
    let connect = || TcpStream::connect(address).unwrap();
    let mut slow: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    for half in slow.iter_mut().step_by(2) {
        half.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
    }
    // Those beyond the limit wait until the first are closed.
    assert!(fetch(&running, "/healthz").ends_with("ok\n"));
    for mut one in slow {
        let mut rest = Vec::new();
        let _ = one.read_to_end(&mut rest);
    }
    running.stop().unwrap();
}

#[test]
fn sharing_is_shown_as_metrics_as_json_and_as_a_page() {
    let text = format!(
        "admin = \"127.0.0.1:0\"\n{}{}[sharing]\npolicy = \"limit\"\n",
        tenant("a", "share_max = \"10%\""),
        tenant("b", "")
    );
    let running = start(&text);
    let mut client = Client::of(&running, "a");
    let address = running.admin_address().unwrap();
    // The sample window may have passed: keep asking until the view has shown the answers.
    let mut seen = None;
    crate::support::eventually("what was answered is seen", || {
        for _ in 0..100 {
            client.ask("set k 0 0 1\nv\nget k\n", "STORED\nVALUE k 0 1\nv\nEND\n");
        }
        let view = entresol_server::view::fetch(address, None).unwrap();
        seen = Some(view).filter(|view| view.tenants[0].p99_us.is_some());
        seen.is_some()
    });
    let view = seen.unwrap();
    assert_eq!((view.policy.as_str(), view.media.as_slice()), ("limit", &["dram".to_owned()][..]));
    let a = &view.tenants[0];
    assert_eq!((a.name.as_str(), a.media[0].throttle.as_str()), ("a", "10.0%"));
    assert_eq!(a.promise.as_deref(), Some("at most 10.0%"));
    assert!(a.p50_us <= a.p99_us && a.p99_us <= a.p999_us, "{a:?}");
    assert_eq!(view.tenants[1].media[0].throttle, "free");
    assert_eq!(view.decisions[0].tenant.as_deref(), Some("a"));
    let words = "on dram: free -> 10.0%: the share that it was given";
    assert_eq!(view.decisions[0].text, words);

    let metrics = fetch(&running, "/metrics");
    for line in [
        "entresol_sharing_policy_info{policy=\"limit\"} 1",
        "entresol_sharing_decisions_total 1",
        "entresol_device_share_allowed{tenant=\"a\",device=\"dram\"} 0.1",
        "entresol_device_share_allowed{tenant=\"b\",device=\"dram\"} 1",
        "entresol_response_time_seconds{tenant=\"a\",quantile=\"0.99\"} ",
        "entresol_requests_per_second{tenant=\"b\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let page = fetch(&running, "/");
    assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
    assert!(
        !page.contains("http://") || page.matches("http://").count() == 1,
        "one namespace only"
    );
    running.stop().unwrap();
}

#[test]
fn whoever_is_no_admin_listener_is_told_so() {
    let running = start(&tenant("a", ""));
    let address = crate::support::address(&running, "a");
    let error = entresol_server::view::fetch(address, None).unwrap_err().to_string();
    assert!(error.contains("not as an admin listener does"), "{error}");
    running.stop().unwrap();
    let error = entresol_server::view::fetch(address, None).unwrap_err().to_string();
    assert!(error.contains("no admin listener answers"), "{error}");
}
