//! The same calls by the framing of this module and by tonic's generated server give the same bytes: headers, message
//! and trailers, through the same call layer.
//!
//! The texts of some errors differ, since each side has its own: there the message is left out of the comparison.
//! Both sides work on one server, and each access is made twice: the second time it is a repetition, which gets the
//! first answer (F8b).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use prost::Message;
use stickycas_model::access::Answer;
use stickycas_proto::principal::PRINCIPAL_KEY;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1;
use stickycas_proto::v1::sticky_cas_service_server::{StickyCasService, StickyCasServiceServer};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Status, Streaming};
use tower::Layer as _;

use crate::auth::{Authenticator, Roles};
use crate::call_layer::CallLayer;
use crate::commit_log::{CommitLog, LogState, Logs, MemoryLog};
use crate::config::Config;
use crate::gate::Gates;
use crate::instances::Instances;
use crate::limits::Limits;
use crate::quota::Principals;
use crate::service::{Service, UnaryEndpoint};

/// The handlers of the unary calls behind tonic's generated server.
#[derive(Clone)]
struct Generated(Service);

#[tonic::async_trait]
impl StickyCasService for Generated {
    type AttachStream = tokio_stream::Pending<Result<v1::AttachResponse, Status>>;

    async fn append(
        &self,
        request: tonic::Request<v1::AppendRequest>,
    ) -> Result<tonic::Response<v1::AppendResponse>, Status> {
        let caller = self.0.caller(request.extensions())?;
        Ok(tonic::Response::new(self.0.append(&caller, request.get_ref()).await?))
    }

    async fn read(
        &self,
        request: tonic::Request<v1::ReadRequest>,
    ) -> Result<tonic::Response<v1::ReadResponse>, Status> {
        let caller = self.0.caller(request.extensions())?;
        let access = self.0.read(&caller, request.get_ref()).await?;
        let Answer::Read(read) = access.answer else { return Err(RpcRefusal::internal().into()) };
        let values = access.values().map(Bytes::copy_from_slice).collect();
        let (start, length, sealed) = (read.start.get(), read.length, read.sealed);
        let result = Some(v1::ReadResult { start, values, length, sealed });
        let phase = access.phase.map_or(0, stickycas_model::types::Phase::get);
        Ok(tonic::Response::new(v1::ReadResponse { phase, result }))
    }

    async fn decide(
        &self,
        request: tonic::Request<v1::DecideRequest>,
    ) -> Result<tonic::Response<v1::DecideResponse>, Status> {
        let caller = self.0.caller(request.extensions())?;
        Ok(tonic::Response::new(self.0.decide(&caller, request.get_ref()).await?))
    }

    async fn attach(
        &self,
        _: tonic::Request<Streaming<v1::AttachRequest>>,
    ) -> Result<tonic::Response<Self::AttachStream>, Status> {
        Err(Status::unimplemented("not compared"))
    }
}

/// One server, reached in both ways.
struct Fixture {
    service: Service,
    layer: CallLayer,
    limits: Limits,
}

/// A response as it goes to the client: headers, data, trailers.
#[derive(Debug, PartialEq)]
struct Sent {
    headers: HeaderMap,
    data: Bytes,
    trailers: Option<HeaderMap>,
}

impl Sent {
    fn code(&self) -> Code {
        let headers = self.trailers.as_ref().unwrap_or(&self.headers);
        Status::from_header_map(headers).expect("a status").code()
    }

    /// The same without the text of the error. The text stands twice: as a header, and with the reason in the
    /// details.
    fn without_text(mut self) -> Self {
        let details = self.headers.remove("grpc-status-details-bin");
        let reasons = ["MALFORMED", "stickycas.v1"].map(str::as_bytes);
        if let Some(details) = details {
            let details = tonic::metadata::MetadataMap::from_headers(HeaderMap::from_iter([(
                http::HeaderName::from_static("details-bin"),
                details,
            )]));
            let details = details.get_bin("details-bin").unwrap().to_bytes().unwrap();
            assert!(reasons.iter().all(|reason| details.windows(reason.len()).any(|bytes| bytes == *reason)));
        }
        self.headers.remove("grpc-message").expect("an error has a text");
        self
    }
}

impl Fixture {
    fn new() -> Self {
        let mut config = Config::insecure(["coordinator".to_owned()]);
        config.limits.call_bytes = 100_000;
        let limits = config.limits.clone();
        let principals = Principals::new(&limits);
        let layer = {
            let roles = Roles::of_settings(&config);
            let logs = Arc::new(Logs::new(Arc::<LogState>::default()));
            CallLayer::new(Authenticator::Insecure(roles), &limits, principals.clone(), Gates::new(logs))
        };
        let log: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
        let instances = Instances::new(limits.clone(), &log);
        let service = Service::new(instances, limits.clone(), CancellationToken::new(), principals, None);
        service.set_recovered();
        Self { service, layer, limits }
    }

    /// An instance of one process, `p1`, whose list holds more than one chunk; its id.
    async fn instance(&self) -> String {
        let parameters = v1::Parameters {
            processes: 1,
            warp_size: 1,
            read_size: 1,
            max_value_bytes: 65_536,
            append_window: v1::AppendWindow::FirstAccess.into(),
            ..v1::Parameters::default()
        };
        let request = v1::CreateRequest {
            name: String::new(),
            parameters: Some(parameters),
            roster: vec!["p1".to_owned()],
        };
        let body = full(&framed(&request));
        let create =
            request_of("/stickycas.v1.InstanceService/Create", &[(PRINCIPAL_KEY, "coordinator")], body);
        let sent = send(self.layer.layer(self.service.instances()), create).await;
        let response = v1::CreateResponse::decode(sent.data.slice(super::PREFIX..)).unwrap();
        response.instance.unwrap().instance_id
    }

    /// The response to the request by this module, and by tonic.
    async fn both(&self, method: &str, headers: Headers<'_>, chunks: &[&[u8]]) -> [Sent; 2] {
        let path = format!("/stickycas.v1.StickyCasService/{method}");
        let ours = self.layer.layer(UnaryEndpoint::new(self.service.clone(), &self.limits));
        let generated = StickyCasServiceServer::new(Generated(self.service.clone()));
        let generated =
            self.layer.layer(generated.max_decoding_message_size(self.limits.call_bytes - super::PREFIX));
        let request = || request_of(&path, headers, body(chunks));
        [send(ours, request()).await, send(generated, request()).await]
    }
}

/// A body of these frames that knows its end, as that of hyper does.
struct Frames(VecDeque<Frame<Bytes>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

/// A body of these chunks, with trailers.
fn body(chunks: &[&[u8]]) -> Body {
    let data = chunks.iter().map(|chunk| Frame::data(Bytes::copy_from_slice(chunk)));
    Body::new(Frames(data.chain([Frame::trailers(HeaderMap::new())]).collect()))
}

fn full(bytes: &[u8]) -> Body {
    body(&[bytes])
}

fn framed(message: &impl Message) -> Vec<u8> {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut framed).unwrap();
    framed.to_vec()
}

fn request_of(path: &str, headers: Headers<'_>, body: Body) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
    headers.iter().fold(request, |request, (key, value)| request.header(*key, *value)).body(body).unwrap()
}

async fn send<S>(mut service: S, request: Request<Body>) -> Sent
where
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let (parts, body) = service.call(request).await.unwrap().into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    Sent { headers: parts.headers, data: collected.to_bytes(), trailers }
}

fn append(id: &str, access_number: u64, value: &[u8]) -> Vec<u8> {
    let value = Bytes::copy_from_slice(value);
    framed(&v1::AppendRequest { instance_id: id.to_owned(), access_number, value, no_wait: false })
}

fn read(id: &str, access_number: u64) -> Vec<u8> {
    framed(&v1::ReadRequest { instance_id: id.to_owned(), access_number, start: 0, no_wait: false })
}

fn decide(id: &str, value: &[u8]) -> Vec<u8> {
    let value = Bytes::copy_from_slice(value);
    framed(&v1::DecideRequest { instance_id: id.to_owned(), value })
}

/// Names and values.
type Headers<'a> = &'a [(&'a str, &'a str)];

const P1: (&str, &str) = (PRINCIPAL_KEY, "p1");

#[tokio::test]
async fn successes_are_the_same_bytes() {
    let fixture = Fixture::new();
    let id = fixture.instance().await;
    // One value that alone is longer than a chunk.
    let value = [7; 3 * super::CHUNK];
    let append = append(&id, 1, &value);
    let (first, rest) = append.split_at(3);
    let (second, third) = rest.split_at(20_000);
    let calls: [(&str, &[&[u8]], usize); 5] = [
        ("Append", &[first, second, third], 0),
        ("Append", &[&append], 0),
        ("Read", &[&read(&id, 2)], value.len()),
        ("Read", &[b"", &read(&id, 3), b""], value.len()),
        ("Decide", &[&decide(&id, &value)], 0),
    ];
    for (method, chunks, length) in calls {
        let [ours, generated] = fixture.both(method, &[P1, ("grpc-encoding", "identity")], chunks).await;
        assert_eq!(ours.code(), Code::Ok, "{method}: {ours:?}");
        assert!(ours.data.len() >= super::PREFIX + length, "{method}");
        assert_eq!(ours, generated, "{method}");
    }
}

#[tokio::test]
async fn refusals_are_the_same_bytes() {
    let fixture = Fixture::new();
    let id = fixture.instance().await;
    let unknown = "0".repeat(32);
    let twice = append(&id, 1, b"a").repeat(2);
    let calls: [(&str, Headers<'_>, Vec<u8>, Code); 10] = [
        ("Append", &[], append(&id, 1, b"a"), Code::Unauthenticated),
        ("Append", &[(PRINCIPAL_KEY, "stranger")], append(&id, 1, b"a"), Code::PermissionDenied),
        ("Append", &[P1], append(&unknown, 1, b"a"), Code::NotFound),
        ("Append", &[P1], append("no id", 1, b"a"), Code::InvalidArgument),
        ("Append", &[P1], append(&id, 1, b""), Code::InvalidArgument),
        ("Append", &[P1], append(&id, 7, b"a"), Code::InvalidArgument),
        ("Read", &[P1], read(&id, 0), Code::InvalidArgument),
        ("Decide", &[P1], decide(&id, b""), Code::InvalidArgument),
        ("Append", &[P1], twice, Code::Unimplemented),
        ("Remove", &[P1], decide(&id, b"a"), Code::Unimplemented),
    ];
    for (method, headers, message, code) in calls {
        let [ours, generated] = fixture.both(method, headers, &[&message]).await;
        assert_eq!(ours.code(), code, "{method}: {ours:?}");
        assert_eq!(ours, generated, "{method}: {code:?}");
    }
}

#[tokio::test]
async fn undecodable_fields_are_refused_with_the_same_bytes() {
    let fixture = Fixture::new();
    // A field that breaks off, a wire type that does not exist, a field of the wrong type.
    let messages: [&[u8]; 3] = [&[0, 0, 0, 0, 2, 0x0a, 9], &[0, 0, 0, 0, 1, 0x0f], &[0, 0, 0, 0, 2, 0x08, 1]];
    for method in ["Append", "Read", "Decide"] {
        for message in messages {
            let [ours, generated] = fixture.both(method, &[P1], &[message]).await;
            assert_eq!(ours.code(), Code::InvalidArgument, "{method} of {message:?}");
            assert_eq!(ours, generated, "{method} of {message:?}");
        }
    }
}

#[tokio::test]
async fn refused_frames_differ_in_their_text_alone() {
    let fixture = Fixture::new();
    let bodies: [&[u8]; 7] = [
        b"",
        b"\0\0",
        b"\0\0\0\0\x09abc",
        // An invalid compressed flag, and one that no header explains.
        b"\x07\0\0\0\0",
        b"\x01\0\0\0\x01a",
        // Longer than a message may be, and than a call may be.
        b"\0\x7f\xff\xff\xff",
        &[&b"\0\0\x01\x86\x9b"[..], &[0; 99_995]].concat(),
    ];
    for method in ["Append", "Read", "Decide"] {
        for body in bodies {
            let [ours, generated] = fixture.both(method, &[P1], &[body]).await;
            let what = format!("{method} of {:?}", &body[..body.len().min(9)]);
            assert_eq!(ours.code(), Code::InvalidArgument, "{what}");
            assert_eq!(ours.without_text(), generated.without_text(), "{what}");
        }
    }
}

#[tokio::test]
async fn compressed_calls_differ_in_their_text_alone() {
    let fixture = Fixture::new();
    let id = fixture.instance().await;
    let [ours, generated] =
        fixture.both("Append", &[P1, ("grpc-encoding", "gzip")], &[&append(&id, 1, b"a")]).await;
    assert_eq!(ours.code(), Code::Unimplemented);
    assert_eq!(ours.headers["grpc-accept-encoding"], "identity");
    assert_eq!(ours.without_text(), generated.without_text());
}
