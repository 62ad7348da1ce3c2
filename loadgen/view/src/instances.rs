//! The facts that do not change of the instances that viewers have looked at: asked for again only to know
//! whether the server still shows them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;
use stickycas_client::{Client, InstanceId};
use stickycas_model::params::Params;
use stickycas_model::types::Time;
use stickycas_page::setting::Setting;
use stickycas_page::source::Refused;

use crate::refusal::refusal;

/// How many are kept, and how many processes they may have together.
const KEPT: usize = 256;
const PROCESSES: usize = 256 * 1024;
/// For how long they are shown before the server is asked again: it may not show them to this principal any
/// more.
const SHOWN: Duration = Duration::from_secs(10);

/// The facts of an instance that do not change.
#[derive(Debug)]
pub(crate) struct InstanceFacts {
    pub(crate) id: InstanceId,
    pub(crate) params: Arc<Params>,
    /// May be empty; clients choose it.
    pub(crate) name: String,
    /// The principals of its processes.
    roster: Vec<String>,
    created: Option<SystemTime>,
    /// Whether Get touches the instance, since the caller is a member of it or its creator (F10).
    pub(crate) get_touches: bool,
}

impl InstanceFacts {
    /// The setting for viewers.
    pub(crate) fn setting(&self, first_event: u64, live: bool) -> Setting {
        let roster: Vec<&str> = self.roster.iter().map(String::as_str).collect();
        let mut setting = Setting::new(self.id.to_string(), self.name.clone(), &self.params, &roster, live);
        setting.first_event = first_event;
        setting
    }

    /// The time of the instance, as far as the clocks of the server and of this machine agree; never before
    /// the last event.
    pub(crate) fn now(&self, last: Time) -> Time {
        let since = self.created.and_then(|created| SystemTime::now().duration_since(created).ok());
        last.max(Time::ZERO.after(since.unwrap_or(Duration::ZERO)))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct InstanceCache {
    client: Client,
    kept: Mutex<Kept>,
}

/// The latest at the end, each with the moment at which the server has shown it.
#[derive(Debug, Default)]
struct Kept(VecDeque<(Instant, Arc<InstanceFacts>)>);

impl InstanceCache {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, kept: Mutex::default() }
    }

    /// The facts of the instance with this id.
    ///
    /// # Errors
    /// If there is no such instance, or the server does not show it.
    pub(crate) async fn find(&self, id: &str) -> Result<Arc<InstanceFacts>, Refused> {
        let no_id =
            || Refused { status: StatusCode::NOT_FOUND, why: "that is no id of an instance".to_owned() };
        let id: InstanceId = id.parse().map_err(|_| no_id())?;
        if let Some(facts) = self.kept().shown(id, Instant::now()) {
            return Ok(facts);
        }
        let info = self.client.get(id).await.map_err(|error| refusal(&error))?.instance;
        let principal = self.client.principal();
        let facts = Arc::new(InstanceFacts {
            id,
            params: Arc::new(info.parameters),
            name: info.name.map_or(String::new(), |name| name.to_string()),
            get_touches: info.creator == principal || info.roster.iter().any(|name| name == principal),
            roster: info.roster,
            created: info.created,
        });
        self.kept().add(Instant::now(), facts.clone());
        Ok(facts)
    }

    /// The facts of an instance that somebody looks at: as they were when it was opened, if they are kept, so
    /// that looking on does not touch the instance (F10).
    ///
    /// # Errors
    /// See [`Self::find`].
    pub(crate) async fn looked_at(&self, id: &str) -> Result<Arc<InstanceFacts>, Refused> {
        let kept = id.parse().ok().and_then(|id: InstanceId| self.kept().of(id));
        match kept {
            Some(facts) => Ok(facts),
            None => self.find(id).await,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn of(&self, id: InstanceId) -> Option<Arc<InstanceFacts>> {
        Some(self.0.iter().find(|(_, facts)| facts.id == id)?.1.clone())
    }

    fn shown(&self, id: InstanceId, now: Instant) -> Option<Arc<InstanceFacts>> {
        let (asked, facts) = self.0.iter().find(|(_, facts)| facts.id == id)?;
        (now.duration_since(*asked) < SHOWN).then(|| facts.clone())
    }

    /// Adds these, in the place of older ones of the instance; the oldest make room.
    fn add(&mut self, now: Instant, facts: Arc<InstanceFacts>) {
        self.0.retain(|(_, known)| known.id != facts.id);
        self.0.push_back((now, facts));
        let mut processes: usize = self.0.iter().map(|(_, facts)| facts.roster.len()).sum();
        while self.0.len() > KEPT || (processes > PROCESSES && self.0.len() > 1) {
            processes -= self.0.pop_front().map_or(0, |(_, oldest)| oldest.roster.len());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use stickycas_model::params::ParamsSpec;

    use super::*;

    /// Those of an instance of two processes.
    pub(crate) fn facts(id: u128) -> Arc<InstanceFacts> {
        facts_of(id, 2)
    }

    fn facts_of(id: u128, processes: u32) -> Arc<InstanceFacts> {
        Arc::new(InstanceFacts {
            id: InstanceId::new(id),
            params: Arc::new(Params::try_new(ParamsSpec::new(processes, 1, 1)).unwrap()),
            name: String::new(),
            roster: (1..=processes).map(|number| format!("p{number}")).collect(),
            created: None,
            get_touches: false,
        })
    }

    #[test]
    fn what_is_kept_of_instances_is_bounded_and_grows_old() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        let id = InstanceId::new;
        (0..2 * KEPT as u128).for_each(|number| kept.add(now, facts(number)));
        assert_eq!(kept.0.len(), KEPT);
        assert!(kept.shown(id(0), now).is_none() && kept.shown(id(KEPT as u128), now).is_some());
        // Five of the largest have more processes than fit.
        (0..5).for_each(|number| kept.add(now, facts_of(number, 65_536)));
        assert_eq!(kept.0.len(), 4);
        kept.add(now, facts_of(4, 65_536));
        assert_eq!(kept.0.len(), 4, "one of an instance");
        assert!(kept.shown(id(4), now + SHOWN / 2).is_some() && kept.shown(id(4), now + SHOWN).is_none());
        kept.add(now + 2 * SHOWN, facts(9));
        assert!(kept.of(id(4)).is_some(), "for those who look on, as long as there is room");
    }
}
