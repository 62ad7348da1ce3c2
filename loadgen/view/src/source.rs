//! The view that a client has of a server, as the page's source.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use stickycas_client::Client;
use stickycas_model::history::Recorded;
use stickycas_model::params::Params;
use stickycas_model::types::ProcessId;
use stickycas_page::assumed::{ASSUMPTIONS, explain_assumed};
use stickycas_page::cut;
use stickycas_page::events::NOTHING;
use stickycas_page::explanation::{Block, ExplainedRun, Place, Reasons, Section};
use stickycas_page::source::{Events, ListQuery, Opened, Page, Refused, Source, Told};
use tokio::sync::Semaphore;
use tokio::time::{Interval, MissedTickBehavior, Sleep, interval, sleep_until};
use tokio_stream::Stream;

use crate::feeds::Feeds;
use crate::instances::{InstanceCache, InstanceFacts};
use crate::known::KeptEvents;
use crate::links::{self, Expiry, Links};
use crate::overview::Overview;
use crate::permits::{Network, Permit, Permits};
use crate::table::Table;

/// The most rows and sentences of each kind in an explanation.
const ROWS: usize = 64;
/// Explanations that are made at a time.
const EXPLAINS: usize = 2;
/// How often something is sent on a stream, if only to show that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The source of a server's page, and the permits of its viewers.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) permits: Arc<Permits>,
    /// `None`: viewers need no link with a token.
    pub(crate) links: Option<Links>,
    instances: InstanceCache,
    feeds: Arc<Feeds>,
    table: Table,
    pub(crate) overview: Arc<Overview>,
    explains: Arc<Semaphore>,
}

/// A viewer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Viewer {
    network: Network,
    /// The end of its link; `None`: without end.
    until: Option<Expiry>,
}

impl Server {
    /// `metrics`: host and port of each server's listener for operators.
    pub(crate) fn new(
        client: Client,
        links: Option<Links>,
        metrics: Vec<String>,
        permits: Arc<Permits>,
    ) -> Self {
        let feeds = Feeds::new(client.clone(), &permits.bounds);
        Self {
            links,
            instances: InstanceCache::new(client.clone()),
            table: Table::new(client.clone()),
            overview: Overview::new(client, metrics, permits.clone(), feeds.offences.clone()),
            feeds,
            permits,
            explains: Arc::new(Semaphore::new(EXPLAINS)),
        }
    }

    /// The result of `tell` for the events of an instance, outside the threads that serve.
    async fn of_events<T: Send + 'static>(
        &self,
        viewer: &Viewer,
        id: &str,
        tell: impl FnOnce(&InstanceFacts, u64, &[Recorded]) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let facts = self.instances.looked_at(id).await?;
        let KeptEvents { first, parts } = self.feeds.enter(&facts, viewer.network)?.events().await?;
        let failed = || {
            let why = "the events could not be told: a bug of the program".to_owned();
            Refused { status: StatusCode::INTERNAL_SERVER_ERROR, why }
        };
        // A call of `tell` that has begun keeps its turn to its end, even if no viewer waits for it any more.
        let turn = self.explains.clone().acquire_owned().await.map_err(|_| failed())?;
        let told = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let events: Vec<Recorded> = parts.iter().flat_map(|part| part.iter().cloned()).collect();
            tell(&facts, first, &events)
        });
        told.await.unwrap_or_else(|_| Err(failed()))
    }

    /// The events of a stream of this viewer, until its link is not valid any more.
    fn guarded(&self, viewer: &Viewer, permit: Permit, events: Events) -> Events {
        Box::pin(Guarded::new(events, viewer.until, permit))
    }
}

impl Source for Server {
    const LIVE: bool = true;
    type Viewer = Viewer;

    fn needs_token(&self) -> bool {
        self.links.is_some()
    }

    fn viewer(&self, parts: &Parts) -> Result<Viewer, Refused> {
        let network = parts.extensions.get::<Network>().copied().ok_or_else(|| {
            let why = "nobody knows where the request comes from: a bug of the program".to_owned();
            Refused { status: StatusCode::INTERNAL_SERVER_ERROR, why }
        })?;
        // First, since it costs nothing: a viewer without a link uses up no requests of the others in its
        // network.
        let until = self.links.as_ref().map(|links| links.check(&parts.headers)).transpose()?;
        self.permits.request(network)?;
        Ok(Viewer { network, until })
    }

    async fn instances(&self, _: &Viewer, query: &ListQuery) -> Result<Page, Refused> {
        self.table.list(query).await
    }

    async fn open(&self, viewer: Viewer, id: &str, from: Option<u64>) -> Result<Opened, Refused> {
        let facts = self.instances.find(id).await?;
        let permit = self.permits.viewer(viewer.network)?;
        let (snapshot, frames, live) = self.feeds.enter(&facts, viewer.network)?.open(from).await?;
        let setting = facts.setting(snapshot.as_ref().map_or(0, |snapshot| snapshot.index), live);
        let frames = self.guarded(&viewer, permit, Box::pin(frames));
        Ok(Opened { setting, snapshot: snapshot.map(|snapshot| snapshot.json.clone()), frames })
    }

    async fn params(&self, _: &Viewer, id: &str) -> Result<Arc<Params>, Refused> {
        Ok(self.instances.looked_at(id).await?.params.clone())
    }

    async fn told(&self, viewer: &Viewer, id: &str, process: ProcessId) -> Result<Told, Refused> {
        self.of_events(viewer, id, move |_, first, events| Ok(Told::of(first, events, process))).await
    }

    async fn explanation(&self, viewer: &Viewer, id: &str) -> Result<Reasons, Refused> {
        self.of_events(viewer, id, |facts, first, events| {
            if first > 0 {
                let why =
                    format!("the first {first} events are not kept any more, and an explanation needs all");
                return Err(Refused { status: StatusCode::CONFLICT, why });
            }
            Ok(explained(&facts.params, events))
        })
        .await
    }

    fn overview(&self, viewer: Viewer) -> Result<Events, Refused> {
        let permit = self.permits.viewer(viewer.network)?;
        Ok(self.guarded(&viewer, permit, self.overview.events()))
    }
}

/// The events and their reasons, under the assumptions about instances whose processes others start.
fn explained(params: &Arc<Params>, events: &[Recorded]) -> Reasons {
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
    let mut reasons = run.reasons(ROWS);
    reasons.sections.insert(1, assumed);
    cut::reasons(reasons)
}

/// See [`Server::guarded`].
struct Guarded {
    events: Events,
    until: Option<Expiry>,
    end: Option<Pin<Box<Sleep>>>,
    keep_alive: Interval,
    _permit: Permit,
}

impl Guarded {
    fn new(events: Events, until: Option<Expiry>, permit: Permit) -> Self {
        let mut keep_alive = interval(KEEP_ALIVE);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        keep_alive.reset();
        let end = until.map(|until| Box::pin(sleep_until(until.at)));
        Self { events, until, end, keep_alive, _permit: permit }
    }
}

impl Stream for Guarded {
    type Item = Result<Bytes, Refused>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // The timer wakes the stream; the clock of the machine is looked at whenever something is sent.
        let is_over = self.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready());
        if is_over || self.until.is_some_and(Expiry::is_over) {
            return Poll::Ready(Some(Err(links::over())));
        }
        if let Poll::Ready(event) = self.events.as_mut().poll_next(cx) {
            self.keep_alive.reset();
            return Poll::Ready(event);
        }
        self.keep_alive.poll_tick(cx).map(|_| Some(Ok(NOTHING)))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::AUTHORIZATION;
    use tokio::time::Instant;
    use tokio_stream::StreamExt as _;

    use super::*;
    use crate::permits::Bounds;

    #[tokio::test(start_paused = true)]
    async fn an_open_stream_ends_with_the_link_of_its_viewer() {
        let (links, permits) = (Links::default(), Permits::new(Bounds::default()));
        let token = format!("Bearer {}", links.token()).parse().unwrap();
        let until = links.check(&HeaderMap::from_iter([(AUTHORIZATION, token)])).unwrap();
        let stream = |until| {
            let permit = permits.viewer(Network::of([127, 0, 0, 1].into())).unwrap();
            Guarded::new(Box::pin(tokio_stream::pending()), until, permit)
        };
        let (mut with_link, mut without) = (stream(Some(until)), stream(None));
        let last = loop {
            match with_link.next().await.unwrap() {
                Ok(event) => assert_eq!((event, Instant::now() < until.at), (NOTHING, true)),
                Err(refused) => break refused,
            }
        };
        assert_eq!(last.status, StatusCode::UNAUTHORIZED);
        assert!(Instant::now() >= until.at, "by a clock that goes on only when nothing else does");
        assert_eq!(without.next().await.unwrap().unwrap(), NOTHING);
    }
}
