//! gRPC framing of the unary calls Append, Read and Decide, by hand.
//!
//! It replaces tonic's generated server for these calls. tonic gives every call a decoder, an encoder, a buffer for
//! each and a box around each, and a call that waits for its phase keeps most of them: 1,888 bytes, where a call here
//! keeps less than 800. A call here is one message in and one message out. A response is encoded while it is sent, so
//! one that no client reads is never more than a chunk.
//!
//! `differential` compares both byte for byte. What differs: the texts of some errors; a call that is reset before
//! its end is not executed. Neither sees a second message: the body of a request refuses it.
//! Attach, and methods that do not exist, are served by tonic.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use prost::Message;
use stickycas_model::access;
use stickycas_proto::attach::StickyCasServiceServer;
use stickycas_proto::read_encoder::ReadResponseEncoder;
use stickycas_proto::status::RpcRefusal;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;

use super::Service;
use crate::call_layer::Caller;
use crate::instances::CompletedAccess;
use crate::limits::Limits;
use crate::transport::{oversized, undecodable};

/// The whole of `StickyCasService`. See the module.
#[derive(Clone, Debug)]
pub(crate) struct UnaryEndpoint {
    service: Service,
    /// Serves Attach, and refuses methods that do not exist.
    generated: StickyCasServiceServer<Service>,
    /// Bytes that the message of a call may have.
    limit: usize,
}

impl UnaryEndpoint {
    /// The service of the list: append, read, decide, attach.
    pub(crate) fn new(service: Service, limits: &Limits) -> Self {
        let generated = StickyCasServiceServer::new(service.clone());
        let generated = generated.max_decoding_message_size(limits.message_bytes);
        let limit = limits.call_bytes.saturating_sub(PREFIX).min(limits.message_bytes);
        Self { service, generated, limit }
    }
}

impl NamedService for UnaryEndpoint {
    const NAME: &'static str = StickyCasServiceServer::<Service>::NAME;
}

impl<B> tower::Service<Request<B>> for UnaryEndpoint
where
    B: http_body::Body<Data = Bytes, Error = Status> + Send + Unpin + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (service, limit) = (self.service.clone(), self.limit);
        // The request is dropped before the call waits, and so is the box in which it is read.
        match request.uri().path() {
            "/stickycas.v1.StickyCasService/Append" => {
                let request = Box::pin(read_request(request, service.clone(), limit));
                respond(async move {
                    let (caller, message) = request.await?;
                    let answer = service.append(&caller, &message);
                    drop((caller, message));
                    Ok(ResponseBody::of_message(&answer.await?))
                })
            }
            "/stickycas.v1.StickyCasService/Read" => {
                let request = Box::pin(read_request(request, service.clone(), limit));
                respond(async move {
                    let (caller, message) = request.await?;
                    let answer = service.read(&caller, &message);
                    drop((caller, message));
                    ResponseBody::of_read(answer.await?)
                })
            }
            "/stickycas.v1.StickyCasService/Decide" => {
                let request = Box::pin(read_request(request, service.clone(), limit));
                respond(async move {
                    let (caller, message) = request.await?;
                    let answer = service.decide(&caller, &message);
                    drop((caller, message));
                    Ok(ResponseBody::of_message(&answer.await?))
                })
            }
            _ => self.generated.call(request),
        }
    }
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

fn respond(body: impl Future<Output = Result<ResponseBody, Status>> + Send + 'static) -> ResponseFuture {
    Box::pin(async move { Ok(response(body.await)) })
}

fn response(body: Result<ResponseBody, Status>) -> Response<Body> {
    match body {
        Ok(body) => {
            let mut response = Response::new(Body::new(body));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            response
        }
        Err(status) => status.into_http(),
    }
}

/// The caller and the message of a call.
async fn read_request<T, B>(
    request: Request<B>,
    service: Service,
    limit: usize,
) -> Result<(Caller, T), Status>
where
    T: Message + Default,
    B: http_body::Body<Data = Bytes, Error = Status> + Unpin,
{
    let (parts, body) = request.into_parts();
    check_encoding(&parts.headers)?;
    let caller = service.caller(&parts.extensions)?;
    drop(parts);
    let message = read_message(body, limit).await?;
    // Draining may have begun since then, and a call that was not accepted before is not accepted any more.
    service.check_serving()?;
    let message = T::decode(message).map_err(|error| undecodable(error.to_string()))?;
    Ok((caller, message))
}

/// Fails if messages may be compressed, which the server does not support.
pub(super) fn check_encoding(headers: &HeaderMap) -> Result<(), Status> {
    const IDENTITY: &str = "identity";
    let Some(encoding) = headers.get("grpc-encoding").filter(|encoding| *encoding != IDENTITY) else {
        return Ok(());
    };
    let encoding = String::from_utf8_lossy(encoding.as_bytes());
    let mut status = Status::unimplemented(format!(
        "messages compressed with {encoding:?} are not read here: send plain ones"
    ));
    let accepted = tonic::metadata::MetadataValue::from_static(IDENTITY);
    status.metadata_mut().insert("grpc-accept-encoding", accepted);
    Err(status)
}

/// Bytes before each message: the compressed flag and the length (the gRPC protocol over HTTP/2).
pub(super) const PREFIX: usize = 5;

/// The bytes of the first message of a body, which is mostly one chunk and all of the body.
pub(super) async fn read_message<B>(mut body: B, limit: usize) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes, Error = Status> + Unpin,
{
    let mut first = Bytes::new();
    // All chunks, once there is more than one.
    let mut all = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(chunk) = frame?.into_data() else { continue };
        if first.is_empty() && all.is_empty() {
            first = chunk;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&chunk);
        }
        // A message that will be refused is not read to its end.
        message_length(if all.is_empty() { &first } else { &all }, limit)?;
    }
    let mut bytes = if all.is_empty() { first } else { all.freeze() };
    match message_length(&bytes, limit)? {
        Some(length) if bytes.len() >= PREFIX + length => Ok(bytes.split_off(PREFIX).split_to(length)),
        Some(_) | None => Err(undecodable("the message broke off")),
    }
}

/// The length of the message that begins with these bytes. `None`: there are too few of them.
fn message_length(mut bytes: &[u8], limit: usize) -> Result<Option<usize>, Status> {
    let Some(&compressed) = bytes.first() else { return Ok(None) };
    if compressed != 0 {
        return Err(undecodable("the message says that it is compressed, and its headers do not say how"));
    }
    if bytes.len() < PREFIX {
        return Ok(None);
    }
    bytes.advance(1);
    let length = bytes.get_u32() as usize;
    if length > limit {
        return Err(oversized(format!("the message has {length} bytes: at most {limit} may be")));
    }
    Ok(Some(length))
}

/// The body of a successful response: its message, and the trailer with status 0.
struct ResponseBody {
    /// The next chunk; empty if it is still to be encoded.
    chunk: Bytes,
    /// The values of a read that are still to be encoded.
    remaining: Option<RemainingValues>,
    trailers_sent: bool,
}

/// Values of a read that are still to be encoded, and the end of the message.
struct RemainingValues {
    encoder: ReadResponseEncoder,
    access: CompletedAccess,
    /// How many values are encoded.
    encoded: u32,
}

/// A chunk ends with the value that makes it as long as this.
const CHUNK: usize = 16 * 1024;

impl ResponseBody {
    fn of_message(message: &impl Message) -> Self {
        let mut chunk = prefix(message.encoded_len());
        message.encode_raw(&mut chunk);
        Self { chunk: chunk.into(), remaining: None, trailers_sent: false }
    }

    /// The response of a read, whose values are encoded chunk by chunk.
    fn of_read(access: CompletedAccess) -> Result<Self, Status> {
        let access::Answer::Read(read) = access.answer else { return Err(RpcRefusal::internal().into()) };
        let encoder = ReadResponseEncoder::new(access.phase, read, access.values());
        let mut chunk = prefix(encoder.encoded_len());
        encoder.begin(&mut chunk);
        let remaining = RemainingValues { encoder, access, encoded: 0 }.encode(&mut chunk);
        Ok(Self { chunk: chunk.into(), remaining, trailers_sent: false })
    }
}

/// The prefix of a message of this length, in a buffer with room for a chunk.
fn prefix(length: usize) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(PREFIX + length.min(CHUNK));
    chunk.put_u8(0);
    // No response is longer: see `Limits::read_bytes`.
    chunk.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    chunk
}

impl RemainingValues {
    /// Adds as many values as fit into a chunk, and returns the rest.
    fn encode(mut self, chunk: &mut Vec<u8>) -> Option<Self> {
        let mut values = self.access.values_after(self.encoded);
        while chunk.len() < CHUNK {
            let Some(value) = values.next() else {
                self.encoder.end(chunk);
                return None;
            };
            ReadResponseEncoder::value(chunk, value);
            self.encoded += 1;
        }
        drop(values);
        Some(self)
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.chunk.is_empty()
            && let Some(remaining) = self.remaining.take()
        {
            let mut chunk = Vec::with_capacity(CHUNK);
            self.remaining = remaining.encode(&mut chunk);
            self.chunk = chunk.into();
        }
        let frame = if !self.chunk.is_empty() {
            Some(Frame::data(std::mem::take(&mut self.chunk)))
        } else if self.trailers_sent {
            None
        } else {
            self.trailers_sent = true;
            let mut trailers = HeaderMap::with_capacity(1);
            trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
            Some(Frame::trailers(trailers))
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.trailers_sent
    }
}

#[cfg(any(test, feature = "fuzzing"))]
mod chunks;
#[cfg(test)]
mod differential;

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use chunks::Chunks;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stickycas_model::access::{AppendAnswer, ReadAnswer};
    use stickycas_model::machine::Entry;
    use stickycas_model::sticky_cas::StickyCas;
    use stickycas_model::types::{Phase, Position, ProcessId, Value};
    use stickycas_proto::convert::answer::append_response;
    use stickycas_proto::v1;
    use tokio_util::sync::CancellationToken;
    use tonic::Code;

    use super::*;
    use crate::commit_log::{CommitLog, MemoryLog};
    use crate::instances::Instances;
    use crate::quota::Principals;
    use crate::transport::{LimitedBody, RequestLimits};

    async fn read_in_chunks(bytes: &[u8], chunk: usize) -> Result<Bytes, Code> {
        let chunks = bytes.chunks(chunk).map(Bytes::copy_from_slice).collect();
        read_message(Chunks(chunks), 8).await.map_err(|status| status.code())
    }

    #[tokio::test]
    async fn a_message_may_come_in_chunks_of_any_size() {
        for chunk in 1..=12 {
            assert_eq!(
                read_in_chunks(b"\0\0\0\0\x03abc", chunk).await,
                Ok(Bytes::from_static(b"abc")),
                "{chunk}"
            );
            assert_eq!(read_in_chunks(b"\0\0\0\0\0", chunk).await, Ok(Bytes::new()), "{chunk}");
            let followed = read_in_chunks(b"\0\0\0\0\x03abc\x01def", chunk).await;
            assert_eq!(followed, Ok(Bytes::from_static(b"abc")), "{chunk}");
        }
        let empty_ones = ["", "\0\0", "", "\0\0\x03a", "", "bc", ""];
        let chunks = Chunks(empty_ones.iter().map(|chunk| Bytes::from_static(chunk.as_bytes())).collect());
        assert_eq!(read_message(chunks, 8).await.unwrap(), "abc");
    }

    #[tokio::test]
    async fn bytes_that_are_no_message_are_refused() {
        let bodies: [(&[u8], Code); 5] = [
            (b"", Code::Internal),
            (b"\0\0\0\0", Code::Internal),
            (b"\0\0\0\0\x03ab", Code::Internal),
            (b"\x01\0\0\0\x03abc", Code::Internal),
            // Before the message has come.
            (b"\0\0\0\0\x09", Code::OutOfRange),
        ];
        for (body, code) in bodies {
            for chunk in 1..=8 {
                assert_eq!(read_in_chunks(body, chunk).await, Err(code), "{body:?} in chunks of {chunk}");
            }
        }
    }

    /// The chunks of a body, and its trailers.
    async fn collect(mut body: ResponseBody) -> (Vec<Bytes>, HeaderMap) {
        let mut chunks = Vec::new();
        loop {
            let next = poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut body), cx)).await;
            match next.unwrap().unwrap().into_data() {
                Ok(chunk) => chunks.push(chunk),
                Err(frame) => {
                    let after = poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut body), cx)).await;
                    assert!(after.is_none());
                    return (chunks, frame.into_trailers().unwrap());
                }
            }
        }
    }

    #[tokio::test]
    async fn a_response_is_its_message_and_status_0() {
        let message = append_response(Some(Phase::FIRST), AppendAnswer::Success(Position::new(0)));
        let (chunks, trailers) = collect(ResponseBody::of_message(&message)).await;
        assert_eq!(read_message(Chunks(chunks.into()), 64).await.unwrap(), message.encode_to_vec());
        assert_eq!(trailers.get("grpc-status").unwrap(), "0");
    }

    #[tokio::test]
    async fn a_long_read_is_encoded_in_chunks() {
        const VALUE: usize = 1_000;
        for count in [0, 1, 16, 17, 40_u8] {
            let values: Vec<Value> = (0..count).map(|value| Value::new(&[value; VALUE]).unwrap()).collect();
            let list = StickyCas::with_limit(40);
            for value in &values {
                let process = ProcessId::from_index(0).unwrap();
                list.turn().append(Entry { value: value.clone(), process, phase: Phase::FIRST });
            }
            let read = ReadAnswer {
                start: Position::new(0),
                count: count.into(),
                length: count.into(),
                sealed: count == 40,
            };
            let access =
                CompletedAccess::new(Some(Phase::FIRST), access::Answer::Read(read), &Arc::new(list));
            let values = values.iter().map(Value::to_bytes).collect();
            let result = v1::ReadResult { start: 0, values, length: read.length, sealed: read.sealed };
            let expected = v1::ReadResponse { phase: 1, result: Some(result) };
            let (chunks, trailers) = collect(ResponseBody::of_read(access).unwrap()).await;
            assert!(chunks.iter().all(|chunk| chunk.len() < CHUNK + 2 * VALUE));
            assert_eq!(chunks.len(), 1 + usize::from(count) * VALUE / CHUNK, "{count}");
            assert_eq!(read_message(Chunks(chunks.into()), 1 << 20).await.unwrap(), expected.encode_to_vec());
            assert_eq!(trailers.get("grpc-status").unwrap(), "0");
        }
    }

    /// tonic's call takes 1,888 bytes, beside the boxes of its body, its decoder and its handler.
    #[tokio::test]
    async fn a_waiting_call_keeps_little_memory() {
        let limits = Limits::default();
        let principals = Principals::new(&limits);
        let account = principals.anonymous().clone();
        let timeout = limits.request_timeout;
        let request_limits =
            RequestLimits { bytes: 1, message_bytes: 1, timeout, may_pause: false, is_single: true };
        let log: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
        let instances = Instances::new(limits.clone(), &log);
        let service = Service::new(instances, limits.clone(), CancellationToken::new(), principals, None);
        service.set_recovered();
        let mut calls = UnaryEndpoint::new(service, &limits);
        for method in ["Append", "Read", "Decide"] {
            let uri = format!("/stickycas.v1.StickyCasService/{method}");
            let request = Request::builder()
                .uri(uri)
                .body(LimitedBody::new(
                    Body::empty(),
                    Arc::default(),
                    request_limits,
                    account.clone(),
                    crate::gate::Gates::NONE,
                ))
                .unwrap();
            let call = tower::Service::call(&mut calls, request);
            assert!(size_of_val(&*call) <= 800, "{method}: {}", size_of_val(&*call));
        }
    }

    #[test]
    fn only_uncompressed_messages_are_read() {
        let with = |encoding: &'static str| {
            HeaderMap::from_iter([("grpc-encoding".parse().unwrap(), HeaderValue::from_static(encoding))])
        };
        assert!(check_encoding(&HeaderMap::new()).is_ok());
        assert!(check_encoding(&with("identity")).is_ok());
        assert_eq!(check_encoding(&with("gzip")).unwrap_err().code(), Code::Unimplemented);
    }
}
