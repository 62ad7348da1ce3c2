//! Names that several creators want at once, each at another server: one of them gets it, and keeps it until
//! its instance is closed; then another one gets it.

use std::collections::BTreeSet;
use std::time::Duration;

use stickycas_client::{Client, Error, RefusalReason};
use stickycas_faults::ViolationKind;
use stickycas_model::random::SplitMix64;
use stickycas_proto::names::InstanceId;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::plan::millis;

/// How long an instance waits for its process, which never comes.
const JOIN_TIMEOUT: Duration = Duration::from_secs(86_400);
/// The most creators that want a name at once.
const MOST_CREATORS: usize = 3;
/// The longest time between two creators, in milliseconds.
const APART: u64 = 300;

/// A name, and the times at which creators want it.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    name: String,
    begins: Duration,
    /// The delay of each creator after that.
    creators: Vec<Duration>,
    /// When its instance is closed, and the name is wanted again; `None`: never.
    closes_after: Option<Duration>,
}

/// The outcome of a contest for a name.
#[derive(Debug)]
pub(super) struct ContestOutcome {
    name: String,
    /// The instances of the creators that got the name.
    created: Vec<InstanceId>,
    /// Whether all other creators got the answer that the name is taken.
    is_taken: bool,
    /// The instance that was created after the first one was closed.
    next: Option<InstanceId>,
    trouble: Option<String>,
}

impl Contest {
    pub(super) fn draw(number: usize, within: u64, random: &mut SplitMix64) -> Self {
        let begins = millis(random, within);
        let creators = (0..MOST_CREATORS - random.index(2)).map(|_| millis(random, APART)).collect();
        let closes_after = (random.below(2) == 0).then(|| millis(random, within / 2));
        Self { name: format!("contested-{number}"), begins, creators, closes_after }
    }

    /// Each of these clients creates an instance of its own with the name.
    pub(super) async fn play(self, clients: Vec<Client>) -> ContestOutcome {
        sleep(self.begins).await;
        let mut creating = JoinSet::new();
        for (number, after) in self.creators.into_iter().enumerate() {
            let (client, name) = (clients[number % clients.len()].clone(), self.name.clone());
            creating.spawn(async move {
                sleep(after).await;
                create(&client, name, number).await
            });
        }
        let mut outcome = ContestOutcome {
            name: self.name,
            created: Vec::new(),
            is_taken: true,
            next: None,
            trouble: None,
        };
        while let Some(created) = creating.join_next().await {
            match created.expect("no creator panics") {
                Ok(id) => outcome.created.push(id),
                Err(error) => outcome.is_taken &= error.reason() == Some(RefusalReason::NameTaken),
            }
        }
        if let (&[id], Some(after)) = (outcome.created.as_slice(), self.closes_after) {
            sleep(after).await;
            match outcome.create_again(id, &clients).await {
                Ok(next) => outcome.next = Some(next),
                Err(error) => outcome.trouble = Some(error.to_string()),
            }
        }
        outcome
    }
}

/// Creates an instance that waits for a process which never comes.
async fn create(client: &Client, name: String, number: usize) -> Result<InstanceId, Error> {
    let create = client.create_instance().name(name).roster([format!("nobody-{number}")]);
    Ok(create.join_timeout(JOIN_TIMEOUT).send().await?.instance.id)
}

impl ContestOutcome {
    /// The instance that has the name once this one is closed.
    async fn create_again(&self, id: InstanceId, clients: &[Client]) -> Result<InstanceId, Error> {
        clients[0].close(id).await?;
        // Of other parameters than all before it.
        create(&clients[clients.len() - 1], self.name.clone(), MOST_CREATORS).await
    }

    /// The violations of the outcome, by a client that asks this server first.
    pub(super) async fn check(&self, client: &Client) -> Vec<(ViolationKind, String)> {
        let Self { name, created, is_taken, next, trouble } = self;
        let mut found = Vec::new();
        if let Some(why) = trouble {
            found.push((ViolationKind::Refused, format!("name {name} cannot be given again: {why}")));
        }
        let distinct: BTreeSet<String> = created.iter().map(ToString::to_string).collect();
        if distinct.len() > 1 {
            found.push((ViolationKind::Twice, format!("name {name} was given to {distinct:?}")));
        }
        match (next.as_ref().or(created.first()), client.find(name.as_str()).await) {
            (Some(id), Ok(holder)) if holder != *id => {
                found.push((
                    ViolationKind::Changed,
                    format!("name {name} was given to {id}, and {holder} has it"),
                ));
            }
            (Some(id), Err(error)) => {
                found.push((ViolationKind::Lost, format!("name {name} was given to {id}: {error}")));
            }
            (None, Err(error)) if *is_taken => {
                found.push((ViolationKind::Lost, format!("name {name} was taken for all: {error}")));
            }
            _ => {}
        }
        found
    }
}
