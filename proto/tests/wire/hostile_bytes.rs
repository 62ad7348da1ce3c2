//! No bytes of a peer make a conversion panic.
//!
//! Random bytes decode into shallow messages. Well-formed messages with some bytes changed reach the deep
//! ones.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message;
use stickycas_model::access::{Answer, AppendAnswer, Op, ReadAnswer};
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::process::{ProcessEnd, RawOp};
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, RawValue, Seed, SessionId, Value};
use stickycas_proto::attach::{self, DecodedFrame};
use stickycas_proto::convert::access::{
    access_frame, access_from_append, access_from_frame, access_from_read, decision_from_frame,
    value_from_wire,
};
use stickycas_proto::convert::answer::{AnswerData, append_response};
use stickycas_proto::convert::history::{event_from_wire, event_to_wire};
use stickycas_proto::convert::member_state::{MemberState, WelcomeData};
use stickycas_proto::convert::params::{params_from_wire, spec_from_wire};
use stickycas_proto::convert::report::ProcessReport;
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::{self, server_frame, watch_response};

use crate::server_messages::{answer_frame, read_response, welcome_frame};

fn params() -> Params {
    Params::try_new(ParamsSpec { max_value_bytes: 16, ..ParamsSpec::new(4, 2, 2) }).expect("valid")
}

/// Decodes the bytes as every message that takes part in a conversion, and converts what decodes. Returns the
/// messages as which it succeeded.
fn convert_as_everything(bytes: &[u8]) -> Vec<&'static str> {
    let converted = [
        ("AppendRequest", decoded(bytes, append_request)),
        ("ReadRequest", decoded(bytes, read_request)),
        ("DecideRequest", decoded(bytes, decide_request)),
        ("AttachRequest", decoded(bytes, attach_request)),
        ("CreateRequest", decoded(bytes, create_request)),
        ("ReportRequest", decoded(bytes, |report| ProcessReport::from_wire(report, &params()).is_ok())),
        ("GetRequest", decoded(bytes, |request: &v1::GetRequest| InstanceRef::try_from(request).is_ok())),
        ("AttachResponse", decoded(bytes, attach_response)),
        ("AppendResponse", decoded(bytes, |response| AnswerData::from_append(response).is_ok())),
        ("ReadResponse", decoded(bytes, |response| AnswerData::from_read(response, &params()).is_ok())),
        ("GetResponse", decoded(bytes, get_response)),
        ("WatchResponse", decoded(bytes, watch_response)),
    ];
    converted.into_iter().filter_map(|(message, converted)| converted.then_some(message)).collect()
}

fn decoded<M: Message + Default>(bytes: &[u8], convert: impl FnOnce(&M) -> bool) -> bool {
    M::decode(bytes).is_ok_and(|message| convert(&message))
}

fn append_request(request: &v1::AppendRequest) -> bool {
    let id = request.instance_id.parse::<InstanceId>();
    access_from_append(request, ProcessId::FIRST, &params()).is_ok() && id.is_ok()
}

fn read_request(request: &v1::ReadRequest) -> bool {
    access_from_read(request, ProcessId::FIRST).is_ok()
}

fn decide_request(request: &v1::DecideRequest) -> bool {
    value_from_wire("value", &request.value, &params()).is_ok()
}

fn attach_request(request: &v1::AttachRequest) -> bool {
    let convert = |frame| match frame {
        DecodedFrame::Unknown => false,
        DecodedFrame::Hello { instance, .. } => instance.is_some(),
        DecodedFrame::Access { number, op, .. } => {
            let number = AccessNumber::new(number);
            access_from_frame(number, op, ProcessId::FIRST, SessionId::FIRST, &params()).is_ok()
        }
        DecodedFrame::Decision { value, .. } => decision_from_frame(value, &params()).is_ok(),
    };
    attach::DecodedRequest::from(request.clone()).0.into_iter().map(convert).fold(true, |all, one| all & one)
}

fn create_request(request: &v1::CreateRequest) -> bool {
    let name = InstanceName::optional(&request.name);
    let spec = request.parameters.as_ref().map(|parameters| spec_from_wire(parameters, Seed::default()));
    let params = spec.and_then(Result::ok).map(Params::try_new);
    name.is_ok() && params.is_some_and(|params| params.is_ok())
}

fn attach_response(response: &v1::AttachResponse) -> bool {
    let convert = |frame: &v1::ServerFrame| match &frame.frame {
        None => false,
        Some(server_frame::Frame::Answer(answer)) => AnswerData::from_frame(answer, &params()).is_ok(),
        Some(server_frame::Frame::Welcome(welcome)) => WelcomeData::try_from(welcome.as_ref()).is_ok(),
        Some(server_frame::Frame::Refusal(refusal)) => {
            let refused = RpcRefusal::from_frame(refusal);
            RpcRefusal::from_status(&refused.to_status()).is_some()
        }
        Some(server_frame::Frame::Decided(_) | server_frame::Frame::Replaced(_)) => true,
    };
    response.frames.iter().map(convert).fold(true, |all, one| all & one)
}

fn get_response(response: &v1::GetResponse) -> bool {
    let own = response.own.as_ref().is_none_or(|own| MemberState::from_wire(own, &params()).is_ok());
    let parameters = response.instance.as_ref().and_then(|instance| instance.parameters.as_ref());
    own & parameters.is_some_and(|parameters| params_from_wire(parameters).is_ok())
}

fn watch_response(response: &v1::WatchResponse) -> bool {
    match &response.content {
        Some(watch_response::Content::Events(batch)) => {
            batch.events.iter().all(|event| event_from_wire(event).is_ok())
        }
        Some(watch_response::Content::Snapshot(_)) => true,
        None => false,
    }
}

/// Well-formed messages with everything in them, encoded.
fn well_formed() -> Vec<(&'static str, Vec<u8>)> {
    let value = Value::new(b"apple").expect("not empty");
    let instance_id = InstanceId::new(7).to_string();
    let append = Op::Append(value.clone());
    let own = MemberState {
        process: ProcessId::FIRST,
        next: AccessNumber::FIRST.next(),
        waiting: vec![(AccessNumber::FIRST, append.clone())],
        append: Some((Phase::FIRST, AppendAnswer::Success(Position::new(0)))),
        decided: Some(value.clone()),
    };
    let read = ReadAnswer { start: Position::new(0), count: 1, length: 1, sealed: true };
    let entries = [value.to_bytes()];
    let parameters = Some(v1::Parameters::from(&params()));
    let instance = Some(v1::Instance { parameters: parameters.clone(), ..Default::default() });
    let hello = v1::Hello { channel: 1, instance_id: instance_id.clone(), incarnation: 3 };
    let append_of_frame = RawOp::Append(RawValue::new(value.as_bytes()));
    let access = access_frame(1, AccessNumber::FIRST, &append_of_frame);
    let decision = v1::Decision { channel: 1, value: value.to_bytes() };
    let welcome = welcome_frame(1, SessionId::FIRST, &own, &params());
    let read_frame = answer_frame(1, AccessNumber::FIRST, None, &Answer::Read(read), &entries);
    let refusal = RpcRefusal::internal().with_retry_after(Duration::from_millis(1)).to_frame(1, None);
    let request = v1::AttachRequest { frames: vec![hello.into(), access, decision.into()] };
    let response = v1::AttachResponse { frames: vec![welcome.into(), read_frame.into(), refusal.into()] };
    let append = v1::AppendRequest { instance_id, access_number: 1, value: value.to_bytes(), no_wait: true };
    let create = v1::CreateRequest { name: "run".to_owned(), parameters, roster: vec![] };
    let report = ProcessReport {
        decision: Some(value.clone()),
        phase: Some(Phase::FIRST),
        from: vec![value.clone()],
        ended: ProcessEnd::Decided,
        refusal: None,
        unanswered: None,
        proposal: Some(value.clone()),
        reconnections: 1,
    };
    let get = v1::GetResponse { instance, status: None, own: Some((&own).into()) };
    vec![
        ("AppendRequest", append.encode_to_vec()),
        ("AppendResponse", append_response(Some(Phase::FIRST), AppendAnswer::Failed).encode_to_vec()),
        ("ReadResponse", read_response(None, &read, &entries).encode_to_vec()),
        ("ReportRequest", report.to_wire(InstanceId::new(7)).encode_to_vec()),
        ("AttachRequest", request.encode_to_vec()),
        ("AttachResponse", response.encode_to_vec()),
        ("CreateRequest", create.encode_to_vec()),
        ("GetResponse", get.encode_to_vec()),
    ]
}

#[test]
fn each_well_formed_message_converts() {
    for (message, bytes) in well_formed() {
        assert!(convert_as_everything(&bytes).contains(&message), "{message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        convert_as_everything(&bytes);
    }

    #[test]
    fn a_damaged_message_never_panics(which: Index, changes in vec(any::<(Index, u8)>(), 1..6)) {
        let (_, mut bytes) = which.get(&well_formed()).clone();
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        convert_as_everything(&bytes);
    }

    #[test]
    fn a_damaged_event_never_panics(
        recorded in crate::strategies::recorded(),
        changes in vec(any::<(Index, u8)>(), 1..6),
    ) {
        let events = vec![event_to_wire(0, &recorded)];
        let content = Some(watch_response::Content::Events(v1::EventBatch { events }));
        let mut bytes = v1::WatchResponse { content }.encode_to_vec();
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        convert_as_everything(&bytes);
    }
}
