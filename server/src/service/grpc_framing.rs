//! `StickyCasService` as it is reached over HTTP/2: its calls by hand, its stream by tonic.
//!
//! tonic gives every call a decoder, an encoder, a buffer for each and a box around each, and a call that waits for its
//! phase would keep most of them. A call of ours is one message in and one message out, so it keeps where its answer will
//! come from and little else. An answer is written as it is taken: one that nobody takes is never more than a piece.
//! On the wire nothing differs, but that a call which is reset before its end is not taken.

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
    /// Who serves Attach, and refuses methods that there are not.
    others: StickyCasServiceServer<Service>,
    /// Bytes that the message of a call may have.
    limit: usize,
}

impl UnaryEndpoint {
    pub(super) fn new(service: Service, limits: &Limits) -> Self {
        let others = StickyCasServiceServer::new(service.clone());
        let others = others.max_decoding_message_size(limits.message_bytes);
        Self { service, others, limit: limits.call_bytes.saturating_sub(PREFIX).min(limits.message_bytes) }
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
    type Future = Responding;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (service, limit) = (self.service.clone(), self.limit);
        // What was asked for is let go of before the answer is waited for: with the box in which it is read.
        match request.uri().path() {
            "/stickycas.v1.StickyCasService/Append" => {
                let asked = Box::pin(read(request, service.clone(), limit));
                answer(async move {
                    let (caller, message) = asked.await?;
                    let answer = service.append(&caller, &message);
                    drop((caller, message));
                    Ok(Answer::message(&answer.await?))
                })
            }
            "/stickycas.v1.StickyCasService/Read" => {
                let asked = Box::pin(read(request, service.clone(), limit));
                answer(async move {
                    let (caller, message) = asked.await?;
                    let answered = service.read(&caller, &message);
                    drop((caller, message));
                    Answer::read(answered.await?)
                })
            }
            "/stickycas.v1.StickyCasService/Decide" => {
                let asked = Box::pin(read(request, service.clone(), limit));
                answer(async move {
                    let (caller, message) = asked.await?;
                    let decided = service.decide(&caller, &message);
                    drop((caller, message));
                    Ok(Answer::message(&decided.await?))
                })
            }
            _ => self.others.call(request),
        }
    }
}

type Responding = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// Responds with what this comes to.
fn answer(answer: impl Future<Output = Result<Answer, Status>> + Send + 'static) -> Responding {
    Box::pin(async move { Ok(respond(answer.await)) })
}

fn respond(answer: Result<Answer, Status>) -> Response<Body> {
    match answer {
        Ok(answer) => {
            let mut response = Response::new(Body::new(answer));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            response
        }
        Err(status) => status.into_http(),
    }
}

/// Who calls, and the one message of the call.
async fn read<T, B>(request: Request<B>, service: Service, limit: usize) -> Result<(Caller, T), Status>
where
    T: Message + Default,
    B: http_body::Body<Data = Bytes, Error = Status> + Unpin,
{
    let (parts, body) = request.into_parts();
    check_encoding(&parts.headers)?;
    let caller = service.caller(&parts.extensions)?;
    drop(parts);
    let message = whole(body, limit).await?;
    // Draining may have begun in between: what has not been taken is not taken any more.
    service.check_serving()?;
    let message = T::decode(message).map_err(|error| undecodable(error.to_string()))?;
    Ok((caller, message))
}

/// Fails if messages may be compressed: the server reads plain ones only.
fn check_encoding(headers: &HeaderMap) -> Result<(), Status> {
    const PLAIN: &str = "identity";
    let Some(encoding) = headers.get("grpc-encoding").filter(|encoding| *encoding != PLAIN) else {
        return Ok(());
    };
    let encoding = String::from_utf8_lossy(encoding.as_bytes());
    let mut status = Status::unimplemented(format!(
        "messages compressed with {encoding:?} are not read here: send plain ones"
    ));
    let accepted = tonic::metadata::MetadataValue::from_static(PLAIN);
    status.metadata_mut().insert("grpc-accept-encoding", accepted);
    Err(status)
}

/// Bytes before each message: whether it is compressed, and its length (the gRPC protocol over HTTP/2).
const PREFIX: usize = 5;

/// The bytes of the first message of a body, which mostly comes in one piece and is mostly all there is. What comes behind
/// it is not looked at, as tonic does not.
async fn whole<B>(mut body: B, limit: usize) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes, Error = Status> + Unpin,
{
    let mut first = Bytes::new();
    // All of it, once there is more than one piece.
    let mut all = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(piece) = frame?.into_data() else { continue };
        if first.is_empty() && all.is_empty() {
            first = piece;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&piece);
        }
        // Not waited for if it cannot be taken.
        length(if all.is_empty() { &first } else { &all }, limit)?;
    }
    let mut bytes = if all.is_empty() { first } else { all.freeze() };
    match length(&bytes, limit)? {
        Some(length) if bytes.len() >= PREFIX + length => Ok(bytes.split_off(PREFIX).split_to(length)),
        Some(_) | None => Err(undecodable("the message broke off")),
    }
}

/// The length of the message of which these are the first bytes. `None`: too few of them have come.
fn length(mut bytes: &[u8], limit: usize) -> Result<Option<usize>, Status> {
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

/// The body of an answer: its message, then that all is well.
struct Answer {
    /// What comes next; empty if that has to be written first.
    piece: Bytes,
    /// Of a read, what is still to be written.
    rest: Option<Values>,
    over: bool,
}

/// Values of a read that are still to be written, and what comes behind them.
struct Values {
    response: ReadResponseEncoder,
    answered: CompletedAccess,
    /// How many were written.
    written: u32,
}

/// A piece of an answer ends with the value with which it is as long.
const PIECE: usize = 16 * 1024;

impl Answer {
    /// With this message.
    fn message(message: &impl Message) -> Self {
        let mut piece = prefix(message.encoded_len());
        message.encode_raw(&mut piece);
        Self { piece: piece.into(), rest: None, over: false }
    }

    /// With what a read has read.
    fn read(answered: CompletedAccess) -> Result<Self, Status> {
        let access::Answer::Read(read) = answered.answer else { return Err(RpcRefusal::internal().into()) };
        let response = ReadResponseEncoder::new(answered.phase, read, answered.values());
        let mut piece = prefix(response.encoded_len());
        response.begin(&mut piece);
        let rest = Values { response, answered, written: 0 }.write(&mut piece);
        Ok(Self { piece: piece.into(), rest, over: false })
    }
}

/// The beginning of a message of this length.
fn prefix(length: usize) -> Vec<u8> {
    let mut piece = Vec::with_capacity(PREFIX + length.min(PIECE));
    piece.put_u8(0);
    // No answer is longer: see `Limits::read_bytes`.
    piece.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    piece
}

impl Values {
    /// Adds as many as fit into a piece; what is then left.
    fn write(mut self, piece: &mut Vec<u8>) -> Option<Self> {
        let mut values = self.answered.values_after(self.written);
        while piece.len() < PIECE {
            let Some(value) = values.next() else {
                self.response.end(piece);
                return None;
            };
            ReadResponseEncoder::value(piece, value);
            self.written += 1;
        }
        drop(values);
        Some(self)
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.piece.is_empty()
            && let Some(rest) = self.rest.take()
        {
            let mut piece = Vec::with_capacity(PIECE);
            self.rest = rest.write(&mut piece);
            self.piece = piece.into();
        }
        let frame = if !self.piece.is_empty() {
            Some(Frame::data(std::mem::take(&mut self.piece)))
        } else if self.over {
            None
        } else {
            self.over = true;
            let mut trailers = HeaderMap::with_capacity(1);
            trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
            Some(Frame::trailers(trailers))
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
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
    use crate::commit_log::MemoryLog;
    use crate::instances::Instances;
    use crate::quota::Principals;
    use crate::transport::LimitedBody;

    /// A body in these pieces.
    struct Pieces(VecDeque<Bytes>);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    async fn gather(bytes: &[u8], piece: usize) -> Result<Bytes, Code> {
        let pieces = bytes.chunks(piece).map(Bytes::copy_from_slice).collect();
        whole(Pieces(pieces), 8).await.map_err(|status| status.code())
    }

    #[tokio::test]
    async fn a_message_is_read_however_it_is_cut() {
        for piece in 1..=12 {
            assert_eq!(gather(b"\0\0\0\0\x03abc", piece).await, Ok(Bytes::from_static(b"abc")), "{piece}");
            assert_eq!(gather(b"\0\0\0\0\0", piece).await, Ok(Bytes::new()), "{piece}");
            let followed = gather(b"\0\0\0\0\x03abc\x01def", piece).await;
            assert_eq!(followed, Ok(Bytes::from_static(b"abc")), "{piece}");
        }
        let empty_ones = ["", "\0\0", "", "\0\0\x03a", "", "bc", ""];
        let pieces = Pieces(empty_ones.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect());
        assert_eq!(whole(pieces, 8).await.unwrap(), "abc");
    }

    #[tokio::test]
    async fn what_is_no_message_is_refused() {
        let bodies: [(&[u8], Code); 5] = [
            (b"", Code::Internal),
            (b"\0\0\0\0", Code::Internal),
            (b"\0\0\0\0\x03ab", Code::Internal),
            (b"\x01\0\0\0\x03abc", Code::Internal),
            // Before it has come.
            (b"\0\0\0\0\x09", Code::OutOfRange),
        ];
        for (body, code) in bodies {
            for piece in 1..=8 {
                assert_eq!(gather(body, piece).await, Err(code), "{body:?} in pieces of {piece}");
            }
        }
    }

    /// The bytes of an answer, piece by piece, and its trailers.
    async fn taken(mut answer: Answer) -> (Vec<Bytes>, HeaderMap) {
        let mut pieces = Vec::new();
        loop {
            let next = poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut answer), cx)).await;
            match next.unwrap().unwrap().into_data() {
                Ok(piece) => pieces.push(piece),
                Err(frame) => {
                    let after = poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut answer), cx)).await;
                    assert!(after.is_none());
                    return (pieces, frame.into_trailers().unwrap());
                }
            }
        }
    }

    #[tokio::test]
    async fn an_answer_is_its_message_and_that_all_is_well() {
        let message = append_response(Some(Phase::FIRST), AppendAnswer::Success(Position::new(0)));
        let (pieces, trailers) = taken(Answer::message(&message)).await;
        assert_eq!(whole(Pieces(pieces.into()), 64).await.unwrap(), message.encode_to_vec());
        assert_eq!(trailers.get("grpc-status").unwrap(), "0");
    }

    #[tokio::test]
    async fn a_long_answer_is_written_in_pieces() {
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
            let answered =
                CompletedAccess::new(Some(Phase::FIRST), access::Answer::Read(read), &Arc::new(list));
            let values = values.iter().map(Value::to_bytes).collect();
            let result = v1::ReadResult { start: 0, values, length: read.length, sealed: read.sealed };
            let expected = v1::ReadResponse { phase: 1, result: Some(result) };
            let (pieces, trailers) = taken(Answer::read(answered).unwrap()).await;
            assert!(pieces.iter().all(|piece| piece.len() < PIECE + 2 * VALUE));
            assert_eq!(pieces.len(), 1 + usize::from(count) * VALUE / PIECE, "{count}");
            assert_eq!(whole(Pieces(pieces.into()), 1 << 20).await.unwrap(), expected.encode_to_vec());
            assert_eq!(trailers.get("grpc-status").unwrap(), "0");
        }
    }

    /// tonic's own takes 1,888 bytes, in a box beside those of its body, its decoder and its handler.
    #[tokio::test]
    async fn a_call_that_waits_keeps_little() {
        let limits = Limits::default();
        let principals = Principals::new(&limits);
        let instances = Instances::new(limits.clone(), Arc::new(MemoryLog));
        let mut calls = Service::new(instances, limits, CancellationToken::new(), principals).sticky_cas();
        for method in ["Append", "Read", "Decide"] {
            let uri = format!("/stickycas.v1.StickyCasService/{method}");
            let request =
                Request::builder().uri(uri).body(LimitedBody::new(Body::empty(), Arc::default(), 1)).unwrap();
            let call = tower::Service::call(&mut calls, request);
            assert!(size_of_val(&*call) <= 800, "{method}: {}", size_of_val(&*call));
        }
    }

    #[test]
    fn only_plain_messages_are_read() {
        let with = |encoding: &'static str| {
            HeaderMap::from_iter([("grpc-encoding".parse().unwrap(), HeaderValue::from_static(encoding))])
        };
        assert!(check_encoding(&HeaderMap::new()).is_ok());
        assert!(check_encoding(&with("identity")).is_ok());
        assert_eq!(check_encoding(&with("gzip")).unwrap_err().code(), Code::Unimplemented);
    }
}
