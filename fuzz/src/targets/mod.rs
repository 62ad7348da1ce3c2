//! The list of targets.

mod disk;
mod files;
mod machine;
mod names;
mod wire;

use crate::Target;

const fn target(name: &'static str, what: &'static str, run: fn(&[u8])) -> Target {
    Target { name, what, run }
}

/// All of them.
pub const TARGETS: [Target; 12] = [
    target("attach_request", "a message of a client on Attach, beside the generated decoder", wire::attach_request),
    target("unary_request", "the requests of unary calls, from their bytes to checked accesses", wire::unary_request),
    target("parameters", "the parameters of an instance", wire::parameters),
    target("event", "an event on Watch, there and back", wire::event),
    target("response", "what a client is answered", wire::response),
    target("batch", "a batch of the log", disk::batch),
    target("checkpoint", "a checkpoint of an instance, which becomes a machine and a checkpoint again", disk::checkpoint),
    target("recovery", "a log, recovered by a server", disk::recovery),
    target("names", "names of principals and instances, and ids", names::names),
    target("settings", "the file of a server's settings", files::settings),
    target("files", "scenarios, templates, profiles, campaigns and plans", files::files),
    target("machine", "inputs of a machine, any number in any order, with a restart from a checkpoint", machine::machine),
];
