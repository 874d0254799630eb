//! The admin listener.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Client, start, tenant};

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
