//! The wire as a whole: it is what the .proto files say, it loses nothing, and it withstands anybody.

mod attach;
mod descriptor;
mod hostile_bytes;
mod round_trip;
mod strategies;
