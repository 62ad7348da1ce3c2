//! One axis as written: one value, a list of values, or for numbers a range, `{ from = 0, to = 12, step = 2
//! }`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer as _, Unexpected};
use toml::Value;

/// The most values of an axis. Axes multiply: more is a slip of the keyboard.
const LONGEST_AXIS: usize = 4096;

/// The values of an axis of numbers, in the order in which they were given.
#[derive(Clone, Debug)]
pub(super) struct Numbers(pub(super) Vec<u32>);

/// The values of an axis of texts, in the order in which they were given.
#[derive(Clone, Debug)]
pub(super) struct Texts<T>(pub(super) Vec<T>);

/// `{ from = 0, to = 12, step = 2 }`: the numbers of an axis, with the same step between neighbours.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Range {
    /// The first.
    from: u32,
    /// The last, if the steps meet it.
    to: u32,
    /// From one to the next.
    #[serde(default = "one")]
    step: u32,
}

fn one() -> u32 {
    1
}

impl Range {
    fn values<E: Error>(&self) -> Result<Vec<u32>, E> {
        let Self { from, to, step } = *self;
        if step == 0 {
            return Err(E::custom("step = 0 leads nowhere: give 1 or more"));
        }
        if from > to {
            return Err(E::custom(format!("from = {from} is above to = {to}: exchange them")));
        }
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        few_enough((from..=to).step_by(step).take(LONGEST_AXIS + 1).collect())
    }
}

fn few_enough<T, E: Error>(values: Vec<T>) -> Result<Vec<T>, E> {
    match values.len() {
        0 => Err(E::custom("an axis without a value has no point: give one, or leave the axis out")),
        1..=LONGEST_AXIS => Ok(values),
        _ => Err(E::custom(format!("more than {LONGEST_AXIS} values on one axis: give fewer"))),
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = |given: Value| match given {
            Value::Integer(number) => u32::try_from(number)
                .map_err(|_| D::Error::custom(format!("{number} is out of range: give 0 to {}", u32::MAX))),
            other => u32::deserialize(other).map_err(|wrong| error(&wrong)),
        };
        few_enough(match Value::deserialize(deserializer)? {
            Value::Array(several) => several.into_iter().map(number).collect::<Result<_, _>>()?,
            Value::Table(range) => {
                Range::deserialize(range).map_err(|wrong| error::<D::Error>(&wrong))?.values()?
            }
            Value::String(text) => {
                let wanted = "a number, a list of numbers, or { from = 0, to = 12 }";
                return Err(D::Error::invalid_type(Unexpected::Str(&text), &wanted));
            }
            one => vec![number(one)?],
        })
        .map(Self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Texts<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text =
            |given: Value| match given {
                Value::String(text) => T::deserialize(text.as_str().into_deserializer()).map_err(
                    |error: serde::de::value::Error| match error.to_string() {
                        // A word such as "priority" of scenarios.
                        told if told.starts_with("invalid type") => D::Error::custom(format!(
                            "{text} needs more than its name, for which an axis has no room: give another"
                        )),
                        told => D::Error::custom(told),
                    },
                ),
                _ => Err(D::Error::custom("give a text or a list of texts")),
            };
        few_enough(match Value::deserialize(deserializer)? {
            Value::Array(several) => several.into_iter().map(text).collect::<Result<_, _>>()?,
            one => vec![text(one)?],
        })
        .map(Self)
    }
}

/// The error of a value, as that of the file.
fn error<E: Error>(error: &toml::de::Error) -> E {
    E::custom(error.message())
}

impl JsonSchema for Numbers {
    fn schema_name() -> Cow<'static, str> {
        "Numbers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let number = json_schema!({ "type": "integer", "minimum": 0, "maximum": u32::MAX });
        let several =
            json_schema!({ "type": "array", "items": number, "minItems": 1, "maxItems": LONGEST_AXIS });
        let range = generator.subschema_for::<Range>();
        json_schema!({ "anyOf": [number, several, range] })
    }
}

/// The schema of one text like this, or several.
pub(super) fn texts(text: &Schema) -> Schema {
    json_schema!({ "anyOf": [text, { "type": "array", "items": text, "minItems": 1, "maxItems": LONGEST_AXIS }] })
}

#[cfg(test)]
mod tests {
    use stickycas_model::params::Order;

    use super::*;

    #[derive(serde::Deserialize)]
    struct Line {
        axis: Numbers,
    }

    fn numbers(given: &str) -> Result<Vec<u32>, String> {
        let line: Result<Line, _> = toml::from_str(&format!("axis = {given}"));
        line.map(|line| line.axis.0).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn numbers_are_one_or_several_or_a_range() {
        assert_eq!(numbers("7"), Ok(vec![7]));
        assert_eq!(numbers("[3, 1, 2]"), Ok(vec![3, 1, 2]));
        assert_eq!(numbers("{ from = 2, to = 4 }"), Ok(vec![2, 3, 4]));
        assert_eq!(numbers("{ from = 1, to = 8, step = 3 }"), Ok(vec![1, 4, 7]));
    }

    #[test]
    fn what_is_no_axis_is_refused_with_what_to_write() {
        let refused = |given| numbers(given).unwrap_err();
        assert!(refused("-1").contains("-1 is out of range"), "{}", refused("-1"));
        assert!(refused("\"x\"").contains("a number, a list of numbers"), "{}", refused("\"x\""));
        assert!(refused("[]").contains("without a value"));
        assert!(refused("{ from = 4, to = 2 }").contains("from = 4 is above to = 2"));
        assert!(refused("{ from = 1, to = 2, step = 0 }").contains("leads nowhere"));
        assert!(refused("{ from = 0, to = 4000000000 }").contains("more than 4096 values"));
        assert!(refused("{ from = 0, until = 4 }").contains("unknown field `until`"));
    }

    #[test]
    fn texts_are_one_or_several() {
        #[derive(serde::Deserialize)]
        struct Line {
            axis: Texts<Order>,
        }
        let read = |given: &str| toml::from_str::<Line>(&format!("axis = {given}")).map(|line| line.axis.0);
        assert_eq!(read("\"shuffled\"").unwrap(), [Order::Shuffled]);
        assert_eq!(read("[\"descending\", \"ascending\"]").unwrap(), [Order::Descending, Order::Ascending]);
        assert!(read("\"upwards\"").unwrap_err().message().contains("unknown variant `upwards`"));
        assert!(read("4").unwrap_err().message().contains("a text or a list of texts"));
    }
}
