//! A whole connection without its socket, under arbitrary bytes: parser, executor and a small cache
//! in DRAM. It never panics, always makes progress, never exceeds its output limit, sends only
//! replies that a client can parse, and sends the same replies for any division of the bytes.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use entresol_base::clock::ManualClock;
use entresol_base::{ByteSize, Clock, Seconds};
use entresol_cache::Cache;
use entresol_protocol::Limits;
use entresol_protocol::client::{ReplyStep, reply};
use entresol_service::Now;
use entresol_service::config::{self, Machine};
use entresol_service::executor::{Executor, Output, Session, Then, TurnLimits};
use entresol_service::tenant::{Seat, ServerFacts, Tenant};
use libfuzzer_sys::fuzz_target;

const VALUE_BYTES_MAX: usize = 4096;
const LIMITS: TurnLimits = TurnLimits {
    protocol: Limits {
        line_bytes_max: 2048,
        multiget_line_bytes_max: 8192,
        key_bytes_max: 250,
        value_bytes_max: VALUE_BYTES_MAX,
    },
    requests: 8,
    output_bytes: 1024,
    pending_reads: 4,
};
/// One more reply may begin while the output is not full: a value, or the longest one of `stats`.
const OUTPUT_BYTES_MAX: usize = LIMITS.output_bytes + VALUE_BYTES_MAX + 32 * 1024;

fuzz_target!(|input: &[u8]| {
    let [division, hurry, bytes @ ..] = input else { return };
    let whole = Connection::new(*hurry).converse([bytes]);
    let chunk_len = usize::from(*division) + 1;
    let divided = Connection::new(*hurry).converse(bytes.chunks(chunk_len));
    // Time passes with every chunk, and statistics count chunks.
    if *hurry == 0 && !bytes.windows(4).any(|word| word == b"stat") {
        assert_eq!(divided.escape_ascii().to_string(), whole.escape_ascii().to_string());
    }
});

struct Connection {
    executor: Executor,
    session: Session,
    seat: Seat,
    clock: Arc<ManualClock>,
    /// Seconds that pass between two chunks.
    hurry: u8,
    input: Vec<u8>,
    output: Output,
    /// All replies.
    replies: Vec<u8>,
}

impl Connection {
    fn new(hurry: u8) -> Self {
        let machine = Machine { memory: ByteSize::gib(64), processors: 1 };
        let text = "[[tenant]]\nname = \"t\"\nlisten = \"127.0.0.1:1\"\ndram_quota = \"1MiB\"\n\
                    segment_size = \"64KiB\"\nvalue_limit = \"4KiB\"\n";
        let settings = config::parse("fuzz", text, &machine).expect("the configuration is right");
        let clock = Arc::new(ManualClock::at(Seconds(1_700_000_000)));
        let mut of_cache = settings.tenants[0].cache(&settings);
        of_cache.seed = Some(1);
        of_cache.huge_pages = false;
        let cache = Cache::open(of_cache, clock.clone()).expect("there is memory");
        let server =
            ServerFacts { started: clock.seconds(), started_nanos: clock.now(), threads: 1 };
        let tenant = Tenant::new(settings.tenants[0].clone(), settings.limits, cache, server);
        Connection {
            executor: Executor::default(),
            session: Session::default(),
            seat: Seat::new(&tenant, 0),
            clock,
            hurry,
            input: Vec::new(),
            output: Output::default(),
            replies: Vec::new(),
        }
    }

    fn converse<'c>(mut self, chunks: impl IntoIterator<Item = &'c [u8]>) -> Vec<u8> {
        let mut needed = 1;
        for chunk in chunks {
            self.input.extend_from_slice(chunk);
            self.clock.advance(Duration::from_secs(self.hurry.into()));
            if self.input.len() < needed {
                continue;
            }
            match self.turns() {
                Some(more) => needed = more,
                None => break,
            }
        }
        self.check_replies();
        self.replies
    }

    /// Executes all complete requests. Returns how many bytes of input the next call needs; `None`
    /// if the connection ends.
    fn turns(&mut self) -> Option<usize> {
        loop {
            let now = Now { nanos: self.clock.now(), seconds: self.clock.seconds() };
            let Connection { executor, session, seat, input, output, .. } = self;
            let turn = executor.run(input, session, seat, &LIMITS, now, output);
            assert!(turn.consumed <= input.len());
            assert!(output.len() <= OUTPUT_BYTES_MAX, "{} bytes", output.len());
            assert!(output.holes.is_empty(), "nothing to read: all is in DRAM");
            input.drain(..turn.consumed);
            let answered = !output.is_empty();
            output.copy(0, output.len(), &mut self.replies).expect("no value is damaged");
            output.clear();
            match turn.then {
                Then::Read { needed } => {
                    assert!(needed > self.input.len(), "asks for what it has");
                    return Some(needed);
                }
                // The keys of one long line are answered over several turns.
                Then::Yield => assert!(turn.consumed > 0 || turn.requests > 0 || answered),
                Then::MakeRoom => session.give_up_arrival(),
                Then::Park { .. } | Then::Throttle { .. } | Then::Fetch(_) | Then::AwaitFile => {
                    panic!("no need to wait: {:?}", turn.then)
                }
                Then::Close => return None,
            }
        }
    }

    fn check_replies(&self) {
        let mut rest = &self.replies[..];
        while !rest.is_empty() {
            match reply(rest, &LIMITS.protocol) {
                ReplyStep::Reply { consumed, .. } => rest = &rest[consumed..],
                other => panic!("{other:?} at {}", rest.escape_ascii()),
            }
        }
    }
}
