//! Conversations written down one by one, most of them about what must be refused.

use crate::{check, peers};

/// Each line is a case: sends parted by ` => `, with `\r\n` and the like spelt out; a line that
/// begins with `=>` goes on with the case before. A connection each, so that a case that ends it
/// spoils no other.
#[track_caller]
fn check_all(cases: &str) {
    let mut told = Vec::new();
    let lines: Vec<&str> = cases.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for case in lines.join("\n").replace("\n=>", " =>").lines() {
        let sends: Vec<String> = case.split(" => ").map(unescape).collect();
        if let Err(difference) = check(&sends) {
            told.push(difference);
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
}

fn unescape(send: &str) -> String {
    let send = send.replace("{251}", &"z".repeat(251));
    send.replace(r"\r\n", "\r\n").replace(r"\n", "\n")
}

#[test]
fn text_commands() {
    check_all(
        r"
        get %k\r\n => set %k 5 0 3\r\nabc\r\n => get %k\r\n => gets %k %kx %k\r\n => gets %k\r\n
        set %k 4294967295 0 0\r\n\r\n => get %k\r\n => get %k\n
        add %k 0 0 1\r\na\r\n => add %k 0 0 1\r\nb\r\n => replace %k 7 0 1\r\nc\r\n
            => get %k\r\n
        replace %k 0 0 1\r\na\r\n => append %k 0 0 1\r\nb\r\n => prepend %k 0 0 1\r\nb\r\n
        set %k 3 0 2\r\nmm\r\n => append %k 9 9 2\r\nzz\r\n => prepend %k 9 9 2\r\naa\r\n
            => gets %k\r\n
        cas %k 0 0 1 1\r\na\r\n => set %k 0 0 1\r\na\r\n => gets %k\r\n
            => cas %k 4 0 1 %0\r\nb\r\n => gets %k\r\n => cas %k 0 0 1 %0\r\nc\r\n => get %k\r\n
        set %k 0 0 1 noreply\r\na\r\nadd %k 0 0 1 noreply\r\nb\r\nappend %k 0 0 1 noreply\r\nb\r\n
            => get %k\r\n
        set %k 0 0 2\r\n10\r\n => incr %k 5\r\n => decr %k 6\r\n => get %k\r\n
            => decr %k 100\r\n => incr %k 18446744073709551615\r\n => incr %k 1\r\n
        set %k 0 0 1\r\nx\r\n => incr %k 1\r\n => decr %k 1\r\n => incr %kx 1\r\n
            => incr %k -1\r\n => incr %k x\r\n
        set %k 0 0 20\r\n18446744073709551615\r\n => incr %k 2\r\n => get %k\r\n
        set %k 0 0 20\r\n18446744073709551616\r\n => incr %k 1\r\n
        set %k 0 0 3\r\n007\r\n => get %k\r\n => incr %k 1\r\n => get %k\r\n
        set %k 0 0 0\r\n\r\n => incr %k 1\r\n
        set %k 0 0 3\r\n 12\r\n => incr %k 1\r\n => set %k 0 0 3\r\n12 \r\n => incr %k 1\r\n
        touch %k 0\r\n => set %k 0 0 1\r\na\r\n => touch %k 100\r\n => mg %k t\r\n
            => touch %k -1\r\n => get %k\r\n
        set %k 0 0 1\r\na\r\n => gat 100 %k %kx\r\n => mg %k t\r\n => gats 0 %k\r\n
            => mg %k t\r\n => gat -1 %k\r\n => get %k\r\n
        delete %k\r\n => set %k 0 0 1\r\na\r\n => delete %k\r\n => delete %k\r\n
            => delete %k noreply\r\n
        delete %k 0\r\n => set %k 0 0 1\r\na\r\n => delete %k 0 noreply\r\n => get %k\r\n
        set %k 0 -1 1\r\na\r\n => get %k\r\n
        set %k 0 2592000 1\r\na\r\n => mg %k t\r\n => set %k 0 2592001 1\r\na\r\n => get %k\r\n
        version\r\n => verbosity 1\r\n => verbosity 1 noreply\r\n => verbosity x\r\n
        set %k 0 0 1\r\na\r\nget %k\r\ndelete %k\r\nget %k\r\n => mn\r\nmn\r\n
        quit\r\nget %k\r\n
        ",
    );
}

#[test]
fn refusals() {
    check_all(
        r"
        foo\r\n => GET %k\r\n => getx %k\r\n => me\r\n => mx %k\r\n
        set %k 0 0 -1\r\n => set %k 0 0 x\r\n => set %k 0 0 2147483647\r\n
        set %k 0 0 3\r\nabcd\n => get %k\r\n
        set %k 0 0 1\r\na\r\n => set %k 0 0 3 noreply\r\nabcd\n => get %k\r\n
        gat x %k\r\n => touch %k x\r\n => touch %k x noreply\r\n
            => incr %k 18446744073709551616\r\n
        flush_all x\r\n => flush_all x noreply\r\n
        GET / HTTP/1.1\r\nHost: a\r\n\r\n
        get / HTTP/1.1\r\n => get %k\r\n
        mg %k s s\r\n => mg %k y\r\n => mg %k Tx\r\n => mg %k T\r\n => mg %k Rx\r\n
            => mg %k Nx\r\n
        mg %k O12345678901234567890123456789012\r\n
            => mg %k O1234567890123456789012345678901\r\n
        mg %k a b c d e f g h i j k l m n o p q r s t u v w x y z\r\n => mg Zg b k\r\n
            => mg %%%% b q\r\n
        ms %k x\r\n => ms %k -1\r\n => ms %k\r\n => ms %k S2\r\n
        ms %k 2 y\r\nab\r\n => ms %k 2 T0 T0\r\nab\r\n => ms %k 2 Tx\r\nab\r\n
            => ms %k 2 MX\r\nab\r\n
        ms %k 2 Fx\r\nab\r\n => ms %k 2 F-1\r\nab\r\n => ms %k 2 Cx\r\nab\r\n
            => ms %k 2 b\r\nab\r\n
        ms %k 3\r\nabcd\n => ms %k 3 q\r\nabcd\n => mg %k v\r\n
        ma %k y\r\n => ma %k s s\r\n => ma %k Mx\r\n => ma %k Dx\r\n => ma %k Jx\r\n
            => ma %k Tx\r\n
        md %k O12345678901234567890123456789012\r\n
            => ma %k O12345678901234567890123456789012\r\n
        ",
    );
}

#[test]
fn long_keys_and_values() {
    let key = "k".repeat(242);
    let cases = [
        format!("get %k{key}\r\n"),
        format!("set %k{key} 0 0 1\r\nx\r\n"),
        format!("get %k{key}\r\n"),
        format!("get %kz{key}\r\n"),
        format!("get %k %kz{key} %k\r\n"),
        format!("delete %kz{key}\r\n"),
        format!("touch %kz{key} 0\r\n"),
        format!("incr %kz{key} 1\r\n"),
        format!("mg %kz{key} v\r\n"),
        format!("md %kz{key}\r\n"),
        format!("me %kz{key}\r\n"),
    ];
    check(&cases).unwrap_or_else(|difference| panic!("{difference}"));
    let large = "x".repeat(2_000_000);
    let cases = [
        "set %k 0 0 1\r\na\r\n".to_owned(),
        format!("set %k 0 0 2000000\r\n{large}\r\n"),
        "get %k\r\n".to_owned(),
        "set %k 0 0 1\r\na\r\n".to_owned(),
        format!("add %k 0 0 2000000\r\n{large}\r\n"),
        format!("append %k 0 0 2000000 noreply\r\n{large}\r\n"),
        "get %k\r\n".to_owned(),
        format!("ms %k 2000000 T0\r\n{large}\r\n"),
        "mg %k v\r\n".to_owned(),
        format!("set %k 0 0 100000\r\n{}\r\n", &large[..100_000]),
        "get %k\r\n".to_owned(),
    ];
    check(&cases).unwrap_or_else(|difference| panic!("{difference}"));
    let endless = ["x".repeat(20_000)];
    check(&endless).unwrap_or_else(|difference| panic!("{difference}"));
}

#[test]
fn meta_commands() {
    check_all(
        r"
        mg %k\r\n => mg %k k O1 q\r\n => mg %k k O1\r\n => ms %k 3 F5\r\nabc\r\n
            => mg %k s v f k O123 t c h\r\n => mg %k s v f k O123 t c h\r\n => mg %k\r\n
            => mg %k q\r\n
        ms %k 2 T60 F9 c k O1\r\nhi\r\n => mg %k t f s v c\r\n => mg %k T30 t\r\n
            => mg %k T-1\r\n => mg %k v\r\n
        ms %k 2 q\r\nhi\r\n => ms %k 2 ME q\r\nho\r\n => ms %k 2 ME k O1\r\nho\r\n
            => ms %k 2 MR F3\r\nhu\r\n => mg %k v f\r\n
        ms %k 2 MA\r\nhi\r\n => ms %k 2 MS\r\nhi\r\n => ms %k 2 MA F7\r\nho\r\n
            => ms %k 2 MP\r\nhu\r\n => mg %k v f s\r\n
        ms %k 2 C77\r\nhi\r\n => ms %k 2\r\nhi\r\n => mg %k c\r\n => ms %k 2 C%0 c\r\nho\r\n
            => ms %k 2 C%0\r\nhu\r\n => ms %k 2 C%0 MR k\r\nhu\r\n => mg %k v c\r\n
        ms Zm9v 2 b k\r\nhi\r\n => mg Zm9v b k v\r\n => mg foo v\r\n => md Zm9v b k O1\r\n
            => mg foo\r\n => mg Zm9v b k\r\n
        ms %k 2\r\nhi\r\n => md %k I\r\n => mg %k v c\r\n => mg %k v c\r\n => mg %k v s t\r\n
            => ms %k 2\r\nho\r\n => mg %k v\r\n
        ms %k 2 T0\r\nhi\r\n => mg %k c\r\n => md %k I T30\r\n => mg %k t c\r\n => mg %k t\r\n
            => ms %k 2 I C%0\r\nho\r\n => mg %k v\r\n
        ms %k 2\r\nhi\r\n => mg %k c\r\n => ms %k 2\r\nho\r\n => ms %k 2 I C%0 c\r\nhu\r\n
            => mg %k v c\r\n => mg %k v\r\n
        ms %k 2\r\nhi\r\n => mg %k c\r\n => ms %k 2 I C99999999999999999 c\r\nhu\r\n
            => mg %k v c\r\n
        ms %k 2 T10\r\nhi\r\n => mg %k R30 t\r\n => mg %k R30 t\r\n => mg %k R5 t\r\n
            => mg %k v\r\n
        mg %k N30 t v\r\n => mg %k N30 t v\r\n => mg %k v\r\n => ms %k 2\r\nhi\r\n
            => mg %k v t\r\n
        mg %k N0 k O7 v s\r\n => add %k 0 0 1\r\na\r\n => get %k\r\n
        md %k k O1\r\n => md %k q\r\n => ms %k 2\r\nhi\r\n => mg %k c\r\n => md %k C5\r\n
            => md %k C%0 k O1\r\n => md %k C%0\r\n
        ma %k\r\n => ma %k k O1\r\n => ma %k N0 J13 v\r\n => ma %k v t c k O1\r\n
            => ma %k D5\r\n => ma %k MD v\r\n => ma %k M- D100 v\r\n => ma %k M+ D7 v\r\n
            => ma %k MI v q\r\n => mg %k v\r\n
        ma %k N60 J5 t v\r\n => ma %k T30 t v\r\n => mg %k t\r\n
        set %k 0 0 3\r\nabc\r\n => ma %k\r\n => ma %k q\r\n => ma %kx q\r\n
        ms %k 2\r\n10\r\n => mg %k c\r\n => ma %k C5 v\r\n => ma %k C%0 v c\r\n
            => ma %k C%0 v\r\n
        me %k\r\n => ms %k 2\r\nhi\r\n => me %k\r\n
        ms %k 2\r\nhi\r\n => mg %k u h\r\n => mg %k h\r\n => mg %k h\r\n
        mg %k v q\r\nmg %kx v q k\r\nmn\r\n
        ",
    );
}

#[test]
fn what_changed_in_1_6_42() {
    if !peers::pair().is_some_and(|pair| pair.new_parser) {
        eprintln!("SKIPPED: needs memcached 1.6.42 or later");
        return;
    }
    check_all(
        r"
        get\r\n => gets\r\n => gat\r\n => gat 0\r\n => set\r\n => set %k\r\n => set %k 0 0\r\n
        incr %k\r\n => touch %k\r\n => delete\r\n => mg\r\n => md\r\n => ma\r\n => verbosity\r\n
        set %k{251} 0 0 1\r\nx\r\n => set %k{251} 0 0 1 noreply\r\nx\r\n
            => ms %k{251} 1\r\nx\r\n
        delete %k 10\r\n => delete %k 0 x noreply\r\n => incr %k 1 x y\r\n => version x\r\n
        set %k x 0 2\r\nhi\r\n => set %k 0 1x 2 noreply\r\nhi\r\n => cas %k 0 0 2 x\r\nhi\r\n
        set %k 0 0 2 a b c\r\nhi\r\n => get %k\r\n
        \r\n => x\r\n => \n
        md %k y\r\n => md %k s s\r\n => md %k Tx\r\n
        ms %k 2 E55 c s\r\nhi\r\n => mg %k c E7\r\n => md %k I E66\r\n => mg %k c\r\n
        ms %k 2 N30 MA k c s\r\nhi\r\n => mg %k v t\r\n => ms %k 2 N9 MP s\r\nhi\r\n
            => mg %k v t\r\n
        ms %k 2\r\nhi\r\n => md %k x\r\n => mg %k v s\r\n => md %k x T30 I\r\n => mg %k v t\r\n
        ma %k N0 E5 c v\r\n => ma %k E9 c v\r\n
        ",
    );
}
