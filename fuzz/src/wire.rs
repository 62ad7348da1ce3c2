//! Messages that come over the network.

use bytes::Bytes;
use prost::Message as _;
use stickycas_load::attach_codec::DecodedResponse;
use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::process::RawOp;
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, RawValue, SessionId};
use stickycas_proto::attach::{DecodedRequest, MAX_FRAMES, encode_answer, encode_decided};
use stickycas_proto::convert::access::{
    access_frame, access_from_append, access_from_frame, access_from_read, value_from_wire,
};
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::convert::client_frame::DecodedFrame;
use stickycas_proto::convert::history::{event_from_wire, event_to_wire};
use stickycas_proto::convert::report::ProcessReport;
use stickycas_proto::names::{InstanceId, InstanceRef};
use stickycas_proto::status::{RefusalDetails, RpcRefusal};
use stickycas_proto::v1;
pub(super) use stickycas_server::fuzzing::{create_request, page_token};
use tonic::{Code, Status};

#[path = "../../loadgen/load/tests/generated_frame/mod.rs"]
mod generated_frame;

use generated_frame::generated_frame;

/// The parameters of an instance to which requests are made.
fn params() -> Params {
    Params::try_new(ParamsSpec::new(8, 2, 4)).expect("they are within all bounds")
}

fn is_value(bytes: &[u8]) -> bool {
    (1..=params().spec().max_value_bytes as usize).contains(&bytes.len())
}

/// Our decoder takes the same messages as the generated one, and gives the same frames; and an access that is
/// taken has the number and the value of its frame.
pub(super) fn attach_request(bytes: &[u8]) {
    let ours = DecodedRequest::decode(bytes);
    let generated = v1::AttachRequest::decode(bytes).map(DecodedRequest::from);
    match (&ours, generated) {
        (Ok(ours), Ok(generated)) if generated.0.len() < MAX_FRAMES => assert_eq!(*ours, generated),
        (Ok(ours), Ok(_)) => assert_eq!(ours.0.len(), MAX_FRAMES, "the rest is left out"),
        (Err(_), Err(_)) => {}
        // Frames above the limit are not decoded, so what is wrong with them is not seen.
        (Ok(ours), Err(_)) => assert_eq!(ours.0.len(), MAX_FRAMES),
        (Err(error), Ok(_)) => panic!("refused: {error}"),
    }
    let params = params();
    for frame in ours.into_iter().flat_map(|request| request.0) {
        let DecodedFrame::Access { number, op, .. } = frame else { continue };
        let is_good = number > 0
            && op.as_ref().is_some_and(|op| match op {
                RawOp::Append(value) => is_value(&value.to_bytes()),
                RawOp::Read(_) => true,
            });
        let (number, process) = (AccessNumber::new(number), ProcessId::FIRST);
        let taken = access_from_frame(number, op, process, SessionId::FIRST, &params);
        assert_eq!(taken.is_ok(), is_good);
        if let Ok(access) = taken {
            assert_eq!(Some(access.number), number);
        }
    }
}

/// Accesses, hellos and decisions, alone and together.
pub(super) fn attach_request_seeds() -> Vec<Vec<u8>> {
    let hello = v1::Hello { channel: 3, instance_id: InstanceId::new(7).to_string(), incarnation: 1 };
    let append = access_frame(3, AccessNumber::FIRST, &RawOp::Append(RawValue::new(b"tea")));
    let read = access_frame(300, AccessNumber::FIRST, &RawOp::Read(Position::new(2)));
    let decision = v1::Decision { channel: 3, value: Bytes::from_static(b"tea") };
    let other = v1::Hello { instance_id: "no id".to_owned(), ..hello.clone() };
    let frames: [v1::ClientFrame; 6] =
        [hello.into(), append, read, decision.into(), other.into(), v1::ClientFrame { frame: None }];
    let message = |frames: &[v1::ClientFrame]| v1::AttachRequest { frames: frames.to_vec() }.encode_to_vec();
    frames.chunks(1).map(message).chain([message(&frames)]).collect()
}

/// The load generator's decoder takes the same messages as the generated one, and gives the same frames and
/// answers.
pub(super) fn attach_response(bytes: &[u8]) {
    let ours = DecodedResponse::decode(Bytes::copy_from_slice(bytes));
    let (ours, generated) = match (ours, v1::AttachResponse::decode(bytes)) {
        (Ok(ours), Ok(generated)) => (ours, generated),
        (Err(_), Err(_)) => return,
        (ours, generated) => panic!("{ours:?} in place of {generated:?}"),
    };
    let params = params();
    assert_eq!(ours.frames().len(), generated.frames.len());
    for (ours_frame, generated) in ours.frames().iter().zip(generated.frames) {
        assert_eq!(generated_frame(&ours, ours_frame), generated);
        if let Some(v1::server_frame::Frame::Answer(answer)) = &generated.frame {
            let expected = AnswerData::from_frame(answer, &params).ok();
            assert_eq!(ours.answer(ours_frame, &params).ok(), expected);
        }
    }
}

fn answers() -> [Answer; 5] {
    let read = |start, count, length, sealed| {
        Answer::Read(ReadAnswer { start: Position::new(start), count, length, sealed })
    };
    [
        Answer::Append(AppendAnswer::Success(Position::new(3))),
        Answer::Append(AppendAnswer::Failed),
        Answer::Append(AppendAnswer::LimitReached),
        read(0, 2, 2, false),
        read(2, 0, 2, true),
    ]
}

/// Answers as the server encodes them, and the other frames.
pub(super) fn attach_response_seeds() -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    for (answer, phase) in
        answers().iter().zip([Phase::new(1), Phase::new(300), Phase::new(2), None, Phase::new(9)])
    {
        let values: &[&[u8]] =
            if matches!(answer, Answer::Read(read) if read.count > 0) { &[b"tea", b"milk"] } else { &[] };
        let mut message = Vec::new();
        encode_answer(&mut message, 3, AccessNumber::FIRST, phase, answer, values.iter().copied());
        messages.push(message);
    }
    let mut decided = Vec::new();
    encode_decided(&mut decided, 3);
    let refused = RpcRefusal::new(v1::RefusalReason::NotYourPhase, "wait").to_frame(3, AccessNumber::new(2));
    let others: [v1::ServerFrame; 2] = [refused.into(), v1::ServerFrame { frame: None }];
    let others = others.map(|frame| v1::AttachResponse { frames: vec![frame] }.encode_to_vec());
    messages.extend([decided].into_iter().chain(others));
    let all = messages.concat();
    messages.into_iter().chain([all]).collect()
}

/// A value that is taken is one of the instance; an instance is named by an id or by a name.
pub(super) fn unary_request(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let (params, process) = (params(), ProcessId::FIRST);
    match kind % 6 {
        0 => {
            let Ok(request) = v1::AppendRequest::decode(bytes) else { return };
            if let Ok(access) = access_from_append(&request, process, &params) {
                assert_eq!(access.number.get(), request.access_number);
                assert!(is_value(&request.value));
            }
        }
        1 => {
            let Ok(request) = v1::ReadRequest::decode(bytes) else { return };
            if let Ok(access) = access_from_read(&request, process) {
                assert_eq!((access.number.get(), access.no_wait), (request.access_number, request.no_wait));
            }
        }
        2 => {
            let Ok(request) = v1::DecideRequest::decode(bytes) else { return };
            let taken = value_from_wire("value", &request.value, &params).is_ok();
            assert_eq!(taken, is_value(&request.value));
        }
        3 => {
            use v1::get_request::Instance;
            let Ok(request) = v1::GetRequest::decode(bytes) else { return };
            match (InstanceRef::try_from(&request), request.instance) {
                (Ok(InstanceRef::Id(id)), Some(Instance::InstanceId(text))) => {
                    assert_eq!(id.to_string(), text);
                }
                (Ok(InstanceRef::Name(name)), Some(Instance::Name(text))) => {
                    assert_eq!(name.as_str(), text);
                }
                (Ok(found), asked) => panic!("{found:?} in place of {asked:?}"),
                (Err(_), _) => {}
            }
        }
        4 => drop(v1::ListRequest::decode(bytes)),
        _ => drop(v1::WatchRequest::decode(bytes)),
    }
}

/// Each request as a client makes it.
pub(super) fn unary_request_seeds() -> Vec<Vec<u8>> {
    let (id, value) = (InstanceId::new(7).to_string(), Bytes::from_static(b"tea"));
    let by = |instance| v1::GetRequest { instance: Some(instance) }.encode_to_vec();
    let append = v1::AppendRequest {
        instance_id: id.clone(),
        access_number: 1,
        value: value.clone(),
        ..Default::default()
    };
    let read =
        v1::ReadRequest { instance_id: id.clone(), access_number: 2, no_wait: true, ..Default::default() };
    let decide = v1::DecideRequest { instance_id: id.clone(), value };
    let watch = v1::WatchRequest { instance_id: id.clone(), from_phase: 9, ..Default::default() };
    let list = v1::ListRequest {
        page_size: 3,
        page_token: "0a".repeat(44),
        order: v1::ListOrder::StateAndAge.into(),
        states: vec![v1::State::Running.into()],
        text: "demo".to_owned(),
    };
    let requests = [
        (0, append.encode_to_vec()),
        (1, read.encode_to_vec()),
        (2, decide.encode_to_vec()),
        (3, by(v1::get_request::Instance::InstanceId(id))),
        (3, by(v1::get_request::Instance::Name("round-7".to_owned()))),
        (4, list.encode_to_vec()),
        (5, watch.encode_to_vec()),
    ];
    requests.into_iter().map(|(kind, request)| [vec![kind], request].concat()).collect()
}

/// Requests with the least and with every parameter.
pub(super) fn create_request_seeds() -> Vec<Vec<u8>> {
    let least = v1::Parameters { processes: 3, warp_size: 1, read_size: 2, ..Default::default() };
    let every = v1::Parameters { processes: 3, warp_size: 2, read_size: 3, ..(&params()).into() };
    let priority = v1::Parameters {
        arbiter: v1::Arbiter::Priority.into(),
        priority: vec![3, 1],
        patience_choice: Some(v1::parameters::PatienceChoice::EndlessPatience(v1::EndlessPatience {})),
        ..every.clone()
    };
    let roster: Vec<String> = (1..=3).map(|number| format!("p-{number}")).collect();
    let twice = vec!["p-1".to_owned(); 3];
    let request = |name: &str, parameters: &v1::Parameters, roster: &[String]| {
        let (name, roster) = (name.to_owned(), roster.to_vec());
        v1::CreateRequest { name, parameters: Some(parameters.clone()), roster }.encode_to_vec()
    };
    vec![
        request("", &least, &roster),
        request("round-7", &every, &roster),
        request("", &priority, &roster),
        request("a b", &least, &roster),
        request("", &least, &twice),
        request("", &least, &roster[..2]),
    ]
}

/// Tokens of other servers, texts, and changes of a good token.
pub(super) fn page_token_seeds() -> Vec<Vec<u8>> {
    let other = "0123456789abcdef".repeat(6)[..88].to_owned();
    let texts = [String::new(), other.to_uppercase(), other, "+f".repeat(44), "\u{e9}".repeat(44)];
    let texts = texts.into_iter().map(|text| [b"\0", text.as_bytes()].concat());
    let changes: [&[u8]; 4] = [&[1], &[1, 0, 1], &[1, 87, 255], &[1, 12, 224, 13, 224]];
    texts.chain(changes.map(<[u8]>::to_vec)).collect()
}

/// An event that is taken is the same when it is encoded and decoded again.
pub(super) fn event(bytes: &[u8]) {
    let Ok(wire) = v1::Event::decode(bytes) else { return };
    let Ok((index, recorded)) = event_from_wire(&wire) else { return };
    let again = event_from_wire(&event_to_wire(index, &recorded)).expect("it was taken before");
    assert_eq!(again, (index, recorded));
}

/// The answer of a server, which may be another one than ours. A read that is taken has as many entries as it
/// says, and they are within the list.
pub(super) fn response(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let params = params();
    let answer = match kind % 4 {
        0 => v1::AppendResponse::decode(bytes).ok().and_then(|it| AnswerData::from_append(&it).ok()),
        1 => v1::ReadResponse::decode(bytes).ok().and_then(|it| AnswerData::from_read(&it, &params).ok()),
        2 => {
            let frame = v1::Answer::decode(bytes).ok();
            frame.and_then(|it| AnswerData::from_frame(&it, &params).ok()).map(|(_, answer)| answer)
        }
        _ => return drop(v1::GetResponse::decode(bytes)),
    };
    let Some(AnswerData { phase, answer, entries }) = answer else { return };
    match answer {
        Answer::Append(_) => assert!(phase.is_some() && entries.is_empty()),
        Answer::Read(read) => {
            assert_eq!(read.count as usize, entries.len());
            assert!(read.count <= params.read_size());
            assert!(read.count == 0 || read.start.get() + read.count <= read.length);
        }
    }
}

/// Each response as our server makes it.
pub(super) fn response_seeds() -> Vec<Vec<u8>> {
    let values = vec![Bytes::from_static(b"tea"), Bytes::from_static(b"milk")];
    let read = v1::ReadResult { start: 1, values, length: 3, sealed: true };
    let append: v1::AppendResult = AppendAnswer::Success(Position::new(3)).into();
    let frame = |result| v1::Answer { channel: 3, number: 1, phase: 2, result: Some(result) }.encode_to_vec();
    let responses = [
        (0, v1::AppendResponse { phase: 2, result: Some(append) }.encode_to_vec()),
        (1, v1::ReadResponse { phase: 2, result: Some(read.clone()) }.encode_to_vec()),
        (1, v1::ReadResponse { phase: 0, result: Some(read.clone()) }.encode_to_vec()),
        (2, frame(v1::answer::Result::Append(append))),
        (2, frame(v1::answer::Result::Read(read))),
        (
            3,
            v1::GetResponse { instance: Some(v1::Instance::default()), ..Default::default() }.encode_to_vec(),
        ),
    ];
    responses.into_iter().map(|(kind, response)| [vec![kind], response].concat()).collect()
}

/// A refusal that is taken is the same when it is told and taken again. The first byte says whether the
/// others are the details of a status or a frame.
pub(super) fn refusal(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    if kind % 2 == 0 {
        let status =
            Status::with_details(Code::from(i32::from(kind / 2)), "why", Bytes::copy_from_slice(bytes));
        let Some(taken) = RpcRefusal::from_status(&status) else { return };
        assert_eq!(RpcRefusal::from_status(&taken.to_status()), Some(taken));
    } else {
        let Ok(frame) = v1::Refusal::decode(bytes) else { return };
        let taken = RpcRefusal::from_frame(&frame);
        let number = AccessNumber::new(frame.access_number);
        assert_eq!(RpcRefusal::from_frame(&taken.to_frame(frame.channel, number)), taken);
    }
}

/// Every reason, with details and without.
pub(super) fn refusal_seeds() -> Vec<Vec<u8>> {
    let details = RefusalDetails {
        expected_access_number: AccessNumber::new(7),
        current_phase: Phase::new(1),
        next_phase: Phase::new(2),
        oldest_phase: Phase::new(u64::MAX),
        resume_phase: Phase::new(4),
    };
    let mut seeds = Vec::new();
    for reason in v1::RefusalReason::all() {
        let refusal = RpcRefusal::new(reason, "why").with_details(details);
        seeds.push([&[0], refusal.to_status().details()].concat());
        seeds.push([vec![1], refusal.to_frame(3, AccessNumber::new(7)).encode_to_vec()].concat());
    }
    seeds
}

/// A report that is taken is the same when it is told and taken again.
pub(super) fn report(bytes: &[u8]) {
    let Ok(wire) = v1::ReportRequest::decode(bytes) else { return };
    let params = params();
    let Ok(report) = ProcessReport::from_wire(&wire, &params) else { return };
    let again = report.to_wire(InstanceId::new(7));
    assert_eq!(ProcessReport::from_wire(&again, &params), Ok(report));
}

/// Reports of every end.
pub(super) fn report_seeds() -> Vec<Vec<u8>> {
    let value = || Some(Bytes::from_static(b"tea"));
    let decided = v1::ReportRequest {
        instance_id: InstanceId::new(7).to_string(),
        end: v1::ReportedEnd::Decided.into(),
        decision: value(),
        phase: 4,
        entries: vec![Bytes::from_static(b"tea"), Bytes::from_static(b"milk")],
        proposal: value(),
        reconnections: 1,
        ..Default::default()
    };
    let failed = v1::ReportRequest {
        end: v1::ReportedEnd::Failed.into(),
        failure: "no such instance".to_owned(),
        refusal: v1::RefusalReason::InstanceUnknown.into(),
        unanswered: Some(3),
        ..Default::default()
    };
    let nothing = v1::ReportRequest { end: v1::ReportedEnd::NothingToDecide.into(), ..decided.clone() };
    [decided, failed, nothing].iter().map(v1::ReportRequest::encode_to_vec).collect()
}
