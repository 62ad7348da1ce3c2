//! Clients of a few instances: their requests are drawn from a seed, and everything that they are told is
//! recorded.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use prost::Message as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use stickycas_model::access::{Access, Op};
use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::machine::{MemberStatus, State};
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Position, ProcessId, SessionId, Value};
use stickycas_proto::attach::EncodedResponse;
use stickycas_proto::convert::member_state::MemberState;
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::{self, RefusalReason};

use super::super::instance::{UnaryAccess, UnaryAnswer};
use super::super::{CreateSpec, Instance, InstanceRef, Outbox, Polled, Receiver, SessionSink};
use super::calls::{access, poll};
use super::server::Server;
use super::told::{Fact, Told, answer, events};
use crate::auth::Principal;

/// The facts that a client will be told; an error is the reason for a refusal.
type Pending = Pin<Box<dyn Future<Output = Result<Vec<Fact>, RpcRefusal>>>>;

/// See the module.
pub(super) struct Clients {
    random: StdRng,
    played: Vec<Played>,
    pending: Vec<(InstanceId, ProcessId, Pending)>,
    pub(super) told: Told,
    /// Refusals because the log had failed.
    pub(super) refused: u64,
}

/// One instance, as its clients know it.
struct Played {
    id: InstanceId,
    instance: Arc<Instance>,
    clients: Vec<Client>,
    /// Events that were watched.
    watched: u64,
}

struct Client {
    process: ProcessId,
    session: Option<SessionId>,
    sink: SessionSink,
    receiver: Receiver,
    /// The content of each access so far.
    sent: BTreeMap<u64, Op>,
}

impl Client {
    fn new(process: ProcessId) -> Self {
        let sink = SessionSink { outbox: Arc::new(Outbox::new(10_000)), channel: 0 };
        Self { process, session: None, sink, receiver: Receiver::default(), sent: BTreeMap::new() }
    }

    /// The number of the access behind the last that was sent.
    fn next(&self) -> u64 {
        self.sent.len() as u64 + 1
    }

    fn frames(&mut self) -> Vec<Frame> {
        let mut cx = TaskContext::from_waker(Waker::noop());
        match self.sink.outbox.poll(&mut self.receiver, 10_000, usize::MAX, &mut cx) {
            Polled::Frames(EncodedResponse(bytes)) => {
                let message = v1::AttachResponse::decode(&*bytes).unwrap();
                message.frames.into_iter().filter_map(|frame| frame.frame).collect()
            }
            Polled::Empty => Vec::new(),
            Polled::Overflow => panic!("too many frames"),
        }
    }
}

impl Clients {
    pub(super) fn new(seed: u64) -> Self {
        let (random, told) = (StdRng::seed_from_u64(seed), Told::default());
        Self { random, played: Vec::new(), pending: Vec::new(), told, refused: 0 }
    }

    /// Clients that were told this by a server that has ended at this place of its tape.
    pub(super) fn returning(told: &Told, position: usize, seed: u64) -> Self {
        let mut clients = Self::new(seed);
        clients.told = told.until(position);
        clients
    }

    /// The server was replaced by one that has recovered: the clients know the instances by their ids.
    pub(super) fn reconnect(&mut self, server: &Server) {
        for (id, sent) in &mut self.told.sent {
            let Ok(instance) = server.instances.get(*id) else { continue };
            let clients = ProcessId::all(instance.params().processes()).map(|process| {
                let mut client = Client::new(process);
                // Accesses that were lost are sent again.
                let (_, member) = poll(instance.status(Some(process)).committed()).unwrap().unwrap().unwrap();
                let next = member.unwrap().next.get();
                sent.accepted.retain(|(of, number), _| *of != process || *number < next);
                let accepted = sent.accepted.iter().filter(|((of, _), _)| *of == process);
                client.sent = accepted.map(|((_, number), op)| (*number, op.clone())).collect();
                client
            });
            let clients = clients.collect();
            self.played.push(Played { id: *id, instance, clients, watched: 0 });
        }
    }

    /// Creates an instance; with the name of one that was closed, if there is one.
    pub(super) fn create(&mut self, server: &Server) {
        const SHAPES: [(u32, u32, u32); 3] = [(2, 2, 1), (3, 1, 2), (4, 2, 2)];
        let (processes, warp_size, read_size) = SHAPES[self.random.random_range(0..SHAPES.len())];
        let patience = if self.random.random_bool(0.5) {
            Patience::Endless
        } else {
            Patience::Finite(Duration::from_nanos(1))
        };
        let spec = ParamsSpec { patience, ..ParamsSpec::new(processes, warp_size, read_size) };
        let name = format!("instance-{}", self.random.random_range(0..6));
        let name_ref = InstanceRef::Name(name.parse().unwrap());
        let found = poll(server.instances.find(&name_ref)).expect("it waits for nothing");
        if found.is_ok_and(|it| !self.is_closed(&it)) {
            return;
        }
        let spec = CreateSpec {
            name: Some(name.parse().unwrap()),
            params: Params::try_new(spec).unwrap(),
            seed_given: false,
            roster: (1..=processes).map(|number| format!("p{number}")).collect(),
        };
        let Some(created) = poll(server.instances.create(&Principal::new("creator"), spec)) else { return };
        let created = match created {
            Ok(created) => created,
            Err(refused) => {
                assert!(server.has_failed(), "{refused:?}");
                self.refused += 1;
                return;
            }
        };
        let (instance, _) = created.peek();
        let (id, instance) = (instance.config().id, instance.clone());
        self.told.sent(id).name = name;
        self.pending.push((
            id,
            ProcessId::FIRST,
            Box::pin(async move { created.committed().await.map(|_| vec![Fact::Created]) }),
        ));
        let clients = ProcessId::all(processes).map(Client::new).collect();
        self.played.push(Played { id, instance, clients, watched: 0 });
    }

    fn is_closed(&self, instance: &Instance) -> bool {
        let id = instance.config().id;
        self.told.facts.iter().any(|(_, of, fact)| *of == id && matches!(fact, Fact::Closed))
    }

    /// Sends so many inputs.
    pub(super) fn send(&mut self, server: &Server, inputs: usize) {
        for _ in 0..inputs {
            if self.played.is_empty() || (self.played.len() < 5 && self.random.random_bool(0.04)) {
                self.create(server);
            } else {
                self.send_one();
            }
        }
    }

    fn send_one(&mut self) {
        let Self { random, played, pending, told, .. } = self;
        let number = random.random_range(0..played.len());
        let played = &mut played[number];
        let (id, instance) = (played.id, played.instance.clone());
        let number = random.random_range(0..played.clients.len());
        let client = &mut played.clients[number];
        let process = client.process;
        let mut wait = |future: Pending| pending.push((id, process, future));
        let sent = told.sent(id);
        let now = Instant::now();
        let mut send = |client: &mut Client, number: u64, op: Op, no_wait: bool| {
            sent.accesses.entry((process, number)).or_default().push(op.clone());
            let on_session = client.session.filter(|_| !no_wait);
            let access = Access { no_wait, ..access(process, on_session, number, op.clone()) };
            let accepted = match on_session {
                Some(_) => instance.access(access, &client.sink, now).is_ok(),
                None => {
                    let UnaryAccess { answer, .. } = instance.call(access);
                    let accepted = match &answer {
                        UnaryAnswer::Known(known) => known.peek().is_ok(),
                        UnaryAnswer::Waiting(_) => true,
                    };
                    wait(answered(process, number, answer));
                    accepted
                }
            };
            if accepted {
                sent.accepted.entry((process, number)).or_insert(op.clone());
                client.sent.entry(number).or_insert(op);
            }
        };
        match random.random_range(0..100) {
            0..10 => {
                *sent.hellos.entry(process).or_default() += 1;
                client.session = instance.hello(process, 0, &client.sink, now).ok().map(|it| it.session);
            }
            10..58 => {
                let number = client.next();
                let op = if number == 1 && random.random_bool(0.9) {
                    Op::Append(Value::new(format!("{process} of {id}").as_bytes()).unwrap())
                } else {
                    Op::Read { start: Position::new(random.random_range(0..4)) }
                };
                send(client, number, op, random.random_bool(0.05));
            }
            58..68 => {
                if let Some((number, op)) =
                    client.sent.last_key_value().map(|(number, op)| (*number, op.clone()))
                {
                    send(client, number, op, false);
                }
            }
            68..73 => {
                let access =
                    access(process, client.session, client.next() + 3, Op::Read { start: Position::new(0) });
                if client.session.is_some() {
                    let _ = instance.access(access, &client.sink, now);
                } else {
                    let number = access.number.get();
                    wait(answered(process, number, instance.call(access).answer));
                }
            }
            73..76 => {
                if let Some(number) = client.sent.last_key_value().map(|(number, _)| *number) {
                    let other = Op::Append(Value::new(b"other content").unwrap());
                    wait(answered(
                        process,
                        number,
                        instance.call(access(process, None, number, other)).answer,
                    ));
                }
            }
            76..82 => {
                let view = instance.status(Some(process));
                wait(Box::pin(async move {
                    let (status, member) = view.committed().await.flatten()?;
                    let own = v1::Own::from(&own(process, member.unwrap()));
                    Ok(vec![Fact::Status(own, status.state, status.sealed)])
                }));
            }
            82..86 => {
                let view = instance.snapshot();
                wait(Box::pin(async move {
                    let snapshot = view.committed().await.flatten()?;
                    Ok(vec![Fact::Entries(snapshot.list.iter().map(|entry| entry.value.clone()).collect())])
                }));
            }
            86..91 => {
                if client.sent.len() < 3 {
                    return;
                }
                let value = Value::new(format!("decision of {process}").as_bytes()).unwrap();
                sent.decisions.insert((process, value.clone()));
                let decided = instance.call_decide(process, value.clone());
                wait(Box::pin(async move {
                    decided.committed().await.flatten().map(|()| vec![Fact::Decided(process, value)])
                }));
            }
            91..93 => {
                sent.is_closed = true;
                let closed = instance.close();
                wait(Box::pin(
                    async move { closed.committed().await.flatten().map(|()| vec![Fact::Closed]) },
                ));
            }
            93..97 => {
                let state = instance.state().peek().clone();
                sent.may_be_gone |= state.is_ok_and(|state| matches!(state, State::Finished | State::Closed));
                instance.wake_now();
            }
            _ => {
                let (kind, detail) = (OffenceKind::Oversized, "too long".to_owned());
                instance.file_offence(Offence { process, kind, number: None, phase: None, detail });
            }
        }
    }

    /// Takes down everything that can be told by now.
    pub(super) fn listen(&mut self, server: &Server) {
        let position = server.disk.position();
        let Self { pending, played, told, refused, .. } = self;
        let mut cx = TaskContext::from_waker(Waker::noop());
        let mut refuse =
            |refusal: &RpcRefusal, id, process: ProcessId, facts: &mut Vec<(usize, InstanceId, Fact)>| {
                match refusal.reason {
                    RefusalReason::LogFailed => *refused += 1,
                    RefusalReason::InstanceUnknown => facts.push((position, id, Fact::Gone)),
                    _ => {
                        let expected = refusal.details.expected_access_number;
                        facts.extend(expected.map(|number| (position, id, Fact::Expected(process, number))));
                    }
                }
            };
        pending.retain_mut(|(id, process, future)| match future.as_mut().poll(&mut cx) {
            Poll::Pending => true,
            Poll::Ready(outcome) => {
                match outcome {
                    Ok(facts) => told.facts.extend(facts.into_iter().map(|fact| (position, *id, fact))),
                    Err(refusal) => refuse(&refusal, *id, *process, &mut told.facts),
                }
                false
            }
        });
        for played in played {
            for client in &mut played.clients {
                for frame in client.frames() {
                    let (id, process) = (played.id, client.process);
                    let fact = match frame {
                        Frame::Welcome(welcome) => {
                            let session = SessionId::new(welcome.session).unwrap();
                            Fact::Welcome(process, session, welcome.own.unwrap())
                        }
                        Frame::Answer(answer) => Fact::Answer(process, answer),
                        Frame::Refusal(refusal) => {
                            refuse(&RpcRefusal::from_frame(&refusal), id, process, &mut told.facts);
                            continue;
                        }
                        _ => continue,
                    };
                    told.facts.push((position, id, fact));
                }
            }
            for event in events(&played.instance, played.watched) {
                played.watched += 1;
                told.facts.push((position, played.id, Fact::Event(event)));
            }
        }
    }
}

fn own(process: ProcessId, member: MemberStatus) -> MemberState {
    let MemberStatus { next, waiting, append, decided, .. } = member;
    MemberState { process, next, waiting, append, decided }
}

/// The future answer of a call.
fn answered(process: ProcessId, number: u64, given: UnaryAnswer) -> Pending {
    let number = AccessNumber::new(number).unwrap();
    Box::pin(async move {
        let completed = match given {
            UnaryAnswer::Known(known) => known.committed().await.flatten()?,
            UnaryAnswer::Waiting(waiter) => {
                waiter.await.map_err(|_| RpcRefusal::internal())?.map_err(|why| *why)?
            }
        };
        Ok(vec![Fact::Answer(process, answer(number, &completed))])
    })
}
