//! The windows of one connection: how much its client may send that no call has taken (RFC 9113, section
//! 5.2).
//!
//! They are fixed when HTTP/2 begins, and what is sent within them is held. So they are taken from a share of
//! all principals, and where that has no room for a window it is a smaller one: the client is served all the
//! same.

use super::connection::Connection;
use crate::limits::Limits;
use crate::quota::{Buffer, BufferedBytes};

/// The largest window (RFC 9113, section 6.9.1).
const LARGEST: u32 = i32::MAX as u32;
/// The window of a connection for which there is no room: HTTP/2 has none that is smaller.
const SMALLEST: u32 = u16::MAX as u32;
/// The least that is worth its place in the share.
const LEAST_TAKEN: u32 = 2 * (SMALLEST + 1);
/// The number of parts of a window that is smaller than usual; one stream has one part. HTTP/2 closes a
/// connection on which too many small messages wait: half of the window bounds them, each counted as 256
/// bytes. So those of 16 bytes fill the window of their stream before.
const STREAMS: u32 = 32;
/// The least that one stream has, whatever the window is. A message needs a round trip for each of these, and
/// must come within `request_timeout`: one of 4 MiB does where a round trip takes up to 78 ms. For that a
/// window below 32 of these gives up what [`STREAMS`] is for. In the smallest one 128 messages of 16 bytes
/// may wait; when many more wait, because the server has no time for them or because the client reads no
/// answers, HTTP/2 closes the connection.
pub(super) const LEAST_OF_STREAM: u32 = 16 * 1024;

/// See the module. The bytes that were taken for them are given back when this is dropped.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) connection: u32,
    pub(super) stream: u32,
    _taken: BufferedBytes,
}

impl Windows {
    /// Those of the limits, or smaller ones. They are taken for the principal of the connection, if that is
    /// known already.
    pub(super) fn of(connection: &Connection, limits: &Limits) -> Self {
        let usual = limits.connection_window_bytes.min(LARGEST);
        let mut taken = BufferedBytes::new(connection.charged_account().clone(), Buffer::Windows);
        let window = taken.grow_by_at_most(usual as usize, LEAST_TAKEN.min(usual) as usize);
        let window = if window == 0 { SMALLEST } else { u32::try_from(window).unwrap_or(usual) };
        let stream = limits.stream_window_bytes.min(LARGEST);
        let stream =
            if window < usual { stream.min((window / STREAMS).max(LEAST_OF_STREAM)) } else { stream };
        Self { connection: window, stream, _taken: taken }
    }
}
