//! Values that lie on a block file: replies wait for reads and keep their order.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use crate::starting::refused;
use crate::support::{Client, start, tenant};

/// A tenant on a file, small enough that most values have left the write buffers.
fn on_file(folder: &tempfile::TempDir, backend: &str) -> String {
    let path = folder.path().join("medium");
    let more = format!(
        "medium = \"file:{}\"\nmedium_quota = \"64MiB\"\n\
         segment_size = \"256KiB\"\nvalue_limit = \"64KiB\"",
        path.display()
    );
    format!("io_backend = \"{backend}\"\n{}", tenant("a", &more))
}

fn value(n: usize) -> String {
    let word = format!("value-{n}-");
    word.repeat(1 + (n * 37) % 200)
}

#[test]
fn values_come_back_in_order_whatever_was_read_from_where() {
    for backend in ["auto", "threads"] {
        let folder = tempfile::tempdir().unwrap();
        let running = start(&on_file(&folder, backend));
        let mut client = Client::of(&running, "a");
        for n in 0..3000 {
            let value = value(n);
            client.ask(&format!("set k{n} 0 0 {}\n{value}\n", value.len()), "STORED\n");
        }
        let (mut request, mut reply) = (String::new(), String::new());
        for n in (0..3000).step_by(7) {
            let value = value(n);
            request += &format!("get k{n} missing{n}\nmg k{n} s v k\nmn\n");
            reply += &format!(
                "VALUE k{n} 0 {0}\n{value}\nEND\nVA {0} s{0} kk{n}\n{value}\nMN\n",
                value.len()
            );
        }
        client.ask(&request, &reply);
        let reads = running.tenants()[0].counts().medium_reads;
        assert!(reads > 100, "{backend}: {reads} reads");
        running.stop().unwrap();
    }
}

#[test]
fn changing_a_value_on_the_medium_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(&on_file(&folder, "auto"));
    let mut client = Client::of(&running, "a");
    for n in 0..200 {
        client.ask(&format!("set n{n} 0 0 2\n10\nset s{n} 3 0 3\nabc\n"), "STORED\nSTORED\n");
    }
    let filler = "f".repeat(60_000);
    for n in 0..40 {
        client.ask(&format!("set filler{n} 0 0 60000\n{filler}\n"), "STORED\n");
    }
    for n in 0..200 {
        client.ask(
            &format!("incr n{n} 5\nappend s{n} 0 0 1\nd\nprepend s{n} 0 0 1\n_\nget s{n} n{n}\n"),
            &format!("15\nSTORED\nSTORED\nVALUE s{n} 3 5\n_abcd\nVALUE n{n} 0 2\n15\nEND\n"),
        );
    }
    running.stop().unwrap();
}

#[test]
fn media_that_cannot_be_had() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    for (medium, part) in [
        ("file:/nonexistent/dir/file".to_owned(), "/nonexistent/dir"),
        (format!("file:{place}"), &*format!("{place}")),
        (format!("pmem:{place}/region"), "DAX"),
    ] {
        let more = format!("medium = \"{medium}\"\nmedium_quota = \"32MiB\"");
        refused(&tenant("a", &more), part);
    }
    // The first tenant's file must not stay behind when the second cannot be had.
    let first = format!("medium = \"file:{place}/first\"\nmedium_quota = \"32MiB\"");
    let second = "medium = \"file:/nonexistent/dir/file\"\nmedium_quota = \"32MiB\"";
    refused(&format!("{}{}", tenant("a", &first), tenant("b", second)), "'b'");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
