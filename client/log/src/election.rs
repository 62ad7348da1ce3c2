//! [`Election`]: a leader for each epoch.

use std::collections::BTreeSet;

use serde::Serialize;
use stickycas_client::Error;
use stickycas_model::machine::Entry;
use stickycas_model::types::Value;

use crate::error::LogError;
use crate::series::{Series, decision, is_sealed};

/// The outcome of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Elected {
    /// The epoch, from 1. What a leader commands carries it: a command of an earlier epoch is void.
    pub epoch: u64,
    /// The leader. `None`: the decision is no member, or not known any more; the next epoch is to elect one.
    pub leader: Option<String>,
}

/// The outcome of an epoch with this sealed list: the decision of Algorithm 1, the most frequent value, if it
/// is the name of a member.
#[must_use]
pub fn elected(epoch: u64, roster: &[String], list: &[Entry]) -> Elected {
    elected_by(epoch, roster, decision(list))
}

fn elected_by(epoch: u64, roster: &[String], decision: Option<&Value>) -> Elected {
    let leader = decision.and_then(|it| roster.iter().find(|member| member.as_bytes() == it.as_bytes()));
    Elected { epoch, leader: leader.cloned() }
}

/// An election among the members of a series, epoch by epoch. The current epoch is the last one that has an
/// outcome.
#[derive(Clone, Debug)]
pub struct Election(Series);

impl Election {
    /// The election whose epochs are the instances of this series.
    #[must_use]
    pub fn new(series: &Series) -> Self {
        Self(series.clone())
    }

    /// Supports this member as the leader of this epoch, once the epoch exists, and waits for the outcome.
    /// Who has supported somebody in this epoch before only waits.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if either is no member; when a call fails.
    pub async fn support(&self, epoch: u64, candidate: &str) -> Result<Elected, LogError> {
        let view = self.0.find(epoch).await?;
        let members = [candidate, self.0.client().principal()];
        if let Some(other) =
            members.into_iter().find(|name| !view.instance.roster.iter().any(|it| it == name))
        {
            return Err(Error::InvalidArgument(format!("{other} is no member of {}", self.0)).into());
        }
        let value = Value::new(candidate.as_bytes()).expect("a member has a name");
        let acted = self.0.act(&view, value).await?;
        Ok(elected_by(epoch, &view.instance.roster, acted.decision.as_ref()))
    }

    /// Waits until a member has begun this epoch: the others are to support somebody in it, too.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn begun(&self, epoch: u64) -> Result<(), LogError> {
        let view = self.0.find(epoch).await?;
        self.0.begun(&view.instance).await.map(drop)
    }

    /// The outcome of this epoch, once it has one.
    ///
    /// # Errors
    /// [`LogError::Forgotten`] if the server keeps the epoch no more; [`LogError::BegunAgain`] if the one
    /// before it does not exist either; when a call fails.
    pub async fn outcome(&self, epoch: u64) -> Result<Elected, LogError> {
        let view = self.0.find(epoch).await?;
        Ok(elected(epoch, &view.instance.roster, &self.0.sealed(&view.instance).await?))
    }

    /// The outcome of the current epoch, from the list of instances, for who has missed epochs; `None`: there
    /// is none yet, or the server keeps it no more (its retention, 10 min, has ended since): a leader that
    /// stays longer has to be elected again in time.
    ///
    /// # Errors
    /// [`LogError::Nothing`] if the server keeps no epoch at all; when a call fails.
    pub async fn current(&self) -> Result<Option<Elected>, LogError> {
        let kept = self.0.kept().await?;
        if kept.is_empty() {
            // It refuses callers that may not read.
            self.0.look(1).await?;
            return Err(LogError::Nothing(self.0.to_string()));
        }
        self.current_of(&kept).await
    }

    /// The epoch in which the next leader is to be elected: the one after the current epoch, or the first one
    /// that the server keeps.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn next(&self) -> Result<u64, LogError> {
        let kept = self.0.kept().await?;
        let current = self.current_of(&kept).await?;
        Ok(current.map_or(kept.first().copied().unwrap_or(1), |current| current.epoch + 1))
    }

    async fn current_of(&self, kept: &BTreeSet<u64>) -> Result<Option<Elected>, LogError> {
        for &epoch in kept.iter().rev() {
            match self.0.look(epoch).await {
                Ok(Some(view)) if is_sealed(&view.status) => return self.outcome(epoch).await.map(Some),
                Ok(_) | Err(LogError::Forgotten(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}
