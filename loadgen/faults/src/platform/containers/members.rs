//! Whether other members of etcd reach a member: a fault of a member changes that.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::docker::ContainerId;
use super::{DockerError, Project};
use crate::plan::Service;

/// How long a member that was just started may take until another one reaches it: seconds, but on a busy
/// machine.
const LONGEST_START: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_millis(200);

impl Project {
    /// Waits until another member reaches this one. Otherwise an unreachable member would prove nothing
    /// later.
    pub(super) async fn await_reached(&self, member: Service) -> Result<(), DockerError> {
        let deadline = Instant::now() + LONGEST_START;
        while !self.is_reached(member).await? {
            if Instant::now() >= deadline {
                return Err(DockerError::not_ready(member, "is out of reach of all other members"));
            }
            sleep(ASK_AGAIN).await;
        }
        Ok(())
    }

    /// Whether any other member of etcd reaches this one, as a client.
    pub(super) async fn is_reached(&self, member: Service) -> Result<bool, DockerError> {
        let all = self.docker.containers(&self.name).await?;
        let others = all.into_iter().filter(
            |(service, _)| matches!(service.parse(), Ok(other @ Service::Etcd(_)) if other != member),
        );
        for (_, ContainerId(other)) in others {
            let endpoint = format!("ETCDCTL_ENDPOINTS=https://{member}:2379");
            let call = ["exec", "--env", &endpoint, &other];
            let call = call.into_iter().chain(["etcdctl", "--command-timeout=1s", "endpoint", "status"]);
            // A member that is isolated itself reaches no other.
            if self.docker.ask(&call.collect::<Vec<_>>()).await.is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
