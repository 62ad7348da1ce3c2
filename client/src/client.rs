//! [`Client`]: a connection and how to retry on it.

use std::time::Duration;

use stickycas_model::byzantine::WireAttack;
use stickycas_model::process::{ProcessEnd, Report};
use stickycas_model::types::{Phase, ProcessId, Value};
use stickycas_proto::names::InstanceId;
use tokio::time::timeout;
use tonic::{Response, Status};

use crate::connection::{Connection, Target};
use crate::driver::{self, Conduct, Played};
use crate::error::Error;
use crate::retry::{Backoff, RetryPolicy};
use crate::wire_attack::{self, Attacked};

/// A client of one server for one principal. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) connection: Connection,
    policy: RetryPolicy,
}

/// What a correct process decided, and what from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Who decided.
    pub process: ProcessId,
    /// The decision: the most frequent value of those that it read, the smallest if several are (D1).
    pub value: Value,
    /// The entries that it read, in the order of their positions. Empty if an earlier life of the process had
    /// decided.
    pub from: Vec<Value>,
    /// The phase of its last read. `None` if it had no answer in this life.
    pub phase: Option<Phase>,
}

/// Bound on one try of a call that waits for no phase.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl Client {
    /// Connects, with the retries of [`RetryPolicy::default`].
    ///
    /// # Errors
    /// When there is no connection after all retries.
    pub async fn connect(target: Target) -> Result<Self, Error> {
        Self::connect_with(target, RetryPolicy::default()).await
    }

    /// Connects, with these retries from now on.
    ///
    /// # Errors
    /// When there is no connection after all retries.
    pub async fn connect_with(target: Target, policy: RetryPolicy) -> Result<Self, Error> {
        let mut backoff = Backoff::new(policy);
        loop {
            match Connection::open(target.clone()).await {
                Ok(connection) => return Ok(Self { connection, policy }),
                Err(error) => tokio::time::sleep(backoff.failed(error)?).await,
            }
        }
    }

    /// A client on a connection that others use too, or that opens when it is first used.
    #[must_use]
    pub const fn on(connection: Connection, policy: RetryPolicy) -> Self {
        Self { connection, policy }
    }

    /// The connection.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Plays a correct process that proposes this value, to its decision. The server has taken the report of
    /// the decision when this returns.
    ///
    /// # Errors
    /// [`Error::Refused`] at once when no retry helps, [`Error::GaveUp`] when retries did not, and
    /// [`Error::Undecided`] when the process ended without a decision.
    pub async fn propose(&self, instance: InstanceId, value: Value) -> Result<Decision, Error> {
        let played = self.play(instance, Conduct::correct(value), std::future::pending()).await;
        match (played.error, played.report) {
            (Some(error), _) => Err(error),
            (None, Some(report)) => Decision::of(report),
            (None, None) => Err(Error::Undecided("the process never joined".to_owned())),
        }
    }

    /// Plays a process, correct or Byzantine, to its end or until `stop` resolves. See [`driver::play`].
    pub async fn play(
        &self,
        instance: InstanceId,
        conduct: Conduct,
        stop: impl Future<Output = ()>,
    ) -> Played {
        driver::play(&self.connection, instance, conduct, self.policy, stop).await
    }

    /// Plays a process that carries out a wire attack, to its end or until `stop` resolves. See
    /// [`wire_attack::play`].
    pub async fn attack(
        &self,
        instance: InstanceId,
        attack: WireAttack,
        seed: u64,
        stop: impl Future<Output = ()>,
    ) -> Attacked {
        wire_attack::play(&self.connection, instance, attack, seed, self.policy, stop).await
    }

    /// The same client, never giving up.
    #[must_use]
    pub fn without_end(self) -> Self {
        Self { policy: self.policy.without_end(), ..self }
    }

    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.policy)
    }

    /// A unary call, again and again until it is answered or another try does not help or must not be made.
    pub(crate) async fn call<T, F>(&self, manner: Manner, mut call: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut backoff = Backoff::new(self.policy);
        loop {
            let begun = tokio::time::Instant::now();
            let answer = match manner {
                Manner::Waits => Ok(call().await),
                Manner::Repeatable | Manner::Once | Manner::NoWait => timeout(ANSWER_TIMEOUT, call()).await,
            };
            let error = match answer {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => self.connection.error(&status),
                Err(_) => self.connection.no_answer("no answer in time"),
            };
            if !manner.allows_another_try(&error) {
                return Err(error);
            }
            backoff.lasted(begun.elapsed());
            let delay = backoff.failed(error.clone())?;
            tracing::info!(%error, ?delay, "trying again");
            tokio::time::sleep(delay).await;
        }
    }
}

/// How a unary call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It is answered at once, and may be made again.
    Repeatable,
    /// It is answered when the phase of its access has come, which nobody can foretell; it may be made again.
    Waits,
    /// Made again only if it did not happen: it has neither name nor number to be known by.
    Once,
    /// An access of a caller who will not wait: made again only if it got no answer at all.
    NoWait,
}

impl Manner {
    pub(crate) const fn of_access(no_wait: bool) -> Self {
        if no_wait { Self::NoWait } else { Self::Waits }
    }

    fn allows_another_try(self, error: &Error) -> bool {
        match self {
            Self::Repeatable | Self::Waits => true,
            Self::Once => !error.may_have_happened(),
            Self::NoWait => matches!(error, Error::Unreachable { .. }),
        }
    }
}

impl Decision {
    fn of(report: Report) -> Result<Self, Error> {
        let Report { process, decision, phase, from, ended, .. } = report;
        match (decision, ended) {
            (Some(value), ProcessEnd::Decided) => Ok(Self { process, value, from, phase }),
            (_, ProcessEnd::Failed(why)) => Err(Error::Undecided(why)),
            (_, ProcessEnd::NothingToDecide | ProcessEnd::Decided) => {
                Err(Error::Undecided("the sealed list is empty: there is nothing to decide".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stickycas_proto::status::RpcRefusal;
    use stickycas_proto::v1::RefusalReason;

    use super::*;

    #[test]
    fn a_create_without_a_name_is_not_made_twice() {
        let lost = Error::unreachable("http://server", "broken pipe", true);
        let never_sent = Error::unreachable("http://server", "connection refused", false);
        assert!(!Manner::Once.allows_another_try(&lost));
        assert!(Manner::Once.allows_another_try(&never_sent));
        assert!(Manner::Repeatable.allows_another_try(&lost));
    }

    #[test]
    fn who_will_not_wait_for_the_phase_is_told_at_once() {
        let refused = Error::Refused(RpcRefusal::new(RefusalReason::NotYourPhase, "not your phase"));
        assert!(!Manner::NoWait.allows_another_try(&refused));
        assert!(Manner::NoWait.allows_another_try(&Error::unreachable("http://server", "broken pipe", true)));
    }
}
