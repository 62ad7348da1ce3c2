//! From an error to a gRPC status and back: the one place for it (SPEC section 11).
//!
//! [`RpcRefusal`] is the refusal as both ends know it. The server makes it from the errors of the model and of
//! the conversions; it travels as a status with `google.rpc` details, or in-band on Attach; the client reads
//! it back and asks its [reason](crate::reason) what to do.

use std::collections::HashMap;
use std::time::Duration;

use stickycas_model::access::Refusal;
use stickycas_model::params::{ParamsError, ValueError};
use stickycas_model::types::{AccessNumber, Phase};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::convert::{WireError, duration_from_wire, duration_to_wire};
use crate::v1;
use crate::v1::RefusalReason;

/// `ErrorInfo.domain` of every refusal.
pub const ERROR_DOMAIN: &str = "stickycas.v1";

/// Why a request is refused, with all that the caller is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RpcRefusal {
    /// Why. UNSPECIFIED: a newer server gave a reason that is not known here.
    pub reason: RefusalReason,
    /// Why, in words, for people.
    pub message: String,
    /// Numbers that help the caller to go on.
    pub details: RefusalDetails,
    /// Try again no earlier than this; `None`: waiting alone does not help, or nobody can say how long.
    pub retry_after: Option<Duration>,
}

/// Numbers that help the caller of a refused request to go on; in a status, the metadata of its `ErrorInfo`
/// under the names of these fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalDetails {
    /// With ACCESS_NUMBER_OUT_OF_ORDER: the only new number that would be accepted.
    pub expected_access_number: Option<AccessNumber>,
    /// With NOT_YOUR_PHASE: the phase that is open or opens next; `None` while processes gather.
    pub current_phase: Option<Phase>,
    /// With NOT_YOUR_PHASE: the next phase of the caller's warp.
    pub next_phase: Option<Phase>,
    /// With PHASE_NOT_KEPT: the oldest phase whose record is kept.
    pub oldest_phase: Option<Phase>,
    /// With WATCHER_TOO_SLOW: the phase to watch from to miss nothing.
    pub resume_phase: Option<Phase>,
}

const EXPECTED_ACCESS_NUMBER: &str = "expected_access_number";
const CURRENT_PHASE: &str = "current_phase";
const NEXT_PHASE: &str = "next_phase";
const OLDEST_PHASE: &str = "oldest_phase";
const RESUME_PHASE: &str = "resume_phase";

impl RefusalDetails {
    fn to_metadata(self) -> HashMap<String, String> {
        let fields = [
            (EXPECTED_ACCESS_NUMBER, self.expected_access_number.map(AccessNumber::get)),
            (CURRENT_PHASE, self.current_phase.map(Phase::get)),
            (NEXT_PHASE, self.next_phase.map(Phase::get)),
            (OLDEST_PHASE, self.oldest_phase.map(Phase::get)),
            (RESUME_PHASE, self.resume_phase.map(Phase::get)),
        ];
        fields.into_iter().filter_map(|(key, number)| Some((key.to_owned(), number?.to_string()))).collect()
    }

    /// What is not a number is passed over: it is advice, not content.
    fn from_metadata(metadata: &HashMap<String, String>) -> Self {
        let number = |key| metadata.get(key).and_then(|text| text.parse::<u64>().ok());
        let phase = |key| number(key).and_then(Phase::new);
        Self {
            expected_access_number: number(EXPECTED_ACCESS_NUMBER).and_then(AccessNumber::new),
            current_phase: phase(CURRENT_PHASE),
            next_phase: phase(NEXT_PHASE),
            oldest_phase: phase(OLDEST_PHASE),
            resume_phase: phase(RESUME_PHASE),
        }
    }
}

impl RpcRefusal {
    /// A refusal without details and with the usual retry delay of its reason.
    #[must_use]
    pub fn new(reason: RefusalReason, message: impl Into<String>) -> Self {
        let retry_after = reason.retry_after();
        Self { reason, message: message.into(), details: RefusalDetails::default(), retry_after }
    }

    /// Our bug. Says nothing more: what broke is for our records, not for the caller.
    #[must_use]
    pub fn internal() -> Self {
        Self::new(RefusalReason::Internal, "internal error")
    }

    /// With these details.
    #[must_use]
    pub fn with_details(self, details: RefusalDetails) -> Self {
        Self { details, ..self }
    }

    /// With another retry delay than the usual one of its reason.
    #[must_use]
    pub fn with_retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }

    /// The status that a call refused so ends with: code, message, `ErrorInfo`, and `RetryInfo` if waiting
    /// may help.
    #[must_use]
    pub fn to_status(&self) -> Status {
        let mut details = ErrorDetails::new();
        details.set_error_info(self.reason.name(), ERROR_DOMAIN, self.details.to_metadata());
        if self.retry_after.is_some() {
            details.set_retry_info(self.retry_after);
        }
        Status::with_error_details(self.reason.code(), self.message.as_str(), details)
    }

    /// The refusal that a status carries; `None` if it carries none of ours, for example because the
    /// connection broke.
    #[must_use]
    pub fn from_status(status: &Status) -> Option<Self> {
        let info = status.get_details_error_info().filter(|info| info.domain == ERROR_DOMAIN)?;
        Some(Self {
            reason: RefusalReason::from_name(&info.reason).unwrap_or(RefusalReason::Unspecified),
            message: status.message().to_owned(),
            details: RefusalDetails::from_metadata(&info.metadata),
            retry_after: status.get_details_retry_info().and_then(|retry| retry.retry_delay),
        })
    }

    /// The in-band form on Attach: refuses the access of this number, or a Hello or Decision if there is
    /// none. Of the details only the expected access number can occur there.
    #[must_use]
    pub fn to_frame(&self, channel: u32, number: Option<AccessNumber>) -> v1::Refusal {
        v1::Refusal {
            channel,
            access_number: number.map_or(0, AccessNumber::get),
            code: self.reason.code().into(),
            reason: self.reason.into(),
            message: self.message.clone(),
            expected_access_number: self.details.expected_access_number.map_or(0, AccessNumber::get),
            retry_after: self.retry_after.map(duration_to_wire),
        }
    }

    /// The refusal of a frame on Attach. A delay that is none is passed over.
    #[must_use]
    pub fn from_frame(frame: &v1::Refusal) -> Self {
        let expected_access_number = AccessNumber::new(frame.expected_access_number);
        let retry_after = frame.retry_after.as_ref();
        Self {
            reason: frame.reason(),
            message: frame.message.clone(),
            details: RefusalDetails { expected_access_number, ..RefusalDetails::default() },
            retry_after: retry_after.and_then(|delay| duration_from_wire("retry_after", delay).ok()),
        }
    }
}

impl From<RpcRefusal> for Status {
    fn from(refused: RpcRefusal) -> Self {
        refused.to_status()
    }
}

impl From<&Refusal> for RpcRefusal {
    fn from(refusal: &Refusal) -> Self {
        let (reason, details) = match *refusal {
            Refusal::OutOfOrder { given: _, expected } => (
                RefusalReason::AccessNumberOutOfOrder,
                RefusalDetails { expected_access_number: Some(expected), ..RefusalDetails::default() },
            ),
            Refusal::NotYourPhase { current, next } => (
                RefusalReason::NotYourPhase,
                RefusalDetails {
                    current_phase: current,
                    next_phase: Some(next),
                    ..RefusalDetails::default()
                },
            ),
            Refusal::OtherContent(_) => (RefusalReason::AccessContentDiffers, RefusalDetails::default()),
            Refusal::OlderSession { .. } => (RefusalReason::SessionReplaced, RefusalDetails::default()),
            Refusal::TooManySessions(_) => (RefusalReason::TooManySessions, RefusalDetails::default()),
            Refusal::Closed => (RefusalReason::InstanceClosed, RefusalDetails::default()),
            Refusal::Left => (RefusalReason::ProcessLeft, RefusalDetails::default()),
            Refusal::OtherDecision => (RefusalReason::DecisionDiffers, RefusalDetails::default()),
            Refusal::TooManyWaiting(_) => (RefusalReason::TooManyWaiting, RefusalDetails::default()),
        };
        Self::new(reason, refusal.to_string()).with_details(details)
    }
}

impl From<&ParamsError> for RpcRefusal {
    fn from(error: &ParamsError) -> Self {
        Self::new(RefusalReason::BadParameters, error.to_string())
    }
}

impl From<&ValueError> for RpcRefusal {
    fn from(error: &ValueError) -> Self {
        Self::new(value_reason(error), error.to_string())
    }
}

impl From<&WireError> for RpcRefusal {
    fn from(error: &WireError) -> Self {
        let reason = match error {
            WireError::Missing(_)
            | WireError::Zero(_)
            | WireError::UnknownEnum { .. }
            | WireError::Duration(_)
            | WireError::Contradiction { .. }
            | WireError::InstanceId
            | WireError::InstanceName => RefusalReason::Malformed,
            WireError::Value { field: _, error } => value_reason(error),
            WireError::Params(_) => RefusalReason::BadParameters,
        };
        Self::new(reason, error.to_string())
    }
}

fn value_reason(error: &ValueError) -> RefusalReason {
    match error {
        ValueError::Empty => RefusalReason::ValueEmpty,
        ValueError::TooLarge { .. } => RefusalReason::ValueTooLarge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stickycas_model::types::SessionId;
    use tonic::Code;

    fn details() -> RefusalDetails {
        RefusalDetails {
            expected_access_number: AccessNumber::new(7),
            current_phase: Phase::new(1),
            next_phase: Phase::new(2),
            oldest_phase: Phase::new(u64::MAX),
            resume_phase: Phase::new(4),
        }
    }

    #[test]
    fn every_reason_reads_back_from_a_status() {
        for reason in RefusalReason::all() {
            let refused = RpcRefusal::new(reason, "why").with_details(details());
            for refused in [refused.clone(), refused.with_retry_after(Duration::from_millis(1500))] {
                let status = refused.to_status();
                assert_eq!(status.code(), reason.code());
                assert_eq!(RpcRefusal::from_status(&status), Some(refused));
            }
        }
    }

    #[test]
    fn every_reason_reads_back_from_a_frame() {
        for reason in RefusalReason::all() {
            let expected_access_number = AccessNumber::new(7);
            let refused = RpcRefusal::new(reason, "why")
                .with_details(RefusalDetails { expected_access_number, ..RefusalDetails::default() });
            let frame = refused.to_frame(3, AccessNumber::new(9));
            assert_eq!((frame.channel, frame.access_number), (3, 9));
            assert_eq!(Code::from_i32(frame.code), reason.code());
            assert_eq!(RpcRefusal::from_frame(&frame), refused);
        }
    }

    #[test]
    fn a_status_that_is_not_ours_is_no_refusal() {
        assert_eq!(RpcRefusal::from_status(&Status::unavailable("connection reset")), None);
        let details = ErrorDetails::with_error_info("DRAINING", "another.v1", HashMap::new());
        let foreign = Status::with_error_details(Code::Unavailable, "theirs", details);
        assert_eq!(RpcRefusal::from_status(&foreign), None);
    }

    #[test]
    fn a_reason_of_a_newer_server_is_met_with_caution() {
        let details = ErrorDetails::with_error_info("FROM_THE_FUTURE", ERROR_DOMAIN, HashMap::new());
        let status = Status::with_error_details(Code::Aborted, "new", details);
        let refused = RpcRefusal::from_status(&status).unwrap();
        assert_eq!(refused.reason, RefusalReason::Unspecified);
        assert!(refused.reason.may_have_happened() && !refused.reason.may_retry());
        let frame = v1::Refusal { reason: 1_000, ..Default::default() };
        assert_eq!(RpcRefusal::from_frame(&frame).reason, RefusalReason::Unspecified);
    }

    #[test]
    fn an_internal_error_tells_nothing() {
        let status = RpcRefusal::internal().to_status();
        assert_eq!((status.code(), status.message()), (Code::Internal, "internal error"));
    }

    #[test]
    fn each_refusal_of_the_model_has_its_reason_and_numbers() {
        let (number, phase) = (AccessNumber::FIRST, Phase::FIRST);
        let none = RefusalDetails::default();
        let expected = RefusalDetails { expected_access_number: Some(number.next()), ..none };
        let scheduled = RefusalDetails { current_phase: Some(phase), next_phase: Some(phase.next()), ..none };
        let (given, current) = (SessionId::FIRST, SessionId::FIRST.next());
        let cases = [
            (
                Refusal::OutOfOrder { given: number, expected: number.next() },
                RefusalReason::AccessNumberOutOfOrder,
                expected,
            ),
            (Refusal::OtherContent(number), RefusalReason::AccessContentDiffers, none),
            (Refusal::OlderSession { given, current: Some(current) }, RefusalReason::SessionReplaced, none),
            (Refusal::TooManySessions(9), RefusalReason::TooManySessions, none),
            (
                Refusal::NotYourPhase { current: Some(phase), next: phase.next() },
                RefusalReason::NotYourPhase,
                scheduled,
            ),
            (Refusal::Closed, RefusalReason::InstanceClosed, none),
            (Refusal::Left, RefusalReason::ProcessLeft, none),
            (Refusal::OtherDecision, RefusalReason::DecisionDiffers, none),
            (Refusal::TooManyWaiting(16), RefusalReason::TooManyWaiting, none),
        ];
        for (refusal, reason, details) in cases {
            let refused = RpcRefusal::from(&refusal);
            assert_eq!((refused.reason, refused.details), (reason, details));
            assert_eq!(refused.message, refusal.to_string());
        }
    }

    #[test]
    fn a_value_is_refused_for_the_same_reason_wherever_it_stands() {
        let too_large = ValueError::TooLarge { length: 5, limit: 4 };
        let cases =
            [(ValueError::Empty, RefusalReason::ValueEmpty), (too_large, RefusalReason::ValueTooLarge)];
        for (error, reason) in cases {
            assert_eq!(RpcRefusal::from(&error).reason, reason);
            assert_eq!(RpcRefusal::from(&WireError::Value { field: "value", error }).reason, reason);
        }
        assert_eq!(RpcRefusal::from(&WireError::Missing("op")).reason, RefusalReason::Malformed);
        let params = ParamsError::Processes(0);
        assert_eq!(RpcRefusal::from(&params).reason, RefusalReason::BadParameters);
        assert_eq!(RpcRefusal::from(&WireError::Params(params)).reason, RefusalReason::BadParameters);
    }

    proptest! {
        #[test]
        fn no_bytes_in_the_details_of_a_status_can_panic(bytes: Vec<u8>) {
            let status = Status::with_details(Code::Unknown, "?", bytes.into());
            prop_assert_eq!(RpcRefusal::from_status(&status), None);
        }

        #[test]
        fn no_retry_delay_of_a_frame_can_panic(seconds: i64, nanos: i32) {
            let retry_after = Some(prost_types::Duration { seconds, nanos });
            let refused = RpcRefusal::from_frame(&v1::Refusal { retry_after, ..Default::default() });
            let is_one = seconds >= 0 && (0..1_000_000_000).contains(&nanos);
            prop_assert_eq!(refused.retry_after.is_some(), is_one);
        }
    }
}
