//! The promises of the theorem for an instance, with numbers that a viewer chooses (SPEC V1 to V3, D2).

use serde::{Deserialize, Serialize};
use stickycas_model::bounds;
use stickycas_model::params::{AppendWindow, Params, ParamsSpec};

/// The numbers that a viewer chooses.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Assumed {
    /// f: processes that are Byzantine, or correct and late.
    pub f: u64,
    /// |Vc|: different values that correct processes propose; 1 at least.
    pub values: u64,
    /// q, the append rounds; nothing: those of the instance.
    #[serde(default)]
    pub rounds: Option<u32>,
}

/// The promises for these numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// The largest f for this |Vc|.
    pub largest_f: u64,
    /// The phase by which correct processes decide that miss none of theirs.
    pub phases: u64,
    /// The properties, each with whether it is promised, in words.
    pub properties: Vec<PromisedProperty>,
}

/// A property and whether it is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PromisedProperty {
    /// Its name.
    pub property: String,
    /// Whether it is promised.
    pub promised: bool,
    /// The inequality or the premise, with numbers.
    pub because: String,
}

/// The promises of the theorem for an instance with these parameters if so much is assumed.
#[must_use]
pub fn promise(params: &Params, assumed: Assumed) -> Promise {
    let Assumed { f, values, rounds } = assumed;
    let values = values.max(1);
    let other = rounds.and_then(|append_rounds| {
        Params::try_new(ParamsSpec { append_rounds, ..params.spec().clone() }).ok()
    });
    let params = other.as_ref().unwrap_or(params);
    let bound = Bound::of(params);
    let agreement = params.spec().append_window == AppendWindow::FirstAccess;
    let property = |property: &str, promised, because: String| PromisedProperty {
        property: property.to_owned(),
        promised,
        because,
    };
    Promise {
        largest_f: bounds::largest_f(params, values),
        phases: bounds::phase_bound(params, 0).get(),
        properties: vec![
            property(
                "agreement",
                agreement,
                if agreement {
                    "the append window is first_access: all read the same sealed list".to_owned()
                } else {
                    "the append window is open: the list may still grow between two reads".to_owned()
                },
            ),
            property(
                "strong validity",
                bounds::strong_validity(params, f, values).is_ok(),
                format!("f*(|Vc|+1){} = {} = {}", bound.by, bound.strong(f, values), bound.name),
            ),
            property(
                "common-value validity",
                bounds::common_validity(params, f).is_ok(),
                format!("2*f{} = {} = {}", bound.by, bound.common(f), bound.name),
            ),
        ],
    }
}

/// The bounds in words: those of the paper for one append round (V3), else those of K3.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    factor: u32,
    /// The factor by its name.
    by: &'static str,
    limit: u32,
    /// The limit by its name.
    name: &'static str,
}

impl Bound {
    /// Of instances with these parameters.
    #[must_use]
    pub fn of(params: &Params) -> Self {
        match params.append_rounds() {
            1 => Self { factor: params.warp_size(), by: "*p", limit: params.processes(), name: "n" },
            _ => Self { factor: 1, by: "", limit: params.counted_entries(), name: "T" },
        }
    }

    /// That of strong validity: `f*(|Vc|+1)*p < n`.
    #[must_use]
    pub fn formula(self) -> String {
        format!("f*(|Vc|+1){} < {}", self.by, self.name)
    }

    /// That of strong validity with numbers: `2*(2+1)*2 = 12 < 16`.
    #[must_use]
    pub fn strong(self, f: u64, values: u64) -> String {
        self.compared(&format!("{f}*({values}+1)"), u128::from(f).saturating_mul(u128::from(values) + 1))
    }

    /// That of common-value validity with numbers.
    fn common(self, f: u64) -> String {
        self.compared(&format!("2*{f}"), u128::from(f).saturating_mul(2))
    }

    fn compared(self, product: &str, cost: u128) -> String {
        let Self { factor, by, limit, .. } = self;
        let by_factor = if by.is_empty() { String::new() } else { format!("*{factor}") };
        let cost = cost.saturating_mul(factor.into());
        let sign = if cost < limit.into() { "<" } else { ">=" };
        format!("{product}{by_factor} = {cost} {sign} {limit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_assumed_has_an_answer() {
        let params = Params::try_new(ParamsSpec::new(16, 2, 4)).unwrap();
        let promised = |f, values| {
            let promise = promise(&params, Assumed { f, values, rounds: None });
            promise.properties.iter().map(|property| property.promised).collect::<Vec<_>>()
        };
        assert_eq!(promised(2, 2), [true, true, true]);
        assert_eq!(promised(2, 3), [true, false, true]);
        assert_eq!(promised(u64::MAX, u64::MAX), [true, false, false]);
        let of_two = promise(&params, Assumed { f: 5, values: 2, rounds: Some(2) });
        assert_eq!((of_two.largest_f, of_two.phases), (5, 8 * (2 + 4)));
        assert_eq!(of_two.properties[1].because, "f*(|Vc|+1) = 5*(2+1) = 15 < 16 = T");
        let of_one = promise(&params, Assumed { f: 3, values: 2, rounds: Some(3) });
        assert_eq!(of_one.properties[1].because, "f*(|Vc|+1)*p = 3*(2+1)*2 = 18 >= 16 = n");
    }
}
