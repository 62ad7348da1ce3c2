//! `StickyCasService` as it is reached over HTTP/2: its calls by hand, its stream by tonic.
//!
//! tonic gives every call a decoder, an encoder, a buffer for each and a box around each, and a call that waits for its
//! phase would keep most of them. A call of ours is one message in and one message out, so it keeps where its answer will
//! come from and nothing else. On the wire, and in what is refused, nothing differs: what cannot be read is refused with
//! tonic's statuses, of which the [border](crate::border) makes ours.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Frame, SizeHint};
use prost::Message;
use stickycas_proto::attach::StickyCasServiceServer;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;

use super::Service;
use crate::identity::Caller;

/// The whole of `StickyCasService`. See the module.
#[derive(Clone, Debug)]
pub(crate) struct StickyCas {
    service: Service,
    /// Who serves Attach, and refuses methods that there are not.
    others: StickyCasServiceServer<Service>,
    /// Bytes that a message may have.
    limit: usize,
}

impl StickyCas {
    pub(super) fn new(service: Service, limit: usize) -> Self {
        let others = StickyCasServiceServer::new(service.clone()).max_decoding_message_size(limit);
        Self { service, others, limit }
    }
}

impl NamedService for StickyCas {
    const NAME: &'static str = StickyCasServiceServer::<Service>::NAME;
}

impl<B> tower::Service<Request<B>> for StickyCas
where
    B: http_body::Body<Data = Bytes, Error = Status> + Send + Unpin + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (service, limit) = (self.service.clone(), self.limit);
        match request.uri().path().rsplit('/').next() {
            Some("Append") => Box::pin(async move {
                let asked = read(request, &service, limit).await;
                answer(asked, |(caller, message)| service.append(&caller, &message)).await
            }),
            Some("Read") => Box::pin(async move {
                let asked = read(request, &service, limit).await;
                answer(asked, |(caller, message)| service.read(&caller, &message)).await
            }),
            Some("Decide") => Box::pin(async move {
                let asked = read(request, &service, limit).await;
                answer(asked, |(caller, message)| std::future::ready(service.decide(&caller, &message))).await
            }),
            _ => self.others.call(request),
        }
    }
}

/// What `handle` makes of what was asked for, or why it was not read, as a response.
async fn answer<T, U, F>(
    asked: Result<T, Status>,
    handle: impl FnOnce(T) -> F,
) -> Result<Response<Body>, Infallible>
where
    U: Message,
    F: Future<Output = Result<U, Status>>,
{
    let answer = match asked {
        Ok(asked) => handle(asked).await,
        Err(status) => Err(status),
    };
    Ok(match answer {
        Ok(message) => respond(&message),
        Err(status) => status.into_http(),
    })
}

/// Who calls, and the one message of the call.
async fn read<T, B>(request: Request<B>, service: &Service, limit: usize) -> Result<(Caller, T), Status>
where
    T: Message + Default,
    B: http_body::Body<Data = Bytes, Error = Status> + Unpin,
{
    let (parts, body) = request.into_parts();
    check_encoding(&parts.headers)?;
    let caller = service.caller(&parts.extensions)?;
    drop(parts);
    let message = whole(body, limit).await?;
    let message = T::decode(message).map_err(|error| Status::internal(error.to_string()))?;
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

/// The bytes of the only message of a body, which mostly comes in one piece.
async fn whole<B>(mut body: B, limit: usize) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes, Error = Status> + Unpin,
{
    let mut first = Bytes::new();
    // All of it, once there is more than one piece.
    let mut all = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(piece) = frame?.into_data() else { continue };
        if first.is_empty() {
            first = piece;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&piece);
        }
        // Not waited for if it cannot be taken.
        length(if all.is_empty() { &first } else { &all }, limit)?;
    }
    let mut bytes = if all.is_empty() { first } else { all.freeze() };
    match length(&bytes, limit)? {
        Some(length) if bytes.len() == PREFIX + length => {
            bytes.advance(PREFIX);
            Ok(bytes)
        }
        Some(length) if bytes.len() > PREFIX + length => {
            Err(Status::internal("a call has one message, and more came"))
        }
        Some(_) | None => Err(Status::internal("the message broke off")),
    }
}

/// The length of the message of which these are the first bytes. `None`: too few of them have come.
fn length(mut bytes: &[u8], limit: usize) -> Result<Option<usize>, Status> {
    let Some(&compressed) = bytes.first() else { return Ok(None) };
    if compressed != 0 {
        return Err(Status::internal(
            "the message says that it is compressed, and its headers do not say how",
        ));
    }
    if bytes.len() < PREFIX {
        return Ok(None);
    }
    bytes.advance(1);
    let length = bytes.get_u32() as usize;
    if length > limit {
        return Err(Status::out_of_range(format!("the message has {length} bytes: at most {limit} may be")));
    }
    Ok(Some(length))
}

/// A call that succeeded, with this message.
fn respond(message: &impl Message) -> Response<Body> {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    // Never longer: an answer is within the limits of its instance.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    let mut response = Response::new(Body::new(Answer { message: Some(bytes.freeze()), over: false }));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// The body of an answer: its message, then that all is well.
struct Answer {
    message: Option<Bytes>,
    over: bool,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match self.message.take() {
            Some(message) => Some(Frame::data(message)),
            None if self.over => None,
            None => {
                self.over = true;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
                Some(Frame::trailers(trailers))
            }
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.message.as_ref().map_or(0, Bytes::len) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tonic::Code;

    use super::*;

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
        for piece in 1..=8 {
            assert_eq!(gather(b"\0\0\0\0\x03abc", piece).await, Ok(Bytes::from_static(b"abc")), "{piece}");
            assert_eq!(gather(b"\0\0\0\0\0", piece).await, Ok(Bytes::new()), "{piece}");
        }
    }

    #[tokio::test]
    async fn what_is_no_message_is_refused() {
        let bodies: [(&[u8], Code); 6] = [
            (b"", Code::Internal),
            (b"\0\0\0\0", Code::Internal),
            (b"\0\0\0\0\x03ab", Code::Internal),
            (b"\0\0\0\0\x03abcd", Code::Internal),
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

    #[tokio::test]
    async fn an_answer_is_its_message_and_that_all_is_well() {
        let message = stickycas_proto::v1::ReadRequest { access_number: 7, ..Default::default() };
        let mut body = respond(&message).into_body();
        let mut next = async || poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut body), cx)).await;
        let data = next().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(whole(Pieces([data].into()), 8).await.unwrap(), message.encode_to_vec());
        let trailers = next().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers.get("grpc-status").unwrap(), "0");
        assert!(next().await.is_none());
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
