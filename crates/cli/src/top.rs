//! `entresol top`: shows live in the terminal how the tenants of a running server share.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use entresol_server::view::{MediumRow, TenantRow, View, fetch};

use crate::interrupt;
use crate::standard::{Out, tell};

/// Switches to another screen, without a cursor, on which long lines are cut and not wrapped.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const TOP_LEFT: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\r\n";
const CLEAR_BELOW: &str = "\x1b[J";
/// Rows of a terminal that does not tell its size.
const ROWS: u16 = 24;
/// Decisions that are printed where there is no screen to fill.
const DECISIONS: usize = 10;
const INTERVAL_MIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Admin listener of the server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:11280", value_parser = server)]
    server: SocketAddr,
    /// File with the token of the admin listener, if it wants one.
    #[arg(long, value_name = "FILE", value_parser = token)]
    token_file: Option<String>,
    /// Interval between two looks at the server.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,
    /// Show the state once and exit.
    #[arg(long)]
    once: bool,
    /// Print a JSON object for each look instead of the screen.
    #[arg(long)]
    json: bool,
}

/// Reads the token from a file.
fn token(path: &str) -> Result<String, String> {
    entresol_service::config::read_token(std::path::Path::new(path))
}

fn server(text: &str) -> Result<SocketAddr, String> {
    let address = entresol_media::machine::address_of(text);
    address.map_err(|problem| format!("{problem}: write HOST:PORT, such as 127.0.0.1:11280"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let time = entresol_base::duration::parse(text).map_err(|error| error.to_string())?;
    if time < INTERVAL_MIN {
        return Err("use at least 100ms; the view covers the last whole second".to_owned());
    }
    Ok(time)
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut out = Out::default();
    let live = !arguments.json && !arguments.once && io::stdout().is_terminal();
    if !live {
        return print_each(arguments, &mut out);
    }
    leave_on_signals()?;
    out.put(ENTER)?;
    let shown = show_each(arguments, &mut out);
    out.put(LEAVE)?;
    out.flush()?;
    shown
}

/// Prints one text for each look, for pipes and scripts. Fails if the first look gets no answer;
/// later, a server that is restarted comes back.
fn print_each(arguments: &Arguments, out: &mut Out) -> anyhow::Result<()> {
    let mut view = fetch(arguments.server, arguments.token_file.as_deref())?;
    loop {
        let printed = if arguments.json {
            let json = serde_json::to_string(&view).context("cannot format the view as JSON")?;
            out.put(format_args!("{json}\n"))
        } else {
            let mut lines = lines(&view, DECISIONS).into_iter();
            lines.try_for_each(|line| out.put(format_args!("{line}\n")))
        };
        printed.and_then(|()| out.flush())?;
        if arguments.once {
            return Ok(());
        }
        view = loop {
            std::thread::sleep(arguments.interval);
            match fetch(arguments.server, arguments.token_file.as_deref()) {
                Ok(view) => break view,
                Err(error) => tell(&format!("{error:#}; trying again")),
            }
        };
    }
}

fn show_each(arguments: &Arguments, out: &mut Out) -> anyhow::Result<()> {
    loop {
        let looked = fetch(arguments.server, arguments.token_file.as_deref());
        let rows = usize::from(rows());
        let text = match &looked {
            Ok(view) => {
                // The table and its headings; the remaining rows belong to the decisions.
                let table = lines(view, 0).len();
                lines(view, rows.saturating_sub(table + 2))
            }
            // A server that is restarted comes back.
            Err(error) => vec![format!("{error:#}"), "trying again ...".to_owned()],
        };
        let mut screen = TOP_LEFT.to_owned();
        for line in text.iter().take(rows.saturating_sub(1)) {
            screen.push_str(line);
            screen.push_str(CLEAR_LINE);
        }
        screen.push_str(CLEAR_BELOW);
        out.put(screen).and_then(|()| out.flush())?;
        std::thread::sleep(arguments.interval);
    }
}

fn rows() -> u16 {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| size.ws_row).filter(|rows| *rows > 0).unwrap_or(ROWS)
}

/// Ends the command on Ctrl-C, the usual way out: restores the terminal's screen and succeeds.
fn leave_on_signals() -> anyhow::Result<()> {
    interrupt::on_signals(|_| {
        // The other thread is asleep or writing.
        let _ = rustix::io::write(rustix::stdio::stdout(), LEAVE.as_bytes());
        std::process::exit(0);
    })
}

const HEADINGS: [&str; 9] =
    ["TENANT", "REQ/S", "P50", "P99", "P99.9", "SLOWDOWN", "SHARE", "THROTTLE", "DEVICE"];

/// Formats the view as lines of text, with this many of the last decisions.
fn lines(view: &View, decisions: usize) -> Vec<String> {
    let trying = if view.is_trying { ", experimenting" } else { "" };
    let mut lines = vec![
        format!(
            "entresol: policy {}{trying}; {} decisions; up {:.0} s",
            view.policy, view.decisions_total, view.uptime_s
        ),
        String::new(),
    ];
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(view.tenants.iter().flat_map(tenant_rows));
    lines.extend(table(&rows));
    if decisions > 0 && !view.decisions.is_empty() {
        lines.push(String::new());
        lines.push("LAST DECISIONS".to_owned());
        for decision in view.decisions.iter().take(decisions) {
            let whom = decision.tenant.as_deref().unwrap_or("all");
            lines.push(format!("{:>9.2} s  {whom}: {}", decision.at_s, decision.text));
        }
    }
    lines
}

/// Returns a tenant's rows: one for each of its media, and one if it has none.
fn tenant_rows(tenant: &TenantRow) -> Vec<[String; 9]> {
    let row = |medium: Option<&MediumRow>| {
        [
            tenant.name.clone(),
            count(tenant.throughput_ops_s),
            time(tenant.p50_us),
            time(tenant.p99_us),
            time(tenant.p999_us),
            tenant.slowdown.map_or("-".to_owned(), |slowdown| format!("{slowdown:.2}")),
            medium.map_or("-".to_owned(), |medium| percent(medium.share)),
            medium.map_or("-".to_owned(), |medium| medium.throttle.clone()),
            medium.map_or("-".to_owned(), |medium| medium.medium.clone()),
        ]
    };
    match tenant.media.as_slice() {
        [] => vec![row(None)],
        media => media.iter().map(|medium| row(Some(medium))).collect(),
    }
}

/// Formats columns as wide as their cells: names to the left, numbers to the right.
fn table(rows: &[[String; 9]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 9] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let line = |row: &[String; 9]| {
        let cells =
            row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
                0 | 8 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn count(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{:.2}M", number / 1e6),
        number if number >= 1e4 => format!("{:.1}k", number / 1e3),
        number => format!("{number:.0}"),
    }
}

fn time(us: Option<f64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us >= 1e6 => format!("{:.2}s", us / 1e6),
        Some(us) if us >= 1e3 => format!("{:.2}ms", us / 1e3),
        Some(us) => format!("{us:.1}us"),
    }
}

fn percent(part: f64) -> String {
    if part < 0.1 { format!("{:.2}%", part * 100.0) } else { format!("{:.1}%", part * 100.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_server::view::DecisionRow;

    #[test]
    fn a_view_becomes_a_table_and_a_log() {
        let medium = |share, throttle: &str| MediumRow {
            medium: "dram".to_owned(),
            share,
            share_allowed: 1.0,
            throttle: throttle.to_owned(),
        };
        let view = View {
            uptime_s: 12.3,
            policy: "qos".to_owned(),
            is_trying: true,
            media: vec!["dram".to_owned()],
            groups: Vec::new(),
            tenants: vec![
                TenantRow {
                    name: "sessions".to_owned(),
                    throughput_ops_s: 12_345.0,
                    p50_us: Some(90.0),
                    p99_us: Some(1500.0),
                    p999_us: Some(2.5e6),
                    slowdown: Some(1.5),
                    media: vec![medium(0.0312, "free")],
                    ..TenantRow::default()
                },
                TenantRow {
                    name: "b".to_owned(),
                    media: vec![medium(0.25, "12.5%")],
                    ..TenantRow::default()
                },
                TenantRow { name: "gone".to_owned(), ..TenantRow::default() },
            ],
            decisions_total: 7,
            decisions: vec![DecisionRow {
                at_s: 3.0,
                tenant: Some("b".to_owned()),
                text: "free -> 12.5%: slowed".to_owned(),
            }],
        };
        let expected = "\
entresol: policy qos, experimenting; 7 decisions; up 12 s

TENANT    REQ/S     P50     P99  P99.9  SLOWDOWN  SHARE  THROTTLE  DEVICE
sessions  12.3k  90.0us  1.50ms  2.50s      1.50  3.12%      free  dram
b             0       -       -      -         -  25.0%     12.5%  dram
gone          0       -       -      -         -      -         -  -

LAST DECISIONS
     3.00 s  b: free -> 12.5%: slowed";
        assert_eq!(lines(&view, 5).join("\n"), expected);
        assert_eq!(lines(&view, 0).len(), 6);
    }

    #[test]
    fn looking_too_often_is_refused() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert!(duration("1ms").is_err_and(|error| error.contains("at least 100ms")));
        assert!(duration("soon").is_err());
    }
}
