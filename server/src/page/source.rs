//! The instances of the server as the page's source.

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use stickycas_model::history::Recorded;
use stickycas_model::machine::State;
use stickycas_model::params::Params;
use stickycas_model::types::ProcessId;
use stickycas_page::assumed::{ASSUMPTIONS, explain_assumed};
use stickycas_page::cut;
use stickycas_page::explanation::{Block, ExplainedRun, Place, Section};
use stickycas_page::setting::Setting;
use stickycas_page::source::{Events, ListQuery, Opened, Page as Listed, Refused, Source, Told};
use stickycas_proto::names::InstanceId;

use super::Page;
use super::viewer::{Viewer, refusal};
use crate::instances::Instance;
use crate::service::ViewBasis;

/// Above this number of processes their names are not sent.
const NAMES: u32 = 1_024;
/// The most rows and sentences of each kind in an explanation.
const ROWS: usize = 64;
/// The most events that an explanation is made of.
const EXPLAINED: u64 = 262_144;
/// The most bytes of these events.
const EXPLAINED_BYTES: usize = 64 * 1024 * 1024;

impl Page {
    /// The instance with this id, if the viewer may look at it.
    async fn find(&self, viewer: &Viewer, id: &str) -> Result<(Arc<Instance>, ViewBasis), Refused> {
        let no_id =
            || Refused { status: StatusCode::NOT_FOUND, why: "that is no id of an instance".to_owned() };
        let id: InstanceId = id.parse().map_err(|_| no_id())?;
        let instance = match self.instances.get(id) {
            Ok(instance) => instance,
            Err(_) => return Err(refusal(&self.instances.confirmed_absent(id).await)),
        };
        let basis = viewer.basis(&instance)?;
        Ok((instance, basis))
    }

    /// What `tell` makes of the events of an instance, outside the threads that serve.
    async fn of_events<T: Send + 'static>(
        &self,
        instance: &Arc<Instance>,
        tell: impl FnOnce(u64, &[Recorded]) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let instance = instance.clone();
        let told = self.explains.run(move || {
            let (first, next, events) = instance.kept_events();
            check_size(next - first, events.bytes())?;
            let events: Vec<Recorded> = events.read().collect();
            tell(first, &events)
        });
        told.await.unwrap_or_else(|| {
            let why = "the events could not be told: a bug of the server".to_owned();
            Err(Refused { status: StatusCode::INTERNAL_SERVER_ERROR, why })
        })
    }
}

impl Source for Page {
    const LIVE: bool = true;
    type Viewer = Viewer;

    fn needs_token(&self) -> bool {
        self.credentials.is_some()
    }

    fn viewer(&self, parts: &Parts) -> Result<Viewer, Refused> {
        self.identify(parts)
    }

    async fn instances(&self, viewer: &Viewer, query: &ListQuery) -> Result<Listed, Refused> {
        self.list(viewer, query).await
    }

    async fn open(&self, viewer: Viewer, id: &str, from: Option<u64>) -> Result<Opened, Refused> {
        let (instance, basis) = self.find(&viewer, id).await?;
        let permit = self.permits.viewer(viewer.principal())?;
        let entered = self.feeds.enter(&instance, viewer.principal())?;
        let (snapshot, frames) = entered.open(from).await?;
        // Confirms that this server still owns the shard: what it has in the feed is then a part of the history, however old.
        let state = instance.state().committed().await.flatten().map_err(|gone| refusal(&gone))?;
        let mut setting = setting(&instance, state);
        setting.first_event = snapshot.as_ref().map_or(0, |snapshot| snapshot.index);
        let frames = self.guarded(&viewer, basis == ViewBasis::Observer, permit, Box::pin(frames))?;
        Ok(Opened { setting, snapshot: snapshot.map(|snapshot| snapshot.json.clone()), frames })
    }

    async fn params(&self, viewer: &Viewer, id: &str) -> Result<Arc<Params>, Refused> {
        let (instance, _) = self.find(viewer, id).await?;
        Ok(Arc::new(instance.config().params()))
    }

    async fn told(&self, viewer: &Viewer, id: &str, process: ProcessId) -> Result<Told, Refused> {
        let (instance, _) = self.find(viewer, id).await?;
        self.of_events(&instance, move |_, events| Ok(Told::of(events, process))).await
    }

    async fn explanation(&self, viewer: &Viewer, id: &str) -> Result<Vec<Section>, Refused> {
        let (instance, _) = self.find(viewer, id).await?;
        let params = Arc::new(instance.config().params());
        self.of_events(&instance, move |first, events| {
            if first > 0 {
                let why =
                    format!("the first {first} events are not kept any more, and an explanation needs all");
                return Err(Refused { status: StatusCode::CONFLICT, why });
            }
            Ok(explained(&params, events))
        })
        .await
    }

    fn overview(&self, viewer: Viewer) -> Result<Events, Refused> {
        if !viewer.sees_all() {
            let why = "what happens at all instances is shown to observers".to_owned();
            return Err(Refused { status: StatusCode::FORBIDDEN, why });
        }
        let permit = self.permits.viewer(viewer.principal())?;
        self.guarded(&viewer, true, permit, self.overview.events())
    }
}

/// # Errors
/// If so many events, of so many bytes, are too many to look through.
fn check_size(events: u64, bytes: usize) -> Result<(), Refused> {
    let why = if events > EXPLAINED {
        format!("{events} events are kept, and at most {EXPLAINED} are looked through")
    } else if bytes > EXPLAINED_BYTES {
        format!("the events have {bytes} bytes, and at most {EXPLAINED_BYTES} are looked through")
    } else {
        return Ok(());
    };
    Err(Refused { status: StatusCode::UNPROCESSABLE_ENTITY, why })
}

/// What happened and why, under the assumptions that a server has to make.
fn explained(params: &Arc<Params>, events: &[Recorded]) -> Vec<Section> {
    let explanation = explain_assumed(params, events);
    let run = ExplainedRun { params, history: events, place: Place::Server, explanation: &explanation };
    let assumed = Section {
        title: "What is assumed".to_owned(),
        blocks: vec![
            Block::Paragraph(ASSUMPTIONS.to_owned()),
            Block::Paragraph(
                "If others are Byzantine, f is larger, and fewer properties are promised. What correct processes read on \
                 their own side is not known here; where the picture begins with the first event, what each had been \
                 sent stands beside it."
                    .to_owned(),
            ),
        ],
    };
    cut::sections([assumed].into_iter().chain(run.sections(ROWS)).collect())
}

fn setting(instance: &Instance, state: State) -> Setting {
    let (config, params) = (instance.config(), instance.config().params());
    let names: Vec<&str> = match params.processes() {
        0..=NAMES => config.shared.roster.names().collect(),
        _ => Vec::new(),
    };
    let title = config.name.as_ref().map_or(String::new(), ToString::to_string);
    let live = matches!(state, State::Gathering | State::Running);
    Setting::new(config.id.to_string(), title, &params, &names, live)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_looked_through_up_to_a_number_and_to_a_size() {
        check_size(EXPLAINED, EXPLAINED_BYTES).unwrap();
        for (events, bytes) in [(EXPLAINED + 1, 0), (0, EXPLAINED_BYTES + 1)] {
            assert_eq!(check_size(events, bytes).unwrap_err().status, StatusCode::UNPROCESSABLE_ENTITY);
        }
    }
}
