//! Every bound on what a client can fill, in one place, each with its default and its reason.
//!
//! A limit that is reached refuses the one who reached it (SPEC section 11) and touches nobody else; what is
//! bounded per process or per principal cannot be used up by another (SPEC B1). Bounds that depend on an
//! instance's own parameters (pipeline, value size) stand in [`stickycas_model::params`]; those that its
//! record of misbehaviour keeps stand in [`stickycas_model::machine`].
//!
//! # What it comes to
//! Memory is bounded whatever clients do, by sums that [`Limits`] states:
//!
//! | what | at most |
//! | --- | --- |
//! | instances, with all that their parameters let them take (`Limits::worst_case`) | `instance_bytes` |
//! | their records | `record_bytes` * (1 + ln `instances`), and 4 KiB for each live instance |
//! | an instance's place: id, name, timer, its roster unless others share it | 512 bytes, twice the roster |
//! | an Attach stream: unread frames, each a few numbers | `unread_frames` * 128 bytes |
//! | and a message on its way in and out | `message_bytes` + `bytes_per_answer`, or one read of `read_bytes` |
//! | a unary call: what it sends, its place, a piece of its answer | `call_bytes` and 20 KiB, a value; while its answer is longer than a piece, the list that it reads |
//! | a principal: counts, shares, where it acted | 2 KiB |
//!
//! What an instance may take becomes less when it has ended (`Limits::ended_case`).
//! In fact an instance takes far less. One of eight correct processes takes some 10 KiB as long as it lives, so that
//! `live_instances_per_creator` come to some 1.5 GB. One that has finished is packed into some 500 bytes, its history
//! included, so that a million of them within their retention take less than 1 GiB; `instances` and
//! `instances_per_creator` allow that many. A server of shorter memory or longer retention is told otherwise by its
//! flags.
//!
//! One principal can so take its streams (64 of 13 MiB, or of 76 MiB while it is sent the longest
//! read that there may be), its calls (1,024 of 212 KiB) and what its processes may have
//! waiting, and all of it is its own share.

use std::time::Duration;

use stickycas_model::params::Params;

/// The bounds of one server. [`Limits::default`] is what `serve` starts with.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections. The next one is closed at once: with file descriptors gone nobody could connect.
    pub connections: usize,
    /// Open connections of one principal: a few for each program that plays its processes.
    pub connections_per_principal: u32,
    /// Open connections that belong to nobody yet. The oldest makes room for the next, so who opens many and says
    /// nothing takes no place from those who speak.
    pub unclaimed_connections: usize,
    /// How long a new connection has to say what every HTTP/2 connection begins with. One that says nothing
    /// would hold its place for ever.
    pub preface_timeout: Duration,
    /// How long it may then take until a call on it is taken for a principal. Longer than anybody connects ahead
    /// of use; a client whose connection is closed for it connects again with its next call.
    pub first_call_timeout: Duration,
    /// Concurrent streams, and so calls, on one connection. tonic sets none by itself.
    pub streams_per_connection: u32,
    /// Streams reset by the peer that wait to be noticed, per connection: the guard against rapid reset.
    pub pending_reset_streams: usize,
    /// Streams that the server itself resets per connection before it gives the connection up.
    pub local_reset_streams: usize,
    /// Bytes of the headers of one request. Ours need some hundred.
    pub header_bytes: u32,
    /// Bytes of one request message. A batch of accesses on Attach, or a roster on Create, must fit.
    pub message_bytes: usize,
    /// Bytes that a unary call may send: a value and a little more. Only a Create of a coordinator may send a whole
    /// message.
    pub call_bytes: usize,
    /// Bytes of the values that one read may return, as the parameters of its instance have it: an answer on Attach is one
    /// frame, and is written as one.
    pub read_bytes: usize,
    /// Frames in one message on Attach: what is handled before others have their turn.
    pub frames_per_message: usize,
    /// Frames in one message that the server sends on Attach.
    pub frames_per_answer: usize,
    /// Bytes of one message that the server sends on a stream, unless a single frame, event or entry has more.
    /// Clients refuse messages above 4 MiB unless told otherwise.
    pub bytes_per_answer: usize,
    /// Principals of whom anything is kept. Idle ones are forgotten when more come.
    pub principals: usize,
    /// Frames on Attach that one principal may send in a second, and as many at once after a pause; a unary call
    /// counts as ten. Far more than a correct process needs, which sends two or three frames an instance.
    pub requests_per_second: u32,
    /// Offences of one kind that the border files of one principal in a second, and as many at once after a pause. The
    /// rest is only counted: to be refused must not be a way to wear out the instances where it acts.
    pub offences_per_second: u32,
    /// Unary calls of one principal whose answer is not there or not gone yet, for want of a client that reads it, and
    /// streams that are about to begin.
    pub calls_per_principal: u32,
    /// Attach streams of one principal.
    pub attach_streams_per_principal: u32,
    /// Instances that one Attach stream may hold open.
    pub channels_per_stream: usize,
    /// Frames that wait for the client of one Attach stream to read them. Beyond it the stream ends.
    pub unread_frames: usize,
    /// PermitBody frames from which on nothing more is taken in from that client: what it asks for again and again
    /// must not pile up. Those above it answer what was accepted before.
    pub unread_frames_to_pause: usize,
    /// How long answers may lie unread on an Attach stream, about, before its connection is cut: as long as a
    /// connection may be silent.
    pub unread_for: Duration,
    /// Watch streams of one principal.
    pub watch_streams_per_principal: u32,
    /// Events in one message on Watch.
    pub events_per_message: usize,
    /// Events that an instance keeps for its watchers, beside [`Limits::events_per_process`].
    pub events: usize,
    /// Further events kept for each process of the instance: one phase of a single large warp must fit.
    pub events_per_process: usize,
    /// Bytes of the events that all instances keep. Above it an instance forgets its oldest ones until it has no
    /// more than its share. Those that do not grow keep what they have: k instances never hold more than 1 + ln k
    /// times as much.
    pub record_bytes: usize,
    /// Unary calls that wait for one and the same access. More than one means retries; each holds memory.
    pub callers_per_access: usize,
    /// Instances that have not ended, in all. Each has a machine with a place for every process.
    pub live_instances: usize,
    /// Instances of one creator among them.
    pub live_instances_per_creator: usize,
    /// Instances that the server holds in all, live ones and those that have ended and can still be read. Those that
    /// have ended are packed, so there may be far more of them.
    pub instances: usize,
    /// Instances of one creator among them.
    pub instances_per_creator: usize,
    /// Processes of all instances together: what bounds the memory of many large ones.
    pub processes: usize,
    /// Bytes that all instances together may come to take if everybody in them does the worst. Far more
    /// than they take in fact, for correct processes leave most of their pipelines empty.
    pub instance_bytes: usize,
    /// Instances that have not ended that one creator may have while the server has no time to spare: more than keep
    /// a machine busy, so that nothing is lost by refusing the next, and few enough for each to end soon. It is a share
    /// that others cannot use up.
    pub instances_when_busy: usize,
    /// Bytes of a principal's name.
    pub principal_bytes: usize,
    /// Instances on one page of List.
    pub page: usize,
    /// Processes, offences and the like named one by one in a Status.
    pub status_rows: usize,
    /// How long a finished or closed instance can still be read (F10).
    pub retention: Duration,
    /// How long an instance lives that nobody touches (F10).
    pub idle_lifetime: Duration,
    /// What RetryInfo advises when a limit is reached.
    pub retry_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            connections_per_principal: 64,
            unclaimed_connections: 1_024,
            preface_timeout: Duration::from_secs(10),
            first_call_timeout: Duration::from_secs(60),
            streams_per_connection: 4_096,
            pending_reset_streams: 20,
            local_reset_streams: 1_024,
            header_bytes: 16 * 1024,
            message_bytes: 4 * 1024 * 1024,
            call_bytes: 128 * 1024,
            read_bytes: 64 * 1024 * 1024,
            frames_per_message: 1_024,
            frames_per_answer: 256,
            bytes_per_answer: 1024 * 1024,
            principals: 131_072,
            requests_per_second: 200_000,
            offences_per_second: 16,
            calls_per_principal: 1_024,
            attach_streams_per_principal: 64,
            channels_per_stream: 4_096,
            unread_frames: 65_536,
            unread_frames_to_pause: 1_024,
            unread_for: Duration::from_secs(60),
            watch_streams_per_principal: 64,
            events_per_message: 256,
            events: 16_384,
            events_per_process: 16,
            record_bytes: 2 * 1024 * 1024 * 1024,
            callers_per_access: 8,
            live_instances: 200_000,
            live_instances_per_creator: 150_000,
            instances: 2_000_000,
            instances_per_creator: 1_000_000,
            processes: 16_000_000,
            instance_bytes: 128 * 1024 * 1024 * 1024,
            instances_when_busy: 512,
            principal_bytes: 256,
            page: 1_000,
            status_rows: 1_024,
            retention: Duration::from_secs(10 * 60),
            idle_lifetime: Duration::from_secs(60 * 60),
            retry_after: Duration::from_millis(100),
        }
    }
}

impl Limits {
    /// Bytes that an instance with these parameters may still come to take when it has ended, its record aside:
    /// nothing waits there, and of what was answered only numbers are kept.
    pub(crate) fn ended_case(&self, params: &Params) -> usize {
        /// A member's state, its place in the roster twice, a first offence of each kind with its words.
        const PROCESS: usize = 4 * 1024;
        /// An answer as it is kept.
        const ANSWER: usize = 64;
        let spec = params.spec();
        let value = spec.max_value_bytes as usize;
        let process = PROCESS + 2 * self.principal_bytes + 2 * value + spec.pipeline as usize * ANSWER;
        params.processes() as usize * process
    }

    /// Bytes that an instance with these parameters may come to take, its record aside: every pipeline is full of the
    /// largest values, as many calls as may wait for each access, and everybody has committed every offence.
    pub(crate) fn worst_case(&self, params: &Params) -> usize {
        /// An access as it waits, beside its answer.
        const ACCESS: usize = 192;
        /// The two ends of a place for the answer.
        const CALLER: usize = 192;
        let spec = params.spec();
        let value = spec.max_value_bytes as usize;
        let access = ACCESS + value + self.callers_per_access * CALLER;
        self.ended_case(params) + params.processes() as usize * spec.pipeline as usize * access
    }
}
