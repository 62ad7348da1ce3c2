//! Every bound on the resources that a client can fill, in one place, each with its default and its reason.
//!
//! A client that reaches a limit is refused (SPEC section 11), and no other client is affected; a bound per
//! process or per principal cannot be used up by another one (SPEC B1). Bounds that depend on the parameters
//! of an instance (pipeline, value size) are in [`stickycas_model::params`]; those of its record of offences
//! are in [`stickycas_model::machine`].
//!
//! # Memory
//! One figure bounds it, `memory`: the defaults of the bounds below are parts of it, and a server whose
//! bounds come to more does not start. Clients cannot make the server take more than the sum of these
//! (`Limits::bytes_of_all`):
//!
//! | what | at most |
//! | --- | --- |
//! | the program itself, and what is handled at the moment | 32 MiB |
//! | pages of the log's database | 1/32 of the memory, 64 MiB at most |
//! | live instances, with all that their parameters let them take (`Limits::worst_case`), and ended ones as they are | `instance_bytes` |
//! | their event logs | twice `event_bytes` |
//! | messages that have not come in whole | `incomplete_request_bytes`, twice while a buffer grows |
//! | answers that have not left (from 4 KiB on); of an Attach stream unread frames and channels (from 32 on), and the buffer of its longest message (from 8 KiB on); lists of ended instances of which a Watch sends a snapshot | `unread_answer_bytes` |
//! | what is sent on connections and not taken by a call yet, above the smallest windows | `window_bytes`, 12 times: see below |
//! | what waits for the log | `uncommitted_bytes` |
//! | a connection: 64 KiB that its client sends and no call takes, and what it takes itself | 112 KiB for each of `connections` |
//! | a call or a stream | 12 KiB for each of `calls` and `watch_streams`, 24 KiB for each of `attach_streams` |
//! | a principal: counts, quotas, recent instances; a token | 2 KiB for each of `principals`, 320 bytes for each of `cached_tokens` |
//!
//! HTTP/2 keeps messages in the buffers into which they were read. A client that mixes messages of a byte,
//! which no call takes, with large ones that are taken makes each of them hold a whole buffer: 12 times the
//! window, measured by `what_small_messages_hold_is_measured` (`transport/http2.rs`).
//!
//! Actual instances take far less than their worst case. An instance of eight correct processes takes some 10
//! KiB while it is live, so that `live_instances_per_creator` come to some 1.5 GB. A finished instance is
//! archived in some 500 bytes, its history included, so that a million of them within their retention take
//! less than 1 GiB; `instances` and `instances_per_creator` allow that many.
//!
//! One principal can take its streams, its calls (a Get of an instance with 60,000 processes is 3.6 MiB) and
//! the waiting accesses of its processes, within its own quotas and within its part of the shares of all: see
//! `quota/share.rs`. `docs/operate/limits.md` is the table of all bounds with what shows each.

use std::time::Duration;

use stickycas_model::history::OffenceKind;
use stickycas_model::params::Params;
use stickycas_proto::principal::MAX_PRINCIPAL_BYTES;

use crate::memory::{self, LimitDefault as _, Memory, part};

pub(crate) const KIB: u64 = 1024;
pub(crate) const MIB: u64 = 1024 * KIB;
pub(crate) const GIB: u64 = 1024 * MIB;

/// Memory that the database of the log may take for pages that it has read or will write.
pub(crate) const LOG_CACHE: memory::MemoryPart = part(1, 32, 64 * MIB);

/// Calls this macro with the list of all limits: each with its reason, its type and its default. One with a
/// kind is a setting, which an operator may size; the others are constants. Programs and tests may set them
/// all.
macro_rules! for_each_limit {
    ($callback:ident) => {
        $callback! {
            /// Open connections. The next one is closed at once.
            connections: usize = part(1, 3 * MIB / 2, 16_384), COUNT;
            /// Open connections of one principal.
            connections_per_principal: u32 = 64, COUNT;
            /// Open connections without a principal yet: in their handshake, or before a first call. The
            /// address with most of them makes room for the next. Half is kept for `known_addresses`; at most
            /// half of `connections`.
            unclaimed_connections: usize = part(1, 3 * MIB, 4_096);
            /// Open connections of one address without a principal yet. Of IPv6, an address is a network of
            /// 64 bits. The oldest makes room for the next.
            unclaimed_connections_per_address: usize = part(1, 6 * MIB, 2_048), COUNT;
            /// Addresses where principals were identified lately.
            known_addresses: usize = 4_096;
            /// The time for the handshake of a new connection, and then for the HTTP/2 preface.
            preface_timeout: Duration = Duration::from_secs(10);
            /// The time from then until the first call on it is admitted.
            first_call_timeout: Duration = Duration::from_secs(60);
            /// Concurrent streams, and so calls, on one connection.
            streams_per_connection: u32 = 4_096, COUNT;
            /// Streams of a connection that the client has reset before they were accepted; above it HTTP/2
            /// closes the connection. A client may cancel all of its calls at once; `resets_per_second` meets
            /// rapid reset.
            pending_reset_streams: usize = 1_024;
            /// Streams that the server resets because of errors of the client, in the life of a connection,
            /// before HTTP/2 closes it. Late frames of a refused call count too.
            local_reset_streams: usize = 65_536;
            /// Bytes of requests on one connection that no call has taken yet. Half of it bounds the small
            /// messages among them, each counted as 256 bytes; the window of a stream closes before.
            connection_window_bytes: u32 = 8 * 1024 * 1024;
            /// Those on all connections, beside the 64 KiB for each that HTTP/2 demands. Half of it is kept
            /// for known principals. Without room a connection has a smaller window, with 16 KiB at least for
            /// a stream; HTTP/2 may then close it when more than 128 small messages wait.
            window_bytes: usize = part(1, 128, u64::MAX);
            /// Those on one stream.
            stream_window_bytes: u32 = 128 * 1024;
            /// Bytes of the response on one stream that wait for the client or the network.
            send_buffer_bytes: u32 = 64 * 1024;
            /// Frames of HTTP/2 without a request (WINDOW_UPDATE, PING, SETTINGS, RST_STREAM, unknown and
            /// empty ones) of one principal in a second on all of its connections, and as many at once after
            /// a pause. Above it the connection is read more slowly and never closed.
            control_frames_per_second: u32 = 20_000;
            /// The same of all connections without a principal together, beside a small share for each.
            anonymous_control_frames_per_second: u32 = 10_000;
            /// Requests of one principal in a second, served or refused, paced in the same way.
            headers_per_second: u32 = 20_000;
            /// The same of all connections without a principal together, beside a small share for each.
            anonymous_headers_per_second: u32 = 10_000;
            /// Streams that one principal resets in a second, paced in the same way: all of its calls twice.
            resets_per_second: u32 = 2_048;
            /// Bytes of the headers of one request.
            header_bytes: u32 = 16 * 1024;
            /// Bytes of one request message: a batch of accesses on Attach, or a roster on Create.
            message_bytes: usize = 4 * 1024 * 1024;
            /// Bytes of the request of a unary call. Only a Create of a coordinator may have `message_bytes`.
            call_bytes: usize = 128 * 1024;
            /// The time that a message may take to come, and the request of a unary call to its end.
            request_timeout: Duration = Duration::from_secs(20);
            /// Bytes of messages of all clients that have not come in whole. Half is kept for known
            /// principals.
            incomplete_request_bytes: usize = part(1, 24, 256 * MIB);
            /// Bytes of long answers that their clients have not read. Half is kept for known principals.
            unread_answer_bytes: usize = part(1, 24, GIB);
            /// Bytes of the values that one read may return: an answer on Attach is one frame.
            read_bytes: usize = part(1, 128, 64 * MIB), SIZE;
            /// Frames in one message on Attach: the work that is done before other tasks run.
            frames_per_message: usize = 1_024;
            /// Frames in one message that the server sends on Attach.
            frames_per_answer: usize = 256;
            /// Bytes of one message that the server sends on a stream, unless a single frame, event or entry
            /// has more.
            bytes_per_answer: usize = 1024 * 1024;
            /// Principals that have an account; those with a role have one in any case. Idle accounts are
            /// closed when more principals come.
            principals: usize = part(1, 128 * KIB, 131_072);
            /// Verified tokens that are remembered.
            cached_tokens: usize = part(1, 128 * KIB, 131_072);
            /// Frames on Attach of one principal in a second; a unary call is ten. As many are let through at
            /// once after a pause.
            requests_per_second: u32 = 200_000, COUNT;
            /// The same of all clients without identity together: health, reflection and refused calls.
            anonymous_requests_per_second: u32 = 20_000;
            /// Offences of one kind that are filed of one principal in a second, and as many at once after a
            /// pause. Further ones are only counted.
            offences_per_second: u32 = 16;
            /// Unary calls of one principal whose response has not left the server, and streams that have not
            /// begun.
            calls_per_principal: u32 = 1_024;
            /// Those of all principals. Half is kept for known ones; of the rest none takes more than is
            /// free.
            calls: usize = part(1, 128 * KIB, 262_144);
            /// Calls of all clients without identity together, health and reflection included.
            anonymous_calls: u32 = 256;
            /// Attach streams of one principal.
            attach_streams_per_principal: u32 = 64;
            /// Those of all principals, shared like calls.
            attach_streams: usize = part(1, 512 * KIB, 131_072);
            /// Instances that one Attach stream may hold open.
            channels_per_stream: usize = 4_096;
            /// Unread frames of one Attach stream. Above it the stream ends.
            unread_frames: usize = 65_536;
            /// Unread frames from which on no more requests of that client are read.
            unread_frames_to_pause: usize = 1_024;
            /// About how long an answer may be left unread before its connection is closed.
            unread_for: Duration = Duration::from_secs(60);
            /// Watch streams of one principal.
            watch_streams_per_principal: u32 = 64;
            /// Those of all principals, shared like calls.
            watch_streams: usize = part(1, 512 * KIB, 65_536);
            /// Events in one message on Watch.
            events_per_message: usize = 256;
            /// Events that an instance keeps for its watchers, beside [`Limits::events_per_process`].
            events: usize = 16_384;
            /// Further events kept for each process of the instance.
            events_per_process: usize = 16;
            /// Bytes of the event logs of all instances. Above the limit a growing log drops its oldest
            /// events until it has no more than its share; above twice the limit it keeps 4 KiB.
            event_bytes: usize = part(1, 32, 2 * GIB);
            /// Unary calls that wait for the same access: retries.
            callers_per_access: usize = 8;
            /// Bytes that wait for the log's disk: records, checkpoints, refusals and effects. Above the
            /// limit no further inputs are read until the disk has caught up.
            uncommitted_bytes: usize = part(1, 64, 64 * MIB);
            /// Bytes of requests with long values that wait for the log, of all principals. A request above
            /// the free part is refused with a time to wait; each principal may have 128 KiB in any case.
            log_share_bytes: usize = part(1, 64, 2 * MIB);
            /// Bytes of the log from which on checkpoints are written and the log is trimmed; or as many as
            /// the checkpoints have, if that is more.
            log_tail_bytes: usize = 64 * 1024 * 1024;
            /// Bytes of the log's disk that all instances may take. They are reserved for the worst case;
            /// above it only Create is refused.
            log_bytes: usize = 192 * 1024 * 1024 * 1024, SIZE;
            /// Bytes of the log's disk of one creator among them.
            log_bytes_per_creator: usize = 128 * 1024 * 1024 * 1024, SIZE;
            /// Live instances, in all.
            live_instances: usize = 200_000, COUNT_OR_NONE;
            /// Live instances of one creator among them.
            live_instances_per_creator: usize = 150_000, COUNT_OR_NONE;
            /// Instances in all: live ones, and ended ones that can still be read.
            instances: usize = 2_000_000, COUNT_OR_NONE;
            /// Instances of one creator among them.
            instances_per_creator: usize = 1_000_000, COUNT_OR_NONE;
            /// Processes of all instances together.
            processes: usize = 16_000_000;
            /// Bytes of all instances together: live ones in the worst case, ended ones with what they take.
            /// Restored instances are never dropped because of it.
            instance_bytes: usize = part(3, 8, u64::MAX);
            /// Live instances of one creator while the server is saturated.
            instances_when_busy: usize = 512;
            /// Instances on one page of List.
            page: usize = 1_000;
            /// Processes, offences and the like named one by one in a Status; fewer processes with accesses
            /// that wait if they have more than 16 each.
            status_rows: usize = 1_024;
            /// The time for which a finished or closed instance can still be read (F10).
            retention: Duration = Duration::from_secs(10 * 60), DURATION;
            /// The time for which an instance lives without a call (F10).
            idle_lifetime: Duration = Duration::from_secs(60 * 60), DURATION;
            /// The time for which patience stands still after a restart, unless all processes are back before
            /// (F3).
            rejoin: Duration = Duration::from_secs(5), DURATION;
            /// The wait that RetryInfo advises, unless another time is known.
            retry_after: Duration = Duration::from_millis(100);
        }
    };
}
pub(crate) use for_each_limit;

/// Makes the type of the list, and its default.
macro_rules! define_limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr $(, $kind:ident)?;)+) => {
        /// The bounds of one server. [`Limits::default`] is what `serve` starts with where the memory is not
        /// set.
        #[derive(Clone, Debug)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Limits {
            /// The defaults of a server that may use so much memory.
            pub(crate) fn of(memory: u64) -> Self {
                Self { $($name: $default.with_memory(memory),)+ }
            }
        }
    };
}

for_each_limit!(define_limits);

/// Those that follow from the memory of this process.
impl Default for Limits {
    fn default() -> Self {
        Self::of(Memory::found().bytes)
    }
}

/// Bytes of a connection: its window, which HTTP/2 demands, its buffers, its handshake or its task.
const CONNECTION: u64 = (64 + 48) * KIB;
/// Of a call or a Watch stream, with the uncharged parts of its request and its response.
const CALL: u64 = 12 * KIB;
/// Of an Attach stream.
const STREAM: u64 = 24 * KIB;
/// Of a principal, and of a token.
const PRINCIPAL: u64 = 2 * KIB;
const TOKEN: u64 = 320;
/// Bytes of buffers that small messages between large ones may hold, for each byte of a window.
const WINDOW_FACTOR: u64 = 12;

impl Limits {
    /// Bytes of memory that clients can make a server with these limits take, which may use so much: the sum
    /// that the documentation of this module explains.
    pub(crate) fn bytes_of_all(&self, memory: u64) -> u64 {
        let bytes = |bytes: usize| bytes as u64;
        let terms = [
            (memory::PROGRAM, 1),
            (LOG_CACHE.with(memory), 1),
            (bytes(self.instance_bytes), 1),
            (bytes(self.event_bytes), 2),
            (bytes(self.incomplete_request_bytes), 2),
            (bytes(self.unread_answer_bytes), 1),
            (WINDOW_FACTOR, self.window_bytes),
            (bytes(self.uncommitted_bytes), 1),
            (CONNECTION, self.connections),
            (CALL, self.calls),
            (STREAM, self.attach_streams),
            (CALL, self.watch_streams),
            (PRINCIPAL, self.principals),
            (TOKEN, self.cached_tokens),
        ];
        terms.into_iter().fold(0, |sum, (each, count)| sum.saturating_add(each.saturating_mul(bytes(count))))
    }

    /// Lowers the bound of unclaimed connections to half of all connections: those that belong to a principal
    /// need the others.
    pub(crate) fn fit_connections(&mut self) {
        self.unclaimed_connections = self.unclaimed_connections.min(self.connections.div_ceil(2));
    }

    /// Bytes of an ended instance with these parameters in the worst case, without its event log: no access
    /// waits, and of answers only numbers are kept.
    pub(crate) fn ended_case(&self, params: &Params) -> usize {
        /// The state of a process, its entry in the roster twice, a first offence of each kind with its text.
        const PROCESS: usize = 4 * 1024;
        /// An answer that is kept.
        const ANSWER: usize = 64;
        let spec = params.spec();
        let value = spec.max_value_bytes as usize;
        let process = PROCESS + 2 * MAX_PRINCIPAL_BYTES + 2 * value + spec.pipeline as usize * ANSWER;
        params.processes() as usize * process
    }

    /// Bytes that a live instance with these parameters and a roster of so many bytes may come to take in the
    /// log: twice its checkpoint, since the log behind the checkpoints may have as many bytes as they have.
    pub(crate) fn log_case(&self, params: &Params, roster: usize) -> usize {
        /// Its parameters, without the roster, and the counters of the machine.
        const CREATED: usize = 1_024;
        /// The state of a process, without values and accesses, and a place in the list.
        const PROCESS: usize = 256;
        /// An access that waits or whose answer is kept, without its value.
        const ACCESS: usize = 64;
        /// The first offence of a kind.
        const OFFENCE: usize = LONGEST_OFFENCE + 64;
        let spec = params.spec();
        let (value, pipeline) = (spec.max_value_bytes as usize + 8, spec.pipeline as usize);
        // Its entry and its decision, and what waits.
        let process = PROCESS + 2 * value + pipeline * (ACCESS + value) + OffenceKind::ALL.len() * OFFENCE;
        let state = CREATED + roster + params.processes() as usize * process;
        2 * (state + checkpoint_events(params))
    }

    /// Bytes of a live instance with these parameters in the worst case, without its event log: every
    /// pipeline is full of the largest values, and every process has committed every offence. Calls that wait
    /// for an access are bounded by `calls`.
    pub(crate) fn worst_case(&self, params: &Params) -> usize {
        /// An access that waits, without its answer.
        const ACCESS: usize = 192;
        /// The minimum of its event log, and its entry.
        const INSTANCE: usize = 5 * 1024;
        let spec = params.spec();
        let value = spec.max_value_bytes as usize;
        let access = ACCESS + value;
        INSTANCE + self.ended_case(params) + params.processes() as usize * spec.pipeline as usize * access
    }
}

/// Bytes of the text of an offence; a longer one is cut.
pub(crate) const LONGEST_OFFENCE: usize = 640;

/// Bytes of the events of an instance with these parameters that are kept in its checkpoint: the latest. Its
/// processes come to their end with far less, unless they read without need or are refused.
pub(crate) fn checkpoint_events(params: &Params) -> usize {
    /// Of an instance, however small it is.
    const INSTANCE: usize = 32 * 1024;
    /// Of a process, without values.
    const PROCESS: usize = 96 * 32;
    /// Values of a process: in its access, in the list, in its decision, and one more.
    const VALUES: usize = 4;
    let process = PROCESS + VALUES * params.spec().max_value_bytes as usize;
    INSTANCE + params.processes() as usize * process
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_into_any_memory_from_the_least_on() {
        let mut memory = memory::LEAST;
        while memory < 1 << 41 {
            let all = Limits::of(memory).bytes_of_all(memory);
            assert!(all <= memory, "{memory}: {all}");
            assert!(all >= memory / 2 || memory > 64 * GIB, "{memory}: {all}, most of it is for nothing");
            memory += memory / 7;
        }
    }

    #[test]
    fn a_large_machine_has_the_usual_limits() {
        let limits = Limits::of(24 * GIB);
        assert_eq!((limits.connections, limits.unclaimed_connections), (16_362, 4_096));
        assert_eq!(limits.incomplete_request_bytes as u64, 256 * MIB);
        assert_eq!(limits.read_bytes as u64, 64 * MIB);
        assert!(limits.instance_bytes as u64 > 8 * GIB);
    }
}
