//! The allowance of one account: its rates and its quotas.

use super::rate::Rate;
use super::resources::{QUOTAS, Quota};
use crate::limits::Limits;

/// The rates and the quotas of one account.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    pub(super) requests_per_second: u32,
    pub(super) request_rate: Rate,
    /// Of frames of HTTP/2 that carry no request.
    pub(super) control_frame_rate: Rate,
    /// Of resets among them.
    pub(super) reset_rate: Rate,
    /// Of frames that open a request.
    pub(super) header_rate: Rate,
    /// By quota.
    pub(super) permits: [u32; QUOTAS],
}

impl Allowance {
    pub(super) fn of_principal(limits: &Limits) -> Self {
        Self {
            requests_per_second: limits.requests_per_second,
            request_rate: Rate::per_second(limits.requests_per_second),
            control_frame_rate: Rate::per_second(limits.control_frames_per_second),
            reset_rate: Rate::per_second(limits.resets_per_second),
            header_rate: Rate::per_second(limits.headers_per_second),
            permits: Quota::ALL.map(|quota| quota.limit(limits)),
        }
    }

    pub(super) fn of_anonymous(limits: &Limits) -> Self {
        let permits = Quota::ALL.map(|quota| match quota {
            Quota::Calls => limits.anonymous_calls,
            // They are bounded before they belong to an account, and streams of ours need an identity.
            Quota::Connections | Quota::AttachStreams | Quota::WatchStreams => 0,
        });
        Self {
            requests_per_second: limits.anonymous_requests_per_second,
            request_rate: Rate::per_second(limits.anonymous_requests_per_second),
            control_frame_rate: Rate::per_second(limits.anonymous_control_frames_per_second),
            reset_rate: Rate::per_second(limits.resets_per_second),
            header_rate: Rate::per_second(limits.anonymous_headers_per_second),
            permits,
        }
    }
}
