//! Text at the end of every `--help`: examples, and the meaning of the exit status.

use clap::Command;

/// Examples of each command, by its name.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("", &["entresol serve -m 1024", "entresol bench cache --keys 100000 --rounds 1"]),
    (
        "serve",
        &[
            "entresol serve -p 11211 -m 1024",
            "entresol serve -p 11311 --medium file:/var/tmp/cache --medium-quota 1GiB",
            "entresol serve --config entresol.toml",
        ],
    ),
    ("top", &["entresol top", "entresol top --server localhost:11280 --once --json"]),
    ("user", &["entresol user add --auth-file users ann"]),
    ("user add", &["entresol user add --auth-file users --tenant sessions ann"]),
    ("user remove", &["entresol user remove --auth-file users ann"]),
    ("config", &["entresol config check entresol.toml"]),
    ("config check", &["entresol config check entresol.toml"]),
    ("bench", &["entresol bench cache --keys 100000 --rounds 1"]),
    (
        "bench act",
        &[
            "entresol bench act --medium file:/var/tmp/act --interval 2s",
            "entresol bench act --medium model:optane-ssd --definition current",
            "entresol bench act --directory /var/tmp/act-store --interval 2s",
        ],
    ),
    (
        "bench cache",
        &[
            "entresol bench cache --keys 100000 --rounds 1",
            "entresol bench cache --server localhost:11211 --distribution zipf --duration 2.5s",
        ],
    ),
    (
        "bench curve",
        &[
            "entresol bench curve --system raw:model:optane-ssd --system raw:model:nand-p3700",
            "entresol bench curve --system store:/var/tmp/curve --size 1000 --read-share 0.9",
        ],
    ),
    (
        "bench extend",
        &[
            "entresol bench extend --directory /var/tmp/extend",
            "entresol bench extend --directory /var/tmp/extend --read-only --report out",
        ],
    ),
    (
        "bench index",
        &[
            "entresol bench index --index sv-tree --keys 100000 --rounds 1",
            "entresol bench index --index sv-tree --keys 100000 --medium model:aep",
        ],
    ),
    ("bench trace", &["entresol bench trace --file trace.csv --format csv --dram-quota 64MiB"]),
    (
        "bench ycsb",
        &["entresol bench ycsb --directory /var/tmp/ycsb --keys 100000 --duration 2.5s"],
    ),
    (
        "profile",
        &[
            "entresol profile --medium dram --no-save",
            "entresol profile --medium file:/var/tmp/probe --report out",
        ],
    ),
    ("reproduce", &["entresol reproduce --list", "entresol reproduce 000-table3"]),
    ("torture", &["entresol torture store --duration 10s"]),
    ("torture media", &["entresol torture media --duration 10s --structure log"]),
    ("torture fill", &["entresol torture fill --directory /var/tmp/full --size 256MiB --cycles 2"]),
    ("torture flips", &["entresol torture flips --flips 500"]),
    ("torture cache", &["entresol torture cache --duration 10s"]),
    ("torture connections", &["entresol torture connections --duration 10s"]),
    ("torture index", &["entresol torture index --duration 10s --index sv-tree"]),
    (
        "torture store",
        &[
            "entresol torture store --duration 10s",
            "entresol torture store --processes --duration 10s --directory /var/tmp/torture",
            "entresol torture store --processes --faults --duration 10s",
            "entresol torture store --waits --duration 0.5s --model nvme-9300",
        ],
    ),
    (
        "store",
        &[
            "entresol store put --create /var/tmp/shelf greeting hello",
            "entresol store get /var/tmp/shelf greeting",
        ],
    ),
    ("store create", &["entresol store create /var/tmp/shelf --most 1GiB"]),
    ("store put", &["entresol store put --create /var/tmp/shelf greeting hello --ttl 10m"]),
    ("store get", &["entresol store get /var/tmp/shelf greeting"]),
    ("store del", &["entresol store del /var/tmp/shelf greeting"]),
    ("store scan", &["entresol store scan /var/tmp/shelf --prefix gr --limit 10"]),
    ("store stats", &["entresol store stats /var/tmp/shelf"]),
    ("store check", &["entresol store check /var/tmp/shelf"]),
    ("store salvage", &["entresol store salvage /var/tmp/shelf /var/tmp/saved"]),
    ("store checkpoint", &["entresol store checkpoint /var/tmp/shelf /var/tmp/copy"]),
    ("store compact", &["entresol store compact /var/tmp/shelf"]),
    ("store policy", &["entresol store policy /var/tmp/shelf staging-then-capacity"]),
    ("store volume", &["entresol store volume list /var/tmp/shelf"]),
    ("store volume add", &["entresol store volume add /var/tmp/shelf staging /var/tmp/fast"]),
    ("store volume retire", &["entresol store volume retire /var/tmp/shelf /var/tmp/fast"]),
    (
        "store volume move",
        &["entresol store volume move /var/tmp/shelf /var/tmp/fast /var/tmp/faster"],
    ),
    ("store volume found", &["entresol store volume found /var/tmp/shelf /var/tmp/fast"]),
    ("store volume budget", &["entresol store volume budget /var/tmp/shelf /var/tmp/fast 500GiB"]),
    ("store volume list", &["entresol store volume list /var/tmp/shelf"]),
];

/// Exit statuses of commands that differ from the others.
const STATUSES: &[(&str, &str)] = &[
    (
        "serve",
        "0 stopped by Ctrl-C or SIGTERM, 2 the arguments or the configuration are wrong, or the \
         server could not start",
    ),
    ("top", "0 done, also by Ctrl-C on the screen, 2 wrong arguments, or no server answers"),
    (
        "store check",
        "0 no damage, 1 damage, 2 wrong arguments, 3 no damage, but volumes are missing, 130 \
         interrupted",
    ),
];

/// Exit status of all other commands.
const STATUS: &str = "0 done, 1 a check or comparison failed, 2 the arguments or the \
                      configuration are wrong, 130 interrupted, 141 the output is read no longer";

fn of<T: Copy>(path: &str, all: &[(&str, T)]) -> Option<T> {
    all.iter().find(|(name, _)| *name == path).map(|(_, it)| *it)
}

/// Adds examples and the exit status to the help of a command and of all its subcommands. `path` is
/// the name of the command without the program's.
pub(crate) fn dressed(mut command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    for name in names {
        let below = format!("{path} {name}");
        command = command.mut_subcommand(name, |it| dressed(it, below.trim_start()));
    }
    let examples = of(path, EXAMPLES).unwrap_or_default();
    let heading = if examples.len() == 1 { "Example:" } else { "Examples:" };
    let status = of(path, STATUSES).unwrap_or(STATUS);
    command.after_help(format!("{heading}\n  {}\n\nExit status: {status}.", examples.join("\n  ")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Arguments;

    fn paths(command: &Command, path: &str, all: &mut Vec<String>) {
        all.push(path.to_owned());
        for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            paths(below, format!("{path} {}", below.get_name()).trim_start(), all);
        }
    }

    fn check_help(command: &Command, path: &str) {
        for argument in command.get_arguments() {
            let name = argument.get_id();
            assert!(argument.get_help().is_some(), "entresol {path}: {name} has no help");
        }
        for below in command.get_subcommands() {
            let about = below.get_about();
            assert!(about.is_some(), "entresol {path} {} has no help", below.get_name());
            check_help(below, format!("{path} {}", below.get_name()).trim_start());
        }
    }

    #[test]
    fn every_argument_of_every_command_has_a_help_text() {
        check_help(&Arguments::command(), "");
    }

    #[test]
    fn every_command_has_examples_of_its_own_that_it_takes() {
        let mut all = Vec::new();
        paths(&Arguments::command(), "", &mut all);
        for path in &all {
            let examples = of(path, EXAMPLES).unwrap_or_default();
            assert!(!examples.is_empty(), "entresol {path} --help has no example");
            for example in examples {
                assert!(example.starts_with(format!("entresol {path}").trim_end()), "{example}");
                let parsed = Arguments::command().try_get_matches_from(example.split(' '));
                assert!(parsed.is_ok(), "{example}: {}", parsed.expect_err("is wrong"));
            }
        }
        for (path, _) in EXAMPLES {
            assert!(all.iter().any(|it| it == path), "there is no command {path}");
        }
        for (path, _) in STATUSES {
            assert!(all.iter().any(|it| it == path), "there is no command {path}");
        }
    }
}
