//! Where a page's instances come from: a server, or the folder of a run.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use stickycas_model::describe;
use stickycas_model::history::Recorded;
use stickycas_model::params::Params;
use stickycas_model::types::ProcessId;
use tokio_stream::Stream;

use crate::cut::cut;
use crate::explanation::Reasons;
use crate::setting::Setting;

/// The source of a page's data. Calls are cheap, or are charged to the viewer by the source itself.
pub trait Source: Send + Sync + 'static {
    /// Whether viewers may make up runs.
    const PLAYS: bool = false;

    /// Whether it is a server, whose instances go on.
    const LIVE: bool = false;

    /// A viewer. Kept as long as one of its streams is open.
    type Viewer: Send + Sync + 'static;

    /// Whether a viewer has to show a token.
    fn needs_token(&self) -> bool {
        false
    }

    /// The viewer, by the head of the request.
    ///
    /// # Errors
    /// The reason why the viewer may not look.
    fn viewer(&self, parts: &Parts) -> Result<Self::Viewer, Refused>;

    /// The instances, filtered.
    ///
    /// # Errors
    /// Why they are not shown.
    fn instances(
        &self,
        viewer: &Self::Viewer,
        query: &ListQuery,
    ) -> impl Future<Output = Result<Page, Refused>> + Send;

    /// An instance, from the event with this index on.
    ///
    /// # Errors
    /// If there is no such instance, or the viewer may not look at it.
    fn open(
        &self,
        viewer: Self::Viewer,
        id: &str,
        from: Option<u64>,
    ) -> impl Future<Output = Result<Opened, Refused>> + Send;

    /// The parameters of an instance.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    fn params(
        &self,
        viewer: &Self::Viewer,
        id: &str,
    ) -> impl Future<Output = Result<Arc<Params>, Refused>> + Send;

    /// The acts of a process, in words.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    fn told(
        &self,
        viewer: &Self::Viewer,
        id: &str,
        process: ProcessId,
    ) -> impl Future<Output = Result<Told, Refused>> + Send;

    /// Why an instance ended as it did, in words.
    ///
    /// # Errors
    /// As for [`open`](Self::open), or if not all of its events are kept.
    fn explanation(
        &self,
        viewer: &Self::Viewer,
        id: &str,
    ) -> impl Future<Output = Result<Reasons, Refused>> + Send;

    /// The load of all instances together, second by second.
    ///
    /// # Errors
    /// If there is no such thing, or the viewer may not see it.
    fn overview(&self, _viewer: Self::Viewer) -> Result<Events, Refused> {
        let why = "a recorded run has no load: a server has".to_owned();
        Err(Refused { status: StatusCode::NOT_FOUND, why })
    }
}

/// Events in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Told {
    /// Sentences without full stops, in order, long ones cut, each with the index of its event.
    pub sentences: Vec<(u64, String)>,
    /// How many more there are.
    pub left_out: usize,
}

impl Told {
    /// The most sentences.
    const MOST: usize = 256;

    /// Those of these events that belong to a process, in words. `first`: the index of the first event.
    #[must_use]
    pub fn of(first: u64, events: &[Recorded], process: ProcessId) -> Self {
        let mut told = Self::default();
        let numbered = (first..).zip(events);
        for (index, recorded) in numbered.filter(|(_, it)| it.event.process() == Some(process)) {
            if told.sentences.len() < Self::MOST {
                told.sentences.push((index, cut(describe::event(&recorded.event))));
            } else {
                told.left_out += 1;
            }
        }
        told
    }
}

/// Why a viewer is not shown something.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The status of the response.
    pub status: StatusCode,
    /// The problem, and the remedy.
    pub why: String,
}

/// An instance that a viewer has opened.
pub struct Opened {
    /// The facts that do not change.
    pub setting: Setting,
    /// The state before the first frame, if not everything is sent: the JSON of a snapshot.
    pub snapshot: Option<Bytes>,
    /// The frames, as they come, each encoded by [`events::frame`](crate::events::frame). Ends when nothing
    /// more can happen, or with an error.
    pub frames: Events,
}

/// Encoded events, as they come.
pub type Events = Pin<Box<dyn Stream<Item = Result<Bytes, Refused>> + Send>>;

/// Which instances a viewer wants to see.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuery {
    /// Those in this state; empty: in any.
    pub state: String,
    /// Those with this in their name or at the beginning of their id.
    pub text: String,
    /// The place of its first row, as the page before gives it; empty: the first page.
    pub page: String,
}

/// A page of instances.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// Its rows.
    pub rows: Vec<Row>,
    /// How many there are in all; `None`: they were not counted.
    pub total: Option<u64>,
    /// The place of the next page; `None`: this is the last.
    pub next: Option<String>,
}

/// An instance in a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// Its name; clients choose it.
    pub name: String,
    /// Its state.
    pub state: &'static str,
    /// When it was created, in milliseconds since 1970, by the server's clock.
    pub created: Option<u64>,
    /// n.
    pub processes: u32,
    /// How many processes have decided, as they report.
    pub decided: u32,
    /// The value that all of them have decided.
    pub decision: Option<String>,
    /// The phase that is open or comes next.
    pub phase: Option<u64>,
    /// How many processes are awaited, and the first of them.
    pub awaited: (usize, Option<u32>),
    /// Offences on record.
    pub offences: u64,
}
