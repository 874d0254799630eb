//! Build script: names the commit of the source in the environment of the compiler, for results.

use std::path::Path;
use std::process::Command;

/// Sources of the program, seen from this crate: it is made of every crate.
const SOURCES: [&str; 2] = ["../../crates", "../../Cargo.lock"];

fn main() {
    let commit = commit().unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=ENTRESOL_COMMIT={commit}");
    for source in SOURCES {
        watch(source);
    }
    watch_commits();
}

/// Returns the commit and whether the source differs from it, or `None` outside a repository or
/// without Git.
fn commit() -> Option<String> {
    // A source that was unpacked within a repository of something else is no part of it.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&[&["status", "--porcelain", "--"], SOURCES.as_slice()].concat())?;
    Some(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}

/// Lets Cargo run this script again after a commit or a change of the branch. Git keeps the commit
/// of a branch in a file of its own or in a common one, and each move of HEAD in its log.
fn watch_commits() {
    let branch = git(&["rev-parse", "--symbolic-full-name", "HEAD"]);
    let files = ["HEAD", "logs/HEAD", "packed-refs"].map(str::to_owned).into_iter().chain(branch);
    for file in files {
        git(&["rev-parse", "--git-path", &file]).iter().for_each(|path| watch(path));
    }
}

/// Lets Cargo run this script again after a change of a file or directory. One that does not exist
/// is left out: Cargo would run the script at every build.
fn watch(path: &str) {
    if Path::new(path).exists() {
        println!("cargo:rerun-if-changed={path}");
    }
}

/// Returns the trimmed output of a command of Git that succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(ran.stdout).ok().filter(|_| ran.status.success())?;
    Some(text.trim().to_owned())
}
