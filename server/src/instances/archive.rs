//! An instance that has ended, in little memory.
//!
//! Most instances that a server holds have ended. For their retention they only have to answer (SPEC F10):
//! Get, Read, Watch, a hello, a repeated access (F8b). So an archived instance is its events, and behind them
//! a snapshot of its machine, in one allocation. A view decodes a copy of the snapshot, without holding up
//! other callers. A call, even one that is refused, may leave an event; so it restores the whole instance,
//! which stays restored until no call has come for a while.

use std::sync::Arc;
use std::time::Duration;

use stickycas_model::compact_codec::Decoder;
use stickycas_model::machine::{Machine, State};
use stickycas_model::params::Params;
use stickycas_model::types::Time;

use super::config::InstanceConfig;
use super::live::{Live, event_limit};
use super::sessions::Sessions;
use super::shard::ShardContext;
use crate::event_log::{ArchivedEvents, ArchivedLog, Trailer};
use crate::limits::checkpoint_events;

/// The time for which an ended instance with these parameters stays restored after a call, so that calls that
/// follow each other at once do not restore it again and again. The time grows with the work of restoring,
/// which takes far less than this for each process: calls that come one by one cannot have a large instance
/// archived and restored all the time.
pub(super) fn restored_for(params: &Params) -> Duration {
    Duration::from_secs(1) + Duration::from_millis(params.processes().into())
}

/// See the module.
#[derive(Debug)]
pub(super) struct Archived {
    pub(super) events: ArchivedLog,
    /// Sessions that are still open: they are told if a newer one replaces them (F8f).
    pub(super) sessions: Option<Box<Sessions>>,
    /// The time at which the instance ended.
    pub(super) ended: Time,
    pub(super) state: State,
}

impl Archived {
    /// The archive of an instance that ended at this time and of which every step is committed.
    pub(super) fn new(live: &mut Live, ended: Time) -> Self {
        let Live { machine, events, sessions, .. } = live;
        let events = events.archive(|out| machine.write_snapshot(out));
        let sessions = std::mem::take(sessions);
        let sessions = (!sessions.is_empty()).then(|| Box::new(sessions));
        Self { events, sessions, ended, state: machine.state() }
    }

    /// The archive as a checkpoint has it; `None` if it takes more than a checkpoint may.
    pub(super) fn to_log(&self, config: &InstanceConfig) -> Option<ArchivedEvents> {
        if self.events.size() > checkpoint_events(&config.shared.params) {
            return None;
        }
        Some(self.events.to_log())
    }

    /// The archive of which a checkpoint has this, of an instance with this configuration that ended at this
    /// time.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn from_log(
        archived: ArchivedEvents,
        ended: Time,
        config: &InstanceConfig,
        shard: &ShardContext,
    ) -> Result<Self, String> {
        let (params, mut checked) = (config.params(), Err(None));
        let check = |trailer: &mut Decoder<'_>| {
            checked = Machine::check_snapshot(&params, ended, trailer);
            checked.is_ok()
        };
        let events = ArchivedLog::from_log(archived, shard.server.event_budget.clone(), check);
        match (events, checked) {
            (Some(events), Ok(state @ (State::Finished | State::Closed))) => {
                Ok(Self { events, sessions: None, ended, state })
            }
            (Some(_), Ok(state)) => Err(format!("its archive is of an instance in the state {state:?}")),
            (_, Err(Some(error))) => Err(error.to_string()),
            (_, _) => Err("its archive is none".to_owned()),
        }
    }

    /// Bytes of memory that it takes, with its entry in the registry. While a call has it restored it takes
    /// more.
    pub(super) fn bytes(&self, config: &InstanceConfig) -> usize {
        /// Its id, its name, its timer, its lock.
        const ENTRY: usize = 768;
        /// The places of a process in a roster that no other instance has.
        const PROCESS: usize = 32;
        let roster = 2 * config.shared.roster.bytes() + PROCESS * config.shared.params.processes() as usize;
        let sessions =
            self.sessions.as_ref().map_or(0, |_| PROCESS * config.shared.params.processes() as usize);
        ENTRY + roster + sessions + self.events.size()
    }

    /// Bytes that it takes in the log, at most: twice its checkpoint when a call has restored it, which is
    /// not as compact: each event has its value, and the machine has them once more.
    pub(super) fn log_case(&self, config: &InstanceConfig) -> usize {
        /// Its configuration without the roster, and the counters of the machine.
        const CREATED: usize = 1_024;
        /// The state of a process, without values and answers; a process is a few bytes here.
        const PROCESS: usize = 128;
        /// An event or a kept answer, beyond its bytes here.
        const EVENT: usize = 64;
        let params = config.params();
        let answers = params.processes() as usize * params.spec().pipeline as usize;
        let events =
            usize::try_from(self.events.view().next_index() - self.events.view().first).unwrap_or(usize::MAX);
        let parts = EVENT * (events + answers) + PROCESS * params.processes() as usize;
        let values = self.events.repeated_bytes();
        2 * (CREATED + config.shared.roster.bytes() + parts + values + self.events.size())
    }

    /// The instance as it was before it was archived.
    pub(super) fn restore(&mut self, config: &InstanceConfig, shard: &ShardContext) -> Live {
        let machine = restore_machine(&self.events.trailer(), config);
        let events = self.events.reopen(event_limit(config, &shard.server.limits));
        let sessions = self.sessions.take().map_or_else(Sessions::default, |sessions| *sessions);
        Live::unarchived(machine, events, sessions, shard, self.ended)
    }
}

/// The machine of the instance with this configuration.
pub(super) fn restore_machine(trailer: &Trailer, config: &InstanceConfig) -> Machine {
    let params = Arc::new(config.params());
    Machine::from_snapshot(params, &mut trailer.reader()).expect("it was encoded with these parameters")
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Instant;

    use stickycas_model::access::{Access, Answer, Op};
    use stickycas_model::history::{Offence, OffenceKind};
    use stickycas_model::params::ParamsSpec;
    use stickycas_model::types::{AccessNumber, Position, ProcessId, Seed, SessionId, Value};
    use stickycas_proto::names::InstanceId;
    use stickycas_proto::v1;

    use super::super::config::{Lifetimes, SharedConfig};
    use super::super::instance::{Instance, UnaryAccess, UnaryAnswer};
    use super::super::outbox::Outbox;
    use super::super::sessions::SessionSink;
    use super::super::view::WatchPoll;
    use super::*;
    use crate::auth::Principal;
    use crate::commit_log::MemoryLog;
    use crate::limits::Limits;

    fn instance() -> Arc<Instance> {
        let params = Params::try_new(ParamsSpec::new(8, 2, 8)).unwrap();
        let roster: Vec<String> = (1..=8).map(|number| format!("p{number}")).collect();
        let shared =
            SharedConfig::new(Principal::new("creator"), &params, &roster, Lifetimes::of(&Limits::default()));
        let config = InstanceConfig::new(InstanceId::new(1), 1, None, Seed::new(5), Arc::new(shared));
        Arc::new(Instance::new(config, ShardContext::alone(Limits::default(), Arc::<MemoryLog>::default())))
    }

    fn access(process: ProcessId, session: Option<SessionId>, number: u64, op: Op) -> Access {
        Access { process, session, number: AccessNumber::new(number).unwrap(), op, no_wait: false }
    }

    fn proposal(process: ProcessId) -> Value {
        Value::new(format!("value {:02}", process.get()).as_bytes()).unwrap()
    }

    const READ: Op = Op::Read { start: Position::new(0) };

    /// Everybody says hello, appends, reads and decides. The sessions.
    fn play(instance: &Instance, sink: &SessionSink) -> Vec<SessionId> {
        let hello = |process| instance.hello(process, 1, sink, Instant::now()).unwrap().session;
        let sessions: Vec<SessionId> = ProcessId::all(8).map(hello).collect();
        for (process, session) in ProcessId::all(8).zip(&sessions) {
            for (number, op) in [(1, Op::Append(proposal(process))), (2, READ)] {
                instance.access(access(process, Some(*session), number, op), sink, Instant::now()).unwrap();
            }
        }
        for (process, session) in ProcessId::all(8).zip(&sessions) {
            let decision = proposal(ProcessId::FIRST);
            instance.decide(process, *session, decision, sink, Instant::now()).unwrap();
        }
        sessions
    }

    fn history(instance: &Instance) -> Vec<v1::Event> {
        match instance.poll_events(0, 1_000, instance.next_watcher(), Waker::noop()) {
            WatchPoll::Events(events) => events,
            other => panic!("{other:?}"),
        }
    }

    fn sink() -> SessionSink {
        SessionSink { outbox: Arc::new(Outbox::new(1_000)), channel: 3 }
    }

    #[test]
    fn an_archived_instance_of_eight_processes_takes_a_kib_at_most() {
        let (instance, sink) = (instance(), sink());
        let sessions = play(&instance, &sink);
        assert_eq!(instance.state().into_inner(), Ok(State::Finished));
        assert_eq!(history(&instance).len(), 8 + 8 + 16 + 1 + 8 + 4 + 16 + 1 + 8 + 1);
        ProcessId::all(8)
            .zip(sessions)
            .for_each(|(process, session)| instance.close_session(process, session));
        let packed = instance.archived_size().expect("it is archived");
        // With its reference counts an instance fits into a block of 256 bytes; the allocator's next has 320.
        let counted = size_of::<Instance>() + 2 * size_of::<usize>();
        assert!(packed <= 576 && counted <= 256, "{packed} bytes packed, {counted} beside");
    }

    #[test]
    fn an_archived_instance_keeps_the_promises_of_a_finished_one() {
        let (instance, first) = (instance(), sink());
        play(&instance, &first);
        assert!(instance.archived_size().is_some());
        let told = history(&instance);
        let (status, own) = instance.status(Some(ProcessId::FIRST)).into_inner().unwrap();
        assert_eq!((status.state, status.length, status.left.len()), (State::Finished, 4, 8));
        assert!(instance.archived_size().is_some(), "a view restores nothing");

        let again = access(ProcessId::FIRST, None, 1, Op::Append(proposal(ProcessId::FIRST)));
        let UnaryAccess { answer: UnaryAnswer::Known(answered), repeated: true } = instance.call(again)
        else {
            panic!()
        };
        let answered = answered.into_inner().unwrap();
        let append = own.unwrap().append.unwrap();
        assert_eq!((answered.phase, answered.answer), (Some(append.0), Answer::Append(append.1)));
        assert!(instance.archived_size().is_none(), "it was restored for that");
        let read = access(ProcessId::FIRST, None, 3, READ);
        let UnaryAccess { answer: UnaryAnswer::Known(read), repeated: false } = instance.call(read) else {
            panic!()
        };
        assert_eq!(read.into_inner().unwrap().phase, None);
        assert_eq!(history(&instance), told);
        assert_eq!(instance.status(None).into_inner().unwrap().0, status);

        // A newer session replaces the one that was open when the instance finished.
        let opened = instance.hello(ProcessId::FIRST, 2, &sink(), Instant::now()).unwrap();
        assert!(opened.replaces && opened.session == SessionId::new(2).unwrap());
        instance.file_offence(Offence {
            process: ProcessId::FIRST,
            kind: OffenceKind::Malformed,
            number: None,
            phase: None,
            detail: "late".to_owned(),
        });
        let longer = history(&instance);
        assert_eq!((&longer[..told.len()], longer.len()), (&told[..], told.len() + 2));
        instance.archive_now();
        assert_eq!(history(&instance), longer);
        assert_eq!(instance.status(None).into_inner().unwrap().0.offences.len(), 1);
    }
}
