//! A server of a few hundred lines for instances of two processes, that can be told to lie: over unary calls
//! and over Attach. It knows no sessions and no timeouts; process 1 always comes first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use stickycas_model::types::AccessNumber;
use stickycas_proto::principal::PRINCIPAL_KEY;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1;
use stickycas_proto::v1::RefusalReason;
use stickycas_proto::v1::client_frame::Frame;
use stickycas_proto::v1::instance_service_server::{InstanceService, InstanceServiceServer};
use stickycas_proto::v1::sticky_cas_service_server::{StickyCasService, StickyCasServiceServer};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Pending, StreamExt as _};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    /// Both processes of one warp are told that they have won its phase.
    TwoWinners,
    /// Two warps are told that they have won the same position.
    SamePosition,
    /// Process 2 is shown another entry than process 1.
    TwoLists,
    /// Process 2 is shown the entries in another order.
    Reordered,
    /// Both are shown an entry that nobody appended.
    Forged,
    /// Process 2 is shown fewer entries than it is told there are.
    ShortRead,
    /// Process 2 is shown a shorter list than process 1 was before.
    Shrunk,
    /// Process 2 is answered in the phase of the other warp.
    OtherWarp,
    /// Process 2 is answered twice in one phase.
    SamePhase,
    /// The decision of process 2 is not taken: another one is claimed to stand.
    DecisionRefused,
    /// Process 2 is told that it is none.
    ReadRefused,
}

impl Lie {
    /// The size of its warps: 2 means one warp.
    pub(crate) fn warp_size(self) -> u64 {
        if self == Self::TwoWinners { 2 } else { 1 }
    }
}

/// Serves on a free port. Its address.
pub(crate) async fn start(lie: Lie) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let liar = Liar(Arc::new(Lists { lie, lists: Mutex::default() }));
    let server = Server::builder()
        .add_service(StickyCasServiceServer::new(liar))
        .add_service(InstanceServiceServer::new(Creator(AtomicU64::new(1))));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    url
}

/// What the processes of one instance have appended, in order.
type List = watch::Sender<Vec<Bytes>>;

struct Lists {
    lie: Lie,
    lists: Mutex<HashMap<String, Arc<List>>>,
}

impl Lists {
    fn list(&self, instance: &str) -> Arc<List> {
        Arc::clone(self.lists.lock().unwrap().entry(instance.to_owned()).or_default())
    }

    /// The phase of a process in a round.
    fn phase(&self, process: u64, round: u64) -> u64 {
        if self.lie.warp_size() == 2 { round } else { 2 * (round - 1) + process }
    }

    async fn append(&self, instance: &str, process: u64, value: Bytes) -> (u64, v1::AppendResult) {
        let list = self.list(instance);
        let appended = usize::try_from(process - 1).unwrap();
        list.subscribe().wait_for(|list| list.len() >= appended).await.unwrap();
        list.send_modify(|list| list.push(value));
        let won = |position| v1::AppendResult {
            outcome: v1::AppendOutcome::Success.into(),
            position: Some(position),
        };
        let lost = v1::AppendResult { outcome: v1::AppendOutcome::Failed.into(), position: None };
        let result = match (process, self.lie) {
            (1, _) | (_, Lie::SamePosition | Lie::TwoWinners) => won(0),
            (_, lie) if lie.warp_size() == 2 => lost,
            _ => won(1),
        };
        let phase = if process == 2 && self.lie == Lie::OtherWarp { 1 } else { self.phase(process, 1) };
        (phase, result)
    }

    async fn read(
        &self,
        instance: &str,
        process: u64,
        start: u32,
    ) -> Result<(u64, v1::ReadResult), RpcRefusal> {
        let list = self.list(instance);
        let mut values = list.subscribe().wait_for(|list| list.len() == 2).await.unwrap().clone();
        let warps = if self.lie.warp_size() == 2 { 1 } else { 2 };
        values.truncate(warps as usize);
        let mut length = warps;
        let other = Bytes::from_static(b"another.");
        match (self.lie, process) {
            (Lie::Forged, _) | (Lie::TwoLists, 2) => values[0] = other,
            (Lie::Reordered, 2) => values.reverse(),
            (Lie::ShortRead, 2) if start == 0 => values.truncate(1),
            (Lie::Shrunk, 2) => {
                values.truncate(1);
                length = 1;
            }
            (Lie::ReadRefused, 2) => return Err(RpcRefusal::new(RefusalReason::NotAMember, "who are you?")),
            _ => {}
        }
        // Whoever needs a second read is told the rest in the round after.
        let values = values.split_off(values.len().min(start as usize));
        let round = if self.lie == Lie::SamePhase && process == 2 { 1 } else { 2 + u64::from(start) };
        Ok((self.phase(process, round), v1::ReadResult { start, values, length, sealed: true }))
    }

    fn decide(&self, process: u64) -> Result<(), RpcRefusal> {
        if self.lie == Lie::DecisionRefused && process == 2 {
            return Err(RpcRefusal::new(RefusalReason::DecisionDiffers, "you have decided otherwise"));
        }
        Ok(())
    }
}

struct Liar(Arc<Lists>);

/// 1 or 2.
fn process<T>(request: &Request<T>) -> u64 {
    let principal = request.metadata().get(PRINCIPAL_KEY).unwrap().to_str().unwrap();
    principal.rsplit('-').next().unwrap().parse().unwrap()
}

#[tonic::async_trait]
impl StickyCasService for Liar {
    async fn append(
        &self,
        request: Request<v1::AppendRequest>,
    ) -> Result<Response<v1::AppendResponse>, Status> {
        let process = process(&request);
        let v1::AppendRequest { instance_id, value, .. } = request.into_inner();
        let (phase, result) = self.0.append(&instance_id, process, value).await;
        Ok(Response::new(v1::AppendResponse { phase, result: Some(result) }))
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<v1::ReadResponse>, Status> {
        let process = process(&request);
        let v1::ReadRequest { instance_id, start, .. } = request.into_inner();
        let (phase, result) = self.0.read(&instance_id, process, start).await?;
        Ok(Response::new(v1::ReadResponse { phase, result: Some(result) }))
    }

    async fn decide(
        &self,
        request: Request<v1::DecideRequest>,
    ) -> Result<Response<v1::DecideResponse>, Status> {
        self.0.decide(process(&request))?;
        Ok(Response::new(v1::DecideResponse {}))
    }

    type AttachStream = UnboundedReceiverStream<Result<v1::AttachResponse, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let (out, answers) = unbounded_channel();
        let member = MemberStream { lists: Arc::clone(&self.0), process: process(&request), out };
        tokio::spawn(member.serve(request.into_inner()));
        Ok(Response::new(UnboundedReceiverStream::new(answers)))
    }
}

/// One Attach stream.
struct MemberStream {
    lists: Arc<Lists>,
    process: u64,
    out: UnboundedSender<Result<v1::AttachResponse, Status>>,
}

impl MemberStream {
    async fn serve(self, mut requests: Streaming<v1::AttachRequest>) {
        let member = Arc::new(self);
        let mut instances = HashMap::new();
        while let Some(Ok(request)) = requests.next().await {
            for frame in request.frames {
                match frame.frame.unwrap() {
                    Frame::Hello(hello) => {
                        instances.insert(hello.channel, hello.instance_id);
                        member.welcome(hello.channel);
                    }
                    Frame::Access(access) => {
                        let (member, instance) = (Arc::clone(&member), instances[&access.channel].clone());
                        tokio::spawn(async move { member.access(&instance, access).await });
                    }
                    Frame::Decision(decision) => match member.lists.decide(member.process) {
                        Ok(()) => member.send(v1::Decided { channel: decision.channel }),
                        Err(refused) => member.send(refused.to_frame(decision.channel, None)),
                    },
                }
            }
        }
    }

    fn send(&self, frame: impl Into<v1::ServerFrame>) {
        // Whoever is gone needs no answer.
        let _ = self.out.send(Ok(v1::AttachResponse { frames: vec![frame.into()] }));
    }

    fn welcome(&self, channel: u32) {
        let process = u32::try_from(self.process).unwrap();
        let own = v1::Own { process, next_access_number: 1, ..v1::Own::default() };
        self.send(v1::Welcome { channel, session: 1, own: Some(own), parameters: None });
    }

    async fn access(&self, instance: &str, access: v1::Access) {
        let v1::Access { channel, number, op } = access;
        let (phase, result) = match op.unwrap() {
            v1::access::Op::Append(append) => {
                let (phase, result) = self.lists.append(instance, self.process, append.value).await;
                (phase, v1::answer::Result::Append(result))
            }
            v1::access::Op::Read(read) => match self.lists.read(instance, self.process, read.start).await {
                Ok((phase, result)) => (phase, v1::answer::Result::Read(result)),
                Err(refused) => return self.send(refused.to_frame(channel, AccessNumber::new(number))),
            },
        };
        self.send(v1::Answer { channel, number, phase, result: Some(result) });
    }
}

/// Creates instances, and nothing else.
struct Creator(AtomicU64);

#[tonic::async_trait]
impl InstanceService for Creator {
    async fn create(&self, _: Request<v1::CreateRequest>) -> Result<Response<v1::CreateResponse>, Status> {
        let instance_id = format!("{:032x}", self.0.fetch_add(1, Ordering::Relaxed));
        let instance = v1::Instance { instance_id, ..v1::Instance::default() };
        Ok(Response::new(v1::CreateResponse { instance: Some(instance), created: true }))
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type WatchStream = Pending<Result<v1::WatchResponse, Status>>;

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn close(&self, _: Request<v1::CloseRequest>) -> Result<Response<v1::CloseResponse>, Status> {
        Ok(Response::new(v1::CloseResponse {}))
    }
}
