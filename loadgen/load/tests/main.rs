//! Loads: against the real server, against servers that lie or stall, and their Attach codec.

mod attach_codec;
mod generated_frame;
mod load;
mod load_liar;
mod load_stall;
