//! An instance and its status, as a client sees them. What `get --json`, `list --json` and `create --json`
//! print is these types: field names are stable, durations are text such as `1s 500ms`, absent means none.

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use stickycas_model::access::Op;
use stickycas_model::history::OffenceKind;
use stickycas_model::machine::State;
use stickycas_model::params::{Params, Patience};
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, Value, WarpId};
use stickycas_proto::convert::history::offence_kind_from_wire;
use stickycas_proto::convert::member_state::MemberState;
use stickycas_proto::convert::params::params_from_wire;
use stickycas_proto::convert::state::state_from_wire;
use stickycas_proto::convert::{WireError, duration_from_wire};
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::v1;

/// The facts of an instance that were fixed when it was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceInfo {
    /// Its id.
    #[serde(serialize_with = "text")]
    pub id: InstanceId,
    /// Its name, if it has one.
    #[serde(serialize_with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub name: Option<InstanceName>,
    /// The principal that created it and alone may close it.
    pub creator: String,
    /// Every effective parameter.
    #[serde(serialize_with = "parameters")]
    pub parameters: Params,
    /// The principals of processes 1, 2, 3, ..., n.
    pub roster: Vec<String>,
    /// How long it can be read once it is finished or closed.
    #[serde(serialize_with = "duration")]
    pub retention: Duration,
    /// How long it lives while nobody touches it.
    #[serde(serialize_with = "duration")]
    pub idle_lifetime: Duration,
    /// When it was created, by the server's clock.
    #[serde(serialize_with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub created: Option<SystemTime>,
}

/// An instance in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Its id.
    #[serde(serialize_with = "text")]
    pub id: InstanceId,
    /// Its name, if it has one.
    #[serde(serialize_with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub name: Option<InstanceName>,
    /// The principal that created it.
    pub creator: String,
    /// n.
    pub processes: u32,
    /// Where it is in its life.
    #[serde(serialize_with = "state")]
    pub state: State,
    /// When it was created, by the server's clock.
    #[serde(serialize_with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub created: Option<SystemTime>,
    /// How many processes have reported a decision.
    pub decided: u32,
    /// The decision that they have reported, false reports aside, if it is the same one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Value>,
    /// The phase that is open or opens next. `None` while gathering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Length of the list.
    pub length: u32,
    /// How many processes are awaited.
    pub awaited: u32,
    /// The first of them, if the server tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_awaited: Option<ProcessId>,
    /// How many processes and kinds of offences are on record.
    pub offences: u32,
}

/// How an instance stands: all that is needed to say why it is stuck (F12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceStatus {
    /// Where it is in its life.
    #[serde(serialize_with = "state")]
    pub state: State,
    /// The phase that is open or opens next. `None` while gathering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The warp of that phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warp: Option<WarpId>,
    /// Whether that phase is open.
    pub open: bool,
    /// The awaited processes: while gathering those that have not joined, in an open phase the missing
    /// members.
    pub awaited: Rows<Awaited>,
    /// Processes with waiting accesses.
    pub waiting: Rows<Waiting>,
    /// How many of the n have joined.
    pub joined: u32,
    /// Length of the list.
    pub length: u32,
    /// Whether the list takes no more entries.
    pub sealed: bool,
    /// The processes that have left.
    pub left: Rows<ProcessId>,
    /// Offences, one row per process and kind.
    pub offences: Rows<Offences>,
}

/// Rows as far as the server showed them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rows<T> {
    /// Those shown.
    pub shown: Vec<T>,
    /// How many more there are.
    pub left_out: u32,
}

/// A process that is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Awaited {
    /// The process.
    pub process: ProcessId,
    /// The rest of its patience.
    #[serde(serialize_with = "patience")]
    pub patience_left: Patience,
}

/// A process with waiting accesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The process.
    pub process: ProcessId,
    /// Numbers of its appends.
    pub appends: Vec<AccessNumber>,
    /// Numbers of its reads.
    pub reads: Vec<AccessNumber>,
}

/// All offences of one process and kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Offences {
    /// The process.
    pub process: ProcessId,
    /// Which of the closed list.
    pub kind: OffenceKind,
    /// How many.
    pub count: u64,
    /// The first of them, in words.
    pub first: String,
    /// The access that the first was done with, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_number: Option<AccessNumber>,
    /// The phase that was open or next when the first was filed. `None`: processes were gathering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_phase: Option<Phase>,
}

/// An instance, how it stands, and where the caller stands in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceView {
    /// The facts that were fixed when it was created.
    pub instance: InstanceInfo,
    /// Its status.
    pub status: InstanceStatus,
    /// The state of the caller's process. `None`: the caller has none in it.
    #[serde(serialize_with = "own", skip_serializing_if = "Option::is_none")]
    pub own: Option<MemberState>,
}

impl InstanceView {
    pub(crate) fn from_wire(wire: &v1::GetResponse) -> Result<Self, WireError> {
        let instance =
            InstanceInfo::from_wire(wire.instance.as_ref().ok_or(WireError::Missing("instance"))?)?;
        let status = InstanceStatus::from_wire(wire.status.as_ref().ok_or(WireError::Missing("status"))?)?;
        let own =
            wire.own.as_ref().map(|own| MemberState::from_wire(own, &instance.parameters)).transpose()?;
        Ok(Self { instance, status, own })
    }
}

/// An entry of the list, as a watcher sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListEntry {
    /// Where it stands.
    pub position: Position,
    /// The value.
    pub value: Value,
    /// The process whose append won.
    pub process: ProcessId,
    /// In which phase.
    pub phase: Phase,
}

impl InstanceInfo {
    pub(crate) fn from_wire(wire: &v1::Instance) -> Result<Self, WireError> {
        Ok(Self {
            id: wire.instance_id.parse()?,
            name: InstanceName::optional(&wire.name)?,
            creator: wire.creator.clone(),
            parameters: params_from_wire(wire.parameters.as_ref().ok_or(WireError::Missing("parameters"))?)?,
            roster: wire.roster.clone(),
            retention: required_duration("retention", wire.retention.as_ref())?,
            idle_lifetime: required_duration("idle_lifetime", wire.idle_lifetime.as_ref())?,
            created: wire.create_time.and_then(|time| SystemTime::try_from(time).ok()),
        })
    }
}

impl Summary {
    pub(crate) fn from_wire(wire: &v1::InstanceSummary) -> Result<Self, WireError> {
        Ok(Self {
            id: wire.instance_id.parse()?,
            name: InstanceName::optional(&wire.name)?,
            creator: wire.creator.clone(),
            processes: wire.processes,
            state: state_from_wire(wire.state)?,
            created: wire.create_time.and_then(|time| SystemTime::try_from(time).ok()),
            decided: wire.decided,
            decision: wire.decision.as_ref().and_then(|value| Value::new(value)),
            phase: Phase::new(wire.phase),
            length: wire.list_length,
            awaited: wire.awaited,
            first_awaited: ProcessId::new(wire.first_awaited),
            offences: wire.offences,
        })
    }
}

impl InstanceStatus {
    pub(crate) fn from_wire(wire: &v1::Status) -> Result<Self, WireError> {
        Ok(Self {
            state: state_from_wire(wire.state)?,
            phase: Phase::new(wire.phase),
            warp: WarpId::new(wire.warp),
            open: wire.phase_open,
            awaited: Rows::from_wire(&wire.awaited, wire.awaited_left_out, |row| {
                let left = row.patience_left.as_ref();
                let left = left.map(|left| duration_from_wire("awaited.patience_left", left)).transpose()?;
                let patience_left = left.map_or(Patience::Endless, Patience::Finite);
                Ok(Awaited { process: process("awaited.process", row.process)?, patience_left })
            })?,
            waiting: Rows::from_wire(&wire.waiting, wire.waiting_left_out, |row| {
                Ok(Waiting {
                    process: process("waiting.process", row.process)?,
                    appends: numbers("waiting.append_numbers", &row.append_numbers)?,
                    reads: numbers("waiting.read_numbers", &row.read_numbers)?,
                })
            })?,
            joined: wire.joined,
            length: wire.list_length,
            sealed: wire.sealed,
            left: Rows::from_wire(&wire.left, wire.left_left_out, |number| process("left", *number))?,
            offences: Rows::from_wire(&wire.offences, wire.offences_left_out, |row| {
                Ok(Offences {
                    process: process("offences.process", row.process)?,
                    kind: offence_kind_from_wire("offences.kind", row.kind)?,
                    count: row.count,
                    first: row.first_detail.clone(),
                    first_number: AccessNumber::new(row.first_number),
                    first_phase: Phase::new(row.first_phase),
                })
            })?,
        })
    }
}

impl<T> Rows<T> {
    /// How many there are, shown or not.
    #[must_use]
    pub fn total(&self) -> usize {
        self.shown.len() + self.left_out as usize
    }

    fn from_wire<W>(
        wire: &[W],
        left_out: u32,
        row: impl Fn(&W) -> Result<T, WireError>,
    ) -> Result<Self, WireError> {
        Ok(Self { shown: wire.iter().map(row).collect::<Result<_, _>>()?, left_out })
    }
}

impl ListEntry {
    pub(crate) fn from_wire(position: u32, wire: &v1::Entry) -> Result<Self, WireError> {
        Ok(Self {
            position: Position::new(position),
            value: Value::new(&wire.value).ok_or(WireError::Missing("entries.value"))?,
            process: process("entries.process", wire.process)?,
            phase: Phase::new(wire.phase).ok_or(WireError::Zero("entries.phase"))?,
        })
    }
}

fn process(field: &'static str, number: u32) -> Result<ProcessId, WireError> {
    ProcessId::new(number).ok_or(WireError::Zero(field))
}

fn numbers(field: &'static str, numbers: &[u64]) -> Result<Vec<AccessNumber>, WireError> {
    numbers.iter().map(|&number| AccessNumber::new(number).ok_or(WireError::Zero(field))).collect()
}

fn required_duration(
    field: &'static str,
    wire: Option<&prost_types::Duration>,
) -> Result<Duration, WireError> {
    duration_from_wire(field, wire.ok_or(WireError::Missing(field))?)
}

/// The state in one word.
#[must_use]
pub const fn state_word(state: State) -> &'static str {
    match state {
        State::Gathering => "gathering",
        State::Running => "running",
        State::Finished => "finished",
        State::Closed => "closed",
    }
}

/// A patience as it is written: a duration, or `none` for one without end.
#[must_use]
pub fn patience_text(patience: Patience) -> String {
    match patience {
        Patience::Finite(left) => humantime::format_duration(left).to_string(),
        Patience::Endless => "none".to_owned(),
    }
}

// serde passes a reference to a `serialize_with` function.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn state<S: Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state_word(*state))
}

fn text<T: std::fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn optional_text<T: std::fmt::Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}

fn duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

pub(crate) fn optional_duration<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    duration.map(|duration| humantime::format_duration(duration).to_string()).serialize(serializer)
}

fn patience<S: Serializer>(patience: &Patience, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&patience_text(*patience))
}

pub(crate) fn optional_time<S: Serializer>(
    time: &Option<SystemTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| humantime::format_rfc3339_millis(time).to_string()).serialize(serializer)
}

fn parameters<S: Serializer>(params: &Params, serializer: S) -> Result<S::Ok, S::Error> {
    let spec = params.spec();
    serde_json::json!({
        "processes": spec.processes,
        "warp_size": spec.warp_size,
        "read_size": spec.read_size,
        "order": spec.order,
        "seed": spec.seed,
        "arbiter": spec.arbiter,
        "append_window": spec.append_window,
        "append_rounds": spec.append_rounds,
        "patience": patience_text(spec.patience),
        "join_timeout": humantime::format_duration(spec.join_timeout).to_string(),
        "pace": humantime::format_duration(spec.pace).to_string(),
        "pipeline": spec.pipeline,
        "max_value_bytes": spec.max_value_bytes,
    })
    .serialize(serializer)
}

fn own<S: Serializer>(own: &Option<MemberState>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Access<'a> {
        number: AccessNumber,
        op: &'a Op,
    }
    let json = own.as_ref().map(|own| {
        let waiting: Vec<_> = own.waiting.iter().map(|(number, op)| Access { number: *number, op }).collect();
        serde_json::json!({
            "process": own.process,
            "next_access_number": own.next,
            "waiting": waiting,
            "append": own.append.map(|(phase, answer)| serde_json::json!({ "phase": phase, "answer": answer })),
            "decided": own.decided,
        })
    });
    json.serialize(serializer)
}
