//! Store in this process under load.

use std::path::{Path, PathBuf};
use std::time::Duration;

use entresol_base::Stop;
use entresol_measure::BenchError;
use entresol_media::files;
use entresol_store::{Kvdb, Kvs, KvsOptions};

use super::threads::{Client, Threads};
use super::{CurveOptions, Loaded, System};
use crate::local_store::{create, failed};

const KVS: &str = "curve";

/// Store with its clients.
pub(super) struct StoreSystem {
    threads: Option<Threads<StoreClient>>,
    store: Option<Kvdb>,
    directory: PathBuf,
    clients: usize,
}

/// Client of a store.
pub(super) struct StoreClient {
    kvs: Kvs,
    value: Vec<u8>,
}

impl Client for StoreClient {
    fn get(&mut self, key: &[u8]) -> Result<bool, BenchError> {
        self.value.clear();
        self.kvs.get_into(key, &mut self.value).map_err(failed)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.kvs.put(key, value).map(drop).map_err(failed)
    }
}

impl StoreSystem {
    pub(super) fn open(
        directory: &Path,
        options: &CurveOptions,
        stop: &Stop,
    ) -> Result<StoreSystem, BenchError> {
        let store = create(directory)?;
        let mut system = StoreSystem {
            threads: None,
            store: None,
            directory: directory.to_owned(),
            clients: options.clients,
        };
        let kvs = store.create_kvs(KVS, KvsOptions::default()).map_err(failed)?;
        system.store = Some(store);
        let client = |_| StoreClient { kvs: kvs.clone(), value: Vec::new() };
        let clients = (0..options.clients).map(client).collect();
        system.threads = Some(Threads::filled(clients, options, stop)?);
        Ok(system)
    }

    fn threads(&mut self) -> Result<&mut Threads<StoreClient>, BenchError> {
        self.threads.as_mut().ok_or_else(|| failed("the store is closed"))
    }
}

impl System for StoreSystem {
    fn saturation(&mut self, time: Duration, stop: &Stop) -> Result<f64, BenchError> {
        self.threads()?.saturation(time, stop)
    }

    fn load(&mut self, per_second: f64, time: Duration, stop: &Stop) -> Result<Loaded, BenchError> {
        self.threads()?.load(per_second, time, stop)
    }

    fn describe(&self) -> String {
        format!(
            "store in {} in this process, {} threads, each with its own arrivals; reads that the \
             system's cache answers reach no drive; reads that found nothing: {}",
            self.directory.display(),
            self.clients,
            self.threads.as_ref().map_or(0, Threads::missing),
        )
    }

    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        self.threads = None;
        match self.store.take() {
            Some(store) => store.close().map_err(failed),
            None => Ok(()),
        }
    }
}

impl Drop for StoreSystem {
    fn drop(&mut self) {
        self.threads = None;
        self.store = None;
        // If this fails, the directory remains, and the command has named it.
        let _ = files::remove_tree(&self.directory);
    }
}
