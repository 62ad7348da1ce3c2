//! A run folder as a source of the live page: the same picture as of a server's instance, with the ground
//! truth and the verdict.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use http::StatusCode;
use http::request::Parts;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::machine::State;
use stickycas_model::params::Params;
use stickycas_model::types::{Phase, ProcessId};
use stickycas_page::explanation::{ExplainedRun, Place, Reasons, capital};
use stickycas_page::recorded::{EncodedFrame, frames};
use stickycas_page::setting::{CastShown, Setting, StoryStep};
use stickycas_page::source::{ListQuery, Opened, Page, Refused, Row, Source, Told};
use stickycas_page::{Hosts, events};

use crate::explain::ROWS;
use crate::record::Record;

/// A run that is shown.
#[derive(Debug)]
pub struct ViewedRun {
    setting: Setting,
    params: Arc<Params>,
    history: Vec<Recorded>,
    frames: Vec<EncodedFrame>,
    reasons: Reasons,
    row: Row,
}

impl ViewedRun {
    /// The run of a record. The machine goes through its history once.
    #[must_use]
    pub fn new(record: Record) -> Self {
        let explanation = record.explained();
        let scenario = &record.scenario;
        let params = scenario.params.clone();
        let run = ExplainedRun {
            params: &params,
            history: &record.history,
            place: Place::RunFolder,
            explanation: &explanation,
        };
        let id = format!("{}-{}", scenario.name, scenario.seed);
        let title = if scenario.about.is_empty() { scenario.name.clone() } else { capital(&scenario.about) };
        let mut setting = Setting::new(id.clone(), title, &params, &[], false);
        setting.cast = Some(CastShown::new(&scenario.truth, record.verdict.f));
        let reached = record.history.iter().rev().find_map(|recorded| recorded.event.reached());
        let ended = record.history.iter().rev().find_map(|recorded| match recorded.event {
            Event::Finished => Some(State::Finished),
            Event::Closed => Some(State::Closed),
            _ => None,
        });
        let row = Row {
            id,
            name: scenario.name.clone(),
            state: stickycas_page::frame::state_name(ended.unwrap_or(State::Running)),
            created: None,
            processes: params.processes(),
            decided: u32::try_from(record.verdict.decisions.len()).unwrap_or(u32::MAX),
            decision: record.verdict.decision.as_ref().map(ToString::to_string),
            phase: reached.map(Phase::get),
            awaited: (0, None),
            offences: record.verdict.blame.values().flat_map(|kinds| kinds.values()).sum(),
        };
        Self {
            reasons: run.reasons(ROWS),
            frames: frames(&params, &record.history),
            setting,
            params,
            history: record.history,
            row,
        }
    }

    /// The same run, with what is to be seen of it.
    #[must_use]
    pub(crate) fn with_story(mut self, story: Vec<StoryStep>) -> Self {
        self.setting.story = story;
        self
    }

    /// The part of the page's address that leads to this run.
    #[must_use]
    pub fn fragment(&self) -> String {
        format!("#/instance/{}", self.setting.id)
    }
}

/// The runs that are kept; a new one takes the place of the oldest.
pub const KEPT: usize = 16;

/// Runs that are shown, of which more may be made.
#[derive(Debug, Default)]
pub(crate) struct Runs<const PLAYS: bool>(Mutex<VecDeque<Arc<ViewedRun>>>);

impl<const PLAYS: bool> Runs<PLAYS> {
    /// Adds a run, and gives its id.
    pub(crate) fn add(&self, run: ViewedRun) -> String {
        let id = run.setting.id.clone();
        let mut runs = self.runs();
        while runs.len() >= KEPT {
            runs.pop_front();
        }
        runs.retain(|other| other.setting.id != id);
        runs.push_back(Arc::new(run));
        id
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<Arc<ViewedRun>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &str) -> Result<Arc<ViewedRun>, Refused> {
        let found = self.runs().iter().find(|run| run.setting.id == id).cloned();
        found.ok_or_else(|| {
            let why =
                format!("there is no run of this name, or no more: the last {KEPT} are kept, run it again");
            Refused { status: StatusCode::NOT_FOUND, why }
        })
    }
}

impl<const PLAYS: bool> Source for Runs<PLAYS> {
    const PLAYS: bool = PLAYS;
    type Viewer = ();

    fn viewer(&self, _: &Parts) -> Result<(), Refused> {
        Ok(())
    }

    async fn instances(&self, (): &(), _: &ListQuery) -> Result<Page, Refused> {
        let rows: Vec<_> = self.runs().iter().rev().map(|run| run.row.clone()).collect();
        Ok(Page { total: Some(rows.len() as u64), rows, next: None })
    }

    async fn open(&self, (): (), id: &str, from: Option<u64>) -> Result<Opened, Refused> {
        let (run, from) = (self.find(id)?, from.unwrap_or(0));
        let frames = run.frames.iter().filter(|frame| frame.next > from);
        let frames: Vec<_> = frames.map(|frame| Ok(events::frame(frame.next, &frame.json))).collect();
        let frames = Box::pin(tokio_stream::iter(frames));
        Ok(Opened { setting: run.setting.clone(), snapshot: None, frames })
    }

    async fn params(&self, (): &(), id: &str) -> Result<Arc<Params>, Refused> {
        Ok(Arc::clone(&self.find(id)?.params))
    }

    async fn told(&self, (): &(), id: &str, process: ProcessId) -> Result<Told, Refused> {
        Ok(Told::of(0, &self.find(id)?.history, process))
    }

    async fn explanation(&self, (): &(), id: &str) -> Result<Reasons, Refused> {
        Ok(self.find(id)?.reasons.clone())
    }
}

/// The pages of a run.
pub fn router(run: ViewedRun) -> Router {
    let runs = Runs::<false>::default();
    runs.add(run);
    stickycas_page::router(Arc::new(runs), Hosts::with(&[]))
}
