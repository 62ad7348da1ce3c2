//! Messages of a server, built of the generated types: what its own encoders are compared with.

use bytes::Bytes;
use stickycas_model::access::{Answer, ReadAnswer};
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, Phase, SessionId};
use stickycas_proto::convert::member_state::MemberState;
use stickycas_proto::v1;

/// The result of a read that returns these values.
pub(crate) fn read_result(answer: &ReadAnswer, values: &[Bytes]) -> v1::ReadResult {
    let ReadAnswer { start, count: _, length, sealed } = *answer;
    v1::ReadResult { start: start.get(), values: values.to_vec(), length, sealed }
}

/// The frame that answers an access; `values` are those that a read returns.
pub(crate) fn answer_frame(
    channel: u32,
    number: AccessNumber,
    phase: Option<Phase>,
    answer: &Answer,
    values: &[Bytes],
) -> v1::Answer {
    let result = match answer {
        Answer::Append(append) => v1::answer::Result::Append((*append).into()),
        Answer::Read(read) => v1::answer::Result::Read(read_result(read, values)),
    };
    v1::Answer { channel, number: number.get(), phase: phase.map_or(0, Phase::get), result: Some(result) }
}

/// The response of a unary read that returns these values.
pub(crate) fn read_response(phase: Option<Phase>, answer: &ReadAnswer, values: &[Bytes]) -> v1::ReadResponse {
    v1::ReadResponse { phase: phase.map_or(0, Phase::get), result: Some(read_result(answer, values)) }
}

/// The frame that answers a hello.
pub(crate) fn welcome_frame(
    channel: u32,
    session: SessionId,
    own: &MemberState,
    params: &Params,
) -> v1::Welcome {
    v1::Welcome { channel, session: session.get(), own: Some(own.into()), parameters: Some(params.into()) }
}
