//! One thread's commands, and the check of their answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::rng::Rng;
use entresol_base::{Clock, ManualClock, Seconds, thread};
use entresol_media::IoBuffer;

use super::model::{Item, Model, Took};
use super::{Command, KEYS, Ttl};
use crate::{
    Arithmetic, Cache, Counted, DeleteOptions, Deleted, Expiry, FileIo, GetOptions, ItemMeta,
    Lookup, OldValue, PendingRead, Pinned, Reservation, Reserved, Store, StoreMode, Stored,
    StoredInPlace, Upload, Worker,
};

/// Attempts at an operation that a busy medium, or a value to be read first, puts off.
const ATTEMPTS_MAX: u32 = 6;
/// Bytes of a large value that arrive or are read at once: more than a segment and less.
const PART_BYTES: usize = 50_000;
/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

/// One thread of a life.
pub(super) struct Hand {
    pub(super) cache: Arc<Cache>,
    pub(super) worker: Worker,
    pub(super) model: Arc<Mutex<Model>>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) rng: Rng,
    /// Token of a key as it was last told, and the count of the key's changes then.
    tokens: BTreeMap<u8, (u64, u64)>,
    changes: BTreeMap<u8, u64>,
    /// Writes of values that were given up, which are still under way.
    late: Vec<FileIo>,
}

/// Answer to a read.
type Found = Option<(Vec<u8>, ItemMeta)>;

/// Returns a key's name.
pub(super) fn name(key: u8) -> Vec<u8> {
    let mut name = format!("key-{key:02}").into_bytes();
    name.resize(6 + usize::from(key % 3) * 100, b'x');
    name
}

impl Hand {
    pub(super) fn new(
        cache: &Arc<Cache>,
        model: &Arc<Mutex<Model>>,
        clock: &Arc<ManualClock>,
        rng: Rng,
    ) -> Hand {
        Hand {
            cache: Arc::clone(cache),
            worker: cache.worker(),
            model: Arc::clone(model),
            clock: Arc::clone(clock),
            rng,
            tokens: BTreeMap::new(),
            changes: BTreeMap::new(),
            late: Vec::new(),
        }
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a command and checks its answer.
    pub(super) fn act(&mut self, command: Command) -> Result<(), String> {
        let now = self.clock.seconds();
        if self.rng.one_in(8) {
            let late = std::mem::take(&mut self.late);
            self.carry_out_all(late);
        }
        let flush = self.model().flush_if_due(now);
        self.carry_out(command, now).map_err(|what| format!("{command:?}: {what}"))?;
        if let Some(flush) = flush {
            self.model().end_flush(&flush);
        }
        Ok(())
    }

    fn carry_out(&mut self, command: Command, now: Seconds) -> Result<(), String> {
        match command {
            Command::Get(key, cas) => {
                let options = GetOptions { cas, ..GetOptions::default() };
                let found = self.read(key, now, &options)?;
                if let (true, Some((_, meta))) = (cas, found) {
                    self.tell(key, meta.cas)?;
                }
                Ok(())
            }
            Command::Touch(key, ttl) => self.touch(key, now, ttl),
            Command::Vivify(key, ttl) => self.vivify(key, now, ttl),
            Command::Set(key, len, ttl, cas) => {
                let value = self.value(len);
                let store = Store { cas, ..request(&value, expiry(ttl, now), &mut self.rng) };
                self.store(key, now, &store, &value)
            }
            Command::SetNumber(key, number) => {
                let value = number.to_string().into_bytes();
                let store = request(&value, Expiry::Never, &mut self.rng);
                self.store(key, now, &store, &value)
            }
            Command::Add(key, len, ttl) | Command::Replace(key, len, ttl) => {
                let value = self.value(len);
                let is_add = matches!(command, Command::Add(..));
                let mode = if is_add { StoreMode::Add } else { StoreMode::Replace };
                let store = Store { mode, ..request(&value, expiry(ttl, now), &mut self.rng) };
                self.store(key, now, &store, &value)
            }
            Command::Extend(key, len, front) => self.extend(key, now, len, front),
            Command::Compare(key, len) => self.compare(key, now, len),
            Command::Count(key, delta, down) => self.count(key, now, delta, down),
            Command::Delete(key, compares) => self.delete(key, now, compares),
            Command::Invalidate(key) => self.invalidate(key, now, true),
            Command::Empty(key) => self.invalidate(key, now, false),
            Command::Flush(delay) => {
                self.flush(now, delay);
                Ok(())
            }
        }
    }

    fn value(&mut self, len: u32) -> Vec<u8> {
        let mut value = vec![0; len as usize];
        self.rng.fill(&mut value);
        value
    }

    /// Reads a key and checks the answer.
    pub(super) fn read(
        &mut self,
        key: u8,
        now: Seconds,
        options: &GetOptions,
    ) -> Result<Found, String> {
        let begin = self.model().tick();
        let found = self.look(key, now, options);
        let mut model = self.model();
        let end = model.tick();
        if let Some((value, meta)) = &found {
            model.check(key.into(), (value, meta), (begin, end), now)?;
        }
        drop(model);
        Ok(found)
    }

    /// Reads a key, if need be from the block file.
    fn look(&mut self, key: u8, now: Seconds, options: &GetOptions) -> Found {
        let name = name(key);
        let hash = self.worker.hash(&name);
        let mut out = Vec::new();
        let options = GetOptions { pin: self.rng.one_in(2), ..*options };
        match self.worker.get(&name, hash, now, &options, &mut out, |_, _| ()) {
            Lookup::Hit(meta) => {
                if let Some(value) = self.worker.take_pinned() {
                    self.read_parts(value, &mut out)?;
                }
                Some((out, meta))
            }
            Lookup::Miss => None,
            Lookup::Pending(read) => Some((self.fetch(&read)?, read.meta)),
        }
    }

    /// Reads a large value part by part.
    fn read_parts(&mut self, mut value: Pinned, out: &mut Vec<u8>) -> Option<()> {
        // Others may replace and evict the item meanwhile.
        while out.len() < value.len() {
            thread::step();
            let mut requests = Vec::new();
            value.let_go(out.len());
            value.read_ahead(2 * PART_BYTES, &mut requests);
            self.carry_out_all(requests);
            let end = out.len() + (value.len() - out.len()).min(PART_BYTES);
            let checked = value.check_to(end);
            if checked.is_err() {
                self.worker.drop_damaged_pinned(&value);
            }
            let len = checked.ok()?.min(end) - out.len();
            value.append_range(out.len(), len, out);
        }
        Some(())
    }

    fn carry_out_all(&self, requests: Vec<FileIo>) {
        if let Some(file) = self.cache.file() {
            requests.into_iter().for_each(|request| request.carry_out(&*file));
        }
    }

    /// Writes a part of a value that arrives; returns false if there is no room.
    fn write_part(&mut self, upload: &mut Upload, mut part: &[u8], now: Seconds) -> bool {
        while !part.is_empty() {
            thread::step();
            if upload.is_full() {
                upload.carry_out();
            }
            let written = upload.write(&mut self.worker, part, now);
            if written < part.len() && !upload.is_full() {
                return false;
            }
            part = &part[written..];
        }
        true
    }

    /// Carries out a pending read.
    fn fetch(&mut self, read: &PendingRead) -> Option<Vec<u8>> {
        let mut buffer = IoBuffer::new(read.length);
        let done = self.cache.file().map(|file| file.read_at(read.offset, &mut buffer));
        let Some(Ok(bytes)) = done else {
            self.worker.fail_read(read);
            return None;
        };
        let range = self.worker.complete_read(read, &buffer[..bytes]).ok()?;
        Some(buffer[range].to_vec())
    }

    /// Repeats an operation while its medium is busy or an old value must be read first.
    fn repeat<T>(
        &mut self,
        mut operation: impl FnMut(&mut Hand, Option<&OldValue>) -> Answer<T>,
    ) -> Option<T> {
        let mut old = None;
        for _ in 0..ATTEMPTS_MAX {
            match operation(self, old.as_ref()) {
                Answer::Done(done) => return Some(done),
                Answer::Busy => {
                    thread::yield_now();
                    old = None;
                }
                Answer::Pending(read) => {
                    old = self.fetch(&read).map(|bytes| OldValue::new(&read, bytes));
                }
            }
        }
        None
    }

    fn send(&mut self, key: u8, now: Seconds, store: &Store<'_>) -> Option<Stored> {
        let name = name(key);
        self.repeat(|hand, old| match hand.store_at_once_or_not(&name, now, store, old) {
            Stored::Busy => Answer::Busy,
            Stored::Pending(read) => Answer::Pending(read),
            stored => Answer::Done(stored),
        })
    }

    /// Stores a value under a condition; the item will be `value` with the request's flags.
    fn store(
        &mut self,
        key: u8,
        now: Seconds,
        store: &Store<'_>,
        value: &[u8],
    ) -> Result<(), String> {
        let item =
            Item { value: value.into(), flags: store.flags, expiry: store.expiry, stale: false };
        self.store_item(key, now, store, item).map(drop)
    }

    /// Stores a value, which may arrive part by part if it is a large one.
    fn store_at_once_or_not(
        &mut self,
        name: &[u8],
        now: Seconds,
        store: &Store<'_>,
        old: Option<&OldValue>,
    ) -> Stored {
        let hash = self.worker.hash(name);
        let upload = self.worker.begin(store.value.len()).filter(|_| self.rng.one_in(2));
        let Some(mut upload) = upload else {
            return self.store_between_others(name, now, store, old);
        };
        let ends_at = if self.rng.one_in(4) { self.rng.index(6) } else { usize::MAX };
        for (number, part) in store.value.chunks(PART_BYTES).enumerate() {
            let fits = self.write_part(&mut upload, part, now);
            if !fits || number >= ends_at {
                // Writes that are under way when a client goes are over at some later time.
                upload.take_requests(&mut self.late);
                // As a server does when a value does not fit.
                drop(upload);
                if is_set(store) {
                    self.worker.delete(name, hash, now, &DeleteOptions::default(), None);
                }
                return Stored::NoMemory;
            }
        }
        let store = Store { value: &[], ..*store };
        self.worker.store_upload(name, hash, now, &store, upload)
    }

    /// Stores a value that lies between others, which may arrive in its place part by part.
    fn store_between_others(
        &mut self,
        name: &[u8],
        now: Seconds,
        store: &Store<'_>,
        old: Option<&OldValue>,
    ) -> Stored {
        let (hash, len) = (self.worker.hash(name), store.value.len());
        let reserved = if self.rng.one_in(3) {
            let place = (len, self.rng.index(100));
            let store = Store { value: &[], ..*store };
            Reservation::begin(&mut self.worker, name, hash, now, &store, place)
        } else {
            Reserved::Nothing
        };
        let mut reservation = match reserved {
            Reserved::Place(reservation) => reservation,
            Reserved::Nothing => return self.worker.store(name, hash, now, store, old),
            Reserved::Busy => return Stored::Busy,
        };
        let ends_at = if self.rng.one_in(4) { self.rng.index(6) } else { usize::MAX };
        for (number, part) in store.value.chunks((len / 4).max(1)).enumerate() {
            thread::yield_now();
            if number >= ends_at {
                // It stands still, and is stored like others once it has come.
                let arrived = reservation.into_bytes();
                debug_assert!(store.value.starts_with(&arrived), "what has arrived was damaged");
                return self.worker.store(name, hash, now, store, old);
            }
            reservation.write(&mut self.worker, part);
        }
        let in_place = Store { value: &[], ..*store };
        match reservation.store(&mut self.worker, name, hash, now, &in_place) {
            StoredInPlace::Done(stored) => stored,
            StoredInPlace::Elsewhere(value) => {
                let store = Store { value: &value, ..*store };
                self.worker.store(name, hash, now, &store, old)
            }
        }
    }

    fn store_item(
        &mut self,
        key: u8,
        now: Seconds,
        store: &Store<'_>,
        item: Item,
    ) -> Result<Option<Stored>, String> {
        let number = self.model().begin(key.into(), Some(item));
        let begin = self.model().tick();
        let stored = self.send(key, now, store);
        let end = self.model().tick();
        let took = match &stored {
            Some(Stored::Stored { .. }) => Took::Effect,
            Some(Stored::TooLarge | Stored::NoMemory) if is_set(store) => Took::Away,
            _ => Took::No,
        };
        let mut model = self.model();
        if took == Took::No {
            // What stands in the way of an add must be an earlier item.
            model.end(key.into(), number, Took::No);
        }
        let may_have = model.may_have(key.into(), (begin, end), now);
        if stored == Some(Stored::NotStored) && store.mode == StoreMode::Add && !may_have {
            return Err("there is an item in the way that there cannot be".to_owned());
        }
        if took != Took::No {
            model.end(key.into(), number, took);
        }
        drop(model);
        if took != Took::No {
            self.change(key);
        }
        if let (true, Some(Stored::Stored { cas })) = (store.cas, &stored) {
            self.tell(key, *cas)?;
        }
        Ok(stored)
    }

    /// Notes that a key's token has changed.
    fn change(&mut self, key: u8) {
        *self.changes.entry(key).or_default() += 1;
    }

    /// Notes a token; no later item has it.
    fn tell(&mut self, key: u8, token: u64) -> Result<(), String> {
        let changes = self.changes.get(&key).copied().unwrap_or_default();
        if let Some((before, then)) = self.tokens.insert(key, (token, changes)) {
            if then == changes && before != token {
                return Err(format!("token {before} of an unchanged item became {token}"));
            }
            if then < changes && before == token {
                return Err(format!("token {token} was given twice"));
            }
        }
        Ok(())
    }

    fn compare(&mut self, key: u8, now: Seconds, len: u32) -> Result<(), String> {
        let Some((token, then)) = self.tokens.get(&key).copied() else {
            return self.read(key, now, &GetOptions::default()).map(drop);
        };
        let is_current = self.changes.get(&key).copied().unwrap_or_default() == then;
        let value = self.value(len);
        let compare = Some(token);
        let store = Store { compare, cas: true, ..request(&value, Expiry::Never, &mut self.rng) };
        let item = Item {
            value: (&*value).into(),
            flags: store.flags,
            expiry: Expiry::Never,
            stale: false,
        };
        match self.store_item(key, now, &store, item)? {
            Some(Stored::Stored { .. }) if !is_current => {
                Err(format!("token {token} was accepted, but the item has changed since"))
            }
            Some(Stored::Exists) if is_current => {
                Err(format!("token {token} was refused, but the item has not changed"))
            }
            _ => Ok(()),
        }
    }

    fn touch(&mut self, key: u8, now: Seconds, ttl: Ttl) -> Result<(), String> {
        let Some((value, meta)) = self.read(key, now, &GetOptions::default())? else {
            return Ok(());
        };
        let to = expiry(ttl, now);
        let item = (ttl != Ttl::Past).then(|| Item {
            value: value.into(),
            flags: meta.flags,
            expiry: to,
            stale: meta.stale,
        });
        let number = self.model().begin(key.into(), item);
        let options = GetOptions { touch: Some(to), ..GetOptions::default() };
        let found = self.read(key, now, &options)?;
        let took = if found.is_some() { Took::Effect } else { Took::No };
        // A read that fails may come after the touch.
        let lost = found.is_none() && ttl == Ttl::Past;
        self.model().end(key.into(), number, if lost { Took::Away } else { took });
        if ttl == Ttl::Past {
            self.change(key);
        }
        Ok(())
    }

    fn vivify(&mut self, key: u8, now: Seconds, ttl: Ttl) -> Result<(), String> {
        let item = Item { value: Arc::default(), flags: 0, expiry: expiry(ttl, now), stale: false };
        let number = self.model().begin(key.into(), Some(item));
        let options =
            GetOptions { vivify: Some(expiry(ttl, now)), win: true, ..GetOptions::default() };
        let begin = self.model().tick();
        let found = self.look(key, now, &options);
        let is_new = found.as_ref().is_some_and(|(value, meta)| {
            value.is_empty() && meta.win == crate::Win::Won && !meta.stale
        });
        let mut model = self.model();
        let end = model.tick();
        // A miss may have created the item and lost it again.
        model.end(key.into(), number, if is_new { Took::Effect } else { Took::No });
        if let (false, Some((value, meta))) = (is_new, &found) {
            model.check(key.into(), (value, meta), (begin, end), now)?;
        }
        drop(model);
        if is_new {
            self.change(key);
        }
        Ok(())
    }

    fn extend(&mut self, key: u8, now: Seconds, len: u32, front: bool) -> Result<(), String> {
        let Some((value, meta)) = self.read(key, now, &GetOptions::default())? else {
            return Ok(());
        };
        let more = self.value(len);
        let whole = if front { [&*more, &*value] } else { [&*value, &*more] }.concat();
        let mode = if front { StoreMode::Prepend } else { StoreMode::Append };
        let store = Store { mode, ..Store::set(&more) };
        let item =
            Item { value: whole.into(), flags: meta.flags, expiry: meta.expiry, stale: false };
        self.store_item(key, now, &store, item).map(drop)
    }

    fn count(&mut self, key: u8, now: Seconds, delta: u64, down: bool) -> Result<(), String> {
        let Some((value, meta)) = self.read(key, now, &GetOptions::default())? else {
            return Ok(());
        };
        let expected = number_of(&value).map(|number| {
            if down { number.saturating_sub(delta) } else { number.wrapping_add(delta) }
        });
        let digits = expected.map(|number| number.to_string().into_bytes());
        let grows = digits.as_ref().is_some_and(|digits| digits.len() > value.len());
        let digits = digits.map(|mut digits| {
            digits.resize(digits.len().max(value.len().min(DIGITS_MAX)), b' ');
            digits
        });
        let item = digits.map(|digits| Item {
            value: digits.into(),
            flags: meta.flags,
            expiry: meta.expiry,
            stale: meta.stale && !grows,
        });
        let write = self.model().begin(key.into(), item);
        let request = Arithmetic {
            delta,
            down,
            compare: None,
            explicit_cas: None,
            touch: None,
            vivify: None,
            cas: false,
        };
        let name = name(key);
        let hash = self.worker.hash(&name);
        let counted = self.repeat(|hand, old| {
            match hand.worker.arithmetic(&name, hash, now, &request, old) {
                Counted::Busy => Answer::Busy,
                Counted::Pending(read) => Answer::Pending(read),
                counted => Answer::Done(counted),
            }
        });
        let (took, answer) = match counted {
            Some(Counted::Value { number, .. }) => (Took::Effect, Some(number)),
            _ => (Took::No, expected),
        };
        self.model().end(key.into(), write, took);
        if took != Took::No {
            self.change(key);
        }
        if answer != expected {
            return Err(format!("the answer is {answer:?}, not {expected:?}"));
        }
        Ok(())
    }

    fn delete(&mut self, key: u8, now: Seconds, compares: bool) -> Result<(), String> {
        let token = self.tokens.get(&key).copied().filter(|_| compares);
        let is_current = token
            .is_some_and(|(_, then)| self.changes.get(&key).copied().unwrap_or_default() == then);
        let options =
            DeleteOptions { compare: token.map(|(token, _)| token), ..DeleteOptions::default() };
        let number = self.model().begin(key.into(), None);
        let deleted = self.remove(key, now, &options);
        let took = match deleted {
            Some(Deleted::Deleted | Deleted::NotFound | Deleted::NoMemory) => Took::Effect,
            _ => Took::No,
        };
        self.model().end(key.into(), number, took);
        if took == Took::Effect {
            self.change(key);
        }
        match (deleted, token) {
            (Some(Deleted::Deleted), Some((token, _))) if !is_current => {
                Err(format!("token {token} was accepted, but the item has changed since"))
            }
            (Some(Deleted::Exists), Some((token, _))) if is_current => {
                Err(format!("token {token} was refused, but the item has not changed"))
            }
            _ => Ok(()),
        }
    }

    fn remove(&mut self, key: u8, now: Seconds, options: &DeleteOptions) -> Option<Deleted> {
        let name = name(key);
        let hash = self.worker.hash(&name);
        self.repeat(|hand, old| match hand.worker.delete(&name, hash, now, options, old) {
            Deleted::Busy => Answer::Busy,
            Deleted::Pending(read) => Answer::Pending(read),
            deleted => Answer::Done(deleted),
        })
    }

    /// Marks an item stale, or drops its value.
    fn invalidate(&mut self, key: u8, now: Seconds, stale: bool) -> Result<(), String> {
        let Some((value, meta)) = self.read(key, now, &GetOptions::default())? else {
            return Ok(());
        };
        let item = if stale {
            let flags = meta.flags;
            Item { value: value.into(), flags, expiry: meta.expiry, stale: true }
        } else {
            Item { value: Arc::default(), flags: 0, expiry: Expiry::Never, stale: false }
        };
        let options =
            DeleteOptions { invalidate: stale, remove_value: !stale, ..DeleteOptions::default() };
        let number = self.model().begin(key.into(), Some(item));
        let took = match self.remove(key, now, &options) {
            Some(Deleted::Deleted) => Took::Effect,
            Some(Deleted::NotFound | Deleted::NoMemory) => Took::Away,
            _ => Took::No,
        };
        self.model().end(key.into(), number, took);
        if took != Took::No {
            self.change(key);
        }
        Ok(())
    }

    fn flush(&mut self, now: Seconds, delay: u32) {
        if delay == 0 {
            let flush = self.model().begin_flush();
            self.cache.flush_all(now, 0);
            self.model().end_flush(&flush);
        } else {
            self.model().order_flush(None);
            self.cache.flush_all(now, delay);
            let at = Seconds(now.0 + delay);
            self.model().order_flush(Some(at));
        }
    }

    /// Reads all keys and checks the answers.
    pub(super) fn read_all(&mut self, now: Seconds) -> Result<(), String> {
        (0..KEYS as u8).try_for_each(|key| self.read(key, now, &GetOptions::default()).map(drop))
    }
}

/// Parses a decimal number after any spaces, up to the value's end or another space.
fn number_of(value: &[u8]) -> Option<u64> {
    let text: Vec<u8> = value.trim_ascii_start().to_vec();
    let digits: Vec<u8> = text.iter().copied().take_while(u8::is_ascii_digit).collect();
    let ends = text.get(digits.len()).is_none_or(u8::is_ascii_whitespace);
    let short = value.len() <= 1024 && digits.len() <= DIGITS_MAX && ends;
    short.then(|| String::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// Answer of the cache to an attempt.
enum Answer<T> {
    Done(T),
    Busy,
    Pending(PendingRead),
}

fn expiry(ttl: Ttl, now: Seconds) -> Expiry {
    match ttl {
        Ttl::Never => Expiry::Never,
        Ttl::Seconds(seconds) => Expiry::At(Seconds(now.0 + seconds)),
        Ttl::Past => Expiry::Immediately,
    }
}

/// Returns true if an item that the store cannot replace goes.
fn is_set(store: &Store<'_>) -> bool {
    store.mode == StoreMode::Set && store.compare.is_none()
}

fn request<'a>(value: &'a [u8], expiry: Expiry, rng: &mut Rng) -> Store<'a> {
    let flags = if rng.one_in(3) { rng.below(1 << 32) as u32 } else { 0 };
    Store { flags, expiry, ..Store::set(value) }
}
