//! An instance that has ended, in little memory.
//!
//! Most instances that a server keeps have ended: they live for their retention, and for that they only have to answer
//! (SPEC F10): Get, Read, Watch, a hello, an answer once more (F8b). So what is kept of them is packed: the record, and
//! behind it the machine, in one piece of memory. Whoever only looks has a copy of that unpacked, and keeps nobody
//! waiting meanwhile. Whoever calls, even if the call is refused, may leave a trace in the record; so the instance
//! itself is unpacked, and it stays so until nobody has come for a while.

use std::sync::Arc;
use std::time::Duration;

use stickycas_model::machine::{Machine, State};
use stickycas_model::params::Params;
use stickycas_model::types::Time;

use super::guarded::{Guarded, kept_events};
use super::outlets::Outlets;
use super::terms::Definition;
use crate::limits::Limits;
use crate::store::memory::{Also, Past};

/// How long an ended instance with these parameters stays unpacked after a call. Whoever comes again at once should not
/// have it unpacked again and again; and since the time grows with the work, which takes far less than this for each
/// process, calls that come one by one cannot have a large instance packed and unpacked all the time.
pub(super) fn stays_awake(params: &Params) -> Duration {
    Duration::from_secs(1) + Duration::from_millis(params.processes().into())
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) past: Past,
    /// Sessions that are still open: they are told if others replace them (F8f).
    pub(super) outlets: Option<Box<Outlets>>,
    /// When it ended.
    pub(super) at: Time,
    pub(super) state: State,
}

impl Ended {
    /// What is kept of an instance that has ended at this time.
    pub(super) fn pack(awake: &mut Guarded, at: Time) -> Self {
        let Guarded { machine, record, outlets, .. } = awake;
        let past = record.end(|out| machine.pack(out));
        let outlets = std::mem::take(outlets);
        let outlets = (!outlets.is_empty()).then(|| Box::new(outlets));
        Self { past, outlets, at, state: machine.state() }
    }

    /// As it was before it was packed.
    pub(super) fn unpack(&mut self, definition: &Definition, limits: &Limits) -> Guarded {
        let machine = unpack(&self.past.also(), definition);
        let record = self.past.reopen(kept_events(definition, limits));
        let outlets = self.outlets.take().map_or_else(Outlets::default, |outlets| *outlets);
        Guarded::ended(machine, record, outlets, limits, self.at)
    }
}

/// The machine of the instance that is defined so.
pub(super) fn unpack(also: &Also, definition: &Definition) -> Machine {
    let params = Arc::new(definition.params());
    Machine::unpack(params, &mut also.reader()).expect("it was packed with these parameters")
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

    use super::super::house::House;
    use super::super::instance::{Instance, Taken};
    use super::super::look::Next;
    use super::super::outbox::Outbox;
    use super::super::outlets::Outlet;
    use super::super::terms::Terms;
    use super::*;
    use crate::auth::Principal;

    fn instance() -> Arc<Instance> {
        let params = Params::try_new(ParamsSpec::new(8, 2, 8)).unwrap();
        let roster: Vec<String> = (1..=8).map(|number| format!("p{number}")).collect();
        let terms = Terms::new(Principal::new("creator"), &params, &roster);
        let definition = Definition::new(InstanceId::new(1), None, Seed::new(5), Arc::new(terms));
        Arc::new(Instance::new(definition, House::new(Limits::default())))
    }

    fn access(process: ProcessId, session: Option<SessionId>, number: u64, op: Op) -> Access {
        Access { process, session, number: AccessNumber::new(number).unwrap(), op, no_wait: false }
    }

    fn proposal(process: ProcessId) -> Value {
        Value::new(format!("value {:02}", process.get()).as_bytes()).unwrap()
    }

    const READ: Op = Op::Read { start: Position::new(0) };

    /// Everybody says hello, appends, reads and decides. The sessions.
    fn play(instance: &Instance, outlet: &Outlet) -> Vec<SessionId> {
        let hello = |process| instance.hello(process, 1, outlet, Instant::now()).unwrap().session;
        let sessions: Vec<SessionId> = ProcessId::all(8).map(hello).collect();
        for (process, session) in ProcessId::all(8).zip(&sessions) {
            for (number, op) in [(1, Op::Append(proposal(process))), (2, READ)] {
                instance.access(access(process, Some(*session), number, op), Instant::now()).unwrap();
            }
        }
        for (process, session) in ProcessId::all(8).zip(&sessions) {
            let decision = proposal(ProcessId::FIRST);
            instance.decide(process, Some(*session), decision, Instant::now()).unwrap();
        }
        sessions
    }

    fn history(instance: &Instance) -> Vec<v1::Event> {
        match instance.events_from(0, 1_000, instance.watcher(), Waker::noop()) {
            Next::Events(events) => events,
            other => panic!("{other:?}"),
        }
    }

    fn outlet() -> Outlet {
        Outlet { outbox: Arc::new(Outbox::new(1_000)), channel: 3 }
    }

    #[test]
    fn a_finished_instance_of_eight_processes_takes_less_than_one_kib() {
        let (instance, outlet) = (instance(), outlet());
        let sessions = play(&instance, &outlet);
        assert_eq!(instance.state(), State::Finished);
        assert_eq!(history(&instance).len(), 8 + 8 + 16 + 1 + 8 + 4 + 16 + 1 + 8 + 1);
        ProcessId::all(8).zip(sessions).for_each(|(process, session)| instance.hang_up(process, session));
        let packed = instance.packed_size().expect("it is packed");
        // And what an allocator and a reference count add, and two nodes of trees: by id, and its timer.
        let all = packed + size_of::<Instance>() + 16 + 2 * 48;
        assert!(packed <= 576 && all <= 900, "{packed} bytes packed, {} beside", size_of::<Instance>());
    }

    #[test]
    fn what_is_promised_of_a_finished_instance_holds_whether_or_not_it_is_packed() {
        let (instance, first) = (instance(), outlet());
        play(&instance, &first);
        assert!(instance.packed_size().is_some());
        let told = history(&instance);
        let (status, own) = instance.status(Some(ProcessId::FIRST));
        assert_eq!((status.state, status.length, status.left.len()), (State::Finished, 4, 8));
        assert!(instance.packed_size().is_some(), "who only looks wakes nobody");

        let again = access(ProcessId::FIRST, None, 1, Op::Append(proposal(ProcessId::FIRST)));
        let Ok(Taken::AnsweredBefore(answered)) = instance.access(again, Instant::now()) else { panic!() };
        let append = own.unwrap().append.unwrap();
        assert_eq!((answered.phase, answered.answer), (Some(append.0), Answer::Append(append.1)));
        assert!(instance.packed_size().is_none(), "it has been unpacked for that");
        let Ok(Taken::Answered(read)) =
            instance.access(access(ProcessId::FIRST, None, 3, READ), Instant::now())
        else {
            panic!()
        };
        assert_eq!(read.phase, None);
        assert_eq!(history(&instance), told);
        assert_eq!(instance.status(None).0, status);

        // A newer session replaces the one that was open when the instance finished.
        let opened = instance.hello(ProcessId::FIRST, 2, &outlet(), Instant::now()).unwrap();
        assert!(opened.replaced && opened.session == SessionId::new(2).unwrap());
        instance.file_offence(Offence {
            process: ProcessId::FIRST,
            kind: OffenceKind::Malformed,
            number: None,
            phase: None,
            detail: "late".to_owned(),
        });
        let longer = history(&instance);
        assert_eq!((&longer[..told.len()], longer.len()), (&told[..], told.len() + 2));
        instance.pack_now();
        assert_eq!(history(&instance), longer);
        assert_eq!(instance.status(None).0.offences.len(), 1);
    }
}
