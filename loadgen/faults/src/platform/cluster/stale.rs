//! Checks that a deposed server gives no stale answers: instances that it created are closed at their new
//! owners, and others are created there. Then the deposed server is asked for all of them.

use std::time::Duration;

use stickycas_client::raw::Connection;
use stickycas_client::{Client, RefusalReason, State};
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::Stale;
use crate::violation::ViolationKind;

/// Instances that are closed at their new owners, and instances that are created there: of the latter, some
/// fall to shards of the server.
const INSTANCES: usize = 10;
/// The longest wait for answers; a server that is not sure of its lease may delay them for longer.
const LONGEST_ANSWER: Duration = Duration::from_secs(3);
/// How long an instance waits for its process, which never comes.
const JOIN_TIMEOUT: Duration = Duration::from_secs(600);

/// Instances of a server that have not begun.
#[derive(Debug)]
pub(super) struct Samples(Vec<InstanceId>);

/// The known state of an instance that a server owned, or would own.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: InstanceId,
    is_closed: bool,
}

/// Requests that wait for their answers.
#[derive(Debug)]
pub(super) struct Answers(JoinSet<Stale>);

async fn create(client: Client) -> Option<InstanceId> {
    let create = client.create_instance().roster(["nobody"]).join_timeout(JOIN_TIMEOUT);
    let created = timeout(LONGEST_ANSWER, create.send()).await;
    Some(created.ok()?.ok()?.instance.id)
}

async fn close(client: Client, id: InstanceId) -> Option<InstanceId> {
    timeout(LONGEST_ANSWER, client.close(id)).await.ok()?.ok()?;
    Some(id)
}

impl Samples {
    /// Creates them at a server that takes part; as many as the server accepts.
    pub(super) async fn create(server: &Client) -> Self {
        let mut created = JoinSet::new();
        for _ in 0..INSTANCES {
            created.spawn(create(server.clone()));
        }
        Self(created.join_all().await.into_iter().flatten().collect())
    }

    /// Closes those in shards that this server owned, and creates others, by clients that reach the new
    /// owners; asks the server for each one as soon as its change is acknowledged. Resolves when all requests
    /// are sent.
    pub(super) async fn ask(
        self,
        others: &Client,
        server: &Connection,
        owned: impl Fn(InstanceId) -> bool,
    ) -> Answers {
        let mut changed = JoinSet::new();
        for id in self.0.into_iter().filter(|id| owned(*id)) {
            let closed = close(others.clone(), id);
            changed.spawn(async move { Some(Known { id: closed.await?, is_closed: true }) });
        }
        for _ in 0..INSTANCES {
            let created = create(others.clone());
            changed.spawn(async move { Some(Known { id: created.await?, is_closed: false }) });
        }
        let (mut asked, mut all) = (JoinSet::new(), Vec::new());
        while let Some(known) = changed.join_next().await {
            if let Some(known) = known.ok().flatten().filter(|known| owned(known.id)) {
                let server = server.clone();
                asked.spawn(async move { known.get(&server).await });
                all.push(known);
            }
        }
        let server = server.clone();
        asked.spawn(async move { list(&server, &all).await });
        Answers(asked)
    }
}

impl Answers {
    /// The stale answers within [`LONGEST_ANSWER`].
    pub(super) async fn collect(mut self) -> Stale {
        let mut all = Stale::default();
        let collect = async {
            while let Some(stale) = self.0.join_next().await {
                all.add(stale.unwrap_or_default());
            }
        };
        // A request without an answer has no stale answer.
        let _ = timeout(LONGEST_ANSWER, collect).await;
        all
    }
}

impl Known {
    async fn get(self, server: &Connection) -> Stale {
        let mut stale = Stale { asked: 1, ..Stale::default() };
        match server.get(self.id).await {
            Ok(view) if self.is_closed && matches!(view.status.state, State::Gathering | State::Running) => {
                stale.told.push(self.reopened("Get"));
            }
            Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) => {
                let what = format!("Get told that there is no instance {}", self.id);
                stale.told.push((ViolationKind::Lost, what));
            }
            Ok(_) | Err(_) => {}
        }
        stale
    }

    fn is_old(self, told: v1::State) -> bool {
        self.is_closed && matches!(told, v1::State::Gathering | v1::State::Running)
    }

    fn reopened(self, by: &str) -> (ViolationKind, String) {
        let what = format!("instance {} was closed, and {by} told that it waits", self.id);
        (ViolationKind::Reopened, what)
    }
}

/// All pages of the list of a server.
async fn list(server: &Connection, known: &[Known]) -> Stale {
    let (mut stale, mut page_token) = (Stale { asked: 1, ..Stale::default() }, String::new());
    loop {
        let request = v1::ListRequest { page_token, ..v1::ListRequest::default() };
        let page = match server.instances().list(request).await {
            Ok(page) => page.into_inner(),
            Err(_) => return stale,
        };
        for instance in &page.instances {
            let listed = known.iter().find(|known| known.id.to_string() == instance.instance_id);
            let old = listed.filter(|known| known.is_old(instance.state()));
            stale.told.extend(old.map(|known| known.reopened("List")));
        }
        if page.next_page_token.is_empty() {
            return stale;
        }
        page_token = page.next_page_token;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_was_closed_must_not_wait() {
        let known = |is_closed| Known { id: InstanceId::new(7), is_closed };
        assert!(known(true).is_old(v1::State::Gathering) && known(true).is_old(v1::State::Running));
        assert!(!known(true).is_old(v1::State::Closed) && !known(false).is_old(v1::State::Gathering));
    }
}
