//! Where a page's instances come from: a server, or the folder of a run.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use stickycas_model::history::Recorded;
use stickycas_model::params::Params;
use stickycas_model::types::ProcessId;
use stickycas_model::words::{self, Section};
use tokio_stream::Stream;

use crate::recorded::EncodedFrame;
use crate::setting::Setting;

/// What a page shows. Calls are cheap, or are charged to the viewer by the source itself.
pub trait Source: Send + Sync + 'static {
    /// Whether viewers may make up runs.
    const PLAYS: bool = false;

    /// Who looks.
    type Viewer: Send + Sync + 'static;

    /// Who looks, by the headers of the request.
    ///
    /// # Errors
    /// Why nobody may look who comes with these.
    fn viewer(&self, headers: &HeaderMap) -> Result<Self::Viewer, Refused>;

    /// The instances, sorted and filtered.
    ///
    /// # Errors
    /// Why they are not shown.
    fn instances(&self, viewer: &Self::Viewer, query: &ListQuery) -> Result<Page, Refused>;

    /// An instance, from the event with this index on.
    ///
    /// # Errors
    /// If there is no such instance, or the viewer may not look at it.
    fn open(&self, viewer: Self::Viewer, id: &str, from: Option<u64>) -> Result<Opened, Refused>;

    /// The parameters of an instance.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    fn params(&self, viewer: &Self::Viewer, id: &str) -> Result<Arc<Params>, Refused>;

    /// What a process did, in words.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    fn told(&self, viewer: &Self::Viewer, id: &str, process: ProcessId) -> Result<Told, Refused>;

    /// Why an instance ended as it did, in words.
    ///
    /// # Errors
    /// As for [`open`](Self::open), or if not all of its events are kept.
    fn explanation(&self, viewer: &Self::Viewer, id: &str) -> Result<Vec<Section>, Refused>;
}

/// Events in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Told {
    /// Sentences without full stops, in order.
    pub sentences: Vec<String>,
    /// How many more there are.
    pub left_out: usize,
}

impl Told {
    /// The most sentences.
    const MOST: usize = 256;

    /// What these events say of a process.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Recorded>, process: ProcessId) -> Self {
        let mut told = Self::default();
        for recorded in events.into_iter().filter(|recorded| recorded.event.process() == Some(process)) {
            if told.sentences.len() < Self::MOST {
                told.sentences.push(words::event(&recorded.event));
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
    /// What is wrong, and what to do.
    pub why: String,
}

/// An instance that a viewer has opened.
pub struct Opened {
    /// What does not change.
    pub setting: Setting,
    /// What was before the first frame, if not everything is sent: the JSON of a snapshot.
    pub snapshot: Option<Bytes>,
    /// The frames, as they come. Ends when nothing more can happen.
    pub frames: Frames,
}

/// Frames, as they come.
pub type Frames = Pin<Box<dyn Stream<Item = Result<EncodedFrame, Refused>> + Send>>;

/// Which instances a viewer wants to see.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuery {
    /// Those in this state; empty: in any.
    pub state: String,
    /// Those with this in their name or at the beginning of their id.
    pub text: String,
    /// By what they are sorted: `created`, `phase`, `length`, `awaited`.
    pub sort: String,
    /// The largest first.
    pub descending: bool,
    /// From where on, as the page before says.
    pub page: String,
}

/// A page of instances.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// Its rows.
    pub rows: Vec<Row>,
    /// How many there are in all; `None`: they were not counted.
    pub total: Option<u64>,
    /// What to ask for the next page with; `None`: this is the last.
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
    /// n.
    pub processes: u32,
    /// The phase that is open or comes next.
    pub phase: Option<u64>,
    /// Length of the list.
    pub length: u32,
    /// How many processes are awaited, and the first of them.
    pub awaited: (usize, Option<u32>),
    /// Offences on record.
    pub offences: u64,
}
