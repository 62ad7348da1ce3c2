//! One living instance: its machine behind one short lock, its record, and everybody who waits for it.
//!
//! Every input goes the same way, in one synchronous step under the lock: the machine takes it, its events go
//! into the record, answers go to whoever waits for them, a timer is set. Nothing is awaited in between, so a
//! caller that hangs up can leave nothing half done (SPEC F8a).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stickycas_model::access::{Access, Refusal};
use stickycas_model::history::Offence;
use stickycas_model::machine::{Input, Reply, State};
use stickycas_model::params::Params;
use stickycas_model::types::{ProcessId, SessionId, Time, Value};

use super::answered::Answered;
use super::callers::{Ticket, TooMany};
use super::guarded::Guarded;
use super::house::House;
use super::life::{Core, Life};
use super::outlets::Outlet;
use super::pressure::Alive;
use super::terms::Definition;
use crate::auth::Principal;

/// One living instance. See the module.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(super) definition: Definition,
    pub(super) house: Arc<House>,
    /// When it was created, by the clock of the house.
    pub(super) born: u64,
    pub(super) core: Mutex<Core>,
}

/// An access that was taken.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    /// It was answered at once: outside phases.
    Answered(Answered),
    /// It had been answered before: its first answer once more (F8b).
    AnsweredBefore(Answered),
    /// It waits for its phase; where the answer will come.
    Waits(T),
    /// It waited already (F8b).
    WaitedBefore(T),
}

/// A session that was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) session: SessionId,
    /// Whether it took the place of an open one.
    pub(crate) replaced: bool,
}

/// Why a call is not taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// The machine refuses it.
    Refused(Refusal),
    /// Too many callers wait for this very access.
    TooManyCallers,
    /// The instance is gone.
    Expired,
}

impl From<Refusal> for NotTaken {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<TooMany> for NotTaken {
    fn from(_: TooMany) -> Self {
        Self::TooManyCallers
    }
}

impl Instance {
    pub(super) fn new(definition: Definition, house: Arc<House>) -> Self {
        let core = Mutex::new(Core::new(Guarded::new(&definition, &house)));
        let born = house.nanos(Instant::now());
        Self { definition, house, born, core }
    }

    /// It counts as live until it has ended.
    pub(super) fn counts(&mut self, alive: Alive) {
        let core = self.core.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Life::Awake(awake) = &mut core.life {
            awake.alive = Some(alive);
        }
    }

    /// From now on it is woken when it is time. It can be found by its id.
    pub(super) fn set_alarm(&self) {
        self.core().set_alarm(self);
    }

    /// It never lived.
    pub(super) fn into_definition(self) -> Definition {
        self.definition
    }

    pub(crate) fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The parameters, but for the seed.
    pub(crate) fn params(&self) -> &Params {
        &self.definition.terms.params
    }

    /// How long a finished or closed instance can still be read, and how long one lives that nobody touches (F10).
    pub(crate) fn lifetimes(&self) -> (Duration, Duration) {
        (self.house.limits.retention, self.house.limits.idle_lifetime)
    }

    /// Which process of this instance the principal is.
    pub(crate) fn process_of(&self, principal: &Principal) -> Option<ProcessId> {
        self.definition.terms.roster.process_of(principal.as_str())
    }

    /// Opens a session whose answers go to `outlet` from now on, the welcome first (F8e).
    pub(crate) fn hello(
        &self,
        process: ProcessId,
        incarnation: u64,
        outlet: &Outlet,
        at: Instant,
    ) -> Result<Opened, NotTaken> {
        self.step(at, |core, now| {
            // Answers that are due belong to the older session: the welcome tells what happened before it.
            core.catch_up(self, now);
            let reply = core.machine.apply(now, Input::Hello { process, incarnation }, &mut core.events)?;
            let Reply::Welcome(welcome) = reply else { unreachable!("a hello is answered with a welcome") };
            let session = welcome.session;
            let waiting = welcome.waiting.len();
            outlet.welcome(process, welcome, &self.definition);
            // What waits is answered to this session, even if the hello itself has just let it be executed.
            let processes = self.params().processes();
            let replaced = core.outlets.open(process, session, outlet.clone(), waiting, processes);
            Ok(Opened { session, replaced })
        })
    }

    /// The stream of this session is gone. Its accesses stay (F8a).
    pub(crate) fn hang_up(&self, process: ProcessId, session: SessionId) {
        // Also called while a panic unwinds, and a second one would end the server.
        let Ok(mut core) = self.core.lock() else { return };
        match &mut core.life {
            Life::Awake(awake) => awake.outlets.close(process, session),
            Life::Ended(ended) => {
                if let Some(outlets) = &mut ended.outlets {
                    outlets.close(process, session);
                    if outlets.is_empty() {
                        ended.outlets = None;
                    }
                }
            }
        }
    }

    /// An access that came on a stream at this moment: its answer goes to the stream's outlet.
    pub(crate) fn access(&self, access: Access, at: Instant) -> Result<Taken<()>, NotTaken> {
        self.take(access, at, |_| Ok(()))
    }

    /// An access that came with a unary call.
    pub(crate) fn call(&self, access: Access) -> Result<Taken<Ticket>, NotTaken> {
        let (process, number) = (access.process, access.number);
        self.take(access, Instant::now(), |core| Ok(core.callers.wait(process, number)?))
    }

    /// Hands an access to the machine. `wait` is where its answer will come; it may be among the events already,
    /// which are delivered after this.
    fn take<T>(
        &self,
        access: Access,
        at: Instant,
        wait: impl FnOnce(&mut Guarded) -> Result<T, NotTaken>,
    ) -> Result<Taken<T>, NotTaken> {
        let (process, unary) = (access.process, access.session.is_none());
        self.step(at, |core, now| match core.machine.apply(now, Input::Access(access), &mut core.events)? {
            Reply::Answered { phase: None, answer } => Ok(Taken::Answered(core.answered(None, answer))),
            Reply::Answered { phase, answer } => Ok(Taken::AnsweredBefore(core.answered(phase, answer))),
            Reply::Accepted => {
                if unary {
                    // A stream that is open is told too; for what it asked itself it counts.
                    core.outlets.expect(process);
                }
                wait(core).map(Taken::Waits)
            }
            Reply::Waiting | Reply::Welcome(_) | Reply::Done => wait(core).map(Taken::WaitedBefore),
        })
    }

    /// A process reports its decision and leaves (F10). On a stream that is so only as long as no newer
    /// session has replaced its own (F8f).
    pub(crate) fn decide(
        &self,
        process: ProcessId,
        session: Option<SessionId>,
        value: Value,
        at: Instant,
    ) -> Result<(), NotTaken> {
        self.step(at, |core, now| {
            if let Some(given) = session
                && !core.outlets.is_open(process, given)
            {
                let current = core.machine.member(process).session;
                return Err(Refusal::OlderSession { given, current }.into());
            }
            core.machine.apply(now, Input::Decide { process, value }, &mut core.events)?;
            Ok(())
        })
    }

    /// Files what the border refused and counts as an offence (B2).
    pub(crate) fn file_offence(&self, offence: Offence) {
        self.apply(Input::Offence(offence));
    }

    /// The creator closes the instance (F10).
    pub(crate) fn close(&self) {
        // One that is closed already need not be unpacked for it.
        if self.state() != State::Closed {
            self.apply(Input::Close);
        }
    }

    /// An input that the machine never refuses.
    fn apply(&self, input: Input) {
        let taken = self.step(Instant::now(), |core, now| {
            core.machine.apply(now, input, &mut core.events)?;
            Ok(())
        });
        debug_assert!(matches!(taken, Ok(()) | Err(NotTaken::Expired)), "{taken:?}");
    }

    /// See [`super::callers::Callers::dismiss`].
    pub(super) fn dismiss_callers(&self) {
        if let Ok(core) = &mut self.core.lock()
            && let Life::Awake(awake) = &mut core.life
        {
            awake.callers.dismiss();
        }
    }

    /// The timer fired. True if the instance has expired (F10), or if an earlier step of it has panicked: it is gone then.
    pub(super) fn wake(&self) -> bool {
        let Ok(mut core) = self.core.lock() else { return true };
        let core = &mut *core;
        let now = self.now();
        core.alarm.fired(self.born.saturating_add(now.as_nanos()));
        if let Life::Awake(awake) = &mut core.life {
            awake.catch_up(self, now);
        }
        core.rest(self, now);
        core.expired = core.expires(self) <= now;
        if core.expired {
            core.expire(self.definition.id);
        } else {
            core.set_alarm(self);
        }
        core.expired
    }

    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no step of a machine panics")
    }

    pub(super) fn now(&self) -> Time {
        self.time(Instant::now())
    }

    fn time(&self, at: Instant) -> Time {
        Time::from_nanos(self.house.nanos(at).saturating_sub(self.born))
    }

    /// Bytes of what is packed; `None` if nothing is.
    #[cfg(test)]
    pub(super) fn packed_size(&self) -> Option<usize> {
        match &self.core().life {
            Life::Awake(_) => None,
            Life::Ended(ended) => Some(ended.past.size()),
        }
    }

    /// As if nobody had come for a while.
    #[cfg(test)]
    pub(super) fn pack_now(&self) {
        self.core().rest(self, self.now().after(super::ended::stays_awake(self.params())));
    }

    /// Takes one input that came at this moment and delivers all that follows from it.
    fn step<T>(
        &self,
        at: Instant,
        input: impl FnOnce(&mut Guarded, Time) -> Result<T, NotTaken>,
    ) -> Result<T, NotTaken> {
        let core = &mut *self.core();
        if core.expired {
            return Err(NotTaken::Expired);
        }
        let awake = core.awaken(self);
        // Others may have been here since that moment, with a later one: time never goes back.
        let now = self.time(at).max(awake.touched);
        awake.touched = now;
        let reply = input(awake, now);
        awake.settle(self, now);
        core.rest(self, now);
        core.set_alarm(self);
        reply
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use prost::Message as _;
    use stickycas_model::access::Op;
    use stickycas_model::params::{ParamsSpec, Patience};
    use stickycas_model::types::{AccessNumber, Position, Seed};
    use stickycas_proto::attach::EncodedResponse;
    use stickycas_proto::names::InstanceId;
    use stickycas_proto::v1;
    use stickycas_proto::v1::server_frame::Frame;

    use super::super::look::Next;
    use super::super::outbox::{Out, Outbox, Taker};
    use super::super::terms::Terms;
    use super::*;
    use crate::limits::Limits;

    /// Two processes in one warp, who are awaited for no time at all. No timer fires: what is due happens with
    /// the next input.
    fn instance() -> Instance {
        let patience = Patience::Finite(Duration::from_nanos(1));
        let spec = ParamsSpec { patience, ..ParamsSpec::new(2, 2, 1) };
        let params = Params::try_new(spec).unwrap();
        let terms = Terms::new(Principal::new("creator"), &params, &["p1".to_owned(), "p2".to_owned()]);
        let definition = Definition::new(InstanceId::new(1), None, Seed::default(), Arc::new(terms));
        let (retention, idle_lifetime) = (Duration::MAX, Duration::MAX);
        Instance::new(definition, House::new(Limits { retention, idle_lifetime, ..Limits::default() }))
    }

    fn awake(core: &Core) -> &Guarded {
        match &core.life {
            Life::Awake(awake) => awake,
            Life::Ended(_) => panic!("it has ended"),
        }
    }

    fn outlet() -> Outlet {
        Outlet { outbox: Arc::new(Outbox::new(100)), channel: 0 }
    }

    fn sent(outlet: &Outlet) -> Vec<Frame> {
        let (mut taker, cx) = (Taker::default(), Context::from_waker(Waker::noop()));
        match outlet.outbox.take(&mut taker, 100, usize::MAX, &cx) {
            Out::Frames(EncodedResponse(bytes)) => {
                let message = v1::AttachResponse::decode(&*bytes).unwrap();
                message.frames.into_iter().filter_map(|it| it.frame).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_goes_after_a_step_has_panicked_goes_in_peace_and_so_does_the_instance() {
        let instance = instance();
        let (process, watcher) = (ProcessId::FIRST, instance.watcher());
        let session = instance.hello(process, 0, &outlet(), Instant::now()).unwrap().session;
        std::thread::scope(|scope| {
            let step = || instance.step(Instant::now(), |_, _| -> Result<(), NotTaken> { panic!("a bug") });
            scope.spawn(step).join().unwrap_err();
        });
        instance.hang_up(process, session);
        instance.forget_watcher(watcher);
        instance.dismiss_callers();
        assert!(instance.wake());
    }

    #[test]
    fn an_answer_that_was_due_before_a_hello_goes_to_the_older_session() {
        let instance = instance();
        let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
        let [older, newer] = [outlet(), outlet()];
        let session = instance.hello(first, 0, &older, Instant::now()).unwrap().session;
        instance.hello(second, 0, &outlet(), Instant::now()).unwrap();
        let op = Op::Read { start: Position::new(0) };
        let access = Access {
            process: first,
            session: Some(session),
            number: AccessNumber::FIRST,
            op,
            no_wait: false,
        };
        assert!(
            matches!(instance.access(access, Instant::now()), Ok(Taken::Waits(()))),
            "the other process is awaited"
        );
        let due = awake(&instance.core()).machine.deadline().unwrap();
        while instance.now() <= due {}

        instance.hello(first, 0, &newer, Instant::now()).unwrap();
        let told = sent(&older);
        assert!(matches!(told[..], [Frame::Welcome(_), Frame::Answer(_), Frame::Replaced(_)]), "{told:?}");
        let welcomed = sent(&newer);
        assert!(matches!(&welcomed[..], [Frame::Welcome(it)] if it.own.as_ref().unwrap().waiting.is_empty()));
    }

    #[test]
    fn an_ended_instance_is_looked_at_without_its_lock_and_need_not_be_unpacked_to_be_closed_again() {
        let instance = instance();
        let unlocked = || instance.look(|_, _, _| instance.core.try_lock().is_ok());
        assert!(!unlocked(), "an instance that is live must not change meanwhile");
        instance.close();
        assert!(unlocked());
        instance.close();
        assert!(instance.packed_size().is_some());
    }

    #[test]
    fn a_watcher_leaves_nothing_behind() {
        let instance = instance();
        let watcher = instance.watcher();
        for _ in 0..3 {
            let next = instance.events_from(0, 1, watcher, Waker::noop());
            assert!(matches!(next, Next::Nothing), "{next:?}");
        }
        assert_eq!(awake(&instance.core()).watchers.len(), 1);
        instance.forget_watcher(watcher);
        assert!(awake(&instance.core()).watchers.is_empty());
    }
}
