//! Systems as the user names them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::MediumSpec;

use super::cache::CacheSystem;
use super::raw::RawSystem;
use super::server::ServerSystem;
use super::store::StoreSystem;
use super::{CurveOptions, System};
use crate::load::Address;

/// System to measure: `raw:MEDIUM`, `cache:MEDIUM`, `store:PATH` or `server:ADDRESS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CurveSubject {
    /// File or drive, or a model of a drive, by itself.
    Raw(MediumSpec),
    /// Cache in this process, whose values lie on the medium.
    Cache(MediumSpec),
    /// Store in this process, in a new directory.
    Store(PathBuf),
    /// Server of memcached's protocol.
    Server(Address),
}

impl fmt::Display for CurveSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CurveSubject::Raw(medium) => write!(f, "raw:{medium}"),
            CurveSubject::Cache(medium) => write!(f, "cache:{medium}"),
            CurveSubject::Store(path) => write!(f, "store:{}", path.display()),
            CurveSubject::Server(address) => write!(f, "server:{address}"),
        }
    }
}

impl FromStr for CurveSubject {
    type Err = String;

    fn from_str(text: &str) -> Result<CurveSubject, String> {
        let medium = |text: &str| text.parse::<MediumSpec>().map_err(|error| error.to_string());
        match text.split_once(':') {
            Some(("raw", rest)) => medium(rest).map(CurveSubject::Raw),
            Some(("cache", rest)) => medium(rest).map(CurveSubject::Cache),
            Some(("store", path)) if !path.is_empty() => Ok(CurveSubject::Store(path.into())),
            Some(("server", rest)) => rest.parse().map(CurveSubject::Server),
            _ => Err("use raw:MEDIUM, cache:MEDIUM, store:PATH or server:HOST:PORT".to_owned()),
        }
    }
}

impl CurveSubject {
    /// Returns the files and directories that a measurement makes and removes.
    #[must_use]
    pub fn made(&self) -> Option<PathBuf> {
        match self {
            CurveSubject::Raw(MediumSpec::File { path, .. })
            | CurveSubject::Cache(MediumSpec::File { path, .. })
            | CurveSubject::Store(path) => Some(path.clone()),
            _ => None,
        }
    }

    /// Prepares the system: opens and fills it.
    pub(super) fn open(
        &self,
        options: &CurveOptions,
        progress: &Progress,
    ) -> Result<Box<dyn System>, BenchError> {
        Ok(match self {
            CurveSubject::Raw(medium) => Box::new(RawSystem::open(medium, options, progress)?),
            CurveSubject::Cache(medium) => {
                Box::new(CacheSystem::open(medium, options, progress.stop())?)
            }
            CurveSubject::Store(path) => {
                Box::new(StoreSystem::open(path, options, progress.stop())?)
            }
            CurveSubject::Server(address) => {
                Box::new(ServerSystem::open(address, options, progress)?)
            }
        })
    }
}
