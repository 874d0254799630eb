//! Commands and flags that were renamed or removed: refused, with their new names or the reason.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A flag that was renamed.
struct Renamed {
    /// The command, without the program's name.
    command: &'static str,
    from: &'static str,
    to: &'static str,
    /// The new flag with a value.
    example: &'static str,
}

const FLAGS: &[Renamed] = &[
    renamed("profile", "--media", "--medium", "--medium dram"),
    renamed("profile", "--against", "--against-medium", "--against-medium model:dram"),
    renamed("bench trace", "--warm-up", "--warm-up-share", "--warm-up-share 0.5"),
    renamed("store put", "--form", "--encoding", "--encoding hex"),
    renamed("store get", "--form", "--encoding", "--encoding hex"),
    renamed("store del", "--form", "--encoding", "--encoding hex"),
    renamed("store scan", "--form", "--encoding", "--encoding hex"),
    renamed("store del", "--prefix", "--prefixes", "--prefixes"),
    renamed("bench cache", "--popularity", "--distribution", "--distribution zipf"),
    renamed("bench index", "--node-bytes", "--node-size", "--node-size 256"),
    renamed("bench ycsb", "--staging-bytes", "--staging-most", "--staging-most 1GiB"),
    renamed("torture media", "--seconds", "--duration", "--duration 3s"),
    renamed("torture index", "--seconds", "--duration", "--duration 3s"),
    renamed("torture store", "--seconds", "--duration", "--duration 3s"),
];

/// Commands that were renamed, without the program's name: the old name and the new one.
const COMMANDS: &[(&str, &str)] = &[("store place", "store volume")];

const fn renamed(
    command: &'static str,
    from: &'static str,
    to: &'static str,
    example: &'static str,
) -> Renamed {
    Renamed { command, from, to, example }
}

/// A removed flag.
struct Removed {
    /// Command, without the program's name.
    command: &'static str,
    flag: &'static str,
    reason: &'static str,
}

const ONE_POLICY: &str = "there is one policy; --favour chooses between objects and bytes";

const REMOVED: &[Removed] = &[
    Removed { command: "serve", flag: "--eviction", reason: ONE_POLICY },
    Removed { command: "bench trace", flag: "--eviction", reason: ONE_POLICY },
    Removed {
        command: "torture cache",
        flag: "--nested",
        reason: "a history of the cache chooses its crashes itself",
    },
    Removed {
        command: "torture cache",
        flag: "--known",
        reason: "a history of the cache notes no places in the source",
    },
];

/// Returns a message with the new name, or the reason, if clap refused a command or a flag that was
/// renamed or removed.
pub(crate) fn explained(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let words = arguments.iter().skip(1).take_while(|word| !word.starts_with('-'));
    let words: Vec<&str> = words.map(String::as_str).collect();
    let begins_with = |name: &str| words.starts_with(&name.split(' ').collect::<Vec<_>>());
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidSubcommand, _) => {
            let (from, to) = COMMANDS.iter().find(|(from, _)| begins_with(from))?;
            Some(format!("`entresol {from}` was renamed to `entresol {to}`"))
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) => {
            let flag = flag.split('=').next();
            let is_removed = |it: &&Removed| flag == Some(it.flag) && begins_with(it.command);
            if let Some(it) = REMOVED.iter().find(is_removed) {
                return Some(format!("{} was removed: {}", it.flag, it.reason));
            }
            let is_renamed = |it: &&Renamed| flag == Some(it.from) && begins_with(it.command);
            let Renamed { from, to, example, .. } = FLAGS.iter().find(is_renamed)?;
            Some(format!("{from} was renamed to {to}: write {example}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Arguments;

    fn said(line: &str) -> Option<String> {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Arguments::command().try_get_matches_from(&arguments).expect_err(line);
        explained(&error, &arguments)
    }

    #[test]
    fn a_renamed_flag_is_refused_with_its_name_and_others_are_not_explained() {
        for Renamed { command, from, to, example } in FLAGS {
            for line in [format!("{from} 3"), format!("{from}=3"), format!("--json {from} 3")] {
                let said = said(&format!("entresol {command} {line}")).expect("it is explained");
                assert_eq!(said, format!("{from} was renamed to {to}: write {example}"));
            }
            let accepted = format!("entresol {command} {example}");
            let found = Arguments::command().try_get_matches_from(accepted.split(' '));
            let kind = found.err().map(|error| error.kind());
            // Another flag may be missing.
            assert!(matches!(kind, None | Some(ErrorKind::MissingRequiredArgument)), "{accepted}");
        }
        for Removed { command, flag, reason } in REMOVED {
            let said = said(&format!("entresol {command} {flag} fifo")).expect("it is explained");
            assert!(said.contains(reason), "{said}");
        }
        assert_eq!(said("entresol profile --seconds 3"), None);
        assert_eq!(said("entresol torture store --seeed 3"), None);
    }

    #[test]
    fn a_renamed_command_is_refused_with_its_name_and_others_are_not_explained() {
        for (from, to) in COMMANDS {
            let said = said(&format!("entresol {from} list x")).expect("it is explained");
            assert_eq!(said, format!("`entresol {from}` was renamed to `entresol {to}`"));
            let mut command = Arguments::command();
            let found =
                to.split(' ').try_fold(&mut command, |it, name| it.find_subcommand_mut(name));
            assert!(found.is_some(), "there is no command {to}");
        }
        assert_eq!(said("entresol store places"), None);
        assert_eq!(said("entresol place list x"), None);
    }
}
