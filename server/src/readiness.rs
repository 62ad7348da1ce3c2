//! Whether the server takes calls, and the reason if not: the answer of `/readyz` and of the health service
//! of gRPC.

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// The states of a server: in one of them it takes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The log is read: the instances of earlier lives are not all there. Or a server of a cluster has no
    /// lease yet.
    Recovering,
    /// Calls are taken.
    Serving,
    /// A server of a cluster can commit nothing: it has no lease, or nothing was committed for long although
    /// something waits.
    Stalled,
    /// The server was told to stop.
    Draining,
    /// The log took no step any more: nothing can be committed.
    LogFailed,
}

impl State {
    pub(crate) const ALL: [Self; 5] =
        [Self::Recovering, Self::Serving, Self::Stalled, Self::Draining, Self::LogFailed];

    /// The name, as metrics have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Recovering => "recovering",
            Self::Serving => "serving",
            Self::Stalled => "stalled",
            Self::Draining => "draining",
            Self::LogFailed => "log_failed",
        }
    }

    /// In words, for operators.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Recovering => {
                "not ready: the server takes no calls yet: it reads its log or, in a cluster, waits for its lease in etcd"
            }
            Self::Serving => "ready",
            Self::Stalled => {
                "not ready: nothing can be committed: the server has no lease in etcd, or etcd takes nothing of what waits; the log of \
                 the server says why"
            }
            Self::Draining => "not ready: the server was told to stop and takes nothing new",
            Self::LogFailed => {
                "not ready: the log has failed, nothing can be committed; the log of the server says why"
            }
        }
    }

    /// Whether another state may follow. A server that stops does not begin to serve again, and a log that
    /// has failed stays so.
    const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Recovering | Self::Serving | Self::Stalled => true,
            Self::Draining => false,
            Self::LogFailed => matches!(next, Self::Draining),
        }
    }
}

/// The state of one server. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Readiness(watch::Sender<State>);

impl Readiness {
    pub(crate) fn new(state: State) -> Self {
        Self(watch::Sender::new(state))
    }

    pub(crate) fn state(&self) -> State {
        *self.0.borrow()
    }

    /// Sets the state, if it may follow the present one.
    pub(crate) fn set(&self, next: State) {
        self.0.send_if_modified(|state| {
            let changes = *state != next && state.may_become(next);
            if changes {
                tracing::info!("{}", next.words());
                *state = next;
            }
            changes
        });
    }

    /// Tells the health service of gRPC every change, for ever. `services`: the names that it knows.
    pub(crate) async fn report(&self, mut health: HealthReporter, services: &[&str]) {
        let mut states = self.0.subscribe();
        loop {
            let state = *states.borrow_and_update();
            set_health(&mut health, services, state).await;
            if states.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Tells the health service a state.
pub(crate) async fn set_health(health: &mut HealthReporter, services: &[&str], state: State) {
    let status = if state == State::Serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in services {
        health.set_service_status(*service, status).await;
        if state == State::Draining {
            // Cleared for a moment, so that streams that watch it get the change and end.
            health.clear_service_status(service).await;
            health.set_service_status(*service, status).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_drains_does_not_serve_again() {
        let readiness = Readiness::new(State::Recovering);
        for (next, then) in [
            (State::Serving, State::Serving),
            (State::Stalled, State::Stalled),
            (State::Serving, State::Serving),
            (State::LogFailed, State::LogFailed),
            (State::Serving, State::LogFailed),
            (State::Stalled, State::LogFailed),
            (State::Draining, State::Draining),
            (State::Serving, State::Draining),
            (State::LogFailed, State::Draining),
        ] {
            readiness.set(next);
            assert_eq!(readiness.state(), then, "after {next:?}");
        }
    }

    #[test]
    fn only_a_server_that_serves_is_ready() {
        for state in State::ALL {
            assert_eq!(state.words() == "ready", state == State::Serving);
            assert!(state == State::Serving || state.words().starts_with("not ready: "));
        }
        let recovering = State::Recovering.words();
        assert!(recovering.contains("reads its log") && recovering.contains("lease in etcd"), "{recovering}");
    }
}
