//! The promises of the theorem for an instance, with numbers that a viewer chooses (SPEC V1 to V3, D2).

use serde::{Deserialize, Serialize};
use stickycas_model::bounds;
use stickycas_model::params::{AppendWindow, Params};

/// The numbers that a viewer chooses.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Assumed {
    /// f: processes that are Byzantine, or correct and late.
    pub f: u64,
    /// |Vc|: different values that correct processes propose; 1 at least.
    pub values: u64,
}

/// The promises for these numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// The largest f for this |Vc|.
    pub largest_f: u64,
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
    let Assumed { f, values } = assumed;
    let values = values.max(1);
    let (n, p) = (params.processes(), params.warp_size());
    let cost =
        |values: u64| u128::from(f).saturating_mul(u128::from(values) + 1).saturating_mul(u128::from(p));
    let sign = |cost: u128| if cost < u128::from(n) { "<" } else { ">=" };
    let strong = cost(values);
    let common = cost(1);
    let agreement = params.spec().append_window == AppendWindow::FirstAccess;
    let property = |property: &str, promised, because: String| PromisedProperty {
        property: property.to_owned(),
        promised,
        because,
    };
    Promise {
        largest_f: bounds::largest_f(params, values),
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
                format!("f*(|Vc|+1)*p = {f}*({values}+1)*{p} = {strong} {} {n} = n", sign(strong)),
            ),
            property(
                "common-value validity",
                bounds::common_validity(params, f).is_ok(),
                format!("2*f*p = 2*{f}*{p} = {common} {} {n} = n", sign(common)),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stickycas_model::params::ParamsSpec;

    #[test]
    fn whatever_is_assumed_has_an_answer() {
        let params = Params::try_new(ParamsSpec::new(16, 2, 4)).unwrap();
        let promised = |f, values| {
            let promise = promise(&params, Assumed { f, values });
            promise.properties.iter().map(|property| property.promised).collect::<Vec<_>>()
        };
        assert_eq!(promised(2, 2), [true, true, true]);
        assert_eq!(promised(2, 3), [true, false, true]);
        assert_eq!(promised(u64::MAX, u64::MAX), [true, false, false]);
    }
}
