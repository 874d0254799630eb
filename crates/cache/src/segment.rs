//! Segments: their states and counts, the queues of sealed and free ones, and the two quotas.
//!
//! A segment is free, then open (one shard appends to it), on a block file writing, then sealed,
//! evicting, and free again. It stays open, though it is full, while a value arrives in it. Only
//! the thread that moved a segment from sealed to evicting may empty it. After that move only
//! shards that announced a write before it (`Writing`) still write to the segment, and the evicting
//! thread waits for them.
//!
//! A segment that is a piece of a large value goes from free to that and back. The first piece of a
//! value leads the others: it names the next one, as each does, and is queued for eviction while
//! its item lives. The value's segments are freed when its item has died and its last reader has
//! let go, whichever comes later.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use entresol_base::Seconds;
use entresol_base::sync::Mutex;
use entresol_base::thread;

/// Deadline of a segment that holds an item without expiry.
pub(crate) const NEVER: u32 = 0;
/// Bits of a token that tell the place in a segment; those above them tell its sequence number.
const PLACE_BITS: u32 = 22;
/// Bound above the sequences of all segments.
pub(crate) const SEQUENCE_MAX: u64 = 1 << (64 - PLACE_BITS);
/// Segments of metadata that are allocated together.
const BLOCK: usize = 64;

/// Returns the tokens that the places of a segment with a sequence number imply.
pub(crate) fn tokens_of(sequence: u64) -> Range<u64> {
    let first = sequence << PLACE_BITS;
    first..first + (1 << PLACE_BITS)
}

/// State of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    Free = 0,
    Open = 1,
    /// Full, but not yet written to its block file.
    Writing = 2,
    Sealed = 3,
    Evicting = 4,
    /// A piece of a large value.
    Piece = 5,
    /// The first piece of the value of a live item.
    Leader = 6,
}

impl State {
    fn from_u8(value: u8) -> State {
        match value {
            1 => State::Open,
            2 => State::Writing,
            3 => State::Sealed,
            4 => State::Evicting,
            5 => State::Piece,
            6 => State::Leader,
            _ => State::Free,
        }
    }
}

/// Metadata of a segment.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    /// Sequence number, unique for each life of the segment, in order of opening; the upper part of
    /// its items' compare-and-swap tokens.
    pub(crate) sequence: AtomicU64,
    state: AtomicU8,
    kind: AtomicU8,
    /// Bytes of records.
    pub(crate) used: AtomicU32,
    /// Bytes of values that lie elsewhere.
    pub(crate) value_used: AtomicU32,
    /// Live items, in the upper 24 bits, and bytes of their records and values: one word, so that
    /// an item is added or removed at once. Both are signed, since another thread may retire an
    /// item before its writer has counted it.
    live: AtomicU64,
    /// Second from which everything in it has expired, or `NEVER`.
    pub(crate) deadline: AtomicU32,
    /// One more than the number of the write buffer that holds its values; 0 without a buffer.
    pub(crate) buffer: AtomicU32,
    /// Location of the record of the value that it leads. Changed under the record's bucket's lock.
    owner: AtomicU64,
    /// One more than the number of the value's next piece; 0 for the last.
    next: AtomicU32,
    /// Number of the value's pieces, if it leads them.
    pieces: AtomicU32,
    /// Readers of the value that it leads, until the value's item has died.
    pins: Holds,
    /// Reserved places in it, until it takes no further records.
    reserved: Holds,
}

/// Count of what keeps something from its end, and a mark once it is to end: the end is when the
/// mark is set and the count is zero, whichever comes later.
#[derive(Debug, Default)]
struct Holds(AtomicU32);

/// Mark beside the count.
const ENDING: u32 = 1 << 31;

impl Holds {
    fn restart(&self, count: u32) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Counts one more. Returns false if the mark is set already.
    fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) & ENDING == 0
    }

    /// Counts one out. Returns true if that is the end.
    fn remove(&self) -> bool {
        let before = self.0.fetch_sub(1, Ordering::AcqRel);
        assert!(before & !ENDING != 0, "one was counted out that was never counted in");
        before == ENDING | 1
    }

    /// Sets the mark. Returns true if that is the end.
    fn end(&self) -> bool {
        let before = self.0.fetch_or(ENDING, Ordering::AcqRel);
        assert!(before & ENDING == 0, "the end was marked twice");
        before == 0
    }

    fn is_ending(&self) -> bool {
        self.0.load(Ordering::Acquire) & ENDING != 0
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed) & !ENDING
    }
}

impl Segment {
    pub(crate) fn state(&self) -> State {
        State::from_u8(self.state.load(Ordering::SeqCst))
    }

    /// Goes on to the next state; the caller alone may move it, from one of these.
    pub(crate) fn go_on(&self, from: &[State], to: State) {
        thread::step();
        let before = State::from_u8(self.state.swap(to as u8, Ordering::SeqCst));
        assert!(from.contains(&before), "a segment became {to:?} from {before:?}, not {from:?}");
    }

    /// Returns the log and class of its items.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        Kind(self.kind.load(Ordering::Relaxed))
    }

    /// Changes the kind of a sealed segment, under the lock of the queues.
    pub(crate) fn set_kind(&self, kind: Kind) {
        self.kind.store(kind.0, Ordering::Relaxed);
    }

    /// Begins a new life, empty. No thread has touched the segment since it was freed.
    pub(crate) fn start(&self, sequence: u64, kind: Kind) {
        let state = self.state();
        assert!(state == State::Free, "segment to be opened as {sequence} is {state:?}, not free");
        assert!(sequence != 0, "a segment in use has a sequence above 0");
        self.assert_nothing_lives();
        self.set_kind(kind);
        self.used.store(0, Ordering::Relaxed);
        self.value_used.store(0, Ordering::Relaxed);
        self.live.store(0, Ordering::Relaxed);
        self.reserved.restart(0);
        // The earliest deadline possible; the first item moves it.
        self.deadline.store(NEVER + 1, Ordering::Relaxed);
        self.sequence.store(sequence, Ordering::SeqCst);
    }

    /// Moves from one state to another; returns false if it was in a third.
    pub(crate) fn change_state(&self, from: State, to: State) -> bool {
        thread::step();
        self.state
            .compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Returns true if the segment is in this life and may still be written to.
    pub(crate) fn takes_writes(&self, sequence: u64) -> bool {
        matches!(self.state(), State::Sealed | State::Open)
            && self.sequence.load(Ordering::SeqCst) == sequence
    }

    /// Adds an item to the live ones.
    pub(crate) fn add_live(&self, bytes: u64) {
        self.live.fetch_add(LIVE_ITEM + bytes, Ordering::Relaxed);
    }

    /// Adds the bytes of a live item's pieces.
    pub(crate) fn add_live_pieces(&self, bytes: u64) {
        self.live.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Removes an item from the live ones. Returns true if it was the last.
    #[inline]
    pub(crate) fn remove_live(&self, bytes: u64) -> bool {
        let item = LIVE_ITEM + bytes;
        self.live.fetch_sub(item, Ordering::Relaxed) == item
    }

    /// Counts a place whose record comes later, under the lock of the shard that the segment is
    /// open in: until then it stays open.
    pub(crate) fn reserve(&self) {
        let is_open = self.reserved.add();
        debug_assert!(is_open, "a place was reserved in a segment that is full");
    }

    /// Counts a reserved place out, whose record is published or will never be. Returns true if the
    /// segment is to be sealed now.
    pub(crate) fn end_reservation(&self) -> bool {
        self.reserved.remove()
    }

    /// Returns the number of its reserved places.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.count().into()
    }

    /// Notes that it takes no further records. Returns true if it is to be sealed now, since no
    /// place in it is reserved.
    pub(crate) fn close(&self) -> bool {
        self.reserved.end()
    }

    /// Makes it a piece of a value that is being written: the next one and, of the first, the
    /// number of pieces. The writer pins the value.
    pub(crate) fn link(&self, next: Option<u32>, pieces: u32) {
        self.next.store(next.map_or(0, |next| next + 1), Ordering::Relaxed);
        self.pieces.store(pieces, Ordering::Relaxed);
        self.pins.restart(u32::from(pieces > 0));
    }

    /// Returns the next piece of the value.
    pub(crate) fn next_piece(&self) -> Option<u32> {
        self.next.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Returns the number of pieces that it leads.
    pub(crate) fn pieces(&self) -> u32 {
        self.pieces.load(Ordering::Relaxed)
    }

    /// Returns the location of the record whose value it leads.
    pub(crate) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Acquire)
    }

    /// Changes the location of the record whose value it leads.
    pub(crate) fn set_owner(&self, location: u64) {
        self.owner.store(location, Ordering::Release);
    }

    /// Keeps the value that it leads from being freed, under the lock of its item's buckets.
    pub(crate) fn pin(&self) {
        let lives = self.pins.add();
        debug_assert!(lives, "a value without an item was pinned");
    }

    /// Ends a pin. Returns true if the value is to be freed now.
    pub(crate) fn unpin(&self) -> bool {
        self.pins.remove()
    }

    /// Marks the value that it leads as that of no item. Returns true if it is to be freed now.
    pub(crate) fn mark_dead(&self) -> bool {
        self.pins.end()
    }

    /// Returns true if the value that it leads is that of no item.
    pub(crate) fn is_dead(&self) -> bool {
        self.pins.is_ending()
    }

    /// Ends its time as a piece: it is free now.
    pub(crate) fn end_piece(&self) {
        self.link(None, 0);
        self.sequence.store(0, Ordering::SeqCst);
        self.go_on(&[State::Piece], State::Free);
    }

    /// Every item was counted in once and out once, and by the same bytes.
    pub(crate) fn assert_nothing_lives(&self) {
        let live = self.live.load(Ordering::Relaxed);
        let (bytes, items) = ((live << 24).cast_signed() >> 24, live.cast_signed() >> 40);
        assert!(live == 0, "{items} items and {bytes} bytes are left in an empty segment");
    }

    /// Bytes of the items that are counted in.
    pub(crate) fn live_bytes(&self) -> u64 {
        split_live(self.live.load(Ordering::Relaxed)).1
    }

    /// Returns the number of live items.
    pub(crate) fn live_items(&self) -> u64 {
        split_live(self.live.load(Ordering::Relaxed)).0
    }

    /// Moves the deadline to the item's expiry if that is later.
    pub(crate) fn extend_deadline(&self, expiry: Option<Seconds>) {
        let Some(expiry) = expiry else {
            self.deadline.store(NEVER, Ordering::Relaxed);
            return;
        };
        let extend = |deadline| (deadline != NEVER && deadline < expiry.0).then_some(expiry.0);
        let _ = self.deadline.fetch_update(Ordering::Relaxed, Ordering::Relaxed, extend);
    }

    /// Returns true if everything in it has expired.
    pub(crate) fn is_expired(&self, now: Seconds) -> bool {
        let deadline = self.deadline.load(Ordering::Relaxed);
        deadline != NEVER && deadline <= now.0
    }
}

/// One item in the word that counts live items and bytes.
const LIVE_ITEM: u64 = 1 << 40;

/// Splits the word into items and bytes; a count that is negative for a moment becomes zero.
fn split_live(live: u64) -> (u64, u64) {
    let bytes = (live << 24).cast_signed() >> 24;
    let items = live.wrapping_sub(bytes.cast_unsigned()).cast_signed() >> 40;
    (items.max(0).cast_unsigned(), bytes.max(0).cast_unsigned())
}

/// Number of the segment whose holes a shard is writing to, for the thread that wants to empty that
/// segment. It has a cache line of its own, since it changes with every such write.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Writing(AtomicU32);

impl Writing {
    /// Announces a write to a hole. The caller must then check that the segment still takes writes.
    /// Of a shard that announces and then checks the state, and a thread that moves the state to
    /// `Evicting` and then looks here, at least one sees the other.
    pub(crate) fn begin(&self, segment: u32) {
        let before = self.0.swap(segment + 1, Ordering::SeqCst);
        debug_assert!(before == 0, "segment {segment} comes before {} has ended", before - 1);
        thread::step();
    }

    /// Ends the announced write.
    pub(crate) fn end(&self) {
        debug_assert!(self.0.load(Ordering::Relaxed) != 0, "a write ended that never began");
        self.0.store(0, Ordering::Release);
    }

    pub(crate) fn is_into(&self, segment: u32) -> bool {
        self.0.load(Ordering::SeqCst) == segment + 1
    }
}

/// Metadata of all segments, allocated in blocks as segments come into use.
pub(crate) struct Table {
    blocks: Box<[OnceLock<Box<[Segment]>>]>,
}

impl Table {
    pub(crate) fn new(segments_max: u32) -> Self {
        let blocks = (segments_max as usize).div_ceil(BLOCK);
        Table { blocks: (0..blocks).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> &Segment {
        let block = self.blocks[id as usize / BLOCK]
            .get_or_init(|| (0..BLOCK).map(|_| Segment::default()).collect());
        &block[id as usize % BLOCK]
    }

    /// Returns the bytes of metadata that so many segments use.
    pub(crate) fn bytes_for(&self, segments: u32) -> u64 {
        let blocks = (segments as usize).div_ceil(BLOCK);
        (blocks * BLOCK * size_of::<Segment>() + size_of_val(&*self.blocks)) as u64
    }

    /// Returns the bytes of metadata in use.
    pub(crate) fn bytes(&self) -> u64 {
        let blocks = self.blocks.iter().filter(|block| block.get().is_some()).count();
        let used = blocks * BLOCK * size_of::<Segment>();
        (used + self.blocks.len() * size_of::<OnceLock<Box<[Segment]>>>()) as u64
    }
}

/// Number of time-to-live classes: 0 is «never», then two for each doubling from one second up.
pub(crate) const CLASSES: usize = 52;

/// Returns the class of an item with this many seconds to live.
pub(crate) fn class_of(ttl_s: Option<u32>) -> u8 {
    let Some(ttl_s) = ttl_s else { return 0 };
    let ttl_s = ttl_s.max(1);
    let octave = ttl_s.ilog2();
    let upper_half = octave > 0 && (ttl_s >> (octave - 1)) & 1 == 1;
    (1 + 2 * octave as usize + usize::from(upper_half)).min(CLASSES - 1) as u8
}

/// Log that a segment belongs to. Each log has segments of every class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Log {
    /// Log of new items, which is passed through quickly.
    Small = 0,
    /// Log of items that were read in the small log, or are back soon after they were let go.
    Main = 1,
}

/// Number of pairs of a log and a class.
pub(crate) const QUEUES: usize = 2 * CLASSES;

/// Log and time-to-live class of a segment's items, as one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(u8);

impl Kind {
    /// Returns the kind of a log's segments of a class.
    pub(crate) fn new(log: Log, class: u8) -> Kind {
        debug_assert!(usize::from(class) < CLASSES, "there is no class {class}");
        Kind(class + log as u8 * CLASSES as u8)
    }

    /// Returns the kind that a byte stands for, if it stands for one.
    pub(crate) fn from_u8(byte: u8) -> Option<Kind> {
        (usize::from(byte) < QUEUES).then_some(Kind(byte))
    }

    /// Returns the byte that stands for it.
    pub(crate) fn as_u8(self) -> u8 {
        self.0
    }

    pub(crate) fn log(self) -> Log {
        if usize::from(self.0) < CLASSES { Log::Small } else { Log::Main }
    }

    /// Returns the time-to-live class.
    pub(crate) fn class(self) -> u8 {
        self.0 % CLASSES as u8
    }

    /// Returns the kind of the same class in the main log.
    pub(crate) fn in_main(self) -> Kind {
        Kind::new(Log::Main, self.class())
    }
}

/// Segment that was opened, or first piece of a value that was stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) id: u32,
    /// Sequence of its life.
    pub(crate) sequence: u64,
    /// Segments that it stands for.
    pub(crate) weight: u32,
}

/// Oldest part of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// A sealed segment.
    Segment(Kind, u32),
    /// The first piece of a value.
    Leader(u32),
}

/// Sealed segments, by kind in order of sealing, values in pieces, and free segments.
#[derive(Debug)]
pub(crate) struct Queues {
    sealed: Vec<VecDeque<u32>>,
    /// Bits of the classes of each log that have a sealed segment.
    classes: [u64; 2],
    /// Segments in use of the small and of the main log: open, being written, sealed or evicting.
    pub(crate) in_use: [u32; 2],
    /// First pieces of the values of each log's items, in order.
    leaders: [VecDeque<u32>; 2],
    /// Segments of the values of each log's items.
    led: [u32; 2],
    /// Segments that are pieces, those of values without an item included.
    pub(crate) of_pieces: u32,
    /// Newest segments of each log in order of opening.
    pub(crate) young: [VecDeque<Opened>; 2],
    /// Sum of their weights.
    pub(crate) young_weight: [u32; 2],
    free: Vec<u32>,
    next_unused: u32,
    segments_max: u32,
}

impl Queues {
    pub(crate) fn new(segments_max: u32) -> Self {
        Queues {
            sealed: vec![VecDeque::new(); QUEUES],
            classes: [0; 2],
            in_use: [0; 2],
            leaders: [VecDeque::new(), VecDeque::new()],
            led: [0; 2],
            of_pieces: 0,
            young: [VecDeque::new(), VecDeque::new()],
            young_weight: [0; 2],
            free: Vec::new(),
            next_unused: 0,
            segments_max,
        }
    }

    /// Takes a free segment for a log.
    pub(crate) fn take_free(&mut self, log: Log) -> Option<u32> {
        let id = self.take_any()?;
        self.in_use[log as usize] += 1;
        Some(id)
    }

    /// Takes a free segment for a piece.
    pub(crate) fn take_for_piece(&mut self) -> Option<u32> {
        let id = self.take_any()?;
        self.of_pieces += 1;
        Some(id)
    }

    fn take_any(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            (self.next_unused < self.segments_max).then(|| {
                self.next_unused += 1;
                self.next_unused - 1
            })
        })
    }

    /// Takes one particular segment, as a restart does; unused segments before it become free.
    pub(crate) fn take(&mut self, id: u32, log: Log) -> bool {
        let taken = self.take_this(id);
        self.in_use[log as usize] += u32::from(taken);
        taken
    }

    /// Takes one particular segment for a piece, as a restart does.
    pub(crate) fn take_this_for_piece(&mut self, id: u32) -> bool {
        let taken = self.take_this(id);
        self.of_pieces += u32::from(taken);
        taken
    }

    fn take_this(&mut self, id: u32) -> bool {
        if let Some(position) = self.free.iter().position(|free| *free == id) {
            self.free.swap_remove(position);
        } else if id < self.next_unused || id >= self.segments_max {
            return false;
        } else {
            self.free.extend(self.next_unused..id);
            self.next_unused = id + 1;
        }
        true
    }

    /// Takes back a segment of a log that is free now.
    pub(crate) fn give_back(&mut self, id: u32, log: Log) {
        let in_use = &mut self.in_use[log as usize];
        assert!(*in_use > 0, "segment {id} was freed, but the {log:?} log has none");
        *in_use -= 1;
        self.free(id);
    }

    /// Takes back a segment that was a piece and is free now.
    pub(crate) fn give_back_piece(&mut self, id: u32) {
        assert!(self.of_pieces > 0, "segment {id} was freed, but none is a piece");
        self.of_pieces -= 1;
        self.free(id);
    }

    fn free(&mut self, id: u32) {
        let used = self.next_unused;
        assert!(id < used, "segment {id} was freed, but only {used} were ever taken");
        assert!(self.free.len() < used as usize, "segment {id} was freed, but all {used} are free");
        debug_assert!(!self.free.contains(&id), "segment {id} was freed twice");
        debug_assert!(self.all_sealed().all(|sealed| sealed != id), "segment {id} is sealed");
        self.free.push(id);
    }

    /// Queues a sealed segment.
    pub(crate) fn push_sealed(&mut self, kind: Kind, id: u32) {
        debug_assert!(self.all_sealed().all(|sealed| sealed != id), "segment {id} is queued twice");
        debug_assert!(!self.free.contains(&id), "segment {id} was sealed, but is free");
        self.push_back(kind, id);
    }

    /// Queues a sealed segment before all others of its kind.
    pub(crate) fn put_back_sealed(&mut self, kind: Kind, id: u32) {
        self.sealed[usize::from(kind.0)].push_front(id);
        self.classes[kind.log() as usize] |= 1 << kind.class();
    }

    fn push_back(&mut self, kind: Kind, id: u32) {
        self.sealed[usize::from(kind.0)].push_back(id);
        self.classes[kind.log() as usize] |= 1 << kind.class();
    }

    /// Takes a sealed segment out of the queue that it stands in.
    pub(crate) fn remove_sealed(&mut self, kind: Kind, id: u32) {
        let queue = &mut self.sealed[usize::from(kind.0)];
        let at = queue.iter().position(|sealed| *sealed == id);
        assert!(at.is_some(), "segment {id} was chosen, but is not queued as {kind:?}");
        at.map(|at| queue.remove(at));
        if queue.is_empty() {
            self.classes[kind.log() as usize] &= !(1 << kind.class());
        }
    }

    /// Queues a value at the end of a log.
    pub(crate) fn push_leader(&mut self, log: Log, id: u32, pieces: u32) {
        debug_assert!(self.leaders.iter().flatten().all(|led| *led != id), "{id} is queued twice");
        self.leaders[log as usize].push_back(id);
        self.led[log as usize] += pieces;
    }

    /// Takes a value out of its log. Eviction may have taken it out of the queue.
    pub(crate) fn remove_leader(&mut self, log: Log, id: u32, pieces: u32) {
        let queue = &mut self.leaders[log as usize];
        if let Some(at) = queue.iter().position(|led| *led == id) {
            queue.remove(at);
        }
        let led = &mut self.led[log as usize];
        assert!(*led >= pieces, "a value of {pieces} segments leaves the {log:?} log, of {led}");
        *led -= pieces;
    }

    /// Takes the oldest value of a log out of its queue; it still counts for the log.
    pub(crate) fn pop_leader(&mut self, log: Log) -> Option<u32> {
        self.leaders[log as usize].pop_front()
    }

    /// Returns the first piece of the oldest value of a log.
    pub(crate) fn oldest_leader(&self, log: Log) -> Option<u32> {
        self.leaders[log as usize].front().copied()
    }

    /// Returns the segments of values that no item has: they are being written, or read after
    /// their items have died.
    pub(crate) fn held(&self) -> u32 {
        self.of_pieces - self.led.iter().sum::<u32>()
    }

    /// Moves a sealed segment of the small log to the end of the main one; returns its new kind.
    pub(crate) fn move_to_main(&mut self, kind: Kind, id: u32) -> Kind {
        assert!(kind.log() == Log::Small, "segment {id} is moved to the main log, but is {kind:?}");
        self.remove_sealed(kind, id);
        self.in_use[Log::Small as usize] -= 1;
        self.in_use[Log::Main as usize] += 1;
        let kind = kind.in_main();
        self.push_back(kind, id);
        kind
    }

    /// Returns the front segments of a log's queues with their kinds.
    pub(crate) fn fronts(&self, log: Log) -> impl Iterator<Item = (Kind, u32)> + '_ {
        let mut classes = self.classes[log as usize];
        std::iter::from_fn(move || {
            let class = (classes != 0).then(|| classes.trailing_zeros() as u8)?;
            classes &= classes - 1;
            let kind = Kind::new(log, class);
            self.sealed[usize::from(kind.0)].front().map(|id| (kind, *id))
        })
    }

    /// Returns the number of segments in use.
    pub(crate) fn used(&self) -> u32 {
        self.in_use.iter().sum::<u32>() + self.of_pieces
    }

    /// Returns the segments that a log's items take.
    pub(crate) fn used_by(&self, log: Log) -> u32 {
        self.in_use[log as usize] + self.led[log as usize]
    }

    /// Iterates over all sealed segments.
    pub(crate) fn all_sealed(&self) -> impl Iterator<Item = u32> + '_ {
        self.sealed.iter().flatten().copied()
    }

    /// Returns the largest number of segments that were ever in use at once.
    pub(crate) fn high_water(&self) -> u32 {
        self.next_unused
    }
}

/// A quota, and how much of it is used.
#[derive(Debug)]
pub(crate) struct Quota {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Quota {
    pub(crate) fn new(limit: u64) -> Self {
        Quota { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `amount` if that much is left.
    pub(crate) fn take(&self, amount: u64) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(amount).filter(|sum| *sum <= self.limit())
            })
            .is_ok()
    }

    /// Takes `amount` even if it is not left.
    pub(crate) fn force(&self, amount: u64) {
        self.used.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, amount: u64) {
        let before = self.used.fetch_sub(amount, Ordering::Relaxed);
        assert!(before >= amount, "{amount} bytes of a quota were given back, {before} were taken");
    }

    /// Returns the amount left; 0 if the limit was lowered below the use.
    pub(crate) fn left(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }
}

/// The queues behind their lock, which is taken once a segment, never once a request.
pub(crate) type SharedQueues = Mutex<Queues>;

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT_BYTES: u64 = 16 << 20;

    #[test]
    fn classes_are_ordered_and_two_for_each_doubling() {
        assert_eq!(class_of(None), 0);
        assert_eq!(class_of(Some(0)), 1);
        assert_eq!(class_of(Some(1)), 1);
        assert_eq!((class_of(Some(2)), class_of(Some(3))), (3, 4));
        assert_eq!((class_of(Some(4)), class_of(Some(5)), class_of(Some(6))), (5, 5, 6));
        let classes: Vec<u8> = (0..40)
            .map(|shift| class_of(Some((1_u64 << shift).min(u64::from(u32::MAX)) as u32)))
            .collect();
        assert!(classes.is_sorted());
        assert!(usize::from(class_of(Some(u32::MAX))) < CLASSES);
    }

    #[test]
    fn writes_need_the_same_life() {
        let segment = Segment::default();
        segment.sequence.store(7, Ordering::SeqCst);
        segment.go_on(&[State::Free], State::Sealed);
        assert!(!segment.takes_writes(6));
        assert!(segment.takes_writes(7));
        assert!(segment.change_state(State::Sealed, State::Evicting));
        assert!(!segment.takes_writes(7));
    }

    #[test]
    fn live_items_and_bytes_do_not_disturb_each_other() {
        let segment = Segment::default();
        segment.remove_live(100);
        assert_eq!((segment.live_items(), segment.live_bytes()), (0, 0));
        segment.add_live(100);
        segment.add_live(SEGMENT_BYTES);
        segment.remove_live(SEGMENT_BYTES + 1);
        segment.add_live(8);
        assert_eq!((segment.live_items(), segment.live_bytes()), (1, 7));
        for _ in 0..1_000_000 {
            segment.add_live(16);
        }
        assert_eq!((segment.live_items(), segment.live_bytes()), (1_000_001, 16_000_007));
    }

    #[test]
    fn a_deadline_covers_every_item() {
        let segment = Segment::default();
        segment.deadline.store(10, Ordering::Relaxed);
        segment.extend_deadline(Some(Seconds(20)));
        segment.extend_deadline(Some(Seconds(15)));
        assert!(!segment.is_expired(Seconds(19)));
        assert!(segment.is_expired(Seconds(20)));
        segment.extend_deadline(None);
        segment.extend_deadline(Some(Seconds(30)));
        assert!(!segment.is_expired(Seconds(1_000_000)));
    }

    #[test]
    fn a_quota_is_never_overdrawn_by_taking() {
        let quota = Quota::new(10);
        assert!(quota.take(6) && !quota.take(5) && quota.take(4));
        quota.give_back(3);
        assert_eq!(quota.left(), 3);
        quota.set_limit(5);
        assert_eq!(quota.left(), 0);
    }

    #[test]
    fn certain_segments_can_be_taken() {
        let mut queues = Queues::new(8);
        assert!(queues.take(3, Log::Small));
        assert!(!queues.take(3, Log::Small));
        assert!(queues.take(1, Log::Main));
        assert_eq!(queues.in_use, [1, 1]);
        let rest: Vec<u32> = std::iter::from_fn(|| queues.take_free(Log::Main)).collect();
        assert_eq!(rest.len(), 6);
        assert!(!rest.contains(&3) && !rest.contains(&1));
    }
}
