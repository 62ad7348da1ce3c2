//! What does not change of the instances that somebody has looked at: asked for once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::StatusCode;
use stickycas_client::{Client, InstanceId};
use stickycas_model::params::Params;
use stickycas_model::types::Time;
use stickycas_page::setting::Setting;
use stickycas_page::source::Refused;

use crate::refusal::refusal;

/// How many are kept.
const KEPT: usize = 256;

/// What does not change of an instance.
#[derive(Debug)]
pub(crate) struct InstanceFacts {
    pub(crate) id: InstanceId,
    pub(crate) params: Arc<Params>,
    /// May be empty; clients choose it.
    pub(crate) name: String,
    /// The principals of its processes.
    roster: Vec<String>,
    created: Option<SystemTime>,
}

impl InstanceFacts {
    /// The setting for viewers.
    pub(crate) fn setting(&self, first_event: u64, live: bool) -> Setting {
        let roster: Vec<&str> = self.roster.iter().map(String::as_str).collect();
        let mut setting = Setting::new(self.id.to_string(), self.name.clone(), &self.params, &roster, live);
        setting.first_event = first_event;
        setting
    }

    /// The time of the instance, as far as the clocks of the server and of this machine agree; never before the last event.
    pub(crate) fn now(&self, last: Time) -> Time {
        let since = self.created.and_then(|created| SystemTime::now().duration_since(created).ok());
        last.max(Time::ZERO.after(since.unwrap_or(Duration::ZERO)))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct InstanceCache {
    client: Client,
    /// The latest at the end.
    kept: Mutex<VecDeque<Arc<InstanceFacts>>>,
}

impl InstanceCache {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client, kept: Mutex::new(VecDeque::new()) }
    }

    /// The facts of the instance with this id.
    ///
    /// # Errors
    /// If there is no such instance, or the server does not show it.
    pub(crate) async fn find(&self, id: &str) -> Result<Arc<InstanceFacts>, Refused> {
        let no_id =
            || Refused { status: StatusCode::NOT_FOUND, why: "that is no id of an instance".to_owned() };
        let id: InstanceId = id.parse().map_err(|_| no_id())?;
        if let Some(facts) = self.known(id) {
            return Ok(facts);
        }
        let info = self.client.get(id).await.map_err(|error| refusal(&error))?.instance;
        let facts = Arc::new(InstanceFacts {
            id,
            params: Arc::new(info.parameters),
            name: info.name.map_or(String::new(), |name| name.to_string()),
            roster: info.roster,
            created: info.created,
        });
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(facts.clone());
        Ok(facts)
    }

    fn known(&self, id: InstanceId) -> Option<Arc<InstanceFacts>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|facts| facts.id == id)?;
        let facts = kept.remove(place)?;
        kept.push_back(facts.clone());
        Some(facts)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use stickycas_model::params::ParamsSpec;

    use super::*;

    /// Those of an instance of two processes.
    pub(crate) fn facts(id: u128) -> Arc<InstanceFacts> {
        Arc::new(InstanceFacts {
            id: InstanceId::new(id),
            params: Arc::new(Params::try_new(ParamsSpec::new(2, 1, 1)).unwrap()),
            name: String::new(),
            roster: vec!["p1".to_owned(), "p2".to_owned()],
            created: None,
        })
    }
}
