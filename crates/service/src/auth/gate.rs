//! The gate: decides whether a claim is true. It takes as long for a user that it does not know.

use std::io;
use std::sync::Arc;

use argon2::password_hash::phc::{Output, PasswordHash, Salt};
use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use blake2::Blake2sMac256;
use blake2::digest::{KeyInit, Mac};
use entresol_base::sync::Mutex;
use subtle::ConstantTimeEq;

use super::users::{User, Users};

/// User and password that a client has sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim {
    /// Name of the user.
    pub user: Vec<u8>,
    /// Password.
    pub password: Vec<u8>,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claim of {:?}", String::from_utf8_lossy(&self.user))
    }
}

/// Keyed hash of a claim.
type Tag = [u8; 32];

/// Users, and what has been verified of them. A reload makes another gate, which knows nothing of
/// what this one has verified.
pub struct Gate {
    users: Users,
    /// Random key of the tags.
    key: [u8; 32],
    /// Tag of each user's true claim, once it has been made.
    verified: Vec<Mutex<Option<Tag>>>,
    /// Hash that is verified in vain for users that there are not.
    stand_in: PasswordHash,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("users", &self.users).finish_non_exhaustive()
    }
}

impl Gate {
    /// Makes a gate for these users.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(users: Users) -> io::Result<Gate> {
        let mut random = [[0; 32]; 3];
        random.iter_mut().try_for_each(|part| getrandom::fill(part)).map_err(io::Error::other)?;
        let [key, salt, output] = random;
        let stand_in = match users.costliest() {
            Some(costliest) => PasswordHash {
                salt: Some(Salt::new(&salt).map_err(io::Error::other)?),
                hash: Some(Output::new(&output).map_err(io::Error::other)?),
                ..costliest.clone()
            },
            None => Argon2::default()
                .hash_password_with_salt(&output, &salt)
                .map_err(io::Error::other)?,
        };
        let verified = users.iter().map(|_| Mutex::default()).collect();
        Ok(Gate { users, key, verified, stand_in })
    }

    /// Returns the user of a claim that has been verified before. Takes microseconds.
    #[must_use]
    pub fn recall(&self, claim: &Claim) -> Option<Arc<User>> {
        let tag = self.tag(claim);
        let place = self.users.place(&claim.user)?;
        let verified = (*self.verified.get(place)?.lock())?;
        bool::from(verified.ct_eq(&tag)).then(|| self.users.get(place).cloned()).flatten()
    }

    /// Verifies a claim, and remembers it if it is true. Takes tens of milliseconds, whether there
    /// is such a user or not.
    #[must_use]
    pub fn verify(&self, claim: &Claim) -> Option<Arc<User>> {
        let place = self.users.place(&claim.user);
        let user = place.and_then(|place| self.users.get(place));
        let hash = user.map_or(&self.stand_in, |user| &user.hash);
        let is_true = Argon2::default().verify_password(&claim.password, hash).is_ok();
        let user = user.filter(|_| is_true).cloned()?;
        if let Some(verified) = place.and_then(|place| self.verified.get(place)) {
            *verified.lock() = Some(self.tag(claim));
        }
        Some(user)
    }

    /// Returns the user of this name, whose name a certificate has proved.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Arc<User>> {
        self.users.get(self.users.place(name.as_bytes())?).cloned()
    }

    /// Returns true if a user who was let in, perhaps by an earlier gate, may stay.
    #[must_use]
    pub fn holds(&self, user: &User) -> bool {
        self.users.holds(user)
    }

    fn tag(&self, claim: &Claim) -> Tag {
        let mut tag = Blake2sMac256::new((&self.key).into());
        // The length keeps the two apart.
        tag.update(&(claim.user.len() as u64).to_le_bytes());
        tag.update(&claim.user);
        tag.update(&claim.password);
        tag.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(password: &[u8], memory_kib: u32) -> String {
        let params = argon2::Params::new(memory_kib, 1, 1, None).unwrap();
        Argon2::from(params).hash_password(password).unwrap().to_string()
    }

    fn claim(user: &str, password: &str) -> Claim {
        Claim { user: user.into(), password: password.into() }
    }

    #[test]
    fn only_the_right_password_is_true_and_only_it_is_remembered() {
        let text = format!("ann:{}\nbob:{}:shop\n", hash(b"one", 64), hash(b"two", 128));
        let gate = Gate::new(Users::parse(&text).unwrap()).unwrap();
        for wrong in
            [("ann", "two"), ("ann", ""), ("bob", "one"), ("eve", "one"), ("", ""), ("an", "none")]
        {
            let wrong = claim(wrong.0, wrong.1);
            assert_eq!(gate.verify(&wrong), None, "{wrong:?}");
            assert_eq!(gate.recall(&wrong), None, "{wrong:?}");
        }
        let right = claim("bob", "two");
        assert_eq!(gate.recall(&right), None);
        assert_eq!(gate.verify(&right).unwrap().tenant.as_deref(), Some("shop"));
        assert_eq!(gate.recall(&right).unwrap().name, "bob");
        for wrong in [("bob", "tw"), ("bobt", "wo"), ("ann", "two"), ("ann", "one")] {
            assert_eq!(gate.recall(&claim(wrong.0, wrong.1)), None, "{wrong:?}");
        }
    }

    /// Time is not measured: the hash that is verified in vain has the parameters of the costliest.
    #[test]
    fn timing_of_an_unknown_user_is_that_of_a_known_one() {
        let text = format!("ann:{}\nbob:{}\n", hash(b"one", 64), hash(b"two", 128));
        let users = Users::parse(&text).unwrap();
        let bob = users.iter().last().unwrap().hash.clone();
        let gate = Gate::new(users).unwrap();
        assert_eq!(gate.stand_in.params, bob.params);
        assert_eq!(gate.stand_in.hash.unwrap().len(), bob.hash.unwrap().len());
        assert_ne!(gate.stand_in.salt, bob.salt);
        let nobody = Gate::new(Users::default()).unwrap();
        assert_eq!(nobody.stand_in.params.as_str(), "m=19456,t=2,p=1");
        assert_eq!(nobody.verify(&claim("ann", "one")), None);
    }

    #[test]
    fn another_gate_remembers_nothing_and_holds_only_users_that_did_not_change() {
        let (ann, bob) = (hash(b"one", 64), hash(b"two", 64));
        let old = Gate::new(Users::parse(&format!("ann:{ann}\nbob:{bob}\n")).unwrap()).unwrap();
        let users = ["one", "two"].map(|it| claim(if it == "one" { "ann" } else { "bob" }, it));
        let [first, second] = users.each_ref().map(|it| old.verify(it).unwrap());
        let new =
            Gate::new(Users::parse(&format!("ann:{ann}\nbob:{bob}:shop\n")).unwrap()).unwrap();
        assert_eq!(new.recall(&users[0]), None);
        assert!(old.holds(&first) && old.holds(&second));
        assert!(new.holds(&first) && !new.holds(&second));
        assert!(!Gate::new(Users::default()).unwrap().holds(&first));
    }
}
