//! The gRPC code of each reason of a refusal, whether the request may have happened all the same, and whether
//! a retry helps (SPEC section 11).
//!
//! "May I retry?" and "may it have happened?" are two questions: an access whose deadline passed may have
//! happened and may be retried with the same number; an access outside its phase did not happen and may be
//! retried; an empty value did not happen and must not be retried.

use std::time::Duration;

use tonic::Code;

use crate::v1::RefusalReason;

/// Retry delay for a shortage that ends when other requests are done.
const SOON: Duration = Duration::from_millis(100);
/// Retry delay for a shortage that lasts until another client gives something up.
const LATER: Duration = Duration::from_secs(1);
/// The prefix of the enum's names in the .proto file.
const PREFIX: &str = "REFUSAL_REASON_";

impl RefusalReason {
    /// Every reason but UNSPECIFIED, in the order of the .proto file.
    pub fn all() -> impl Iterator<Item = Self> {
        /// Above the number of every reason. The number of one that is gone is given to no other.
        const END: i32 = 256;
        (1..END).filter_map(|number| Self::try_from(number).ok())
    }

    /// The name without prefix, as in `google.rpc.ErrorInfo`: for example `NOT_YOUR_PHASE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        let name = self.as_str_name();
        name.strip_prefix(PREFIX).unwrap_or(name)
    }

    /// The reason with this [`name`](Self::name); `None` if it is not known here.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|reason| reason.name() == name)
    }

    /// The gRPC code of a call that is refused for this reason.
    #[must_use]
    pub fn code(self) -> Code {
        self.traits().code
    }

    /// Whether the request may have happened, or may still happen. With an unknown reason it may.
    #[must_use]
    pub fn may_have_happened(self) -> bool {
        self.traits().may_have_happened
    }

    /// Whether the same request again (an access: with the same number) is safe and may succeed.
    #[must_use]
    pub fn may_retry(self) -> bool {
        match self.traits().retry {
            Retry::No => false,
            Retry::Yes | Retry::After(_) => true,
        }
    }

    /// The usual delay before a retry; `None`: no such advice.
    #[must_use]
    pub fn retry_after(self) -> Option<Duration> {
        match self.traits().retry {
            Retry::No | Retry::Yes => None,
            Retry::After(delay) => Some(delay),
        }
    }

    /// The row of this reason in the table of SPEC section 11.
    const fn traits(self) -> Traits {
        match self {
            // An unknown reason: `RpcRefusal` derives from the code whether a retry helps.
            Self::Unspecified => unknown(Code::Unknown, Retry::No),
            Self::ValueEmpty
            | Self::ValueTooLarge
            | Self::Malformed
            | Self::BadParameters
            | Self::AccessNumberOutOfOrder
            | Self::AccessContentDiffers => did_not_happen(Code::InvalidArgument, Retry::No),
            Self::NoIdentity => did_not_happen(Code::Unauthenticated, Retry::No),
            Self::NotAMember | Self::NotCoordinator | Self::NotCreator | Self::NotObserver => {
                did_not_happen(Code::PermissionDenied, Retry::No)
            }
            Self::InstanceUnknown => did_not_happen(Code::NotFound, Retry::No),
            Self::NameTaken => did_not_happen(Code::AlreadyExists, Retry::No),
            // A phase opens when the other processes have acted: no delay is right.
            Self::NotYourPhase => did_not_happen(Code::FailedPrecondition, Retry::Yes),
            Self::InstanceClosed
            | Self::ProcessLeft
            | Self::DecisionDiffers
            | Self::SessionReplaced
            | Self::ReadTooLarge => did_not_happen(Code::FailedPrecondition, Retry::No),
            Self::PhaseNotKept => did_not_happen(Code::OutOfRange, Retry::No),
            Self::TooManyWaiting | Self::RateExceeded | Self::WatcherTooSlow => {
                did_not_happen(Code::ResourceExhausted, Retry::After(SOON))
            }
            Self::TooManyInstances | Self::TooManyConnections | Self::TooManyStreams => {
                did_not_happen(Code::ResourceExhausted, Retry::After(LATER))
            }
            Self::TooManySessions => did_not_happen(Code::ResourceExhausted, Retry::No),
            // It ends a stream with unanswered accesses: they wait on, or were executed.
            Self::ReaderTooSlow | Self::RequestTooSlow | Self::TooManyBytes => {
                unknown(Code::ResourceExhausted, Retry::After(SOON))
            }
            // UNAVAILABLE tells generic clients that a retry is safe. A call whose access waits when draining
            // begins, or when the log fails, ends with it too, and the access waits on, was executed, or is
            // lost.
            Self::Draining | Self::LogFailed => unknown(Code::Unavailable, Retry::After(LATER)),
            Self::Recovering => did_not_happen(Code::Unavailable, Retry::After(SOON)),
            // Another server takes it at once; while no owner is known, the refusal has the time to wait.
            Self::NotOwner => did_not_happen(Code::Unavailable, Retry::Yes),
            Self::OwnerLost => unknown(Code::Unavailable, Retry::Yes),
            // The deadline is the caller's: no delay is right.
            Self::Deadline => unknown(Code::DeadlineExceeded, Retry::Yes),
            Self::Internal => unknown(Code::Internal, Retry::Yes),
        }
    }
}

/// The meaning of a reason for the refused request.
#[derive(Clone, Copy)]
struct Traits {
    code: Code,
    may_have_happened: bool,
    retry: Retry,
}

/// Whether a retry helps.
#[derive(Clone, Copy)]
enum Retry {
    No,
    /// At a moment that the caller chooses.
    Yes,
    /// Usually after this delay.
    After(Duration),
}

/// The request did not happen, and will not.
const fn did_not_happen(code: Code, retry: Retry) -> Traits {
    Traits { code, may_have_happened: false, retry }
}

/// The request may have happened, or may still happen.
const fn unknown(code: Code, retry: Retry) -> Traits {
    Traits { code, may_have_happened: true, retry }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC section 11, row by row: the code, and whether the request may have happened.
    const TABLE: &[(Code, bool, &[RefusalReason])] = &[
        (
            Code::InvalidArgument,
            false,
            &[
                RefusalReason::Malformed,
                RefusalReason::ValueEmpty,
                RefusalReason::ValueTooLarge,
                RefusalReason::BadParameters,
                RefusalReason::AccessNumberOutOfOrder,
                RefusalReason::AccessContentDiffers,
            ],
        ),
        (Code::Unauthenticated, false, &[RefusalReason::NoIdentity]),
        (
            Code::PermissionDenied,
            false,
            &[
                RefusalReason::NotAMember,
                RefusalReason::NotCoordinator,
                RefusalReason::NotCreator,
                RefusalReason::NotObserver,
            ],
        ),
        (Code::NotFound, false, &[RefusalReason::InstanceUnknown]),
        (Code::AlreadyExists, false, &[RefusalReason::NameTaken]),
        (
            Code::FailedPrecondition,
            false,
            &[
                RefusalReason::NotYourPhase,
                RefusalReason::InstanceClosed,
                RefusalReason::ProcessLeft,
                RefusalReason::DecisionDiffers,
                RefusalReason::SessionReplaced,
                RefusalReason::ReadTooLarge,
            ],
        ),
        (Code::OutOfRange, false, &[RefusalReason::PhaseNotKept]),
        (
            Code::ResourceExhausted,
            false,
            &[
                RefusalReason::TooManyWaiting,
                RefusalReason::TooManyInstances,
                RefusalReason::TooManyConnections,
                RefusalReason::TooManyStreams,
                RefusalReason::TooManySessions,
                RefusalReason::RateExceeded,
                RefusalReason::WatcherTooSlow,
            ],
        ),
        // Ends a stream on which accesses were accepted before, or takes the place of an answer.
        (
            Code::ResourceExhausted,
            true,
            &[RefusalReason::ReaderTooSlow, RefusalReason::RequestTooSlow, RefusalReason::TooManyBytes],
        ),
        // Ends a call whose access was accepted before.
        (
            Code::Unavailable,
            true,
            &[RefusalReason::Draining, RefusalReason::LogFailed, RefusalReason::OwnerLost],
        ),
        (Code::Unavailable, false, &[RefusalReason::Recovering, RefusalReason::NotOwner]),
        (Code::DeadlineExceeded, true, &[RefusalReason::Deadline]),
        (Code::Internal, true, &[RefusalReason::Internal]),
    ];

    #[test]
    fn each_reason_has_the_code_of_its_one_row() {
        for &(code, happened, reasons) in TABLE {
            for reason in reasons {
                assert_eq!(
                    (reason.code(), reason.may_have_happened()),
                    (code, happened),
                    "{}",
                    reason.name()
                );
            }
        }
        let mut listed: Vec<i32> = TABLE.iter().flat_map(|row| row.2).map(|&reason| reason.into()).collect();
        listed.sort_unstable();
        let all: Vec<i32> = RefusalReason::all().map(i32::from).collect();
        assert_eq!(listed, all);
        assert_eq!(all.len(), 37);
    }

    #[test]
    fn each_exhausted_resource_but_sessions_has_a_retry_delay() {
        for reason in RefusalReason::all().filter(|reason| reason.code() == Code::ResourceExhausted) {
            let for_good = reason == RefusalReason::TooManySessions;
            assert_eq!(reason.retry_after().is_none(), for_good, "{}", reason.name());
        }
    }

    #[test]
    fn every_name_reads_back() {
        for reason in RefusalReason::all() {
            assert_eq!(RefusalReason::from_name(reason.name()), Some(reason));
            assert!(!reason.name().starts_with(PREFIX));
        }
        assert_eq!(RefusalReason::from_name("UNSPECIFIED"), None);
        assert_eq!(RefusalReason::from_name("REFUSAL_REASON_INTERNAL"), None);
    }
}
