//! [`RpcRefusal`]: the refusal of a call or of a frame, as both ends know it.

use std::collections::HashMap;
use std::time::Duration;

use stickycas_model::types::{AccessNumber, Phase};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::convert::{duration_from_wire, duration_to_wire};
use crate::v1;
use crate::v1::RefusalReason;

/// `ErrorInfo.domain` of every refusal.
pub const ERROR_DOMAIN: &str = "stickycas.v1";

/// The refusal of a request, with everything that the caller learns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RpcRefusal {
    /// The reason. UNSPECIFIED: a newer server gave one that is not known here.
    pub reason: RefusalReason,
    /// Whether the same request again is safe and may succeed. For a reason that is not known here, the gRPC
    /// code decides.
    pub may_retry: bool,
    /// The reason in words, for people.
    pub message: String,
    /// Numbers that help the caller to go on.
    pub details: RefusalDetails,
    /// The least time before a retry; `None`: waiting alone does not help, or the time is not known.
    pub retry_after: Option<Duration>,
    /// With NOT_OWNER and OWNER_LOST: the owner of the shard of the instance; `None`: no owner is known.
    pub owner: Option<Box<Owner>>,
}

/// The server of a cluster that owns a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its address for clients: host and port.
    pub address: String,
    /// The number of its ownership: higher with each owner that the shard has had.
    pub epoch: u64,
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
const OWNER: &str = "owner";
const EPOCH: &str = "epoch";

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

    /// Ignores values that are no numbers: the metadata is advice.
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

impl Owner {
    fn add_to(&self, metadata: &mut HashMap<String, String>) {
        metadata.insert(OWNER.to_owned(), self.address.clone());
        metadata.insert(EPOCH.to_owned(), self.epoch.to_string());
    }

    /// `None` if both are missing: one alone is no help.
    fn from_metadata(metadata: &HashMap<String, String>) -> Option<Box<Self>> {
        Self::known(metadata.get(OWNER)?, metadata.get(EPOCH)?.parse().ok()?)
    }

    fn known(address: &str, epoch: u64) -> Option<Box<Self>> {
        (!address.is_empty()).then(|| Box::new(Self { address: address.to_owned(), epoch }))
    }
}

impl RpcRefusal {
    /// A refusal without details and with the usual retry delay of its reason.
    #[must_use]
    pub fn new(reason: RefusalReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            may_retry: reason.may_retry(),
            message: message.into(),
            details: RefusalDetails::default(),
            retry_after: reason.retry_after(),
            owner: None,
        }
    }

    /// A bug of the server. The cause belongs in the log of the server, not in the answer.
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

    /// With the owner of the shard.
    #[must_use]
    pub fn with_owner(self, owner: Owner) -> Self {
        Self { owner: Some(Box::new(owner)), ..self }
    }

    /// The status of the refused call: code, message, `ErrorInfo`, and `RetryInfo` if waiting may help.
    #[must_use]
    pub fn to_status(&self) -> Status {
        let mut details = ErrorDetails::new();
        let mut metadata = self.details.to_metadata();
        self.owner.iter().for_each(|owner| owner.add_to(&mut metadata));
        details.set_error_info(self.reason.name(), ERROR_DOMAIN, metadata);
        if self.retry_after.is_some() {
            details.set_retry_info(self.retry_after);
        }
        Status::with_error_details(self.reason.code(), self.message.as_str(), details)
    }

    /// The refusal that a status carries; `None` if the status is not from this service, for example because
    /// the connection broke.
    #[must_use]
    pub fn from_status(status: &Status) -> Option<Self> {
        let info = status.get_details_error_info().filter(|info| info.domain == ERROR_DOMAIN)?;
        let reason = RefusalReason::from_name(&info.reason).unwrap_or(RefusalReason::Unspecified);
        Some(Self {
            reason,
            may_retry: may_retry(reason, status.code()),
            message: status.message().to_owned(),
            details: RefusalDetails::from_metadata(&info.metadata),
            retry_after: status.get_details_retry_info().and_then(|retry| retry.retry_delay),
            owner: Owner::from_metadata(&info.metadata),
        })
    }

    /// The frame on Attach that refuses the access with this number, or without a number a Hello or a
    /// Decision. Of the details only the expected access number has a field there, and so has the owner.
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
            owner: self.owner.as_ref().map_or_else(String::new, |owner| owner.address.clone()),
            epoch: self.owner.as_ref().map_or(0, |owner| owner.epoch),
        }
    }

    /// The refusal of a frame on Attach. Ignores a retry delay that is no duration.
    #[must_use]
    pub fn from_frame(frame: &v1::Refusal) -> Self {
        let expected_access_number = AccessNumber::new(frame.expected_access_number);
        let retry_after = frame.retry_after.as_ref();
        Self {
            reason: frame.reason(),
            may_retry: may_retry(frame.reason(), Code::from_i32(frame.code)),
            message: frame.message.clone(),
            details: RefusalDetails { expected_access_number, ..RefusalDetails::default() },
            retry_after: retry_after.and_then(|delay| duration_from_wire("retry_after", delay).ok()),
            owner: Owner::known(&frame.owner, frame.epoch),
        }
    }
}

/// Whether a retry may help, by the reason; and if that is not known here, by the code.
fn may_retry(reason: RefusalReason, code: Code) -> bool {
    match reason {
        RefusalReason::Unspecified => {
            use Code::{DeadlineExceeded, Internal, ResourceExhausted, Unavailable};
            matches!(code, Unavailable | DeadlineExceeded | ResourceExhausted | Internal)
        }
        known => known.may_retry(),
    }
}

impl From<RpcRefusal> for Status {
    fn from(refusal: RpcRefusal) -> Self {
        refusal.to_status()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn details() -> RefusalDetails {
        RefusalDetails {
            expected_access_number: AccessNumber::new(7),
            current_phase: Phase::new(1),
            next_phase: Phase::new(2),
            oldest_phase: Phase::new(u64::MAX),
            resume_phase: Phase::new(4),
        }
    }

    /// It is the error type of almost every function of a server, so moving one has to be cheap.
    #[test]
    fn a_refusal_is_small() {
        assert!(size_of::<RpcRefusal>() <= 96, "{}", size_of::<RpcRefusal>());
    }

    #[test]
    fn every_reason_reads_back_from_a_status() {
        for reason in RefusalReason::all() {
            let refusal = RpcRefusal::new(reason, "why").with_details(details());
            for refusal in [refusal.clone(), refusal.with_retry_after(Duration::from_millis(1500))] {
                let status = refusal.to_status();
                assert_eq!(status.code(), reason.code());
                assert_eq!(RpcRefusal::from_status(&status), Some(refusal));
            }
        }
    }

    #[test]
    fn every_reason_reads_back_from_a_frame() {
        for reason in RefusalReason::all() {
            let expected_access_number = AccessNumber::new(7);
            let refusal = RpcRefusal::new(reason, "why")
                .with_details(RefusalDetails { expected_access_number, ..RefusalDetails::default() });
            let frame = refusal.to_frame(3, AccessNumber::new(9));
            assert_eq!((frame.channel, frame.access_number), (3, 9));
            assert_eq!(Code::from_i32(frame.code), reason.code());
            assert_eq!(RpcRefusal::from_frame(&frame), refusal);
        }
    }

    #[test]
    fn the_owner_is_told_in_a_status_and_in_a_frame() {
        let owner = Owner { address: "cas-2.example:7400".to_owned(), epoch: u64::MAX };
        for reason in [RefusalReason::NotOwner, RefusalReason::OwnerLost] {
            let unowned = RpcRefusal::new(reason, "why");
            for refusal in [unowned.clone().with_owner(owner.clone()), unowned] {
                assert_eq!(RpcRefusal::from_status(&refusal.to_status()), Some(refusal.clone()));
                assert_eq!(RpcRefusal::from_frame(&refusal.to_frame(3, None)), refusal);
            }
        }
        let half = [(OWNER, "somewhere"), (EPOCH, "no number")];
        let half = half.map(|(key, text)| (key.to_owned(), text.to_owned()));
        assert_eq!(Owner::from_metadata(&HashMap::from(half)), None);
    }

    #[test]
    fn a_status_of_another_domain_is_no_refusal() {
        assert_eq!(RpcRefusal::from_status(&Status::unavailable("connection reset")), None);
        let details = ErrorDetails::with_error_info("DRAINING", "another.v1", HashMap::new());
        let foreign = Status::with_error_details(Code::Unavailable, "theirs", details);
        assert_eq!(RpcRefusal::from_status(&foreign), None);
    }

    #[test]
    fn an_unknown_reason_may_have_happened_and_is_retried_as_its_code_says() {
        for (code, again) in [(Code::Aborted, false), (Code::Unavailable, true), (Code::Internal, true)] {
            let details = ErrorDetails::with_error_info("FROM_THE_FUTURE", ERROR_DOMAIN, HashMap::new());
            let status = Status::with_error_details(code, "new", details);
            let frame = v1::Refusal { reason: 1_000, code: code.into(), ..Default::default() };
            for refusal in [RpcRefusal::from_status(&status).unwrap(), RpcRefusal::from_frame(&frame)] {
                assert_eq!((refusal.reason, refusal.may_retry), (RefusalReason::Unspecified, again));
                assert!(refusal.reason.may_have_happened());
            }
        }
    }

    #[test]
    fn an_internal_error_does_not_tell_its_cause() {
        let status = RpcRefusal::internal().to_status();
        assert_eq!((status.code(), status.message()), (Code::Internal, "internal error"));
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
            let refusal = RpcRefusal::from_frame(&v1::Refusal { retry_after, ..Default::default() });
            let is_one = seconds >= 0 && (0..1_000_000_000).contains(&nanos);
            prop_assert_eq!(refusal.retry_after.is_some(), is_one);
        }
    }
}
