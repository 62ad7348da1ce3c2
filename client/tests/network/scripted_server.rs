//! Servers of a cluster that answer as a test says. All share one world: instances of the process p1 alone,
//! whose list is the value that it has appended.

#![allow(unreachable_pub)]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use stickycas_client::{Client, InstanceId, Owner, RefusalReason, RetryPolicy};
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1;
use stickycas_proto::v1::client_frame::Frame as Sent;
use stickycas_proto::v1::instance_service_server::{InstanceService, InstanceServiceServer};
use stickycas_proto::v1::server_service_server::{ServerService, ServerServiceServer};
use stickycas_proto::v1::sticky_cas_service_server::{StickyCasService, StickyCasServiceServer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

type Answered<T> = Result<Response<T>, Status>;

/// What all servers know of the instances: the accesses that were accepted, by their numbers.
#[derive(Debug, Default)]
pub struct World(Mutex<HashMap<String, Accesses>>);

/// The accesses of an instance by their numbers, each with the value that it appends.
type Accesses = BTreeMap<u64, Option<Vec<u8>>>;

/// What a server does with requests for an instance.
#[derive(Clone, Debug)]
pub enum Reaction {
    /// It answers, as the owner.
    Serve,
    /// It refuses, and names this owner.
    NotOwner(Option<Owner>),
    /// It refuses so many requests of this kind for their rate, and serves.
    Busy(&'static str, u32),
    /// It reads the log of the shard: it refuses so often, and serves then.
    Recovering(u32),
    /// It serves, accepts one access, and answers that with OWNER_LOST and this owner.
    LoseAfterAccepting(Option<Owner>),
    /// It serves, accepts one access, and is gone: nobody listens at its address any more.
    DieAfterAccepting,
    /// It serves, accepts accesses, and answers none.
    LeaveUnanswered,
}

/// See the module.
#[derive(Clone)]
pub struct Scripted {
    pub address: String,
    state: Arc<State>,
    thread: Arc<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    world: Arc<World>,
    reactions: Mutex<HashMap<String, Reaction>>,
    /// Of instances that are not among them.
    usual: Mutex<Option<Reaction>>,
    /// What was asked, in order.
    asked: Mutex<Vec<String>>,
    /// How many frames each message on Attach had; 0: the client has ended its side of a stream.
    messages: Mutex<Vec<usize>>,
    /// The pages of List, each of some ids.
    pages: Mutex<Vec<Vec<u128>>>,
    /// How many page tokens it forgets, as if it were started anew.
    forgets: Mutex<u32>,
    /// The shards that each of them is of, and how many there are; 0: the server does not tell.
    shards_of_pages: Mutex<(Vec<Vec<u32>>, u32)>,
    /// The addresses of the cluster, this one included.
    cluster: Mutex<Vec<String>>,
    /// Differs from that of every other server.
    started: Option<SystemTime>,
    /// Ends the server.
    end: Mutex<Option<tokio::sync::oneshot::Sender<()>>>,
}

impl Scripted {
    /// A server that serves every instance.
    pub fn start(world: &Arc<World>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = tokio::sync::oneshot::channel();
        let started = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(address.port().into()));
        let state = State { world: world.clone(), started, end: Mutex::new(Some(end)), ..State::default() };
        let address = address.to_string();
        let state = Arc::new(state);
        let service = Service(state.clone());
        let serving = Server::builder()
            .add_service(StickyCasServiceServer::new(service.clone()))
            .add_service(InstanceServiceServer::new(service.clone()))
            .add_service(ServerServiceServer::new(service));
        // A runtime of its own: with it end its connections, which are tasks of their own.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    _ = serving.serve_with_incoming(TcpListenerStream::new(listener)) => {}
                    _ = ended => {}
                }
            });
        });
        Self { address, state, thread: Arc::new(thread) }
    }

    pub fn react(&self, instance: InstanceId, reaction: Reaction) {
        self.state.reactions.lock().unwrap().insert(instance.to_string(), reaction);
    }

    pub fn react_to_all(&self, reaction: Reaction) {
        *self.state.usual.lock().unwrap() = Some(reaction);
    }

    /// The owner that another server names.
    pub fn owner(&self, epoch: u64) -> Option<Owner> {
        Some(Owner { address: self.address.clone(), epoch })
    }

    pub fn lists(&self, pages: &[&[u128]]) {
        *self.state.pages.lock().unwrap() = pages.iter().map(|page| page.to_vec()).collect();
    }

    /// It forgets the next so many page tokens.
    pub fn forgets_page_tokens(&self, count: u32) {
        *self.state.forgets.lock().unwrap() = count;
    }

    /// The pages are of these of so many shards.
    pub fn lists_of(&self, shards_of_pages: &[&[u32]], shards: u32) {
        let shards_of_pages = shards_of_pages.iter().map(|page| page.to_vec()).collect();
        *self.state.shards_of_pages.lock().unwrap() = (shards_of_pages, shards);
    }

    /// What it names as its cluster.
    pub fn names(&self, cluster: &[&Self]) {
        *self.state.cluster.lock().unwrap() = cluster.iter().map(|server| server.address.clone()).collect();
    }

    /// What it was asked, except for its cluster: a client asks that beside what it does, once.
    pub fn asked(&self) -> Vec<String> {
        let mut asked = self.state.asked.lock().unwrap().clone();
        asked.retain(|asked| asked != "cluster");
        asked
    }

    /// How many frames each message on Attach had; 0: the client has ended its side of a stream.
    pub fn messages(&self) -> Vec<usize> {
        std::mem::take(&mut self.state.messages.lock().unwrap())
    }

    /// How often it was asked this.
    pub fn times_asked(&self, what: &str) -> usize {
        self.state.asked.lock().unwrap().iter().filter(|asked| asked.starts_with(what)).count()
    }

    pub async fn kill(&self) {
        drop(self.state.end.lock().unwrap().take());
        while !self.thread.is_finished() {
            tokio::task::yield_now().await;
        }
    }
}

/// A way to a server that can be paused, as a server is by SIGSTOP: then connections and bytes are taken, and
/// nothing is answered.
pub struct Pausable {
    pub address: String,
    paused: watch::Sender<bool>,
}

impl Pausable {
    /// `at_connect` is called for each connection that comes while it is paused.
    pub async fn start(target: &Scripted, at_connect: impl Fn() + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (paused, is_paused) = watch::channel(false);
        let target = target.address.clone();
        tokio::spawn(async move {
            let mut taken = Vec::new();
            while let Ok((mut client, _)) = listener.accept().await {
                if *is_paused.borrow() {
                    at_connect();
                    taken.push(client);
                    continue;
                }
                let (target, mut is_paused) = (target.clone(), is_paused.clone());
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
                        _ = is_paused.wait_for(|paused| *paused) => {}
                    }
                    // Open, and silent.
                    std::future::pending::<()>().await;
                });
            }
        });
        Self { address, paused }
    }

    pub fn pause(&self) {
        self.paused.send_replace(true);
    }

    /// The owner that another server names.
    pub fn owner(&self, epoch: u64) -> Option<Owner> {
        Some(Owner { address: self.address.clone(), epoch })
    }
}

/// A client of p1 that is given these servers.
pub fn client_of(servers: &[&Scripted], give_up_after: Duration) -> Client {
    let policy = RetryPolicy {
        first: Duration::from_millis(1),
        longest: Duration::from_millis(8),
        give_up_after,
        ..RetryPolicy::default()
    };
    let url = |server: &&Scripted| format!("http://{}", server.address);
    let (first, others) = servers.split_first().unwrap();
    let builder =
        others.iter().fold(Client::builder(url(first)), |builder, server| builder.server(url(server)));
    builder.principal("p1").retry(policy).connect_lazy().unwrap()
}

#[derive(Clone)]
struct Service(Arc<State>);

impl State {
    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    fn reaction(&self, instance: &str) -> Reaction {
        let usual = || self.usual.lock().unwrap().clone();
        let reaction = self.reactions.lock().unwrap().get(instance).cloned();
        reaction.or_else(usual).unwrap_or(Reaction::Serve)
    }

    /// Whether this server answers for the instance.
    fn check(&self, instance: &str) -> Result<(), RpcRefusal> {
        match self.reaction(instance) {
            Reaction::NotOwner(owner) => Err(refusal(RefusalReason::NotOwner, owner)),
            Reaction::Recovering(times @ 1..) => {
                let fewer = Reaction::Recovering(times - 1);
                self.reactions.lock().unwrap().insert(instance.to_owned(), fewer);
                Err(refusal(RefusalReason::Recovering, None))
            }
            _ => Ok(()),
        }
    }

    /// Whether it takes a request of this kind on a stream.
    fn check_rate(&self, instance: &str, kind: &str) -> Result<(), RpcRefusal> {
        match self.reaction(instance) {
            Reaction::Busy(busy, times @ 1..) if busy == kind => {
                let fewer = Reaction::Busy(busy, times - 1);
                self.reactions.lock().unwrap().insert(instance.to_owned(), fewer);
                Err(RpcRefusal::new(RefusalReason::RateExceeded, "too fast").with_retry_after(Duration::ZERO))
            }
            _ => Ok(()),
        }
    }

    /// Takes an access, and says what becomes of its answer.
    fn accept(&self, instance: &str, number: u64, value: Option<Vec<u8>>) -> Result<(), RpcRefusal> {
        self.world.0.lock().unwrap().entry(instance.to_owned()).or_default().entry(number).or_insert(value);
        match self.reaction(instance) {
            Reaction::LoseAfterAccepting(owner) => {
                let lost = Reaction::NotOwner(owner.clone());
                self.reactions.lock().unwrap().insert(instance.to_owned(), lost);
                Err(refusal(RefusalReason::OwnerLost, owner))
            }
            Reaction::DieAfterAccepting => {
                drop(self.end.lock().unwrap().take());
                Err(RpcRefusal::internal())
            }
            Reaction::LeaveUnanswered => Err(RpcRefusal::internal()),
            _ => Ok(()),
        }
    }

    fn welcome(&self, instance: &str) -> v1::Welcome {
        let accepted = self.world.0.lock().unwrap().get(instance).map_or(0, |accesses| accesses.len() as u64);
        let append = (accepted > 0).then(|| v1::FirstAppend { phase: 1, result: Some(appended()) });
        let own = v1::Own { process: 1, next_access_number: accepted + 1, append, ..v1::Own::default() };
        let parameters = Params::try_new(ParamsSpec::new(1, 1, 1)).unwrap();
        let parameters = v1::Parameters { seed: Some(0), ..v1::Parameters::from(&parameters) };
        v1::Welcome { channel: 0, session: 1, own: Some(own), parameters: Some(parameters) }
    }

    /// The answers that are due to a frame.
    fn frame(&self, instance: &str, frame: Sent) -> Vec<v1::server_frame::Frame> {
        use v1::server_frame::Frame;
        match frame {
            Sent::Hello(_) => {
                self.note(format!("hello {instance}"));
                match self.check(instance) {
                    Ok(()) => vec![Frame::Welcome(Box::new(self.welcome(instance)))],
                    Err(refusal) => vec![Frame::Refusal(Box::new(refusal.to_frame(0, None)))],
                }
            }
            Sent::Access(v1::Access { number, op, .. }) => {
                self.note(format!("access {number} of {instance}"));
                let value = match &op {
                    Some(v1::access::Op::Append(append)) => Some(append.value.to_vec()),
                    _ => None,
                };
                let taken = self.check_rate(instance, "access");
                if let Err(refusal) = taken.and_then(|()| self.accept(instance, number, value)) {
                    if refusal.reason == RefusalReason::Internal {
                        return Vec::new();
                    }
                    let number = stickycas_client::AccessNumber::new(number);
                    return vec![Frame::Refusal(Box::new(refusal.to_frame(0, number)))];
                }
                let result = match op {
                    Some(v1::access::Op::Append(_)) => v1::answer::Result::Append(appended()),
                    _ => {
                        let world = self.world.0.lock().unwrap();
                        let values = world[instance].values().flatten().map(|value| value.clone().into());
                        let values: Vec<_> = values.collect();
                        let length = u32::try_from(values.len()).unwrap();
                        v1::answer::Result::Read(v1::ReadResult { values, length, ..Default::default() })
                    }
                };
                let answer = v1::Answer { channel: 0, number, phase: number, result: Some(result) };
                vec![Frame::Answer(answer)]
            }
            Sent::Decision(_) => {
                self.note(format!("decision of {instance}"));
                match self.check_rate(instance, "decision") {
                    Ok(()) => vec![Frame::Decided(v1::Decided { channel: 0 })],
                    Err(refusal) => vec![Frame::Refusal(Box::new(refusal.to_frame(0, None)))],
                }
            }
        }
    }
}

fn refusal(reason: RefusalReason, owner: Option<Owner>) -> RpcRefusal {
    let refusal = RpcRefusal::new(reason, "another server is the owner");
    match owner {
        Some(owner) => refusal.with_owner(owner),
        None => refusal,
    }
}

fn appended() -> v1::AppendResult {
    v1::AppendResult { outcome: v1::AppendOutcome::Success.into(), position: Some(0) }
}

#[tonic::async_trait]
impl StickyCasService for Service {
    type AttachStream = UnboundedReceiverStream<Result<v1::AttachResponse, Status>>;

    async fn append(&self, request: Request<v1::AppendRequest>) -> Answered<v1::AppendResponse> {
        let v1::AppendRequest { instance_id, access_number, value, .. } = request.into_inner();
        self.0.note(format!("access {access_number} of {instance_id}"));
        self.0.check(&instance_id)?;
        self.0.accept(&instance_id, access_number, Some(value.to_vec()))?;
        Ok(Response::new(v1::AppendResponse { phase: 1, result: Some(appended()) }))
    }

    async fn read(&self, _: Request<v1::ReadRequest>) -> Answered<v1::ReadResponse> {
        Err(Status::unimplemented("read"))
    }

    async fn decide(&self, request: Request<v1::DecideRequest>) -> Answered<v1::DecideResponse> {
        let instance = request.into_inner().instance_id;
        self.0.note(format!("decision of {instance}"));
        self.0.check(&instance)?;
        Ok(Response::new(v1::DecideResponse {}))
    }

    async fn attach(&self, request: Request<Streaming<v1::AttachRequest>>) -> Answered<Self::AttachStream> {
        let (state, mut frames) = (self.0.clone(), request.into_inner());
        let (answers, stream) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            // Empty: no instance is open.
            let mut instance = String::new();
            while let Ok(Some(request)) = frames.message().await {
                state.messages.lock().unwrap().push(request.frames.len());
                for frame in request.frames.into_iter().filter_map(|frame| frame.frame) {
                    let frames = match &frame {
                        Sent::Hello(v1::Hello { instance_id, .. }) => {
                            let frames = state.frame(instance_id, frame.clone());
                            if let [v1::server_frame::Frame::Welcome(_)] = frames[..] {
                                instance.clone_from(instance_id);
                            }
                            frames
                        }
                        Sent::Access(access) if instance.is_empty() => {
                            let closed = RpcRefusal::new(RefusalReason::Malformed, "say hello first");
                            let number = stickycas_client::AccessNumber::new(access.number);
                            vec![v1::server_frame::Frame::Refusal(Box::new(closed.to_frame(0, number)))]
                        }
                        _ => state.frame(&instance, frame),
                    };
                    let frames = frames.into_iter().map(|frame| v1::ServerFrame { frame: Some(frame) });
                    let _ = answers.send(Ok(v1::AttachResponse { frames: frames.collect() }));
                }
            }
            state.messages.lock().unwrap().push(0);
        });
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }
}

#[tonic::async_trait]
impl InstanceService for Service {
    type WatchStream = UnboundedReceiverStream<Result<v1::WatchResponse, Status>>;

    async fn create(&self, _: Request<v1::CreateRequest>) -> Answered<v1::CreateResponse> {
        Err(Status::unimplemented("create"))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Answered<v1::GetResponse> {
        match request.into_inner().instance {
            Some(v1::get_request::Instance::InstanceId(instance)) => {
                self.0.note(format!("get {instance}"));
                self.0.check(&instance)?;
                Err(Status::unimplemented("get"))
            }
            // Every name is that of the first instance.
            _ => {
                let instance_id = InstanceId::new(1).to_string();
                let v1::Welcome { own, parameters, .. } = self.0.welcome(&instance_id);
                let some_time = Some(prost_types::Duration { seconds: 1, nanos: 0 });
                let instance = Some(v1::Instance {
                    instance_id,
                    parameters,
                    retention: some_time,
                    idle_lifetime: some_time,
                    ..v1::Instance::default()
                });
                let status = v1::Status { state: v1::State::Gathering.into(), ..v1::Status::default() };
                Ok(Response::new(v1::GetResponse { instance, status: Some(status), own }))
            }
        }
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Answered<v1::ListResponse> {
        let token = request.into_inner().page_token;
        self.0.note(format!("list {token}"));
        let mut forgets = self.0.forgets.lock().unwrap();
        if *forgets > 0 && !token.is_empty() {
            *forgets -= 1;
            return Err(RpcRefusal::new(RefusalReason::Malformed, "started anew").into());
        }
        // A token is of use at its server alone.
        let number = match token.as_str() {
            "" => 0,
            token => {
                let text = token.strip_prefix(&format!("{:p} ", Arc::as_ptr(&self.0)));
                text.ok_or_else(|| Status::invalid_argument("a token of another server"))?.parse().unwrap()
            }
        };
        let pages = self.0.pages.lock().unwrap();
        let page = pages.get(number).cloned().unwrap_or_default();
        let more = number + 1 < pages.len();
        let (shards_of_pages, shards) = &*self.0.shards_of_pages.lock().unwrap();
        let summary = |&id: &u128| v1::InstanceSummary {
            instance_id: InstanceId::new(id).to_string(),
            processes: 1,
            state: v1::State::Gathering.into(),
            ..v1::InstanceSummary::default()
        };
        Ok(Response::new(v1::ListResponse {
            instances: page.iter().map(summary).collect(),
            next_page_token: if more {
                format!("{:p} {}", Arc::as_ptr(&self.0), number + 1)
            } else {
                String::new()
            },
            other_servers: if more { Vec::new() } else { self.0.cluster.lock().unwrap().clone() },
            listed_shards: shards_of_pages.get(number).cloned().unwrap_or_default(),
            shards: *shards,
        }))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Answered<Self::WatchStream> {
        let instance = request.into_inner().instance_id;
        self.0.note(format!("watch {instance}"));
        self.0.check(&instance)?;
        Ok(Response::new(UnboundedReceiverStream::new(mpsc::unbounded_channel().1)))
    }

    async fn close(&self, request: Request<v1::CloseRequest>) -> Answered<v1::CloseResponse> {
        let instance = request.into_inner().instance_id;
        self.0.note(format!("close {instance}"));
        self.0.check(&instance)?;
        Ok(Response::new(v1::CloseResponse {}))
    }
}

#[tonic::async_trait]
impl ServerService for Service {
    async fn get_counts(&self, _: Request<v1::GetCountsRequest>) -> Answered<v1::GetCountsResponse> {
        let all = Some(v1::Counts { calls_abandoned: 3, ..v1::Counts::default() });
        let other_servers = self.0.cluster.lock().unwrap().clone();
        let start_time = self.0.started.map(Into::into);
        let counts = v1::GetCountsResponse { all, other_servers, start_time, ..Default::default() };
        Ok(Response::new(counts))
    }

    async fn get_cluster(&self, _: Request<v1::GetClusterRequest>) -> Answered<v1::GetClusterResponse> {
        self.0.note("cluster".to_owned());
        let cluster = self.0.cluster.lock().unwrap();
        let servers = cluster.iter().map(|address| v1::ClusterServer {
            name: address.clone(),
            address: address.clone(),
            ..v1::ClusterServer::default()
        });
        Ok(Response::new(v1::GetClusterResponse {
            shards: 64,
            servers: servers.collect(),
            ..Default::default()
        }))
    }
}
