//! Calls whose client drops them after any number of polls: nothing is half done, and nothing is left behind
//! (SPEC F8a).
//!
//! Each call is made in process, polled k times and dropped, for every k up to its end, each time on a server
//! of its own, in memory and over a disk. Then correct processes play the instance to its end, and the gauges
//! of the server must come to those of a server where nothing was dropped.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{Request as HttpRequest, Response as HttpResponse};
use bytes::Bytes;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::parameters::PatienceChoice;
use stickycas_proto::v1::server_service_client::ServerServiceClient;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{
    Access, Append, AppendRequest, AppendResult, AttachRequest, CloseRequest, CreateRequest, DecideRequest,
    Decision, EndlessPatience, GetCountsRequest, GetRequest, Hello, ListRequest, Parameters, Read,
    ReadRequest, RefusalReason, WatchRequest, access, get_request,
};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use super::*;
use crate::commit_log::engine::{ManualEngine, Outcome as CommitOutcome};
use crate::limits::Limits;

type Calls = BoxCloneSyncService<HttpRequest<Body>, HttpResponse<Body>, Infallible>;

/// A server without a network.
struct Server {
    calls: Calls,
    sources: Arc<Sources>,
    _tasks: JoinSet<()>,
    /// The log commits as long as this lives.
    _storage: Storage,
}

/// One call, to its end.
type Call = Pin<Box<dyn Future<Output = Result<(), Status>>>>;

/// The calls as any client makes them.
#[derive(Clone)]
struct Client(Calls);

const CREATOR: &str = "boss";
const PROCESSES: [&str; 2] = ["p1", "p2"];
const DECISION: &[u8] = b"decided";

/// The body of a request that says when it has ended, as those from the network do.
struct RequestBody {
    body: Body,
    has_ended: bool,
}

impl ::http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<::http_body::Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.has_ended = matches!(polled, Poll::Ready(None));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

/// This future, until it has been polled so many times. `None`: it has not come to its end by then.
struct PolledAtMost<F> {
    future: Option<F>,
    polls: usize,
}

impl<F: Future + Unpin> Future for PolledAtMost<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(left) = self.polls.checked_sub(1) else {
            self.future = None;
            return Poll::Ready(None);
        };
        self.polls = left;
        let future = self.future.as_mut().expect("it has not ended");
        match Pin::new(future).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => {
                self.future = None;
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

fn of<T>(principal: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(PRINCIPAL_KEY, MetadataValue::from_static(principal));
    request
}

impl Server {
    /// Over a disk that commits one batch after the other, each a while after it has come; or in memory.
    async fn start(durable: bool) -> Self {
        let limits = Limits::default();
        let config = Config { limits: limits.clone(), ..Config::insecure([CREATOR.to_owned()]) };
        let mut tasks = JoinSet::new();
        let storage = if durable {
            let engine = Arc::new(ManualEngine::new(1));
            let disk = engine.clone();
            tasks.spawn(async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    if let Some((_, done)) = disk.take() {
                        done(CommitOutcome::Committed);
                    }
                }
            });
            Storage::durable(engine, None, &limits).unwrap()
        } else {
            Storage::new(&config).unwrap()
        };
        let instances = storage.instances(limits.clone(), KnownPrincipals::default());
        let timers = instances.clone();
        tasks.spawn(async move { timers.run_timers().await });
        let principals = Principals::new(&limits);
        let drain = CancellationToken::new();
        let service = Service::new(instances.clone(), limits.clone(), drain, principals.clone(), None);
        let roles = Roles::of_settings(&config);
        let layer = CallLayer::new(
            Authenticator::Insecure(roles),
            &limits,
            principals.clone(),
            instances.gates().clone(),
        );
        let mut routes = Routes::builder();
        routes
            .add_service(layer.layer(service.list()))
            .add_service(layer.layer(service.instances()))
            .add_service(layer.layer(service.server()));
        let calls = GrpcTimeout::new(routes.routes().prepare(), instances.gates().clone());
        storage.recover(&instances).await.unwrap();
        service.set_recovered();
        let readiness = Readiness::new(State::Serving);
        let commit_log = storage.metrics();
        let sources = Arc::new(Sources {
            instances,
            principals,
            service,
            readiness,
            credentials: None,
            limits,
            commit_log,
            #[cfg(feature = "cluster")]
            cluster: None,
        });
        let calls = calls.map_request(|request: HttpRequest<Body>| {
            request.map(|body| Body::new(RequestBody { body, has_ended: false }))
        });
        Self { calls: BoxCloneSyncService::new(calls), sources, _tasks: tasks, _storage: storage }
    }

    fn client(&self) -> Client {
        Client(self.calls.clone())
    }

    /// Every gauge of what clients can fill, and its value.
    fn gauges(&self) -> BTreeMap<String, String> {
        /// Of the process, of the clock, or of events, of which a call that was dropped may have caused
        /// fewer.
        const OTHERS: [&str; 8] = [
            "stickycas_start_time",
            "stickycas_busy",
            "stickycas_runtime_queue",
            "stickycas_log",
            "process_",
            "stickycas_limit_used{limit=\"event_bytes\"}",
            "stickycas_limit_used{limit=\"log_bytes\"}",
            "stickycas_limit_used{limit=\"instance_bytes\"}",
        ];
        let text = self.sources.text().unwrap();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge"));
        let gauges: Vec<&str> = types.collect();
        let rows = text.lines().filter_map(|line| line.rsplit_once(' '));
        rows.filter(|(series, _)| gauges.contains(&series.split('{').next().unwrap_or_default()))
            .filter(|(series, _)| !OTHERS.iter().any(|other| series.starts_with(other)))
            .map(|(series, value)| (series.to_owned(), value.to_owned()))
            .collect()
    }

    /// Waits until nothing is under way any more; the gauges then.
    async fn idle_gauges(&self) -> BTreeMap<String, String> {
        const IN_USE: [&str; 4] = [
            "stickycas_calls_open",
            "stickycas_accesses_waiting",
            "stickycas_unread_frames",
            "stickycas_limit_used{limit=\"uncommitted_bytes\"}",
        ];
        let (mut gauges, mut same) = (self.gauges(), 0);
        while same < 20 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let now = self.gauges();
            let idle = now
                .iter()
                .filter(|(series, _)| IN_USE.iter().any(|it| series.starts_with(it)))
                .all(|(_, value)| value == "0");
            same = if idle && now == gauges { same + 1 } else { 0 };
            gauges = now;
        }
        gauges
    }

    /// Waits until the gauges are these.
    async fn until_gauges(&self, expected: &BTreeMap<String, String>, polls: usize) {
        let equal = async {
            while self.gauges() != *expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(30), equal).await.is_err() {
            let now = self.gauges();
            let differ = now.iter().filter(|(series, value)| expected.get(*series) != Some(value));
            panic!("after {polls} polls: left behind: {:?}", differ.collect::<Vec<_>>());
        }
    }
}

impl Client {
    fn list(&self) -> StickyCasServiceClient<Calls> {
        StickyCasServiceClient::new(self.0.clone())
    }

    fn instances(&self) -> InstanceServiceClient<Calls> {
        InstanceServiceClient::new(self.0.clone())
    }

    async fn create(&self, name: &str) -> Result<String, Status> {
        let parameters = Parameters {
            processes: 2,
            warp_size: 2,
            read_size: 2,
            patience_choice: Some(PatienceChoice::EndlessPatience(EndlessPatience {})),
            ..Parameters::default()
        };
        let roster = PROCESSES.map(str::to_owned).to_vec();
        let request = CreateRequest { name: name.to_owned(), roster, parameters: Some(parameters) };
        let created = self.instances().create(of(CREATOR, request)).await?.into_inner();
        Ok(created.instance.unwrap().instance_id)
    }

    async fn append(&self, id: &str, process: &'static str) -> Result<AppendResult, Status> {
        let value = Bytes::from_static(process.as_bytes());
        let request = AppendRequest { instance_id: id.to_owned(), access_number: 1, value, no_wait: false };
        Ok(self.list().append(of(process, request)).await?.into_inner().result.unwrap())
    }

    async fn read(&self, id: &str, process: &'static str) -> Result<Vec<Bytes>, Status> {
        let request = ReadRequest { instance_id: id.to_owned(), access_number: 2, start: 0, no_wait: false };
        Ok(self.list().read(of(process, request)).await?.into_inner().result.unwrap().values)
    }

    async fn decide(&self, id: &str, process: &'static str) -> Result<(), Status> {
        let request = DecideRequest { instance_id: id.to_owned(), value: Bytes::from_static(DECISION) };
        self.list().decide(of(process, request)).await.map(|_| ())
    }

    async fn close(&self, id: &str) -> Result<(), Status> {
        let request = CloseRequest { instance_id: id.to_owned() };
        self.instances().close(of(CREATOR, request)).await.map(|_| ())
    }

    /// Plays one process to its end; steps that were made before are made again, and have the same outcome
    /// (F8b). `None`: it had decided before, and may only do that again.
    async fn play(self, id: String, process: &'static str) -> Result<Option<Played>, Status> {
        let played = match self.append(&id, process).await {
            Err(status) if reason(&status) == Some(RefusalReason::ProcessLeft) => None,
            appended => Some(Played { appended: appended?, read: self.read(&id, process).await? }),
        };
        self.decide(&id, process).await?;
        Ok(played)
    }
}

/// The answers to a process.
struct Played {
    appended: AppendResult,
    read: Vec<Bytes>,
}

fn reason(status: &Status) -> Option<RefusalReason> {
    RpcRefusal::from_status(status).map(|refused| refused.reason)
}

/// The call of a test, and whether processes play meanwhile.
#[derive(Clone, Copy)]
struct Case {
    call: fn(Client, String) -> Call,
    /// Whether correct processes play the instance meanwhile, and to its end.
    plays: bool,
}

impl Case {
    /// Makes the call, and drops it after so many polls. Returns whether it had ended by then, and the
    /// server.
    async fn run(self, durable: bool, polls: usize) -> (bool, Server) {
        let server = Server::start(durable).await;
        let client = server.client();
        let id = client.create("first").await.unwrap();
        let mut others = JoinSet::new();
        if self.plays {
            others.spawn(client.clone().play(id.clone(), "p2"));
        }
        let future = Some((self.call)(client.clone(), id.clone()));
        let ended = match (PolledAtMost { future, polls }).await {
            Some(outcome) => outcome.map(|()| true).unwrap(),
            None => false,
        };
        if self.plays {
            let one = client.clone().play(id.clone(), "p1").await.unwrap();
            let other = others.join_next().await.unwrap().unwrap().unwrap();
            assert_played(&[one, other]);
        }
        (ended, server)
    }

    /// Drops the call after one poll more each time, until it comes to its end before.
    async fn drop_at_every_poll(self) {
        for durable in [false, true] {
            let (_, undisturbed) = with_timeout(self.run(durable, usize::MAX)).await;
            let expected = with_timeout(undisturbed.idle_gauges()).await;
            drop(undisturbed);
            assert!(expected.len() > 20, "{expected:?}");
            let mut polls = 0;
            loop {
                let (ended, server) = with_timeout(self.run(durable, polls)).await;
                server.until_gauges(&expected, polls).await;
                if ended {
                    break;
                }
                polls += 1;
            }
            assert!(polls > 0, "a call that is never polled does nothing");
        }
    }
}

/// One of the two has won, and both read what it has appended.
fn assert_played(played: &[Option<Played>; 2]) {
    assert!(played.iter().any(Option::is_some));
    let won = |one: &Played| one.appended.position == Some(0);
    // Of one that had decided before, the answers are known from the other.
    let winner = match played {
        [Some(one), _] if won(one) => "p1",
        [_, Some(other)] if won(other) => "p2",
        [None, Some(_)] => "p1",
        [Some(_), None] => "p2",
        _ => panic!("nobody has won"),
    };
    for one in played.iter().flatten() {
        assert_eq!(one.read, [winner.as_bytes()]);
    }
    let winners = played.iter().flatten().filter(|it| won(it)).count();
    assert!(winners <= 1, "both have won");
}

async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it comes to its end")
}

#[tokio::test]
async fn an_append() {
    let call = |client: Client, id: String| -> Call {
        Box::pin(async move { client.append(&id, "p1").await.map(drop) })
    };
    Case { call, plays: true }.drop_at_every_poll().await;
}

#[tokio::test]
async fn a_read() {
    let call = |client: Client, id: String| -> Call {
        Box::pin(async move {
            client.append(&id, "p1").await?;
            client.read(&id, "p1").await.map(drop)
        })
    };
    Case { call, plays: true }.drop_at_every_poll().await;
}

#[tokio::test]
async fn a_decision() {
    let call = |client: Client, id: String| -> Call {
        Box::pin(async move { client.play(id, "p1").await.map(drop) })
    };
    Case { call, plays: true }.drop_at_every_poll().await;
}

#[tokio::test]
async fn an_attach_stream() {
    let call = |client: Client, id: String| -> Call {
        Box::pin(async move {
            let access = |number, op| Access { channel: 0, number, op: Some(op) };
            let value = Bytes::from_static(b"p1");
            let frames = [
                Hello { channel: 0, instance_id: id, incarnation: 0 }.into(),
                access(1, access::Op::Append(Append { value })).into(),
                access(2, access::Op::Read(Read { start: 0 })).into(),
                Decision { channel: 0, value: Bytes::from_static(DECISION) }.into(),
            ];
            let requests = tokio_stream::iter(frames.map(|frame| AttachRequest { frames: vec![frame] }));
            let mut responses = client.list().attach(of("p1", requests)).await?.into_inner();
            while responses.message().await?.is_some() {}
            Ok(())
        })
    };
    Case { call, plays: true }.drop_at_every_poll().await;
}

#[tokio::test]
async fn a_watch() {
    let call = |client: Client, id: String| -> Call {
        Box::pin(async move {
            let player = client.clone().play(id.clone(), "p1");
            let request = WatchRequest { instance_id: id, ..WatchRequest::default() };
            let watch = async {
                let mut events = client.instances().watch(of(CREATOR, request)).await?.into_inner();
                while events.message().await?.is_some() {}
                Ok(())
            };
            tokio::try_join!(player, watch).map(drop)
        })
    };
    Case { call, plays: true }.drop_at_every_poll().await;
}

#[tokio::test]
async fn a_create() {
    let call = |client: Client, _: String| -> Call {
        Box::pin(async move { client.create("another").await.map(drop) })
    };
    let case = Case { call, plays: false };
    for durable in [false, true] {
        let mut polls = 0;
        loop {
            let (ended, server) = with_timeout(case.run(durable, polls)).await;
            let client = server.client();
            let id = with_timeout(client.create("another")).await.unwrap();
            let list = client.instances().list(of(CREATOR, ListRequest::default())).await.unwrap();
            assert_eq!(list.into_inner().instances.len(), 2, "it was created once");
            let plays = PROCESSES.map(|process| client.clone().play(id.clone(), process));
            let [one, other] = plays;
            let (one, other) = with_timeout(async { tokio::join!(one, other) }).await;
            assert_played(&[one.unwrap(), other.unwrap()]);
            if ended {
                break;
            }
            polls += 1;
        }
    }
}

#[tokio::test]
async fn a_close() {
    let call = |client: Client, id: String| -> Call { Box::pin(async move { client.close(&id).await }) };
    let case = Case { call, plays: false };
    for durable in [false, true] {
        let mut polls = 0;
        loop {
            let (ended, server) = with_timeout(case.run(durable, polls)).await;
            let client = server.client();
            let list = client.instances().list(of(CREATOR, ListRequest::default())).await.unwrap();
            let [instance] = &list.into_inner().instances[..] else { panic!("it can still be read") };
            // It is closed or open: whichever, it can be closed.
            with_timeout(client.close(&instance.instance_id)).await.unwrap();
            let refused = with_timeout(client.append(&instance.instance_id, "p1")).await.unwrap_err();
            assert_eq!(reason(&refused), Some(RefusalReason::InstanceClosed));
            let gauges = with_timeout(server.idle_gauges()).await;
            assert_eq!(gauges["stickycas_instances{state=\"closed\"}"], "1", "{gauges:?}");
            if ended {
                break;
            }
            polls += 1;
        }
    }
}

#[tokio::test]
async fn calls_that_only_look() {
    let get = |client: Client, id: String| -> Call {
        Box::pin(async move {
            let instance = Some(get_request::Instance::InstanceId(id));
            client.instances().get(of(CREATOR, GetRequest { instance })).await.map(drop)
        })
    };
    let list = |client: Client, _: String| -> Call {
        Box::pin(async move { client.instances().list(of(CREATOR, ListRequest::default())).await.map(drop) })
    };
    let counts = |client: Client, _: String| -> Call {
        Box::pin(async move {
            let mut server = ServerServiceClient::new(client.0);
            server.get_counts(of(CREATOR, GetCountsRequest::default())).await.map(drop)
        })
    };
    for call in [get, list, counts] {
        Case { call, plays: false }.drop_at_every_poll().await;
    }
}
