//! What comes over the network.

use prost::Message;
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::types::{ProcessId, Seed};
use stickycas_proto::attach::{DecodedRequest, MAX_FRAMES};
use stickycas_proto::convert::access::{access_from_append, access_from_read, value_from_wire};
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::convert::history::{event_from_wire, event_to_wire};
use stickycas_proto::convert::params::{params_from_wire, spec_from_wire};
use stickycas_proto::v1;

/// The parameters of an instance to which requests are made.
fn params() -> Params {
    Params::try_new(ParamsSpec::new(8, 2, 4)).expect("they are within all bounds")
}

/// Our decoder takes the same messages as the generated one, and gives the same frames.
pub(super) fn attach_request(bytes: &[u8]) {
    let ours = DecodedRequest::decode(bytes);
    let generated = v1::AttachRequest::decode(bytes).map(DecodedRequest::from);
    match (ours, generated) {
        (Ok(ours), Ok(generated)) if generated.0.len() < MAX_FRAMES => assert_eq!(ours, generated),
        (Ok(ours), Ok(_)) => assert_eq!(ours.0.len(), MAX_FRAMES, "the rest is left out"),
        (Err(_), Err(_)) => {}
        // Frames above the limit are not decoded, so what is wrong with them is not seen.
        (Ok(ours), Err(_)) => assert_eq!(ours.0.len(), MAX_FRAMES),
        (Err(error), Ok(_)) => panic!("refused: {error}"),
    }
}

/// A value that is taken is one of the instance.
pub(super) fn unary_request(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let (params, process) = (params(), ProcessId::FIRST);
    match kind % 6 {
        0 => {
            let Ok(request) = v1::AppendRequest::decode(bytes) else { return };
            if let Ok(access) = access_from_append(&request, process, &params) {
                assert_eq!(access.number.get(), request.access_number);
                assert!((1..=params.spec().max_value_bytes as usize).contains(&request.value.len()));
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
            assert_eq!(taken, (1..=params.spec().max_value_bytes as usize).contains(&request.value.len()));
        }
        3 => drop(v1::GetRequest::decode(bytes)),
        4 => drop(v1::ListRequest::decode(bytes)),
        _ => drop(v1::WatchRequest::decode(bytes)),
    }
}

/// Parameters that are taken are told as they were taken.
pub(super) fn parameters(bytes: &[u8]) {
    let Ok(wire) = v1::Parameters::decode(bytes) else { return };
    let Ok(spec) = spec_from_wire(&wire, Seed::default()) else { return };
    // What checks them needs memory for each process; the server bounds how many there may be before.
    if spec.processes > 65_536 {
        return;
    }
    let Ok(params) = Params::try_new(spec) else { return };
    let told = v1::Parameters::from(&params);
    assert_eq!(params_from_wire(&told).expect("the server has told them"), params);
}

/// An event that is taken is the same when it is encoded and decoded again.
pub(super) fn event(bytes: &[u8]) {
    let Ok(wire) = v1::Event::decode(bytes) else { return };
    let Ok((index, recorded)) = event_from_wire(&wire) else { return };
    let again = event_from_wire(&event_to_wire(index, &recorded)).expect("it was taken before");
    assert_eq!(again, (index, recorded));
}

/// What a server answers, which may be another one than ours.
pub(super) fn response(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let params = params();
    match kind % 4 {
        0 => drop(v1::AppendResponse::decode(bytes).map(|it| AnswerData::from_append(&it))),
        1 => drop(v1::ReadResponse::decode(bytes).map(|it| AnswerData::from_read(&it, &params))),
        2 => drop(v1::Answer::decode(bytes).map(|it| AnswerData::from_frame(&it, &params))),
        _ => drop(v1::AttachResponse::decode(bytes)),
    }
}
