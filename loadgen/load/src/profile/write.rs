//! A checked profile as the text of a file in which nothing is left to defaults or draws.

use serde::Serialize;
use stickycas_harness::files::faults::{WrittenFaults, written_faults};
use stickycas_harness::files::instance::{WrittenInstance, written_duration as duration};
use stickycas_model::params::Arbiter;

use super::{Open, Pacing, Profile, Transport};
use crate::arrivals::{Piece, Spacing};

#[derive(Serialize)]
struct File<'a> {
    name: &'a str,
    about: &'a str,
    seed: u64,
    fail_if: Vec<String>,
    instance: WrittenInstance<&'a Arbiter>,
    proposals: Proposals,
    faults: Vec<WrittenFaults<'a>>,
    load: Load<'a>,
}

#[derive(Serialize)]
struct Proposals {
    distinct: u32,
    value_bytes: u32,
}

#[derive(Serialize)]
struct Load<'a> {
    transport: Transport,
    rosters: u32,
    principals_per_connection: u32,
    principal_prefix: &'a str,
    #[serde(flatten)]
    pacing: Paced,
    warm_up: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instances: Option<u64>,
    drain: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hard_stop: Option<String>,
    stall: String,
    history_sample: f64,
    max_errors: f64,
}

#[derive(Default, Serialize)]
struct Paced {
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ramp: Option<Ramp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<Step>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arrivals: Option<Spacing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_in_flight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_missed: Option<f64>,
}

#[derive(Serialize)]
struct Ramp {
    from: f64,
    to: f64,
}

#[derive(Serialize)]
struct Step {
    rate: f64,
    #[serde(rename = "for")]
    lasts: String,
}

impl Profile {
    /// The same profile as the text of a file in which nothing is left to defaults or draws.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let profile = self;
        let spec = profile.params.spec();
        let file = File {
            name: &profile.name,
            about: &profile.about,
            seed: profile.seed,
            fail_if: profile.fail_if.iter().map(ToString::to_string).collect(),
            instance: WrittenInstance::of(spec, &spec.arbiter),
            proposals: Proposals { distinct: profile.distinct, value_bytes: profile.value_bytes },
            faults: written_faults(profile.faults.roles()),
            load: load(profile),
        };
        let text = toml::to_string(&file).expect("a checked profile has nothing that TOML cannot hold");
        format!("# The profile as it was run: every default and draw filled in.\n\n{text}")
    }
}

fn load(profile: &Profile) -> Load<'_> {
    let load = &profile.load;
    let in_steps = matches!(&load.pacing, Pacing::Open(open) if open.pieces.len() > 1);
    Load {
        transport: load.transport,
        rosters: load.rosters,
        principals_per_connection: load.principals_per_connection,
        principal_prefix: &load.principal_prefix,
        pacing: match &load.pacing {
            Pacing::Closed { in_flight } => Paced { in_flight: Some(*in_flight), ..Paced::default() },
            Pacing::Open(open) => paced(open),
        },
        warm_up: duration(load.warm_up),
        duration: load.duration.filter(|_| !in_steps).map(duration),
        instances: load.instances,
        drain: duration(load.drain),
        hard_stop: load.hard_stop.map(duration),
        stall: duration(load.stall),
        history_sample: load.history_sample,
        max_errors: load.max_errors,
    }
}

fn paced(open: &Open) -> Paced {
    let paced = Paced {
        arrivals: Some(open.spacing),
        max_in_flight: Some(open.max_in_flight),
        late_after: Some(duration(open.late_after)),
        max_missed: Some(open.max_missed),
        ..Paced::default()
    };
    match open.pieces.as_slice() {
        [Piece { from, to, .. }] if from == to => Paced { rate: Some(*from), ..paced },
        [Piece { from, to, .. }] => Paced { ramp: Some(Ramp { from: *from, to: *to }), ..paced },
        pieces => {
            let step = |piece: &Piece| Step { rate: piece.from, lasts: duration(piece.lasts) };
            Paced { steps: Some(pieces.iter().map(step).collect()), ..paced }
        }
    }
}
