//! Values that are put together in their place, part by part: of an old value and one that is
//! added to it, or of the bytes of a request.
//!
//! Each part takes about as long as a turn of an event loop may. Until the whole is published, the
//! old item is served as it was, and the place belongs to no item: it is an [`Upload`] whose bytes
//! come from the cache itself.

use std::sync::Arc;

use entresol_base::Seconds;
use entresol_media::Access;

use super::Worker;
use super::file_io::{FileIo, Flight};
use super::old::OldItem;
use super::pin::{Part, Pin};
use super::request::in_order;
use super::upload::Upload;
use crate::ops::{KeyHash, Store, StoreMode, Stored};
use crate::pieces::Chunk;
use crate::shared::records::Records;
use crate::shared::space::Seen;

/// Bytes of a value that are copied at once, but for the end of a chunk: some 100 us.
const PART_BYTES: usize = 256 << 10;

/// A large value that is being put together for a store, which is repeated until it is whole.
pub struct Join {
    /// Place of the whole.
    upload: Upload,
    /// Item whose value is one of the parts.
    pub(super) old: Option<OldItem>,
    /// Its value, if that does not lie in pieces.
    before: Vec<u8>,
    /// Value of the store, if it has arrived in its place.
    pub(super) added: Option<Pin>,
    lacks_room: bool,
    /// Chunk of a part on a block file that is being read.
    fetch: Option<Fetch>,
    requests: Vec<FileIo>,
}

/// Chunk of one of the parts that is being read.
struct Fetch {
    part: usize,
    chunk: Chunk,
    flight: Arc<Flight>,
}

/// Result of asking for bytes of a part.
enum Fetched {
    Bytes,
    /// A read of so many bytes was asked for.
    Asked(usize),
    /// They are being read.
    Awaited,
    Damaged,
}

/// Result of copying a part.
pub(super) enum Copied {
    Some,
    Whole,
    /// The old value is damaged.
    OldIsDamaged,
    /// The value that was to be added is damaged.
    IsDamaged,
    /// A write of a part failed.
    Failed,
}

impl Join {
    /// Begins to put a value of so many bytes together, if the quota could hold it. `keep` are the
    /// hash of an item that is not evicted for it, and the pieces of its value.
    pub(super) fn begin(
        worker: &mut Worker,
        len: usize,
        keep: Option<(u64, u32)>,
        (old, before): (Option<OldItem>, Vec<u8>),
        added: Option<Pin>,
    ) -> Stored {
        let shared = Arc::clone(&worker.shared);
        let kept = keep.map_or(0, |(_, pieces)| pieces) + added.as_ref().map_or(0, Pin::pieces);
        let wanted = shared.records().cut.parts(len as u64).0;
        if !shared.space().could_hold(wanted, kept.into()) {
            return Stored::NoMemory;
        }
        let Some(upload) = Upload::begin(&shared, len, keep) else { return Stored::TooLarge };
        let (lacks_room, fetch, requests) = (false, None, Vec::new());
        let join = Join { upload, old, before, added, lacks_room, fetch, requests };
        worker.unfinished = Some(Box::new(join));
        Stored::Unfinished
    }

    /// Returns true if the next part lacks room.
    #[must_use]
    pub fn lacks_room(&self) -> bool {
        self.lacks_room
    }

    /// Moves the reads and writes that the next part needs to `out`.
    pub fn take_requests(&mut self, out: &mut Vec<FileIo>) {
        out.append(&mut self.requests);
        self.upload.take_requests(out);
    }

    /// Carries out those reads and writes, and waits for them.
    pub fn carry_out(&mut self) {
        let mut requests = Vec::new();
        self.take_requests(&mut requests);
        self.upload.carry_out_all(requests);
    }

    /// Returns true if the next part has to wait for a read or a write.
    #[must_use]
    pub fn waits_for_file(&mut self) -> bool {
        let is_fetching = self.fetch.as_ref().is_some_and(|fetch| !fetch.flight.is_over());
        is_fetching || self.upload.waits_for_file()
    }

    /// Returns the bytes of the value that the store adds, if they have arrived in their place.
    #[must_use]
    pub fn added_len(&self) -> Option<usize> {
        self.added.as_ref().map(Pin::len)
    }

    /// Returns the bytes of the whole that are in their place.
    #[must_use]
    pub fn written(&self) -> usize {
        self.upload.written()
    }

    /// Returns the bytes of the whole.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a large value is never empty")]
    pub fn len(&self) -> usize {
        self.upload.len()
    }

    /// Returns the bytes of memory that it takes beside pieces.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        let pins = [self.old.as_ref().and_then(|old| old.pin.as_ref()), self.added.as_ref()];
        let rests: usize = pins.into_iter().flatten().map(Pin::rest_len).sum();
        self.upload.buffered_bytes() + self.before.capacity() + rests
    }

    /// Copies the next part to its place.
    pub(super) fn copy_part(
        &mut self,
        worker: &mut Worker,
        store: &Store<'_>,
        now: Seconds,
    ) -> Copied {
        let added = self.added.as_ref().map_or(Part::Bytes(store.value), Part::Pinned);
        let old = self.old.as_ref().and_then(|old| old.pin.as_ref());
        let old = old.map_or(Part::Bytes(&self.before), Part::Pinned);
        let parts = in_order(store.mode, old, added);
        let number_of_old = usize::from(store.mode != StoreMode::Append);
        let (mut left, mut buffer) = (PART_BYTES, Vec::new());
        self.lacks_room = false;
        while left > 0 && self.upload.missing() > 0 && !self.upload.is_full() {
            // A part is not read from a file before there is room for it.
            if !self.upload.has_place(worker, now) {
                self.lacks_room = true;
                return Copied::Some;
            }
            let (at, first) = (self.upload.written(), parts[0].len());
            let (number, at) = if at < first { (0, at) } else { (1, at - first) };
            buffer.clear();
            let bytes = match parts[number] {
                Part::Bytes(bytes) => {
                    let rest = bytes.get(at..).unwrap_or_default();
                    rest.get(..left).unwrap_or(rest)
                }
                Part::Pinned(pin) => {
                    let (fetch, requests) = (&mut self.fetch, &mut self.requests);
                    match fetch_chunk((number, at), pin, fetch, requests, &mut buffer) {
                        Fetched::Bytes => &buffer,
                        Fetched::Awaited => return Copied::Some,
                        Fetched::Asked(bytes) => {
                            worker.charge_file(Access::Read, bytes);
                            return Copied::Some;
                        }
                        Fetched::Damaged if number == number_of_old => {
                            return Copied::OldIsDamaged;
                        }
                        Fetched::Damaged => return Copied::IsDamaged,
                    }
                }
            };
            debug_assert!(!bytes.is_empty(), "{:?} lacks bytes that no part has", self.upload);
            let written = self.upload.write(worker, bytes, now);
            if written < bytes.len() {
                self.lacks_room = !self.upload.is_full();
                return Copied::Some;
            }
            left = left.saturating_sub(written);
        }
        match self.upload.missing() {
            _ if self.upload.has_failed() => Copied::Failed,
            0 if self.upload.is_settled() => Copied::Whole,
            _ => Copied::Some,
        }
    }

    /// Publishes the whole, or begins anew if the old item has changed.
    #[cold]
    pub(super) fn publish(
        self,
        worker: &mut Worker,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
    ) -> Stored {
        let Join { upload, old, added, .. } = self;
        let joins = matches!(store.mode, StoreMode::Append | StoreMode::Prepend);
        let (list, rest) = upload.finish();
        let value = (&list, &*rest);
        let stored = match &old {
            Some(old) => {
                let record = worker.extended(key, now, store, old, list.value_len as usize);
                let unchanged = |seen: &Seen, records: &Records| old.is_unchanged(seen, records);
                worker.publish_list(hash, now, (record, Some(hash.0)), value, &unchanged)
            }
            None if joins => {
                let create = Store { mode: StoreMode::Add, vivify: false, ..*store };
                worker.publish_new(key, hash, now, &create, value)
            }
            None => worker.publish_new(key, hash, now, store, value),
        };
        let stored = worker.free_unless_stored(&list, stored);
        if joins && stored == Stored::NotStored {
            return worker.extend(key, hash, now, store, added, None);
        }
        stored
    }
}

/// Appends bytes of a part, from byte `at` of it on, to `out`: up to the end of a chunk.
fn fetch_chunk(
    (part, at): (usize, usize),
    pin: &Pin,
    fetch: &mut Option<Fetch>,
    requests: &mut Vec<FileIo>,
    out: &mut Vec<u8>,
) -> Fetched {
    let of_bytes = |is_intact| if is_intact { Fetched::Bytes } else { Fetched::Damaged };
    let Some(chunk) = pin.chunk_of(at).filter(|it| pin.is_on_file() && it.piece.is_some()) else {
        return of_bytes(pin.append_chunk(at as u64, out));
    };
    let is_it = |fetch: &Fetch| fetch.part == part && fetch.chunk == chunk;
    let Some(Fetch { flight, .. }) = fetch.as_ref().filter(|fetch| is_it(fetch)) else {
        let Some((io, flight)) = pin.read(&chunk) else { return Fetched::Damaged };
        requests.push(io);
        *fetch = Some(Fetch { part, chunk, flight });
        return Fetched::Asked(chunk.bytes);
    };
    if !flight.is_over() {
        return Fetched::Awaited;
    }
    let buffer = flight.take();
    *fetch = None;
    let bytes = buffer.as_deref().and_then(|buffer| buffer.get(..chunk.bytes));
    let bytes = bytes.filter(|bytes| pin.is_intact(&chunk, bytes));
    out.extend_from_slice(
        bytes.and_then(|it| it.get(at - chunk.at as usize..)).unwrap_or_default(),
    );
    of_bytes(bytes.is_some())
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.upload.fmt(f)
    }
}
