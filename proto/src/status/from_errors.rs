//! The refusal of each error of the model and of the conversions.

use stickycas_model::access::Refusal;
use stickycas_model::params::{ParamsError, ValueError};

use super::rpc_refusal::{RefusalDetails, RpcRefusal};
use crate::convert::WireError;
use crate::v1::RefusalReason;

impl From<Refusal> for RpcRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::from(&refusal)
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

/// The reason of a refused value, in any message.
fn value_reason(error: &ValueError) -> RefusalReason {
    match error {
        ValueError::Empty => RefusalReason::ValueEmpty,
        ValueError::TooLarge { .. } => RefusalReason::ValueTooLarge,
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::types::{AccessNumber, Phase, SessionId};

    use super::*;

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
            let rpc_refusal = RpcRefusal::from(&refusal);
            assert_eq!((rpc_refusal.reason, rpc_refusal.details), (reason, details));
            assert_eq!(rpc_refusal.message, refusal.to_string());
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
}
