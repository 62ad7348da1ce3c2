//! Plays one process over the network: the pure [`Player`] of the model, performed on an Attach stream.
//!
//! [`play`] is a loop of sessions. A session (file `session.rs`) opens the instance with a hello, performs
//! what the player asks for and hands it the answers. A correct process sends its append and its first read
//! in one message (SPEC F7), and with the hello if it has seen that it has not acted yet. When the connection
//! breaks, the next session has the same incarnation, and the player sends again what is not answered, with
//! the same numbers; so nothing is executed twice (SPEC F8b). In a cluster the next session is opened at
//! another server if the instance has moved there, with the same incarnation and numbers. An error that no
//! retry helps ends the play at once: an unknown instance (F11), a newer session of the same process (F8f), a
//! closed instance, a server that tells less than it has told before (file `knowledge.rs`).

mod knowledge;
mod session;

use std::sync::Arc;
use std::time::Duration;

use stickycas_model::access::{Answer, AppendAnswer};
use stickycas_model::byzantine::{Strategy, own_value};
use stickycas_model::params::Params;
use stickycas_model::player::Player;
use stickycas_model::process::{Behaviour, Correct, RawOp, Report};
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, Value};
use stickycas_proto::convert::member_state::MemberState;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;
use tokio::time::Instant;

use knowledge::Knowledge;

use crate::cluster::{Cluster, NextTry, Route};
use crate::connection::Connection;
use crate::error::Error;
use crate::info::InstanceView;
use crate::retry::{Backoff, RetryPolicy};

/// The patience that a process keeps when it acts at the last moment: its access still has to travel.
pub const LAST_MOMENT: Duration = Duration::from_millis(100);

/// Makes a behaviour once the process knows its number.
type MakeBehaviour = Box<dyn FnOnce(ProcessId) -> Box<dyn Behaviour> + Send>;

/// A fact that the server tells a client. Observers get them in order, to compare them with later ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A session is open, and this is the state of the process.
    Welcome(MemberState),
    /// An access was answered.
    Answered {
        /// Its number.
        number: AccessNumber,
        /// The access, if it was sent on this session.
        op: Option<RawOp>,
        /// The phase; `None`: outside phases, because the instance is over (F10).
        phase: Option<Phase>,
        /// The answer.
        answer: Answer,
        /// The entries that a read returned.
        entries: Vec<Value>,
    },
    /// The server has taken this decision.
    Decided(Value),
}

/// Takes what a client is told.
type Observer = Box<dyn FnMut(Told) + Send>;

/// The part that a process plays once it knows its number.
pub struct ProcessSpec {
    is_correct: bool,
    /// Its proposal, if the caller gives one.
    proposal: Option<Value>,
    strategy: Option<Strategy>,
    /// Taken when the process knows its number.
    behaviour: Option<MakeBehaviour>,
    observer: Option<Observer>,
    /// Its number and the parameters, if it is correct and has not acted yet. Taken by the first session.
    seen: Option<(ProcessId, Arc<Params>)>,
}

impl ProcessSpec {
    /// A correct process that proposes this value (D1). It leaves when it has decided, or has nothing to
    /// decide.
    #[must_use]
    pub fn correct(proposal: Value) -> Self {
        let behaviour = Correct::new(proposal.clone());
        Self { is_correct: true, proposal: Some(proposal), ..Self::with(|_| Box::new(behaviour)) }
    }

    /// A process with the caller's own behaviour, which joins. The behaviour is made once the process knows
    /// its number.
    #[must_use]
    pub fn with(behaviour: impl FnOnce(ProcessId) -> Box<dyn Behaviour> + Send + 'static) -> Self {
        let behaviour: Option<MakeBehaviour> = Some(Box::new(behaviour));
        Self { is_correct: false, proposal: None, strategy: None, behaviour, observer: None, seen: None }
    }

    /// A Byzantine process. Where its strategy follows Algorithm 1 for a while, it proposes `proposal`, or
    /// without one [`own_value`]; `seed` is that of its random choices. One that falls silent stays attached.
    #[must_use]
    pub fn byzantine(strategy: Strategy, proposal: Option<Value>, seed: u64) -> Self {
        let (plays, proposes) = (strategy.clone(), proposal.clone());
        let process = Self::with(move |me| {
            let proposal = proposes.unwrap_or_else(|| own_value(me));
            plays.behaviour(me, &proposal, seed)
        });
        Self { proposal, strategy: Some(strategy), ..process }
    }

    /// The same process, which has seen its instance so. If it is correct and has not acted yet, its first
    /// accesses leave together with its hello, which saves a round trip.
    #[must_use]
    pub fn having_seen(self, view: &InstanceView) -> Self {
        let unused = view.own.as_ref().filter(|own| self.is_correct && own.next == AccessNumber::FIRST);
        let seen = unused.map(|own| (own.process, Arc::new(view.instance.parameters.clone())));
        Self { seen, ..self }
    }

    /// The same process, and this function is given what the server tells it.
    #[doc(hidden)]
    #[must_use]
    pub fn observed(self, observer: impl FnMut(Told) + Send + 'static) -> Self {
        Self { observer: Some(Box::new(observer)), ..self }
    }
}

/// The outcome of [`Client::play`](crate::Client::play).
#[derive(Debug)]
pub struct Played {
    /// The report of the process at its end. `None`: it never opened a session, so it does not even know its
    /// number.
    pub report: Option<Report>,
    /// The place of its entry, if an append of it has won, in this life or in an earlier one.
    pub entry: Option<Position>,
    /// Whether a read has told it that the list is sealed.
    pub has_read_seal: bool,
    /// Accesses that it sent in this life, each counted once however often it was sent again.
    pub accesses: u64,
    /// Sessions after the first one.
    pub reconnections: u64,
    /// The error that stopped it; `None` if it came to its own end or was told to stop.
    pub error: Option<Error>,
}

impl Played {
    /// That of a process that has never opened a session.
    #[doc(hidden)]
    #[must_use]
    pub const fn unseen() -> Self {
        Self { report: None, entry: None, has_read_seal: false, accesses: 0, reconnections: 0, error: None }
    }
}

/// Plays one process of an instance to its end, or until `stop` resolves.
///
/// A process that falls silent ([`stickycas_model::process::Act::Silent`]) stays attached until its stream
/// ends or `stop` resolves; one that never joins waits for `stop` alone. Give [`std::future::pending`] not to
/// stop.
pub(crate) async fn play(
    cluster: &Cluster,
    instance: InstanceId,
    spec: ProcessSpec,
    policy: RetryPolicy,
    stop: impl Future<Output = ()>,
) -> Played {
    if spec.strategy.as_ref().is_some_and(|strategy| !strategy.joins()) {
        stop.await;
        return Played::unseen();
    }
    let mut drive = Drive::new(cluster, instance, spec, policy);
    let error = tokio::select! {
        biased;
        ended = drive.run() => ended.err(),
        () = stop => None,
    };
    drive.played(error)
}

/// One process at play, from session to session.
struct Drive {
    /// To the owner of the instance.
    route: Route,
    /// That of the session.
    connection: Connection,
    instance: InstanceId,
    /// Names this life of the client (F8e). Never 0, which would mean "not told".
    incarnation: u64,
    spec: ProcessSpec,
    player: Option<Player>,
    knowledge: Knowledge,
    /// The patience that it has left, by its own account, which can only be too low; `None`: without end
    /// (F3).
    patience: Option<Duration>,
    backoff: Backoff,
    sessions: u64,
    /// When the session that stands, or stood last, was welcomed.
    welcomed_at: Option<Instant>,
    accesses: u64,
    /// The largest access number sent so far.
    sent_up_to: u64,
}

/// How long one try to open a session may take, unless giving up comes first.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

impl Drive {
    fn new(cluster: &Cluster, instance: InstanceId, spec: ProcessSpec, policy: RetryPolicy) -> Self {
        Self {
            route: cluster.route_to(instance),
            connection: cluster.base().clone(),
            instance,
            incarnation: rand::random_range(1..=u64::MAX),
            spec,
            player: None,
            knowledge: Knowledge::default(),
            patience: None,
            backoff: Backoff::new(policy, cluster.reached().clone()),
            sessions: 0,
            welcomed_at: None,
            accesses: 0,
            sent_up_to: 0,
        }
    }

    /// Session after session, until the process has ended.
    ///
    /// # Errors
    /// An error that no further session would help.
    async fn run(&mut self) -> Result<(), Error> {
        loop {
            self.welcomed_at = None;
            self.backoff.begin();
            let error = match self.session().await {
                Ok(()) => return Ok(()),
                // It has nothing more to say or to hear.
                Err(_) if self.player.as_ref().is_some_and(Player::has_ended) => return Ok(()),
                Err(error) => error,
            };
            // Trying to connect is no progress, however long it takes.
            if let Some(welcomed) = self.welcomed_at {
                self.backoff.lasted(welcomed.elapsed());
            }
            let error = self.route.diagnosed(error, &self.backoff).await;
            let delay = match self.route.next_try(error).await {
                NextTry::Now => None,
                NextTry::Later(error) => {
                    let delay = self.backoff.failed(error.clone())?;
                    tracing::info!(%error, ?delay, "session lost, trying again");
                    Some(delay)
                }
                NextTry::Stop(error) => return Err(error),
            };
            if let Some(player) = &mut self.player {
                player.disconnected();
            }
            if let Some(delay) = delay {
                tokio::time::sleep(delay).await;
                self.route.note_pause();
            }
        }
    }

    /// Hands on what the server has told.
    fn told(&mut self, told: impl FnOnce() -> Told) {
        if let Some(observer) = &mut self.spec.observer {
            observer(told());
        }
    }

    fn played(mut self, error: Option<Error>) -> Played {
        if let (Some(player), Some(error)) = (&mut self.player, &error) {
            match error.reason() {
                // The close reached the process on its session, which stood.
                Some(RefusalReason::InstanceClosed) => player.give_up(error.to_string()),
                _ => player.fail(error.to_string()),
            }
        }
        let view = self.player.as_ref().map(Player::view);
        Played {
            entry: view.and_then(|view| match view.append? {
                (_, AppendAnswer::Success(position)) => Some(position),
                _ => None,
            }),
            has_read_seal: view.is_some_and(|view| view.sealed),
            report: self.player.as_ref().filter(|_| self.sessions > 0).map(Player::report),
            accesses: self.accesses,
            reconnections: self.sessions.saturating_sub(1),
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::byzantine::Silent;

    use super::*;
    use crate::connection::ClientConfig;

    #[tokio::test]
    async fn a_server_that_never_answers_is_given_up_in_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let cluster = Cluster::of(Connection::lazy(ClientConfig::new(&address, "p1").unwrap()));
        let spec = ProcessSpec::byzantine(Strategy::Silent(Silent), None, 0);
        let give_up_after = Duration::from_millis(50);
        // Each try takes longer than the longest delay.
        let policy =
            RetryPolicy { longest: Duration::from_millis(1), give_up_after, ..RetryPolicy::default() };
        let played = play(&cluster, InstanceId::new(1), spec, policy, std::future::pending());
        let played = tokio::time::timeout(Duration::from_secs(60), played).await.expect("it gives up");
        assert!(matches!(played.error, Some(Error::GaveUp { .. })), "{:?}", played.error);
    }

    #[tokio::test]
    async fn a_play_may_move_between_threads() {
        fn may_move<F: Future + Send>(_: F) {}
        let cluster = Cluster::of(Connection::lazy(ClientConfig::new("http://127.0.0.1:1", "p1").unwrap()));
        let spec = ProcessSpec::byzantine(Strategy::Silent(Silent), None, 0);
        let policy = RetryPolicy::default();
        may_move(play(&cluster, InstanceId::new(1), spec, policy, std::future::ready(())));
    }
}
