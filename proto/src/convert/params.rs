//! Parameters (SPEC P1 to P4).
//!
//! The defaults are the model's: a value that a request leaves out comes from [`ParamsSpec::new`].

use std::time::Duration;

use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::types::{ProcessId, Seed};

use super::{WireError, duration_from_wire, duration_to_wire, process};
use crate::v1;
use crate::v1::parameters::PatienceChoice;

/// The requested parameters with every default filled in; `drawn` is the seed of a request without one.
/// [`Params::try_new`] checks them.
///
/// # Errors
/// The first field that has no meaning.
pub fn spec_from_wire(wire: &v1::Parameters, drawn: Seed) -> Result<ParamsSpec, WireError> {
    let default = ParamsSpec::new(wire.processes, wire.warp_size, wire.read_size);
    Ok(ParamsSpec {
        order: order_from_wire(wire.order)?,
        seed: wire.seed.map_or(drawn, Seed::new),
        arbiter: arbiter_from_wire(wire.arbiter, &wire.priority)?,
        append_window: append_window_from_wire(wire.append_window)?,
        patience: wire.patience_choice.as_ref().map_or(Ok(default.patience), patience_from_wire)?,
        join_timeout: duration_or("join_timeout", wire.join_timeout.as_ref(), default.join_timeout)?,
        pace: duration_or("pace", wire.pace.as_ref(), default.pace)?,
        pipeline: if wire.pipeline == 0 { default.pipeline } else { wire.pipeline },
        max_value_bytes: match wire.max_value_bytes {
            0 => default.max_value_bytes,
            given => given,
        },
        append_rounds: wire.append_rounds.max(1),
        ..default
    })
}

/// The parameters in a message of a server, which hold every effective value.
///
/// # Errors
/// The first field that has no meaning, is missing or is out of its range.
pub fn params_from_wire(wire: &v1::Parameters) -> Result<Params, WireError> {
    let seed = wire.seed.ok_or(WireError::Missing("seed"))?;
    Ok(Params::try_new(spec_from_wire(wire, Seed::new(seed))?)?)
}

impl From<&ParamsSpec> for v1::Parameters {
    fn from(spec: &ParamsSpec) -> Self {
        let (arbiter, priority) = arbiter_to_wire(&spec.arbiter);
        Self {
            processes: spec.processes,
            warp_size: spec.warp_size,
            read_size: spec.read_size,
            order: order_to_wire(spec.order).into(),
            seed: Some(spec.seed.get()),
            arbiter: arbiter.into(),
            priority,
            append_window: append_window_to_wire(spec.append_window).into(),
            patience_choice: Some(patience_to_wire(spec.patience)),
            join_timeout: Some(duration_to_wire(spec.join_timeout)),
            pace: Some(duration_to_wire(spec.pace)),
            pipeline: spec.pipeline,
            max_value_bytes: spec.max_value_bytes,
            append_rounds: if spec.append_rounds == 1 { 0 } else { spec.append_rounds },
        }
    }
}

impl From<&Params> for v1::Parameters {
    fn from(params: &Params) -> Self {
        params.spec().into()
    }
}

fn order_to_wire(order: Order) -> v1::Order {
    match order {
        Order::Ascending => v1::Order::Ascending,
        Order::Descending => v1::Order::Descending,
        Order::Shuffled => v1::Order::Shuffled,
    }
}

fn order_from_wire(value: i32) -> Result<Order, WireError> {
    let wire = v1::Order::try_from(value).map_err(|_| WireError::UnknownEnum { field: "order", value })?;
    Ok(match wire {
        v1::Order::Unspecified => Order::default(),
        v1::Order::Ascending => Order::Ascending,
        v1::Order::Descending => Order::Descending,
        v1::Order::Shuffled => Order::Shuffled,
    })
}

fn append_window_to_wire(window: AppendWindow) -> v1::AppendWindow {
    match window {
        AppendWindow::FirstAccess => v1::AppendWindow::FirstAccess,
        AppendWindow::Open => v1::AppendWindow::Open,
    }
}

fn append_window_from_wire(value: i32) -> Result<AppendWindow, WireError> {
    let unknown = |_| WireError::UnknownEnum { field: "append_window", value };
    Ok(match v1::AppendWindow::try_from(value).map_err(unknown)? {
        v1::AppendWindow::Unspecified => AppendWindow::default(),
        v1::AppendWindow::FirstAccess => AppendWindow::FirstAccess,
        v1::AppendWindow::Open => AppendWindow::Open,
    })
}

fn arbiter_to_wire(arbiter: &Arbiter) -> (v1::Arbiter, Vec<u32>) {
    match arbiter {
        Arbiter::FirstCome => (v1::Arbiter::FirstCome, Vec::new()),
        Arbiter::Uniform => (v1::Arbiter::Uniform, Vec::new()),
        Arbiter::Priority(order) => {
            (v1::Arbiter::Priority, order.iter().copied().map(ProcessId::get).collect())
        }
    }
}

fn arbiter_from_wire(value: i32, priority: &[u32]) -> Result<Arbiter, WireError> {
    let unknown = |_| WireError::UnknownEnum { field: "arbiter", value };
    let arbiter = match v1::Arbiter::try_from(value).map_err(unknown)? {
        v1::Arbiter::Unspecified => Arbiter::default(),
        v1::Arbiter::FirstCome => Arbiter::FirstCome,
        v1::Arbiter::Uniform => Arbiter::Uniform,
        v1::Arbiter::Priority => {
            let order = priority.iter().map(|&number| process("priority", number));
            return Ok(Arbiter::Priority(order.collect::<Result<_, _>>()?));
        }
    };
    if priority.is_empty() {
        Ok(arbiter)
    } else {
        Err(WireError::Contradiction { field: "priority", why: "is for the arbiter PRIORITY only" })
    }
}

fn patience_to_wire(patience: Patience) -> PatienceChoice {
    match patience {
        Patience::Finite(patience) => PatienceChoice::Patience(duration_to_wire(patience)),
        Patience::Endless => PatienceChoice::EndlessPatience(v1::EndlessPatience {}),
    }
}

fn patience_from_wire(choice: &PatienceChoice) -> Result<Patience, WireError> {
    match choice {
        PatienceChoice::Patience(patience) => duration_from_wire("patience", patience).map(Patience::Finite),
        PatienceChoice::EndlessPatience(_) => Ok(Patience::Endless),
    }
}

fn duration_or(
    field: &'static str,
    given: Option<&prost_types::Duration>,
    default: Duration,
) -> Result<Duration, WireError> {
    given.map_or(Ok(default), |given| duration_from_wire(field, given))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    fn request(processes: u32) -> v1::Parameters {
        v1::Parameters { processes, warp_size: 2, read_size: 2, ..Default::default() }
    }

    #[test]
    fn an_absent_field_takes_its_default() {
        let spec = spec_from_wire(&request(4), Seed::new(7)).unwrap();
        assert_eq!(spec, ParamsSpec { seed: Seed::new(7), ..ParamsSpec::new(4, 2, 2) });
    }

    #[test]
    fn one_append_round_takes_no_bytes() {
        let bytes = |append_rounds| {
            v1::Parameters::from(&ParamsSpec { append_rounds, ..ParamsSpec::new(4, 2, 2) }).encode_to_vec()
        };
        let (one, two) = (bytes(1), bytes(2));
        assert_eq!((two.strip_prefix(&one[..]), one.len()), (Some(&[15 << 3, 2][..]), 29));
    }

    #[test]
    fn a_seed_of_0_is_no_absent_seed() {
        let spec = spec_from_wire(&v1::Parameters { seed: Some(0), ..request(4) }, Seed::new(7)).unwrap();
        assert_eq!(spec.seed, Seed::new(0));
    }

    #[test]
    fn each_field_without_meaning_is_named() {
        let refused = |wire: v1::Parameters| spec_from_wire(&wire, Seed::default()).unwrap_err().to_string();
        assert_eq!(refused(v1::Parameters { order: 9, ..request(4) }), "order = 9 has no meaning");
        assert_eq!(refused(v1::Parameters { arbiter: -1, ..request(4) }), "arbiter = -1 has no meaning");
        assert_eq!(
            refused(v1::Parameters { append_window: 3, ..request(4) }),
            "append_window = 3 has no meaning"
        );
        let priority = v1::Parameters { priority: vec![1], ..request(4) };
        assert_eq!(refused(priority.clone()), "priority is for the arbiter PRIORITY only");
        let zero = v1::Parameters { priority: vec![0], arbiter: v1::Arbiter::Priority.into(), ..priority };
        assert_eq!(refused(zero), "priority is 0: it counts from 1");
        let negative = prost_types::Duration { seconds: -1, nanos: 0 };
        assert_eq!(
            refused(v1::Parameters { pace: Some(negative), ..request(4) }),
            "pace is negative or not a duration"
        );
        let unnormalised = prost_types::Duration { seconds: 0, nanos: 1_000_000_000 };
        let patience = Some(PatienceChoice::Patience(unnormalised));
        assert_eq!(
            refused(v1::Parameters { patience_choice: patience, ..request(4) }),
            "patience is negative or not a duration"
        );
    }

    #[test]
    fn parameters_of_a_server_without_seed_are_refused() {
        assert_eq!(params_from_wire(&request(4)), Err(WireError::Missing("seed")));
    }
}
