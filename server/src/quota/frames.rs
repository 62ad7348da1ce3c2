//! The frames of HTTP/2 that carry no request: so many in a second, of each principal over all its connections.

use std::time::Duration;

use super::context::Allowance;
use super::rate::{Bucket, Rate};

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameType {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// Of no type that the standard has.
    Unknown,
}

impl FrameType {
    /// All of them, in the order of their codes.
    pub(crate) const ALL: [Self; FRAME_TYPES] = [
        Self::Data,
        Self::Headers,
        Self::Priority,
        Self::RstStream,
        Self::Settings,
        Self::PushPromise,
        Self::Ping,
        Self::GoAway,
        Self::WindowUpdate,
        Self::Continuation,
        Self::Unknown,
    ];

    /// The name, as metrics have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Headers => "headers",
            Self::Priority => "priority",
            Self::RstStream => "rst_stream",
            Self::Settings => "settings",
            Self::PushPromise => "push_promise",
            Self::Ping => "ping",
            Self::GoAway => "goaway",
            Self::WindowUpdate => "window_update",
            Self::Continuation => "continuation",
            Self::Unknown => "unknown",
        }
    }

    /// The type with this code.
    pub(crate) fn of(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Unknown)
    }
}

/// Number of values of [`FrameType`].
pub(crate) const FRAME_TYPES: usize = FrameType::Unknown as usize + 1;

/// What a connection may send without being charged: so that one that opens, or answers our PINGs, is not kept waiting by
/// others of the same account. Clients open a connection with some four frames.
const OWN_SHARE: Rate = Rate::new(Duration::from_millis(250), 32);

/// The share of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionFrames(Bucket);

/// The shares of one account.
#[derive(Debug, Default)]
pub(super) struct FrameBuckets {
    control: Bucket,
    resets: Bucket,
}

/// What an account has overdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overdrawn {
    /// Frames of all kinds.
    pub(crate) control: bool,
    /// Resets.
    pub(crate) resets: bool,
}

impl Overdrawn {
    /// Either of them.
    pub(crate) fn any(self) -> bool {
        self.control || self.resets
    }
}

impl FrameBuckets {
    pub(super) fn are_full(&self, now: u64) -> bool {
        self.control.is_full(now) && self.resets.is_full(now)
    }

    pub(super) fn charge(
        &self,
        connection: &mut ConnectionFrames,
        control: u32,
        resets: u32,
        allowance: &Allowance,
        now: u64,
    ) -> Overdrawn {
        let control = u64::from(control);
        let rest = control - connection.0.take(now, control, 1, OWN_SHARE);
        if rest > 0 {
            self.control.charge(now, rest, allowance.control_frame_rate);
        }
        if resets > 0 {
            self.resets.charge(now, resets.into(), allowance.reset_rate);
        }
        Overdrawn {
            control: rest > 0 && self.control.overdrawn(now, allowance.control_frame_rate).is_some(),
            resets: resets > 0 && self.resets.overdrawn(now, allowance.reset_rate).is_some(),
        }
    }

    pub(super) fn overdrawn(&self, allowance: &Allowance, now: u64) -> Option<Duration> {
        let control = self.control.overdrawn(now, allowance.control_frame_rate);
        control.max(self.resets.overdrawn(now, allowance.reset_rate))
    }
}
