//! The frames of HTTP/2 that a connection is read for: those that carry no request and those that open one,
//! so many of each in a second, of each principal over all its connections.
//!
//! Calls have a rate of their own, above which they are refused. A refusal costs the server time too: HTTP/2
//! decodes the headers, makes a stream and a task, and answers. So what opens a request is paced before it is
//! decoded.

use std::time::Duration;

use super::allowance::Allowance;
use super::rate::{Bucket, Rate};

named_values! {
    /// The type of a frame.
    FrameType {
        Data = "data",
        Headers = "headers",
        Priority = "priority",
        RstStream = "rst_stream",
        Settings = "settings",
        PushPromise = "push_promise",
        Ping = "ping",
        GoAway = "goaway",
        WindowUpdate = "window_update",
        Continuation = "continuation",
        /// Of no type that the standard has.
        Unknown = "unknown",
    }
}

impl FrameType {
    /// The type with this code.
    pub(crate) fn of(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Unknown)
    }
}

/// Number of values of [`FrameType`].
pub(crate) const FRAME_TYPES: usize = FrameType::ALL.len();

/// Frames that a connection may send uncharged, so that one that opens, or answers our PINGs, does not wait
/// for others of the same account. Clients open a connection with some four frames.
const OWN_SHARE: Rate = Rate::new(Duration::from_millis(250), 32);

/// The shares of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionFrames {
    control: Bucket,
    requests: Bucket,
}

/// Frames that have come on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FramesRead {
    /// Those that carry no request.
    pub(crate) control: u32,
    /// Resets among them.
    pub(crate) resets: u32,
    /// Those that open a request.
    pub(crate) requests: u32,
}

/// The shares of one account.
#[derive(Debug, Default)]
pub(super) struct FrameBuckets {
    control: Bucket,
    resets: Bucket,
    requests: Bucket,
}

/// The rates that an account has overdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overdrawn {
    /// Frames that carry no request.
    pub(crate) control: bool,
    /// Resets.
    pub(crate) resets: bool,
    /// Frames that open a request.
    pub(crate) requests: bool,
}

impl Overdrawn {
    /// Any of them.
    pub(crate) fn any(self) -> bool {
        self.control || self.resets || self.requests
    }
}

impl FrameBuckets {
    pub(super) fn are_full(&self, now: u64) -> bool {
        self.control.is_full(now) && self.resets.is_full(now) && self.requests.is_full(now)
    }

    pub(super) fn charge(
        &self,
        connection: &mut ConnectionFrames,
        read: FramesRead,
        allowance: &Allowance,
        now: u64,
    ) -> Overdrawn {
        let charge = |bucket: &Bucket, frames: u64, rate| {
            if frames == 0 {
                return false;
            }
            bucket.charge(now, frames, rate);
            bucket.overdrawn(now, rate).is_some()
        };
        // The frames that the own share of the connection does not cover.
        let rest = |own: &Bucket, frames: u32| {
            let frames = u64::from(frames);
            if frames == 0 { 0 } else { frames - own.take(now, frames, 1, OWN_SHARE) }
        };
        let control = rest(&connection.control, read.control);
        let requests = rest(&connection.requests, read.requests);
        Overdrawn {
            control: charge(&self.control, control, allowance.control_frame_rate),
            resets: charge(&self.resets, read.resets.into(), allowance.reset_rate),
            requests: charge(&self.requests, requests, allowance.header_rate),
        }
    }

    pub(super) fn overdrawn(&self, allowance: &Allowance, now: u64) -> Option<Duration> {
        let control = self.control.overdrawn(now, allowance.control_frame_rate);
        let requests = self.requests.overdrawn(now, allowance.header_rate);
        control.max(requests).max(self.resets.overdrawn(now, allowance.reset_rate))
    }
}
