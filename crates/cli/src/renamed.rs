//! Flags that were renamed or removed: they are refused with their present name or the reason.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flag that was renamed.
struct Renamed {
    /// Name of the command, without the program's.
    command: &'static str,
    from: &'static str,
    to: &'static str,
    /// Present flag with an example of its value.
    example: &'static str,
}

const FLAGS: &[Renamed] = &[
    renamed("profile", "--media", "--medium", "--medium dram"),
    renamed("bench cache", "--popularity", "--distribution", "--distribution zipf"),
    renamed("bench index", "--node-bytes", "--node-size", "--node-size 256"),
    renamed("bench ycsb", "--staging-bytes", "--staging-most", "--staging-most 1GiB"),
    renamed("torture media", "--seconds", "--duration", "--duration 3s"),
    renamed("torture index", "--seconds", "--duration", "--duration 3s"),
    renamed("torture store", "--seconds", "--duration", "--duration 3s"),
];

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
];

/// Explains an error of clap if its cause is a renamed or removed flag.
pub(crate) fn explained(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let command = arguments.iter().skip(1).take_while(|word| !word.starts_with('-'));
    let command: Vec<&str> = command.map(String::as_str).collect();
    let is = |of: &str, name: &str| {
        let names: Vec<&str> = of.split(' ').collect();
        flag.split('=').next() == Some(name) && command.starts_with(&names)
    };
    if let Some(it) = REMOVED.iter().find(|it| is(it.command, it.flag)) {
        return Some(format!("{} is gone: {}", it.flag, it.reason));
    }
    let renamed = FLAGS.iter().find(|it| is(it.command, it.from));
    let Renamed { from, to, example, .. } = renamed?;
    Some(format!("{from} was renamed to {to}: write {example}"))
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
        for Removed { command, flag, .. } in REMOVED {
            let said = said(&format!("entresol {command} {flag} fifo")).expect("it is explained");
            assert!(said.contains("--favour"), "{said}");
        }
        assert_eq!(said("entresol profile --seconds 3"), None);
        assert_eq!(said("entresol torture store --seeed 3"), None);
    }
}
