//! The wire as a whole: it is what the .proto files say, conversions lose nothing, and no bytes make them
//! panic.

mod attach;
mod checkpoints;

mod descriptor;
mod frames;
mod hostile_bytes;
mod round_trip;
mod server_messages;
mod strategies;
