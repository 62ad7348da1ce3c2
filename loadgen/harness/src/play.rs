//! Runs that a viewer of the live page makes up: a form says what is run, the theorem says at once what it
//! promises, and the simulator runs it. Presets tell the story of the project.
//!
//! Only for a browser on the same machine: anybody who reaches it may have runs computed. Bounded all the
//! same: the size of a run ([`LARGEST`], [`MOST_EVENTS`]), one at a time, and how many are kept
//! ([`KEPT`](crate::view::KEPT)).

mod presets;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use stickycas_model::byzantine::Strategy;
use stickycas_model::params::{AppendWindow, Order, ParamsSpec, Patience};
use stickycas_page::Hosts;
use stickycas_page::promise::{Assumed, Promise, promise};
use stickycas_page::setting::StoryStep;
use stickycas_page::source::Refused;
use tokio::sync::Semaphore;

use crate::files::faults::Faults;
use crate::files::instance::{Arbiter, Instance};
use crate::scenario::{File, FileError, Problem, Proposals, Scenario};
use crate::simulate;
use crate::view::{Runs, ViewedRun};

/// The most processes of a run.
pub const LARGEST: u32 = 1_024;
/// The most accesses of a run by its own bound on phases: n * (q + c).
pub const MOST_EVENTS: u64 = 1 << 17;
/// The patience of its processes: they act at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// The permit to make a run: one run is made at a time, the others wait.
static MAKING: Semaphore = Semaphore::const_new(1);
/// Bytes of a form.
const FORM_BYTES: usize = 64 * 1024;

/// The fields that a viewer fills in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// n.
    pub processes: u32,
    /// p.
    pub warp_size: u32,
    /// r.
    pub read_size: u32,
    /// f, the number of Byzantine processes.
    pub byzantine: u32,
    /// Their strategy, as scenario files write it.
    pub strategy: String,
    /// |Vc|: correct processes propose so many different values.
    pub values: u32,
    /// As in scenario files.
    pub arbiter: Arbiter,
    /// As in scenario files.
    pub append_window: AppendWindow,
    /// q; nothing: 1.
    #[serde(default)]
    pub append_rounds: Option<u32>,
    /// As in scenario files.
    pub order: Order,
    /// From which everything is drawn; `None`: a new one.
    pub seed: Option<u64>,
}

/// The run that is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Wanted {
    /// A preset, by its name.
    Preset(String),
    /// A filled-in form.
    Form(Form),
}

/// The preview of a form, before its run.
#[derive(Debug, Serialize)]
struct Preview {
    /// The promise of the theorem.
    promise: Promise,
    /// The same run as a scenario file.
    scenario: String,
}

/// A run that was made.
#[derive(Debug, Serialize)]
struct Made {
    /// By which it is opened.
    id: String,
}

/// The choices of the form.
#[derive(Debug, Serialize)]
struct Offer {
    presets: &'static [presets::Preset],
    /// Of each strategy its name and its usage.
    strategies: Vec<(&'static str, &'static str)>,
    largest: u32,
}

impl Form {
    /// The form as a scenario file.
    fn file(&self) -> File {
        let spec = ParamsSpec {
            order: self.order,
            append_window: self.append_window,
            append_rounds: self.append_rounds.unwrap_or(1),
            patience: Patience::Finite(PATIENCE),
            ..ParamsSpec::new(self.processes, self.warp_size, self.read_size)
        };
        let group = Faults {
            count: Some(self.byzantine.into()),
            strategy: Some(self.strategy.clone().into()),
            ..Faults::default()
        };
        File {
            name: "play".to_owned().into(),
            about: "made up on the page".to_owned(),
            instance: Instance { arbiter: Some(self.arbiter.clone().into()), ..Instance::of(&spec) }.into(),
            proposals: Proposals { distinct: Some(self.values.into()), ..Proposals::default() }.into(),
            faults: if self.byzantine > 0 { vec![group.into()] } else { Vec::new() },
            ..File::default()
        }
    }

    fn scenario(&self) -> Result<(String, Scenario), Refused> {
        if self.processes > LARGEST {
            return Err(refused(&format!("processes: give at most {LARGEST} here")));
        }
        let text = self.file().text("A run that was made up on the page.");
        let scenario = Scenario::parse("form", &text, self.seed).map_err(|error| refusal(&error))?;
        check_size(&scenario)?;
        Ok((text, scenario))
    }
}

fn refused(why: &dyn std::fmt::Display) -> Refused {
    Refused { status: StatusCode::UNPROCESSABLE_ENTITY, why: why.to_string() }
}

/// The field that is wrong, and the problem: the viewer knows no file and no lines.
fn refusal(error: &FileError) -> Refused {
    let FileError::Invalid(Problem { text, reason, .. }) = error else { return refused(error) };
    let field = match text.split_once(" = ").map_or("", |(key, _)| key) {
        "count" => "byzantine",
        "distinct" => "values",
        key => key,
    };
    refused(&format!("{field}: {reason}"))
}

fn check_size(scenario: &Scenario) -> Result<(), Refused> {
    let params = &scenario.params;
    let accesses = u64::from(params.processes()) * u64::from(params.append_rounds() + params.reads());
    if accesses > MOST_EVENTS {
        return Err(refused(&format!("{accesses} accesses: give a larger r or a smaller n")));
    }
    scenario.check_simulable().map_err(|error| refused(&error))
}

impl Wanted {
    fn scenario(&self) -> Result<Scenario, Refused> {
        match self {
            Self::Form(form) => Ok(form.scenario()?.1),
            Self::Preset(name) => presets::scenario(name).map_err(|error| refused(&error)),
        }
    }

    fn story(&self) -> Vec<StoryStep> {
        match self {
            Self::Form(_) => Vec::new(),
            Self::Preset(name) => presets::steps(name),
        }
    }
}

/// The pages of runs that viewers make up.
pub fn router() -> Router {
    let runs = Arc::new(Runs::<true>::default());
    let own = Router::new()
        .route("/api/play", get(offer))
        .route("/api/play/preview", post(preview))
        .route("/api/play/runs", post(make))
        .layer(DefaultBodyLimit::max(FORM_BYTES))
        .with_state(runs.clone());
    stickycas_page::router_with(runs, Hosts::with(&[]), own)
}

async fn offer() -> Json<Offer> {
    let strategies =
        Strategy::ALL_NAMES.into_iter().filter_map(|name| Some((name, Strategy::describe(name)?))).collect();
    Json(Offer { presets: presets::all(), strategies, largest: LARGEST })
}

/// JSON alone is taken: a form of another site cannot send it.
fn given<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, Refused> {
    let Json(given) = body.map_err(|error| Refused { status: error.status(), why: error.body_text() })?;
    Ok(given)
}

async fn preview(body: Result<Json<Form>, JsonRejection>) -> Result<Json<Preview>, Refused> {
    let (text, scenario) = given(body)?.scenario()?;
    let assumed = Assumed {
        f: scenario.truth.byzantine().count() as u64,
        values: scenario.truth.correct_proposals().len() as u64,
        rounds: None,
    };
    Ok(Json(Preview { promise: promise(&scenario.params, assumed), scenario: text }))
}

async fn make(
    State(runs): State<Arc<Runs<true>>>,
    body: Result<Json<Wanted>, JsonRejection>,
) -> Result<Json<Made>, Refused> {
    let wanted: Wanted = given(body)?;
    let (scenario, story) = (wanted.scenario()?, wanted.story());
    let failed = |error: &dyn std::fmt::Display| Refused {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        why: format!("the run failed: {error}"),
    };
    // The task holds the permit, not the request: the run goes on if the client goes away.
    let making = MAKING.acquire().await.map_err(|error| failed(&error))?;
    // A run may take a second, and other pages go on meanwhile.
    let made = tokio::task::spawn_blocking(move || {
        let _making = making;
        ViewedRun::new(simulate(&scenario)).with_story(story)
    });
    let run = made.await.map_err(|error| failed(&error))?;
    Ok(Json(Made { id: runs.add(run) }))
}
