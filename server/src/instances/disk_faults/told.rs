//! The messages that clients have sent in a run, the facts that they were told, and the check that a
//! recovered server contradicts none of these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use prost::Message as _;
use stickycas_model::access::Op;
use stickycas_model::machine::State;
use stickycas_model::types::{AccessNumber, ProcessId, SessionId, Value};
use stickycas_proto::attach::encode_answer;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;

use super::super::instance::{UnaryAccess, UnaryAnswer};
use super::super::view::{Snapshot, WatchPoll};
use super::super::{CompletedAccess, Instance, InstanceRef, Instances, Uncommitted};
use super::calls::{access, poll};

/// A fact that a client was told.
#[derive(Clone, Debug)]
pub(super) enum Fact {
    /// The instance exists, and has this name.
    Created,
    Welcome(ProcessId, SessionId, v1::Own),
    Answer(ProcessId, v1::Answer),
    /// The number of the next access.
    Expected(ProcessId, AccessNumber),
    Decided(ProcessId, Value),
    Closed,
    /// It has expired.
    Gone,
    Status(v1::Own, State, bool),
    Entries(Vec<Value>),
    Event(v1::Event),
}

/// The facts that clients were told, each with its place on the disk's tape, and the messages that they have
/// sent.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) facts: Vec<(usize, InstanceId, Fact)>,
    pub(super) sent: BTreeMap<InstanceId, Sent>,
}

/// The messages that clients have sent about one instance.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    pub(super) name: String,
    pub(super) accesses: BTreeMap<(ProcessId, u64), Vec<Op>>,
    /// Of several contents of an access the one that was not refused.
    pub(super) accepted: BTreeMap<(ProcessId, u64), Op>,
    pub(super) decisions: BTreeSet<(ProcessId, Value)>,
    pub(super) hellos: BTreeMap<ProcessId, u64>,
    pub(super) is_closed: bool,
    /// It may have expired.
    pub(super) may_be_gone: bool,
}

/// The answer that a session or a call was given, as it is on the wire.
pub(super) fn answer(number: AccessNumber, completed: &CompletedAccess) -> v1::Answer {
    let mut message = Vec::new();
    encode_answer(&mut message, 0, number, completed.phase, &completed.answer, completed.values());
    let decoded = v1::AttachResponse::decode(&*message).expect("a message of ours");
    match decoded.frames.into_iter().next().and_then(|frame| frame.frame) {
        Some(v1::server_frame::Frame::Answer(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

/// All committed events of an instance.
pub(super) fn events(instance: &Instance, from: u64) -> Vec<v1::Event> {
    match instance.poll_events(from, usize::MAX, instance.next_watcher(), Waker::noop()) {
        WatchPoll::Events(events) => events,
        WatchPoll::Pending | WatchPoll::End | WatchPoll::Gone(_) => Vec::new(),
        WatchPoll::TooSlow(phase) => panic!("nothing before {phase} is kept"),
    }
}

impl Told {
    pub(super) fn sent(&mut self, id: InstanceId) -> &mut Sent {
        self.sent.entry(id).or_default()
    }

    /// The facts that were told up to this place of the tape, as facts from before the start of another one.
    pub(super) fn until(&self, position: usize) -> Self {
        let facts = self.facts.iter().filter(|(at, _, _)| *at <= position);
        Self { facts: facts.map(|(_, id, fact)| (0, *id, fact.clone())).collect(), sent: self.sent.clone() }
    }

    /// The number of facts that were told up to this place of the tape.
    pub(super) fn count(&self, position: usize) -> usize {
        self.facts.iter().filter(|(at, _, _)| *at <= position).count()
    }

    /// Checks that every fact that was told up to this place of the tape holds in a recovered server, and
    /// that nothing was recovered that no client has sent. The error says what does not hold.
    pub(super) fn check(&self, position: usize, instances: &Instances) -> Result<(), String> {
        let recovered: BTreeMap<InstanceId, Recovered> = instances
            .after(None, usize::MAX)
            .into_iter()
            .map(|instance| (instance.config().id, Recovered::new(instance)))
            .collect();
        for (id, found) in &recovered {
            let sent = self.sent.get(id).ok_or(format!("nobody has created instance {id}"))?;
            found.check_sent(sent).map_err(|what| format!("instance {id}: {what}"))?;
        }
        for (_, id, fact) in self.facts.iter().filter(|(at, _, _)| *at <= position) {
            let wrong = |what: String| format!("instance {id}: {what}, though clients were told {fact:?}");
            let sent = &self.sent[id];
            match (recovered.get(id), fact) {
                (None, _) if sent.may_be_gone => {}
                (Some(_), Fact::Gone) => return Err(wrong("it is there".into())),
                (None, _) => return Err(wrong("it is not there".into())),
                (Some(found), fact) => found.check_told(fact, sent).map_err(wrong)?,
            }
            if let (Some(_), Fact::Created) = (recovered.get(id), fact) {
                self.check_name(*id, instances).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Whether the instance has its name, or another one has taken it when it was closed.
    fn check_name(&self, id: InstanceId, instances: &Instances) -> Result<(), String> {
        let Sent { name, is_closed, .. } = &self.sent[&id];
        let name_ref = InstanceRef::Name(name.parse().map_err(|_| "it has no name".to_owned())?);
        let heirs =
            self.sent.iter().filter(|(other, sent)| **other != id && sent.name == *name && *is_closed);
        match poll(instances.find(&name_ref)).ok_or("a search waits")? {
            Ok(named) if named.config().id == id => Ok(()),
            Ok(named) if heirs.clone().any(|(heir, _)| *heir == named.config().id) => Ok(()),
            Ok(named) => Err(format!("{name} is the name of {}", named.config().id)),
            // The name has gone with the one that had taken it.
            Err(_) if heirs.clone().any(|(heir, sent)| sent.may_be_gone && instances.get(*heir).is_err()) => {
                Ok(())
            }
            Err(error) => Err(error.message),
        }
    }
}

/// An instance that was recovered.
struct Recovered {
    instance: Arc<Instance>,
    snapshot: Snapshot,
    events: Vec<v1::Event>,
}

fn value_of<T>(view: Uncommitted<T>) -> T {
    poll(view.committed()).expect("a server in memory commits at once").expect("the log has not failed")
}

impl Recovered {
    fn new(instance: Arc<Instance>) -> Self {
        let snapshot = value_of(instance.snapshot()).expect("it is there");
        let events = events(&instance, 0);
        Self { instance, snapshot, events }
    }

    /// Whether nothing is there that was not sent.
    fn check_sent(&self, sent: &Sent) -> Result<(), String> {
        for entry in self.snapshot.list.iter() {
            let appended = |op: &Op| matches!(op, Op::Append(value) if *value == entry.value);
            let of_process = sent.accesses.iter().filter(|((process, _), _)| *process == entry.process);
            if !of_process.flat_map(|(_, ops)| ops).any(appended) {
                return Err(format!("nobody has appended {entry:?}"));
            }
        }
        for (process, value) in &self.snapshot.status.left {
            if !sent.decisions.contains(&(*process, value.clone())) {
                return Err(format!("process {process} has not decided {value:?}"));
            }
        }
        for process in ProcessId::all(self.instance.params().processes()) {
            let member = value_of(self.instance.status(Some(process))).expect("it is there").1;
            let member = member.expect("a member was asked for");
            let sessions = member.session.map_or(0, |session| u64::from(session.get()));
            if sessions > sent.hellos.get(&process).copied().unwrap_or(0) {
                return Err(format!("process {process} has opened no session {sessions}"));
            }
            let last = AccessNumber::new(member.next.get() - 1);
            if last.is_some_and(|last| !sent.accesses.contains_key(&(process, last.get()))) {
                return Err(format!("process {process} has sent no access {last:?}"));
            }
        }
        if self.snapshot.status.state == State::Closed && !sent.is_closed {
            return Err("nobody has closed it".to_owned());
        }
        Ok(())
    }

    /// Whether this holds. The error says what does instead.
    fn check_told(&self, fact: &Fact, sent: &Sent) -> Result<(), String> {
        let own = |process: ProcessId| {
            let (_, member) = value_of(self.instance.status(Some(process))).expect("it is there");
            member.expect("a member was asked for")
        };
        let holds = |holds: bool, found: &dyn std::fmt::Debug| {
            if holds { Ok(()) } else { Err(format!("found {found:?}")) }
        };
        match fact {
            Fact::Created | Fact::Gone => Ok(()),
            Fact::Welcome(process, session, told) => {
                let found = own(*process);
                let goes_on = found.session >= Some(*session) && is_continued(told, &found);
                holds(goes_on, &found)
            }
            Fact::Status(told, state, sealed) => {
                let process = ProcessId::new(told.process).expect("a process");
                let (found, status) = (own(process), &self.snapshot.status);
                let goes_on = is_continued(told, &found)
                    && rank(status.state) >= rank(*state)
                    && (status.sealed || !sealed);
                holds(goes_on, &(found, status))
            }
            Fact::Expected(process, number) => holds(own(*process).next >= *number, &own(*process).next),
            Fact::Decided(process, value) => {
                holds(own(*process).decided.as_ref() == Some(value), &own(*process).decided)
            }
            Fact::Closed => {
                let state = self.snapshot.status.state;
                holds(state == State::Closed, &state)
            }
            Fact::Entries(told) => {
                let found: Vec<_> = self.snapshot.list.iter().map(|entry| entry.value.clone()).collect();
                holds(found.starts_with(told), &found)
            }
            Fact::Event(told) => {
                let found = usize::try_from(told.index).ok().and_then(|index| self.events.get(index));
                holds(found == Some(told), &found)
            }
            Fact::Answer(process, told) => self.check_answer(*process, told, sent),
        }
    }

    /// Whether a client that asks again is given the same answer (F8b).
    fn check_answer(&self, process: ProcessId, told: &v1::Answer, sent: &Sent) -> Result<(), String> {
        let number = AccessNumber::new(told.number).expect("of an access");
        let member = value_of(self.instance.status(Some(process))).expect("it is there").1.expect("a member");
        let kept = u64::from(self.instance.params().spec().pipeline);
        let has_ended = matches!(self.snapshot.status.state, State::Finished | State::Closed);
        if member.next <= number && told.phase > 0 {
            return Err(format!("its next access is {}", member.next));
        }
        if has_ended || member.decided.is_some() || told.number + kept <= member.next.get() {
            return Ok(());
        }
        let op = sent.accepted[&(process, number.get())].clone();
        match self.instance.call(access(process, None, number.get(), op)) {
            UnaryAccess { answer: UnaryAnswer::Known(known), .. } => match value_of(known) {
                Ok(completed) if answer(number, &completed) == *told => Ok(()),
                other => Err(format!("the answer is {other:?}")),
            },
            UnaryAccess { answer: UnaryAnswer::Waiting(_), .. } => Err("the access waits".to_owned()),
        }
    }
}

/// Whether a process may stand there now that was told to stand here.
fn is_continued(told: &v1::Own, found: &stickycas_model::machine::MemberStatus) -> bool {
    let append = found
        .append
        .map(|(phase, answer)| v1::FirstAppend { phase: phase.get(), result: Some(answer.into()) });
    told.next_access_number <= found.next.get()
        && (told.append.is_none() || told.append == append)
        && told
            .decided
            .as_deref()
            .is_none_or(|told| found.decided.as_ref().is_some_and(|it| it.as_bytes() == told))
}

fn rank(state: State) -> u32 {
    match state {
        State::Gathering => 0,
        State::Running => 1,
        State::Finished => 2,
        State::Closed => 3,
    }
}
