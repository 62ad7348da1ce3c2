//! The real server over a disk that answers when the test says so.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use prost::Message as _;
use stickycas_proto::log::v1::record::Input;
use stickycas_proto::log::v1::{Batch, Record};
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::server_service_client::ServerServiceClient;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{
    Access, Append, AttachRequest, AttachResponse, ClientFrame, CloseRequest, CreateRequest,
    GetCountsRequest, GetRequest, Hello, Parameters, Read, RefusalReason, WatchRequest, access, get_request,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::commit_log::engine::ManualEngine;
use crate::limits::Limits;

/// A server with its disk, and a connection to it.
struct Fixture {
    engine: Arc<ManualEngine>,
    log: Arc<dyn commit_log::CommitLog>,
    channel: Channel,
    operators: SocketAddr,
    instance_id: String,
    _serving: AbortOnDropHandle<()>,
}

/// A test that has failed does not wait for the disk either.
impl Drop for Fixture {
    fn drop(&mut self) {
        self.engine.set_commits(true);
    }
}

/// A server that has not recovered yet: its disk answers nothing.
async fn start(limits: Limits) -> Fixture {
    let engine = Arc::new(ManualEngine::new(1));
    let storage = Storage::durable(engine.clone(), None, &limits).unwrap();
    let log = storage.log();
    let grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", grpc.local_addr().unwrap())).unwrap();
    let config = Config { limits, ..Config::insecure(["boss".to_owned()]) };
    let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let operators = http.local_addr().unwrap();
    let serving = async {
        let environment = ServerParts { grpc, tokens: None, http: Some(http), credentials: None, storage };
        serve_in(environment, config, std::future::pending()).await.unwrap();
    };
    let serving = AbortOnDropHandle::new(tokio::spawn(serving));
    let channel = endpoint.connect().await.unwrap();
    Fixture { engine, log, channel, operators, instance_id: String::new(), _serving: serving }
}

/// A server that serves and has an instance with one process, `p1`. Its disk answers nothing from now on.
async fn fixture(limits: Limits) -> Fixture {
    let mut it = start(limits).await;
    it.engine.set_commits(true);
    let parameters = Parameters { processes: 1, warp_size: 1, read_size: 1, ..Parameters::default() };
    let create =
        CreateRequest { name: String::new(), roster: vec!["p1".to_owned()], parameters: Some(parameters) };
    it.instance_id = with_timeout(async {
        loop {
            // Until it has recovered, Create is refused.
            if let Ok(created) = it.instances().create(of("boss", create.clone())).await {
                return created.into_inner().instance.unwrap().instance_id;
            }
        }
    })
    .await;
    it.engine.set_commits(false);
    it
}

/// A request of this principal.
fn of<T>(principal: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(PRINCIPAL_KEY, MetadataValue::from_static(principal));
    request
}

async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it comes to its end")
}

/// The outcome of a future that has come to its end; `None` if it waits.
fn poll<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// The client's end of an Attach stream of `p1`.
struct Stream {
    requests: mpsc::UnboundedSender<AttachRequest>,
    responses: Streaming<AttachResponse>,
}

impl Stream {
    fn send(&self, frames: Vec<ClientFrame>) {
        self.requests.send(AttachRequest { frames }).unwrap();
    }

    async fn next(&mut self) -> Vec<Frame> {
        let message = with_timeout(self.responses.message()).await.unwrap().expect("the stream goes on");
        message.frames.into_iter().filter_map(|frame| frame.frame).collect()
    }
}

impl Fixture {
    fn instances(&self) -> InstanceServiceClient<Channel> {
        InstanceServiceClient::new(self.channel.clone())
    }

    fn server(&self) -> ServerServiceClient<Channel> {
        ServerServiceClient::new(self.channel.clone())
    }

    fn hello(&self) -> ClientFrame {
        Hello { channel: 0, instance_id: self.instance_id.clone(), incarnation: 0 }.into()
    }

    /// An Attach stream with the instance open on channel 0.
    async fn attach(&self) -> Stream {
        let (requests, receiver) = mpsc::unbounded_channel();
        let mut client = StickyCasServiceClient::new(self.channel.clone());
        let responses = client.attach(of("p1", UnboundedReceiverStream::new(receiver)));
        let responses = with_timeout(responses).await.unwrap().into_inner();
        let mut stream = Stream { requests, responses };
        self.engine.set_commits(true);
        stream.send(vec![self.hello()]);
        assert!(matches!(stream.next().await[..], [Frame::Welcome(_)]));
        self.engine.set_commits(false);
        stream
    }

    /// Whether so many calls of Close have ended with this code.
    async fn has_ended(&self, code: &str, calls: u64) -> bool {
        let mut operators = TcpStream::connect(self.operators).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        operators.write_all(request).await.unwrap();
        let mut page = String::new();
        with_timeout(operators.read_to_string(&mut page)).await.unwrap();
        let row = format!("stickycas_calls_ended_total{{method=\"Close\",code=\"{code}\"}} {calls}\n");
        assert!(page.contains("stickycas_calls_ended_total"), "{page}");
        page.contains(&row)
    }

    /// The records of the batch that comes next. It is not committed.
    async fn next_records(&self) -> Vec<Record> {
        let engine = self.engine.clone();
        let waiting = tokio::task::spawn_blocking(move || engine.wait());
        with_timeout(waiting).await.unwrap();
        Batch::decode(&*self.engine.waiting().expect("it has come")).unwrap().records
    }

    /// Makes calls on the same connection, so that all that the server had sent before has come.
    async fn resolve_network(&self) {
        let mut health = HealthClient::new(self.channel.clone());
        for _ in 0..20 {
            with_timeout(health.check(HealthCheckRequest::default())).await.unwrap();
        }
    }

    /// The call is refused for this reason, and not before the offence is committed that it is.
    async fn assert_refused_when_committed<T>(
        &self,
        call: impl Future<Output = Result<T, Status>> + Send,
        reason: RefusalReason,
    ) {
        let mut call = pin!(call);
        assert!(poll(call.as_mut()).is_none());
        let records = self.next_records().await;
        assert!(matches!(records[0].input, Some(Input::Offence(_))), "{records:?}");
        self.resolve_network().await;
        assert!(poll(call.as_mut()).is_none(), "the offence is not committed");
        self.engine.set_commits(true);
        let status = with_timeout(call).await.err().expect("it is refused");
        let refused = stickycas_proto::status::RpcRefusal::from_status(&status);
        assert_eq!(refused.map(|refused| refused.reason), Some(reason), "{status:?}");
        self.engine.set_commits(false);
    }
}

fn read(number: u64) -> ClientFrame {
    read_on(0, number)
}

fn read_on(channel: u32, number: u64) -> ClientFrame {
    Access { channel, number, op: Some(access::Op::Read(Read { start: 0 })) }.into()
}

/// A client sends far more than may wait, and all of it is refused.
async fn refusals_are_bounded(refused: ClientFrame) {
    const MESSAGES: usize = 400;
    const FRAMES: usize = 50;
    const LIMIT: usize = 256 * 1024;
    // All messages in one DATA frame of HTTP/2 are handled before the stream pauses.
    const BEYOND: usize = 16 * 1024 / 8 * gate::REFUSAL_BYTES * 2;
    const { assert!(LIMIT + BEYOND < MESSAGES * FRAMES * gate::REFUSAL_BYTES) };
    let limits = Limits { uncommitted_bytes: LIMIT, unread_frames_to_pause: usize::MAX, ..Limits::default() };
    let it = fixture(limits).await;
    let mut stream = it.attach().await;
    // The number is out of order. Few such refusals are recorded one by one, and the others only count.
    stream.send(vec![read(1_000)]);
    for _ in 0..MESSAGES {
        stream.send(vec![refused.clone(); FRAMES]);
    }
    let full = async {
        while it.log.state().room().is_none() {
            tokio::task::yield_now().await;
        }
    };
    with_timeout(full).await;
    it.resolve_network().await;
    assert!(it.log.state().room().is_some(), "nothing further is read");
    let waiting = it.log.uncommitted_bytes();
    assert!(waiting <= LIMIT + BEYOND, "{waiting} bytes wait: more than the limit was read");
    it.engine.set_commits(true);
    let mut refused = 0;
    while refused < 1 + MESSAGES * FRAMES {
        let frames = stream.next().await;
        assert!(frames.iter().all(|frame| matches!(frame, Frame::Refusal(_))), "{frames:?}");
        refused += frames.len();
    }
}

#[tokio::test]
async fn refusals_of_an_instance_that_wait_are_bounded() {
    refusals_are_bounded(read(1_000)).await;
}

#[tokio::test]
async fn refusals_of_a_stream_that_wait_are_bounded() {
    refusals_are_bounded(read_on(7, 1)).await;
}

#[tokio::test]
async fn who_floods_the_log_is_refused_and_others_are_not() {
    const VALUE: usize = 1_000;
    const SENT: u64 = 300;
    // Each principal may have 128 KiB in any case, and none may have more, but for the last.
    const FITTING: u64 = 128 * 1024 / VALUE as u64 + 1;
    let it = fixture(Limits { log_share_bytes: 1, ..Limits::default() }).await;
    let mut stream = it.attach().await;
    // Short ones, which nobody counts, come behind those that are refused.
    let append = |number| -> ClientFrame {
        let length = if number < SENT { VALUE } else { 1 };
        let op = access::Op::Append(Append { value: vec![b'x'; length].into() });
        Access { channel: 0, number, op: Some(op) }.into()
    };
    stream.send((1..=SENT).map(append).collect());
    it.next_records().await;
    let roster = (0..100).map(|process| format!("process-{process}")).collect();
    let parameters = Parameters { processes: 100, warp_size: 100, read_size: 1, ..Parameters::default() };
    let create = CreateRequest { name: String::new(), roster, parameters: Some(parameters) };
    let mut other = it.instances();
    let mut created = pin!(other.create(of("boss", create)));
    assert!(poll(created.as_mut()).is_none());
    it.resolve_network().await;
    assert!(poll(created.as_mut()).is_none(), "it waits for the disk");
    it.engine.set_commits(true);
    let (mut answered, mut refused) = (0, 0);
    while answered + refused < SENT {
        for frame in stream.next().await {
            match frame {
                Frame::Answer(_) => answered += 1,
                Frame::Refusal(why) => {
                    assert_eq!(why.reason(), RefusalReason::RateExceeded, "{why:?}");
                    assert!(why.retry_after.is_some());
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(answered, FITTING);
    with_timeout(created).await.unwrap();
    // It did not happen, and a retry helps.
    stream.send(vec![append(FITTING + 1)]);
    assert!(matches!(stream.next().await[..], [Frame::Answer(_)]));
    let instance = Some(get_request::Instance::InstanceId(it.instance_id.clone()));
    let get = of("p1", GetRequest { instance });
    let status = with_timeout(it.instances().get(get)).await.unwrap().into_inner().status.unwrap();
    // The appends are late, and nothing else is wrong with them.
    let late = stickycas_proto::v1::OffenceKind::LateAppend;
    assert!(status.offences.iter().all(|offence| offence.kind() == late), "{status:?}");
}

#[tokio::test]
async fn a_refused_hello_is_told_when_its_offence_is_committed() {
    let it = fixture(Limits::default()).await;
    let mut stream = it.attach().await;
    stream.send(vec![it.hello()]);
    let records = it.next_records().await;
    assert!(matches!(records[0].input, Some(Input::Offence(_))), "{records:?}");
    it.resolve_network().await;
    assert!(poll(stream.responses.message()).is_none(), "the offence is not committed");
    it.engine.set_commits(true);
    let [Frame::Refusal(refused)] = &stream.next().await[..] else { panic!("not refused") };
    assert!(refused.message.contains("channel 0 is in use"), "{refused:?}");
}

#[tokio::test]
async fn a_refused_stream_ends_when_its_offence_is_committed() {
    let limits = Limits { frames_per_message: 2, ..Limits::default() };
    let it = fixture(limits).await;
    let mut stream = it.attach().await;
    stream.send((1..=3).map(read).collect());
    it.next_records().await;
    it.resolve_network().await;
    assert!(poll(stream.responses.message()).is_none(), "the offence is not committed");
    it.engine.set_commits(true);
    let status = with_timeout(stream.responses.message()).await.unwrap_err();
    assert!(status.message().contains("frames or more in one message"), "{status:?}");
}

#[tokio::test]
async fn a_refused_call_is_told_when_its_offence_is_committed() {
    let it = fixture(Limits { watch_streams_per_principal: 1, ..Limits::default() }).await;
    let _stream = it.attach().await;
    let id = || it.instance_id.clone();
    let close = of("p1", CloseRequest { instance_id: id() });
    let mut client = it.instances();
    it.assert_refused_when_committed(client.close(close), RefusalReason::NotCreator).await;
    let create = of("p1", CreateRequest::default());
    it.assert_refused_when_committed(client.create(create), RefusalReason::NotCoordinator).await;
    let watch = || of("p1", WatchRequest { instance_id: id(), ..WatchRequest::default() });
    let _watch = with_timeout(client.watch(watch())).await.unwrap();
    let mut second = it.instances();
    it.assert_refused_when_committed(second.watch(watch()), RefusalReason::TooManyStreams).await;
}

#[tokio::test]
async fn a_refused_call_has_ended_when_its_refusal_leaves() {
    let it = fixture(Limits::default()).await;
    let mut client = it.instances();
    for leaves in [true, false] {
        let close = of("p1", CloseRequest { instance_id: it.instance_id.clone() });
        let mut call = Box::pin(client.close(close));
        assert!(poll(call.as_mut()).is_none());
        it.next_records().await;
        it.resolve_network().await;
        assert!(it.has_ended("PERMISSION_DENIED", u64::from(!leaves)).await, "it waits for the disk");
        if leaves {
            it.engine.set_commits(true);
            with_timeout(call).await.unwrap_err();
            it.engine.set_commits(false);
            assert!(it.has_ended("PERMISSION_DENIED", 1).await);
        } else {
            drop(call);
            with_timeout(async { while !it.has_ended("CANCELLED", 1).await {} }).await;
        }
    }
}

#[tokio::test]
async fn calls_are_refused_until_the_log_is_read() {
    let it = start(Limits::default()).await;
    let id = "0".repeat(32);
    let close = || of("boss", CloseRequest { instance_id: id.clone() });
    let reason = async || {
        let status = with_timeout(it.instances().close(close())).await.unwrap_err();
        stickycas_proto::status::RpcRefusal::from_status(&status).map(|refused| refused.reason)
    };
    assert_eq!(reason().await, Some(RefusalReason::Recovering), "nobody knows which instances there are");
    let counts = async || {
        let request = of("boss", GetCountsRequest::default());
        with_timeout(it.server().get_counts(request)).await.unwrap().into_inner().all.unwrap()
    };
    let refused = counts().await.refusals;
    assert_eq!(
        refused.iter().map(|row| (row.reason(), row.count)).collect::<Vec<_>>(),
        [(RefusalReason::Recovering, 1)]
    );
    it.engine.set_commits(true);
    with_timeout(async { while reason().await == Some(RefusalReason::Recovering) {} }).await;
    assert_eq!(reason().await, Some(RefusalReason::InstanceUnknown));
}
