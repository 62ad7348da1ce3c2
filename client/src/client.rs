//! [`Client`]: a connection and the policy for retries on it.

use std::time::Duration;

use stickycas_model::process::{ProcessEnd, Report};
use stickycas_model::types::{Phase, ProcessId, Value};
use stickycas_proto::names::{InstanceId, InstanceRef};
use stickycas_proto::v1::RefusalReason;
use tokio::time::timeout;
use tonic::{Response, Status};

use crate::cluster::{Cluster, NextTry, Route};
use crate::connection::Connection;
use crate::convert::{IntoInstance, value_of};
use crate::driver::{self, Played, ProcessSpec};
use crate::error::{Error, NO_ANSWER};
use crate::retry::{Backoff, RetryPolicy, noticed};

/// A client of one server, or of a cluster of servers, for one principal. Cheap to clone; clones share the
/// connections.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) cluster: Cluster,
    policy: RetryPolicy,
}

/// The decision of a correct process, and the entries that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The process.
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
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl Client {
    /// A client on a connection of [`crate::raw`].
    #[doc(hidden)]
    #[must_use]
    pub fn on(connection: Connection, policy: RetryPolicy) -> Self {
        Self::of(Cluster::of(connection), policy)
    }

    pub(crate) const fn of(cluster: Cluster, policy: RetryPolicy) -> Self {
        Self { cluster, policy }
    }

    /// The connection to the server that was asked first, see [`crate::raw`].
    #[doc(hidden)]
    #[must_use]
    pub fn connection(&self) -> &Connection {
        self.cluster.base()
    }

    /// The server's address as given; of several, the one that was asked first.
    #[must_use]
    pub fn server(&self) -> &str {
        self.connection().config().server()
    }

    /// The principal.
    #[must_use]
    pub fn principal(&self) -> &str {
        self.connection().config().principal()
    }

    /// How this client retries.
    #[must_use]
    pub const fn retry_policy(&self) -> RetryPolicy {
        self.policy
    }

    /// The same client, on the same connection, with other retries.
    #[must_use]
    pub fn with_retry(self, policy: RetryPolicy) -> Self {
        Self { policy, ..self }
    }

    /// A client for another principal on the same connection, for a program that plays many processes. The
    /// server limits the streams of one connection. With [credentials](crate::Credentials), both must be in
    /// one file of tokens.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the principal is no name of a principal, or the credentials are not its
    /// own.
    pub fn as_principal(&self, principal: &str) -> Result<Self, Error> {
        Ok(Self { cluster: self.cluster.as_principal(principal)?, policy: self.policy })
    }

    /// Plays a correct process that proposes this value, to its decision (Algorithm 1 of the paper). The
    /// server has taken the report of the decision when this returns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a value without a byte or a text that names no instance;
    /// [`Error::Refused`] at once when no retry helps, for example `VALUE_TOO_LARGE`; [`Error::GaveUp`] when
    /// retries did not; and [`Error::Undecided`] when the process ended without a decision.
    pub async fn propose(
        &self,
        instance: impl IntoInstance,
        value: impl AsRef<[u8]>,
    ) -> Result<Decision, Error> {
        let (instance, spec) = (instance.into_instance()?, ProcessSpec::correct(value_of(value)?));
        let (instance, spec) = match instance {
            InstanceRef::Id(id) => (id, spec),
            name @ InstanceRef::Name(_) => {
                let view = self.get(name).await?;
                (view.instance.id, spec.having_seen(&view))
            }
        };
        let played = self.play(instance, spec, std::future::pending()).await;
        match (played.error, played.report) {
            (Some(error), _) => Err(error),
            (None, Some(report)) => Decision::of(report),
            (None, None) => Err(Error::Undecided("the process never joined".to_owned())),
        }
    }

    /// Plays a process, correct or Byzantine, to its end or until `stop` resolves; [`std::future::pending`]
    /// never stops it.
    ///
    /// A process that falls silent stays attached until its stream ends or `stop` resolves; one that never
    /// joins waits for `stop` alone.
    pub async fn play(
        &self,
        instance: InstanceId,
        spec: ProcessSpec,
        stop: impl Future<Output = ()>,
    ) -> Played {
        driver::play(&self.cluster, instance, spec, self.policy, stop).await
    }

    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.policy, self.cluster.reached().clone())
    }

    /// A unary call to the owner of an instance, again and again until it is answered or another try does not
    /// help or must not be made.
    pub(crate) async fn call_owner<R: Clone, T, F>(
        &self,
        instance: InstanceId,
        idempotency: Idempotency,
        request: R,
        call: impl FnMut(Connection, R) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.call_along(&mut self.cluster.route_to(instance), idempotency, request, call).await
    }

    /// The same along this route, which ends at the server that has answered.
    pub(crate) async fn call_along<R: Clone, T, F>(
        &self,
        route: &mut Route,
        idempotency: Idempotency,
        request: R,
        mut call: impl FnMut(Connection, R) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut backoff = self.backoff();
        loop {
            backoff.begin();
            let begun = tokio::time::Instant::now();
            let longest = backoff.limit(ANSWER_TIMEOUT, route.has_others());
            let reached = async {
                match idempotency {
                    Idempotency::Waits => route.connection_that_answers(longest).await,
                    _ => route.connection().await,
                }
            };
            let reached = noticed(route.at().as_str(), backoff.has_noticed(), reached).await;
            let error = match reached {
                Ok(connection) => {
                    let answer = call(connection.clone(), request.clone());
                    let answer = idempotency.one_try(&connection, longest, answer);
                    // Who waits for a phase waits for no server.
                    let is_told = idempotency == Idempotency::Waits || backoff.has_noticed();
                    match noticed(connection.config().server(), is_told, answer).await {
                        Ok(answer) => {
                            route.note_answer();
                            return Ok(answer);
                        }
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            let error = route.diagnosed(error, &backoff).await;
            if !idempotency.allows_another_try(&error) {
                return Err(error);
            }
            let error = match route.next_try(error).await {
                NextTry::Now => continue,
                NextTry::Later(error) => error,
                NextTry::Stop(error) => return Err(error),
            };
            // A call that waits for no phase, and a server that is not reached, make no progress by taking
            // long.
            if idempotency == Idempotency::Waits && !matches!(error, Error::Unreachable { sent: false, .. }) {
                backoff.lasted(begun.elapsed());
            }
            let delay = backoff.failed(error.clone())?;
            tracing::info!(%error, ?delay, "trying again");
            tokio::time::sleep(delay).await;
            route.note_pause();
        }
    }
}

/// Whether a unary call may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idempotency {
    /// It is answered at once, and may be made again.
    Repeatable,
    /// It is answered when the phase of its access has come, which nobody can foretell; it may be made again.
    Waits,
    /// Made again only if it did not happen: it has neither name nor number to be known by.
    Once,
    /// An access that does not wait for its phase: made again only if it got no answer at all.
    NoWait,
}

impl Idempotency {
    /// Makes the call, and waits so long for its answer if it waits for no phase.
    pub(crate) async fn one_try<T>(
        self,
        connection: &Connection,
        longest: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Error> {
        let answer = match self {
            Self::Waits => Ok(call.await),
            Self::Repeatable | Self::Once | Self::NoWait => timeout(longest, call).await,
        };
        match answer {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(connection.error(&status)),
            Err(_) => Err(connection.no_answer(NO_ANSWER)),
        }
    }

    fn allows_another_try(self, error: &Error) -> bool {
        match self {
            Self::Repeatable | Self::Waits => true,
            Self::Once => !error.may_have_happened() || is_draining(error),
            // A server that is not the owner has not looked at the phase.
            Self::NoWait => match error.reason() {
                Some(reason) => matches!(reason, RefusalReason::NotOwner | RefusalReason::OwnerLost),
                None => matches!(error, Error::Unreachable { .. }),
            },
        }
    }
}

/// Whether the server refused the call because it drains. A call of [`Idempotency::Once`] has no access that
/// could wait on: a server that drains refuses it before it does anything.
fn is_draining(error: &Error) -> bool {
    matches!(error, Error::Refused(refused) if refused.reason == RefusalReason::Draining)
}

impl Decision {
    fn of(report: Report) -> Result<Self, Error> {
        let Report { process, decision, phase, from, ended, .. } = report;
        match (decision, ended) {
            (Some(value), ProcessEnd::Decided) => Ok(Self { process, value, from: from.to_vec(), phase }),
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

    use super::*;

    #[test]
    fn a_create_without_a_name_is_not_made_twice() {
        let lost = Error::unreachable("http://server", "broken pipe", true);
        let never_sent = Error::unreachable("http://server", "connection refused", false);
        assert!(!Idempotency::Once.allows_another_try(&lost));
        assert!(Idempotency::Once.allows_another_try(&never_sent));
        let refused = |reason| Error::from(RpcRefusal::new(reason, ""));
        assert!(!Idempotency::Once.allows_another_try(&refused(RefusalReason::Internal)));
        assert!(
            Idempotency::Once.allows_another_try(&refused(RefusalReason::Draining)),
            "nothing was created"
        );
        assert!(Idempotency::Repeatable.allows_another_try(&lost));
    }

    #[test]
    fn a_caller_that_does_not_wait_is_answered_at_once() {
        let refused = Error::from(RpcRefusal::new(RefusalReason::NotYourPhase, "not your phase"));
        assert!(!Idempotency::NoWait.allows_another_try(&refused));
        assert!(Idempotency::NoWait.allows_another_try(&Error::unreachable(
            "http://server",
            "broken pipe",
            true
        )));
    }
}
