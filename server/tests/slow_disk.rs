//! The server over a disk that tells its commits when the test says so: nobody is told anything before, and
//! what waits is bounded.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::{ClientFrame, CreateRequest, OffenceKind, Parameters, RefusalReason, WatchRequest};
use stickycas_server::Config;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::fixtures::{self, alone, create_request};
use crate::harness::slow_disk::SlowDisk;
use crate::harness::stream::{Stream, append, hello, read};
use crate::harness::{COORDINATOR, Client, Server, assert_refused, assert_status, refusals, with_timeout};

/// A server with its disk, a connection to it, and an instance with one process, `p1`.
struct Fixture {
    disk: SlowDisk,
    server: Server,
    channel: Channel,
    id: String,
}

/// Its disk tells nothing from now on.
async fn fixture(change: impl FnOnce(&mut Config)) -> Fixture {
    let disk = SlowDisk::new(true);
    let server = Server::begin_on(disk.clone(), change);
    let channel = server.connect().await;
    let mut creator = Client::on(channel.clone(), COORDINATOR);
    let created = with_timeout(async {
        loop {
            // Until it has recovered, Create is refused.
            if let Ok(created) = creator.create(create_request(alone())).await {
                return created.into_inner();
            }
        }
    });
    let id = created.await.instance.unwrap().instance_id;
    disk.set_tells(false);
    Fixture { disk, server, channel, id }
}

/// The outcome of a future that has come to its end; `None` if it waits.
fn poll<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

impl Fixture {
    fn client(&self, principal: &str) -> Client {
        Client::on(self.channel.clone(), principal)
    }

    /// An Attach stream of `p1` with the instance open on channel 0.
    async fn attach(&self) -> Stream {
        self.disk.set_tells(true);
        let stream = Stream::open(&mut self.client("p1"), &self.id).await;
        self.disk.set_tells(false);
        stream
    }

    /// Makes calls on the same connection, so that all that the server had sent before has come.
    async fn settle(&self) {
        let mut health = HealthClient::new(self.channel.clone());
        for _ in 0..20 {
            with_timeout(health.check(HealthCheckRequest::default())).await.unwrap();
        }
    }

    /// A commit waits, and this is not told before it is committed.
    async fn waits<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        assert!(poll(future.as_mut()).is_none());
        self.disk.until_waiting().await;
        self.settle().await;
        assert!(poll(future.as_mut()).is_none(), "it is not committed");
        self.disk.set_tells(true);
        let outcome = with_timeout(future).await;
        self.disk.set_tells(false);
        outcome
    }

    /// The offences of the instance, once all is committed.
    async fn offences(&self) -> Vec<OffenceKind> {
        self.disk.set_tells(true);
        let status = self.client("p1").status(&self.id).await;
        status.offences.iter().map(stickycas_proto::v1::OffenceSummary::kind).collect()
    }

    /// Whether so many calls of Close have ended with this code.
    async fn has_ended(&self, code: &str, calls: u64) -> bool {
        let (_, page) = crate::operators::get(self.server.http, "/metrics").await;
        let row = format!("stickycas_calls_ended_total{{method=\"Close\",code=\"{code}\"}} {calls}\n");
        assert!(page.contains("stickycas_calls_ended_total"), "{page}");
        page.contains(&row)
    }
}

/// A client sends far more than may wait, and all of it is refused.
async fn refusals_are_bounded(refused: ClientFrame) {
    const MESSAGES: usize = 400;
    const FRAMES: usize = 50;
    const LIMIT: usize = 256 * 1024;
    /// What a refusal counts for.
    const REFUSAL_BYTES: usize = 512;
    // All messages in one DATA frame of HTTP/2 are handled before the stream pauses.
    const BEYOND: usize = 16 * 1024 / 8 * REFUSAL_BYTES * 2;
    const { assert!(LIMIT + BEYOND < MESSAGES * FRAMES * REFUSAL_BYTES) };
    let it = fixture(|config| {
        config.limits.uncommitted_bytes = LIMIT;
        config.limits.unread_frames_to_pause = usize::MAX;
    })
    .await;
    let mut stream = it.attach().await;
    // The number is out of order. Few such refusals are recorded one by one, and the others only count.
    stream.send([read(0, 1_000)]);
    for _ in 0..MESSAGES {
        stream.send(vec![refused.clone(); FRAMES]);
    }
    with_timeout(async { while it.server.limit_used("uncommitted_bytes").await < LIMIT {} }).await;
    it.settle().await;
    let waiting = it.server.limit_used("uncommitted_bytes").await;
    assert!(
        (LIMIT..=LIMIT + BEYOND).contains(&waiting),
        "{waiting} bytes wait: more than the limit was read"
    );
    it.disk.set_tells(true);
    for _ in 0..=MESSAGES * FRAMES {
        assert!(matches!(stream.frame().await, Frame::Refusal(_)));
    }
}

#[tokio::test]
async fn refusals_of_an_instance_that_wait_are_bounded() {
    refusals_are_bounded(read(0, 1_000)).await;
}

#[tokio::test]
async fn refusals_of_a_stream_that_wait_are_bounded() {
    refusals_are_bounded(read(7, 1)).await;
}

#[tokio::test]
async fn who_floods_the_log_is_refused_and_others_are_not() {
    const VALUE: usize = 1_000;
    const SENT: u64 = 300;
    // Each principal may have 128 KiB in any case, and none may have more, but for the last.
    const FITTING: u64 = 128 * 1024 / VALUE as u64 + 1;
    let mut it = fixture(|config| config.limits.log_share_bytes = 1).await;
    it.disk.set_tells(true);
    let parameters = Parameters { max_value_bytes: 1_024, pipeline: 0, ..alone() };
    it.id = fixtures::instance_with(&it.server, parameters).await;
    let mut stream = it.attach().await;
    // Short ones, which nobody counts, come behind those that are refused.
    let append = |number| append(0, number, &"x".repeat(if number < SENT { VALUE } else { 1 }));
    stream.send((1..=SENT).map(append));
    it.disk.until_waiting().await;
    let roster = (0..100).map(|process| format!("process-{process}")).collect();
    let parameters = Parameters { processes: 100, warp_size: 100, read_size: 1, ..alone() };
    let create = CreateRequest { name: String::new(), roster, parameters: Some(parameters) };
    let mut creator = it.client(COORDINATOR);
    it.waits(creator.create(create)).await.unwrap();
    it.disk.set_tells(true);
    let (mut answered, mut refused) = (0, 0);
    while answered + refused < SENT {
        match stream.frame().await {
            Frame::Answer(_) => answered += 1,
            Frame::Refusal(why) => {
                assert_eq!(why.reason(), RefusalReason::RateExceeded, "{why:?}");
                assert!(why.retry_after.is_some());
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(answered, FITTING);
    // It did not happen, and a retry helps.
    stream.send([append(FITTING + 1)]);
    stream.answer().await;
    // The appends are late, and nothing else is wrong with them.
    assert!(it.offences().await.iter().all(|kind| *kind == OffenceKind::LateAppend));
}

#[tokio::test]
async fn a_refused_hello_is_told_when_its_offence_is_committed() {
    let it = fixture(|_| ()).await;
    let mut stream = it.attach().await;
    stream.send([hello(0, &it.id)]);
    let Frame::Refusal(refused) = it.waits(stream.frame()).await else { panic!("not refused") };
    assert!(refused.message.contains("channel 0 is in use"), "{refused:?}");
    assert_eq!(it.offences().await.len(), 1);
}

#[tokio::test]
async fn a_refused_stream_ends_when_its_offence_is_committed() {
    let it = fixture(|config| config.limits.frames_per_message = 2).await;
    let mut stream = it.attach().await;
    stream.send((1..=3).map(|number| read(0, number)));
    let status = it.waits(stream.next()).await.unwrap_err();
    assert!(status.message().contains("frames or more in one message"), "{status:?}");
    assert_eq!(it.offences().await.len(), 1);
}

#[tokio::test]
async fn a_refused_call_is_told_when_its_offence_is_committed() {
    let it = fixture(|config| config.limits.watch_streams_per_principal = 1).await;
    let _stream = it.attach().await;
    let refused = |status: Status, code, reason: &str| drop(assert_status(&status, code, reason));
    let (mut p1, mut again) = (it.client("p1"), it.client("p1"));
    refused(it.waits(p1.close(&it.id)).await.unwrap_err(), Code::PermissionDenied, "NOT_CREATOR");
    let create = it.waits(p1.create(CreateRequest::default())).await;
    assert_refused(create, Code::PermissionDenied, "NOT_COORDINATOR");
    let watch = || WatchRequest { instance_id: it.id.clone(), ..WatchRequest::default() };
    let _watch = with_timeout(p1.instances.watch(watch())).await.unwrap();
    let second = it.waits(again.instances.watch(watch())).await.map(drop).unwrap_err();
    refused(second, Code::ResourceExhausted, "TOO_MANY_STREAMS");
}

#[tokio::test]
async fn a_refused_call_has_ended_when_its_refusal_leaves() {
    let it = fixture(|_| ()).await;
    for leaves in [true, false] {
        let mut client = it.client("p1");
        let mut call = Box::pin(client.close(&it.id));
        assert!(poll(call.as_mut()).is_none());
        it.disk.until_waiting().await;
        it.settle().await;
        assert!(it.has_ended("PERMISSION_DENIED", u64::from(!leaves)).await, "it waits for the disk");
        if leaves {
            it.disk.set_tells(true);
            with_timeout(call).await.unwrap_err();
            it.disk.set_tells(false);
            assert!(it.has_ended("PERMISSION_DENIED", 1).await);
        } else {
            drop(call);
            with_timeout(async { while !it.has_ended("CANCELLED", 1).await {} }).await;
        }
    }
    assert_eq!(it.offences().await, [OffenceKind::ForeignIdentity]);
}

#[tokio::test]
async fn calls_are_refused_until_the_log_is_read() {
    let disk = SlowDisk::new(false);
    let server = Server::begin_on(disk.clone(), |_| ());
    let mut client = server.client(COORDINATOR).await;
    let id = "0".repeat(32);
    let refused = client.close(&id).await.unwrap_err();
    assert_status(&refused, Code::Unavailable, "RECOVERING");
    let counts = server.counts().await.all.unwrap();
    assert_eq!(refusals(&counts, RefusalReason::Recovering), 1, "{counts:?}");
    disk.set_tells(true);
    let reason = with_timeout(async {
        loop {
            let status = client.close(&id).await.unwrap_err();
            let reason =
                stickycas_proto::status::RpcRefusal::from_status(&status).map(|refused| refused.reason);
            if reason != Some(RefusalReason::Recovering) {
                return reason;
            }
        }
    });
    assert_eq!(reason.await, Some(RefusalReason::InstanceUnknown));
}
