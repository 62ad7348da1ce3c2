//! The calls of clients as the services make them: what is told leaves when it is committed, or confirmed.

use std::sync::Arc;
use std::task::{Context, Waker};

use prost::Message as _;
use stickycas_model::access::{Access, Answer, Op};
use stickycas_model::history::Recorded;
use stickycas_model::machine::{Entry, State};
use stickycas_model::params::{AppendWindow, Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Value};
use stickycas_proto::attach::EncodedResponse;
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::{AttachResponse, RefusalReason};

use crate::auth::Principal;
use crate::instances::{CreateSpec, Instance, Instances, Outbox, Polled, Receiver, SessionSink, UnaryAnswer};

pub(super) const FIRST: ProcessId = ProcessId::FIRST;

/// What a client is told of an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) phase: Option<Phase>,
    pub(super) answer: Answer,
    pub(super) values: Vec<Vec<u8>>,
}

/// What an instance shows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) list: Vec<(Vec<u8>, ProcessId, Phase)>,
    pub(super) events: Vec<Recorded>,
}

/// Two processes in one warp; each waits for the other without end. Any phase may append, up to two entries.
pub(super) fn spec(name: &str) -> CreateSpec {
    let (patience, append_window) = (Patience::Endless, AppendWindow::Open);
    let spec = ParamsSpec { patience, append_window, ..ParamsSpec::new(2, 2, 1) };
    spec_of(name, spec, vec!["p1".to_owned(), "p2".to_owned()])
}

pub(super) fn spec_of(name: &str, spec: ParamsSpec, roster: Vec<String>) -> CreateSpec {
    CreateSpec {
        name: InstanceName::optional(name).unwrap(),
        params: Params::try_new(spec).unwrap(),
        seed_given: false,
        roster,
    }
}

/// As the layer of unary calls tells the outcome of a call that comes now.
async fn told<T>(
    instances: &Instances,
    call: impl Future<Output = Result<T, RpcRefusal>>,
) -> Result<T, RpcRefusal> {
    let gates = instances.gates().of_call();
    let refused = match call.await {
        Ok(outcome) => return Ok(outcome),
        Err(refused) => refused,
    };
    let is_told_without_space = refused.reason == RefusalReason::TooManyInstances;
    gates.refusal(Some(refused.reason), is_told_without_space).await?;
    Err(refused)
}

pub(super) async fn create(
    instances: Arc<Instances>,
    spec: CreateSpec,
) -> Result<(InstanceId, bool), RpcRefusal> {
    let creates = async {
        let created = instances.create(&Principal::new("creator"), spec).await?.committed().await;
        created.map(|(instance, is_new)| (instance.config().id, is_new))
    };
    told(&instances, creates).await
}

pub(super) async fn find(instances: Arc<Instances>, name: &str) -> Result<InstanceId, RpcRefusal> {
    let name = InstanceRef::Name(InstanceName::optional(name).unwrap().unwrap());
    let finds = async { instances.find(&name).await.map(|instance| instance.config().id) };
    told(&instances, finds).await
}

pub(super) fn append(text: &str) -> Op {
    Op::Append(Value::new(text.as_bytes()).unwrap())
}

pub(super) const READ: Op = Op::Read { start: Position::new(0) };

fn access_of(process: ProcessId, session: Option<SessionId>, number: u64, op: Op) -> Access {
    Access { process, session, number: AccessNumber::new(number).unwrap(), op, no_wait: false }
}

/// A unary access; true if it came before.
pub(super) async fn access(
    instances: Arc<Instances>,
    id: InstanceId,
    process: ProcessId,
    number: u64,
    op: Op,
) -> Result<(Answered, bool), RpcRefusal> {
    let called = async {
        let called = instances.get(id)?.call(access_of(process, None, number, op));
        let completed = match called.answer {
            UnaryAnswer::Known(known) => known.committed().await.flatten()?,
            UnaryAnswer::Waiting(waiter) => {
                waiter.await.map_err(|_| RpcRefusal::internal())?.map_err(|why| *why)?
            }
        };
        let values = completed.values().map(<[u8]>::to_vec).collect();
        Ok((Answered { phase: completed.phase, answer: completed.answer, values }, called.repeated))
    };
    told(&instances, called).await
}

/// Get, with every entry, and the events that are kept.
pub(super) async fn get(instances: Arc<Instances>, id: InstanceId) -> Result<Shown, RpcRefusal> {
    let shown = async {
        let instance = instances.get(id)?;
        let snapshot = instance.snapshot().committed().await.flatten()?;
        let entry = |entry: &Entry| (entry.value.as_bytes().to_vec(), entry.process, entry.phase);
        let list = snapshot.list.range(Position::new(0), snapshot.status.length).map(entry).collect();
        Ok(Shown { list, events: instance.kept_events().2.read().collect() })
    };
    told(&instances, shown).await
}

/// Closes an instance.
pub(super) async fn close(instances: Arc<Instances>, id: InstanceId) -> Result<(), RpcRefusal> {
    let closed = async { instances.get(id)?.close().committed().await.flatten() };
    told(&instances, closed).await
}

/// A page of List with every instance of a server.
pub(super) async fn list(instances: Arc<Instances>) -> Result<Vec<(InstanceId, State)>, RpcRefusal> {
    list_after(instances, None).await
}

/// The page of List behind this id.
pub(super) async fn list_after(
    instances: Arc<Instances>,
    after: Option<InstanceId>,
) -> Result<Vec<(InstanceId, State)>, RpcRefusal> {
    let page = instances.after(after, 10_000);
    let states: Vec<_> = page.iter().map(|instance| (instance.config().id, instance.state())).collect();
    let mut listed = Vec::new();
    for (id, state) in states {
        match state.committed().await.flatten() {
            Ok(state) => listed.push((id, state)),
            Err(gone) if gone.reason == RefusalReason::InstanceUnknown => {}
            Err(refused) => return Err(refused),
        }
    }
    instances.gates().ownership().await?;
    Ok(listed)
}

/// The client's end of an Attach stream.
pub(super) struct Stream {
    outbox: Arc<Outbox>,
    receiver: Receiver,
}

impl Stream {
    pub(super) fn new() -> Self {
        Self { outbox: Arc::new(Outbox::new(1_000)), receiver: Receiver::default() }
    }

    pub(super) fn sink(&self) -> SessionSink {
        SessionSink { outbox: self.outbox.clone(), channel: 0 }
    }

    pub(super) fn hello(&self, instance: &Instance, process: ProcessId) {
        instance.hello(process, 0, &self.sink(), std::time::Instant::now()).unwrap();
    }

    pub(super) fn access_of(process: ProcessId, session: Option<SessionId>, number: u64, op: Op) -> Access {
        access_of(process, session, number, op)
    }

    /// The frames that have come since the last call.
    pub(super) fn take(&mut self) -> Vec<Frame> {
        let mut taken = Vec::new();
        let cx = &mut Context::from_waker(Waker::noop());
        while let Polled::Frames(EncodedResponse(bytes)) =
            self.outbox.poll(&mut self.receiver, 100, usize::MAX, cx)
        {
            let frames = AttachResponse::decode(&*bytes).unwrap().frames;
            taken.extend(frames.into_iter().filter_map(|frame| frame.frame));
        }
        taken
    }
}

/// Why a call was refused.
#[track_caller]
pub(super) fn reason<T: std::fmt::Debug>(outcome: Result<T, RpcRefusal>) -> RefusalReason {
    outcome.unwrap_err().reason
}
