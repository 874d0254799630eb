//! The file of users: one line each, `NAME:HASH` or `NAME:HASH:TENANT`. The hash is argon2id's, in
//! the usual form `$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH`. Empty lines, and lines that begin
//! with `#`, say nothing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher};
use entresol_media::files;

/// Bytes of a user's name.
const NAME_BYTES_MAX: usize = 64;
/// Bytes of a password.
const PASSWORD_BYTES_MAX: usize = 256;
/// Bytes of the file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Memory that the verification of one password may take, in KiB.
const MEMORY_KIB_MAX: u32 = 256 << 10;
/// Passes over that memory.
const PASSES_MAX: u32 = 16;
/// Bits of a file's mode that let every user of the machine read, write or execute it.
const OTHERS: u32 = 0o007;

/// A user.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// Name of the user.
    pub name: String,
    /// Tenant that the user speaks to, whatever the listener.
    pub tenant: Option<String>,
    /// Hash of the password, with its salt and parameters.
    pub(super) hash: PasswordHash,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({:?}, tenant {:?})", self.name, self.tenant)
    }
}

/// All users, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users(Vec<Arc<User>>);

/// Error of a file of users, or of a change to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// The file cannot be read or written.
    #[error("{}: {cause}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// Every user of the machine may read the file.
    #[error(
        "{}: its mode is {mode:o}, so that every user of this machine may read or change it; set \
         it with chmod 600",
        path.display()
    )]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Mode of the file.
        mode: u32,
    },
    /// The file has too many bytes.
    #[error("{} has {bytes} bytes; {FILE_BYTES_MAX} are allowed", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Bytes of the file.
        bytes: u64,
    },
    /// A line is wrong.
    #[error("{}:{line}: {problem}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Problem and its fix.
        problem: String,
    },
    /// A name or a password is refused.
    #[error("{0}")]
    Refused(String),
}

impl Users {
    /// Reads the file, which only its owner and group may read.
    ///
    /// # Errors
    /// If it cannot be read, every user of the machine may read it, or a line is wrong.
    pub fn read(path: &Path) -> Result<Users, UsersError> {
        let text = read_text(path)?;
        Users::parse(&text).map_err(|(line, problem)| UsersError::Line {
            path: path.to_path_buf(),
            line,
            problem,
        })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The first wrong line and its problem.
    pub fn parse(text: &str) -> Result<Users, (usize, String)> {
        let mut numbered = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if !says_nothing(line) {
                let user = parse_line(line).map_err(|problem| (index + 1, problem))?;
                numbered.push((index + 1, Arc::new(user)));
            }
        }
        numbered.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        for pair in numbered.windows(2) {
            if let [(first, a), (second, b)] = pair
                && a.name == b.name
            {
                let problem = format!("user '{}' stands on line {first} too; remove one", b.name);
                return Err((*second, problem));
            }
        }
        Ok(Users(numbered.into_iter().map(|(_, user)| user).collect()))
    }

    /// Place of the user of this name.
    pub(super) fn place(&self, name: &[u8]) -> Option<usize> {
        self.0.binary_search_by(|user| user.name.as_bytes().cmp(name)).ok()
    }

    /// The user at a place.
    pub(super) fn get(&self, place: usize) -> Option<&Arc<User>> {
        self.0.get(place)
    }

    /// All users in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.0.iter()
    }

    /// Returns true if there is exactly this user, with the same password and tenant.
    #[must_use]
    pub fn holds(&self, user: &User) -> bool {
        let place = self.place(user.name.as_bytes());
        place.and_then(|place| self.get(place)).is_some_and(|own| **own == *user)
    }

    /// Hash whose verification takes longest.
    pub(super) fn costliest(&self) -> Option<&PasswordHash> {
        let cost = |hash: &PasswordHash| {
            Params::try_from(hash).map_or(0, |it| u64::from(it.m_cost()) * u64::from(it.t_cost()))
        };
        self.0.iter().map(|user| &user.hash).max_by_key(|hash| cost(hash))
    }
}

/// Adds a user to the file, or gives the user of that name another password and tenant. The other
/// lines stay as they are. Returns true if the user is new.
///
/// # Errors
/// If the name or the password is refused, or the file cannot be read or written.
pub fn add(
    path: &Path,
    name: &str,
    password: &[u8],
    tenant: Option<&str>,
) -> Result<bool, UsersError> {
    check_name(name).map_err(UsersError::Refused)?;
    check_password(password).map_err(UsersError::Refused)?;
    let hash = Argon2::default()
        .hash_password(password)
        .map_err(|error| UsersError::Refused(format!("cannot hash the password: {error}")))?;
    let tenant = tenant.map_or(String::new(), |tenant| format!(":{tenant}"));
    let line = format!("{name}:{hash}{tenant}");
    parse_line(&line).map_err(UsersError::Refused)?;
    let mut lines = match files::exists(path) {
        true => lines_of(path)?,
        false => Vec::new(),
    };
    let place = lines.iter().position(|old| is_line_of(old, name));
    match place.and_then(|place| lines.get_mut(place)) {
        Some(old) => *old = line,
        None => lines.push(line),
    }
    write(path, &lines)?;
    Ok(place.is_none())
}

/// Removes a user from the file. Returns false if there is none of that name.
///
/// # Errors
/// If the file cannot be read or written.
pub fn remove(path: &Path, name: &str) -> Result<bool, UsersError> {
    let mut lines = lines_of(path)?;
    let before = lines.len();
    lines.retain(|line| !is_line_of(line, name));
    if lines.len() == before {
        return Ok(false);
    }
    write(path, &lines)?;
    Ok(true)
}

/// Lines of a file without mistakes.
fn lines_of(path: &Path) -> Result<Vec<String>, UsersError> {
    Users::read(path)?;
    Ok(read_text(path)?.lines().map(str::to_owned).collect())
}

fn read_text(path: &Path) -> Result<String, UsersError> {
    let failed = |cause| UsersError::File { path: path.to_path_buf(), cause };
    let mode = files::mode(path).map_err(failed)?;
    if mode & OTHERS != 0 {
        return Err(UsersError::Open { path: path.to_path_buf(), mode });
    }
    let bytes = files::len(path).map_err(failed)?;
    if bytes > FILE_BYTES_MAX {
        return Err(UsersError::TooLarge { path: path.to_path_buf(), bytes });
    }
    files::read_to_string(path).map_err(failed)
}

fn write(path: &Path, lines: &[String]) -> Result<(), UsersError> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    files::write_private(path, text.as_bytes())
        .map_err(|cause| UsersError::File { path: path.to_path_buf(), cause })
}

fn says_nothing(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

fn is_line_of(line: &str, name: &str) -> bool {
    !says_nothing(line) && line.split(':').next() == Some(name)
}

fn parse_line(line: &str) -> Result<User, String> {
    let mut parts = line.trim_end().splitn(3, ':');
    let (Some(name), Some(hash)) = (parts.next(), parts.next()) else {
        return Err(
            "a line is NAME:HASH or NAME:HASH:TENANT; `entresol user add` writes it".to_owned()
        );
    };
    check_name(name)?;
    let tenant = parts.next().map(str::to_owned);
    if tenant.as_ref().is_some_and(String::is_empty) {
        return Err(format!("the tenant of user '{name}' is empty; name one, or remove the colon"));
    }
    let hash = parse_hash(hash).map_err(|problem| {
        format!("the hash of user '{name}' {problem}; `entresol user add` makes one")
    })?;
    Ok(User { name: name.to_owned(), tenant, hash })
}

fn parse_hash(text: &str) -> Result<PasswordHash, String> {
    // The text itself is not repeated: it may be a password that someone put there.
    let unusable = |_| "is not a hash of argon2".to_owned();
    let hash = PasswordHash::new(text).map_err(|_| unusable(()))?;
    if Algorithm::try_from(hash.algorithm.as_str()) != Ok(Algorithm::Argon2id) {
        return Err("is of another kind than argon2id".to_owned());
    }
    let params = Params::try_from(&hash).map_err(|_| unusable(()))?;
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err("lacks its salt or its end".to_owned());
    }
    let (memory, passes) = (params.m_cost(), params.t_cost());
    if memory > MEMORY_KIB_MAX || passes > PASSES_MAX {
        return Err(format!(
            "takes {memory} KiB and {passes} passes; at most {MEMORY_KIB_MAX} and {PASSES_MAX} are \
             allowed"
        ));
    }
    Ok(hash)
}

fn check_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_graphic() && c != ':';
    if name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || name.starts_with('#')
        || !name.chars().all(allowed)
    {
        return Err(format!(
            "'{}' is not a user name; use 1 to {NAME_BYTES_MAX} printable ASCII characters without \
             space and ':', not beginning with '#'",
            name.escape_default()
        ));
    }
    Ok(())
}

fn check_password(password: &[u8]) -> Result<(), String> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(format!(
            "the password has {} bytes; it must have 1 to {PASSWORD_BYTES_MAX}",
            password.len()
        ));
    }
    if password.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Err("the password contains a space or a control character, which the protocol \
                    cannot carry; choose another"
            .to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        (folder, path)
    }

    #[test]
    fn users_are_added_changed_and_removed_and_other_lines_stay() {
        let (_folder, path) = file();
        assert!(add(&path, "ann", b"one", None).unwrap());
        assert_eq!(files::mode(&path).unwrap(), 0o600);
        let text = files::read_to_string(&path).unwrap();
        files::write_atomically(&path, format!("# ours\n\n{text}").as_bytes()).unwrap();
        assert!(add(&path, "bob", b"two", Some("shop")).unwrap());
        let before = Users::read(&path).unwrap();
        assert!(!add(&path, "ann", b"three", Some("shop")).unwrap());
        let after = Users::read(&path).unwrap();
        let ann = before.iter().next().unwrap();
        assert!(before.holds(ann) && !after.holds(ann));
        assert_eq!(after.iter().next().unwrap().tenant.as_deref(), Some("shop"));
        assert!(files::read_to_string(&path).unwrap().starts_with("# ours\n\nann:$argon2id$"));
        assert!(remove(&path, "ann").unwrap());
        assert!(!remove(&path, "ann").unwrap());
        let names: Vec<_> = Users::read(&path).unwrap().iter().map(|it| it.name.clone()).collect();
        assert_eq!(names, ["bob"]);
        assert_eq!(files::mode(&path).unwrap(), 0o600);
    }

    #[test]
    fn a_file_that_everybody_may_read_is_refused() {
        let (_folder, path) = file();
        add(&path, "ann", b"one", None).unwrap();
        files::set_mode(&path, 0o640).unwrap();
        Users::read(&path).unwrap();
        for mode in [0o644, 0o602, 0o601] {
            files::set_mode(&path, mode).unwrap();
            let error = Users::read(&path).unwrap_err().to_string();
            assert!(error.contains("chmod 600") && error.contains(&format!("{mode:o}")), "{error}");
            assert!(add(&path, "bob", b"two", None).is_err());
        }
    }

    #[test]
    fn wrong_lines_are_named_without_what_may_be_a_password() {
        let hash = Argon2::default().hash_password(b"p").unwrap().to_string();
        let costly = hash.replace("m=19456", "m=4194304");
        let (_folder, path) = file();
        for (text, part) in [
            (format!("a:{hash}\nb:secret\n"), "users:2: the hash of user 'b' is not a hash"),
            ("secret".to_owned(), "users:1: a line is NAME:HASH"),
            (format!("a b:{hash}"), "'a b' is not a user name"),
            (format!(":{hash}"), "'' is not a user name"),
            (format!("a:{hash}:"), "the tenant of user 'a' is empty"),
            (format!("a:{hash}\n\na:{hash}:t"), "users:3: user 'a' stands on line 1 too"),
            (format!("a:{}", hash.replace("argon2id", "argon2i")), "another kind than argon2id"),
            (format!("a:{costly}"), "takes 4194304 KiB"),
            ("a:$argon2id$v=19$m=19456,t=2,p=1".to_owned(), "lacks its salt"),
        ] {
            files::write_private(&path, text.as_bytes()).unwrap();
            let error = Users::read(&path).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn names_and_passwords_that_the_protocol_cannot_carry_are_refused() {
        let (_folder, path) = file();
        for (name, password) in [
            ("", b"p".as_slice()),
            ("a:b", b"p"),
            ("a b", b"p"),
            ("#a", b"p"),
            ("a\n", b"p"),
            ("a", b""),
            ("a", b"two words"),
            ("a", b"p\r"),
            ("a", &[b'p'; PASSWORD_BYTES_MAX + 1]),
        ] {
            assert!(add(&path, name, password, None).is_err(), "{name:?} {password:?}");
        }
        assert!(!files::exists(&path));
    }
}
