//! Every decoder of foreign messages and of files, each as a function of bytes: a [`Target`].
//!
//! A target panics if a decoder panics, takes bytes that it should not, or contradicts its counterpart: a
//! message that is decoded and encoded again must be the same. `scripts/fuzz` searches for such bytes, led by
//! the branches that they reach; the bytes worth keeping stand in `fuzz/corpus`, and a test replays them.

mod disk;
mod files;
mod http;
mod identity;
mod machine;
mod played;
mod wire;

use std::fmt;

/// One decoder.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its file in `fuzz/corpus`.
    pub name: &'static str,
    /// The input that it decodes.
    pub what: &'static str,
    /// Tries these bytes.
    ///
    /// # Panics
    /// If the decoder is wrong.
    pub run: fn(&[u8]),
    /// Bytes that our own encoders have made, from which a search starts.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Target {
    /// The target with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.iter().copied().find(|target| target.name == name)
    }
}

macro_rules! targets {
    ($($name:literal: $what:literal, $run:path, $seeds:path;)+) => {
        /// All of them.
        pub const TARGETS: &[Target] = &[$(Target { name: $name, what: $what, run: $run, seeds: $seeds }),+];
    };
}

targets! {
    "http2_frames": "the headers of a client's HTTP/2 frames, in any chunks", http::frames, http::frames_seeds;
    "messages": "where the messages of a request begin and end, in any chunks", http::messages, http::messages_seeds;
    "headers": "principal, token and deadline in headers", http::headers, http::headers_seeds;
    "attach_request": "a client's message on Attach, beside the generated decoder", wire::attach_request, wire::attach_request_seeds;
    "attach_response": "a server's message on Attach, likewise", wire::attach_response, wire::attach_response_seeds;
    "unary_request": "the requests of the other calls", wire::unary_request, wire::unary_request_seeds;
    "create_request": "the request of a new instance", wire::create_request, wire::create_request_seeds;
    "page_token": "the page token of List", wire::page_token, wire::page_token_seeds;
    "event": "an event on Watch, there and back", wire::event, played::events;
    "response": "what a client is answered, beyond Attach", wire::response, wire::response_seeds;
    "refusal": "a refusal in a status and in a frame, there and back", wire::refusal, wire::refusal_seeds;
    "report": "what a process reports to a judge, there and back", wire::report, wire::report_seeds;
    "names": "names of principals and instances, and ids", identity::names, identity::names_seeds;
    "token": "a bearer token: any bytes, described and signed, or changed", identity::token, identity::token_seeds;
    "certificate": "a client's certificate: any bytes, described and issued, or changed", identity::certificate, identity::certificate_seeds;
    "credentials": "the files of a server's credentials, one of them any bytes", identity::credentials, identity::credentials_seeds;
    "batch": "a batch of the log, given to a machine", disk::batch, played::batches;
    "checkpoint": "a checkpoint, which becomes a machine and a checkpoint again", disk::checkpoint, played::checkpoints;
    "recovery": "a log in a backup, recovered by a server", disk::recovery, disk::recovery_seeds;
    "stored_events": "the events that a server keeps for Watch, there and back", disk::stored_events, played::stored_events;
    "dump": "a dump of a log, replayed and explained", disk::dump, disk::dump_seeds;
    "settings": "the file of a server's settings", files::settings, files::settings_seeds;
    "files": "scenarios, profiles, campaigns and plans", files::files, files::files_seeds;
    "machine": "inputs of a machine, any in any order, with interruptions", machine::machine, machine::machine_seeds;
}
