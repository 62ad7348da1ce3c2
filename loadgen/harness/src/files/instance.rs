//! `[instance]`: the parameters of an instance, the same table in every file.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stickycas_model::params::{
    self, AppendWindow, MAX_PROCESSES, Order, Params, ParamsError, ParamsSpec, Patience,
};
use stickycas_model::types::{ProcessId, Seed};

use super::values::DurationText;
use super::{Fault, Spanned, schema};
use crate::fault_plan::FaultPlan;

/// `[instance]`: the parameters of an instance. Durations are texts such as "1s" and "250ms".
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// n, the number of processes.
    #[schemars(range(min = 1, max = MAX_PROCESSES))]
    pub processes: Option<Spanned<u32>>,
    /// p, the processes of a warp: 1 to n.
    #[schemars(range(min = 1))]
    pub warp_size: Option<Spanned<u32>>,
    /// r, the most entries that one read returns: 1 to n.
    #[schemars(range(min = 1))]
    pub read_size: Option<Spanned<u32>>,
    /// The order of the warps in a round (W1, W2) [default: ascending].
    #[serde(default)]
    #[schemars(schema_with = "schema::order")]
    pub order: Option<Spanned<Order>>,
    /// Which append of a phase wins (A4) [default: first_come].
    pub arbiter: Option<Spanned<Arbiter>>,
    /// When a process may append (A2) [default: first_access].
    #[serde(default)]
    #[schemars(schema_with = "schema::append_window")]
    pub append_window: Option<Spanned<AppendWindow>>,
    /// q, the number of a warp's first phases in which it may append (K1): 1 to p [default: 1].
    #[schemars(range(min = 1))]
    pub append_rounds: Option<Spanned<u32>>,
    /// The total time for which phases wait for one process (F3): a duration, or "none" for ever [default:
    /// "1s"].
    pub patience: Option<Spanned<PatienceText>>,
    /// The time for which phase 1 waits for processes that have not joined (F5) [default: "30s"].
    pub join_timeout: Option<Spanned<DurationText>>,
    /// The shortest time from one phase to the next (F9) [default: "0s"].
    pub pace: Option<Spanned<DurationText>>,
    /// Accesses of a process that may wait at the server (F7) [default: 16].
    pub pipeline: Option<Spanned<u32>>,
    /// The longest value, in bytes (P3) [default: 1024].
    pub max_value_bytes: Option<Spanned<u32>>,
    /// Of scenarios of before: the seed stands at the top of the file now.
    #[schemars(skip)]
    pub seed: Option<Spanned<u64>>,
}

/// `arbiter`: an arbiter of instances, or one that depends on the Byzantine processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arbiter {
    /// The append that was accepted first.
    #[default]
    FirstCome,
    /// Each append of the phase with the same chance.
    Uniform,
    /// The append of the process that is named first.
    Priority(#[schemars(schema_with = "schema::processes")] Vec<ProcessId>),
    /// The paper's worst case: the Byzantine processes by number, then the correct ones.
    ByzantineFirst,
}

/// The parameters with this seed; the arbiter is that of the default, see [`with_arbiter`].
///
/// # Errors
/// A key is missing, or a value is not possible.
pub fn params(instance: &Spanned<Instance>, seed: u64) -> Result<Params, Fault> {
    let given = instance.get_ref();
    let required = |name: &str, key: &Option<Spanned<u32>>| match key {
        Some(key) => Ok(*key.get_ref()),
        None => Err(Fault::new(instance.span(), format!("the key {name} of [instance] is missing"))),
    };
    let mut spec = ParamsSpec::new(
        required("processes", &given.processes)?,
        required("warp_size", &given.warp_size)?,
        required("read_size", &given.read_size)?,
    );
    spec.seed = Seed::new(seed);
    put(&mut spec.order, given.order.as_deref().copied());
    put(&mut spec.append_window, given.append_window.as_deref().copied());
    put(&mut spec.append_rounds, given.append_rounds.as_deref().copied());
    put(&mut spec.patience, given.patience.as_ref().map(|text| text.0));
    put(&mut spec.join_timeout, given.join_timeout.as_ref().map(|text| text.0));
    put(&mut spec.pace, given.pace.as_ref().map(|text| text.0));
    put(&mut spec.pipeline, given.pipeline.as_deref().copied());
    put(&mut spec.max_value_bytes, given.max_value_bytes.as_deref().copied());
    Params::try_new(spec).map_err(|error| Fault::new(blamed(&error, instance), error))
}

fn put<T>(to: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *to = given;
    }
}

/// The arbiter comes last: its order of priority may depend on the Byzantine processes, and these on the
/// other parameters.
///
/// # Errors
/// The order of priority has a process twice, or one that there is not.
pub fn with_arbiter(
    params: Params,
    instance: &Spanned<Instance>,
    faults: &FaultPlan,
) -> Result<Params, Fault> {
    let Some(given) = &instance.get_ref().arbiter else { return Ok(params) };
    let mut spec = params.spec().clone();
    spec.arbiter = match given.get_ref() {
        Arbiter::FirstCome => params::Arbiter::FirstCome,
        Arbiter::Uniform => params::Arbiter::Uniform,
        Arbiter::Priority(order) => params::Arbiter::Priority(order.clone()),
        Arbiter::ByzantineFirst => params::Arbiter::Priority(faults.processes().collect()),
    };
    Params::try_new(spec).map_err(|error| Fault::new(blamed(&error, instance), error))
}

/// Where the value stands that an error is about.
fn blamed(error: &ParamsError, instance: &Spanned<Instance>) -> Range<usize> {
    let given = instance.get_ref();
    let span = match error {
        ParamsError::Processes(_) => given.processes.as_ref().map(Spanned::span),
        ParamsError::WarpSize { .. } => given.warp_size.as_ref().map(Spanned::span),
        ParamsError::ReadSize { .. } => given.read_size.as_ref().map(Spanned::span),
        ParamsError::AppendRounds { .. } | ParamsError::OpenAppendRounds(_) => {
            given.append_rounds.as_ref().map(Spanned::span)
        }
        ParamsError::UnknownPriority { .. } | ParamsError::RepeatedPriority(_) => {
            given.arbiter.as_ref().map(Spanned::span)
        }
        ParamsError::Duration { name: "patience", .. } => given.patience.as_ref().map(Spanned::span),
        ParamsError::Duration { name: "join_timeout", .. } => given.join_timeout.as_ref().map(Spanned::span),
        ParamsError::Duration { .. } => given.pace.as_ref().map(Spanned::span),
        ParamsError::Pipeline(_) => given.pipeline.as_ref().map(Spanned::span),
        ParamsError::MaxValueBytes(_) => given.max_value_bytes.as_ref().map(Spanned::span),
    };
    span.unwrap_or_else(|| instance.span())
}

impl Instance {
    /// Of these parameters, with the arbiter as that file names it.
    #[must_use]
    pub fn of(spec: &ParamsSpec) -> Self {
        Self {
            processes: Some(spec.processes.into()),
            warp_size: Some(spec.warp_size.into()),
            read_size: Some(spec.read_size.into()),
            order: Some(spec.order.into()),
            arbiter: Some(Arbiter::of(&spec.arbiter).into()),
            append_window: Some(spec.append_window.into()),
            append_rounds: Some(spec.append_rounds.into()).filter(|_| spec.append_rounds > 1),
            patience: Some(PatienceText(spec.patience).into()),
            join_timeout: Some(DurationText(spec.join_timeout).into()),
            pace: Some(DurationText(spec.pace).into()),
            pipeline: Some(spec.pipeline.into()),
            max_value_bytes: Some(spec.max_value_bytes.into()),
            seed: None,
        }
    }
}

impl Arbiter {
    fn of(arbiter: &params::Arbiter) -> Self {
        match arbiter {
            params::Arbiter::FirstCome => Self::FirstCome,
            params::Arbiter::Uniform => Self::Uniform,
            params::Arbiter::Priority(order) => Self::Priority(order.clone()),
        }
    }
}

/// Patience, written as a duration or as "none".
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline)]
pub struct PatienceText(pub Patience);

impl TryFrom<String> for PatienceText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Patience::Endless));
        }
        let parsed = stickycas_program::parse_duration(&text);
        parsed
            .map(|patience| Self(Patience::Finite(patience)))
            .map_err(|error| format!("{error}: give a duration such as \"1s\", or \"none\""))
    }
}

impl From<PatienceText> for String {
    fn from(PatienceText(patience): PatienceText) -> Self {
        match patience {
            Patience::Finite(patience) => DurationText(patience).into(),
            Patience::Endless => "none".to_owned(),
        }
    }
}
