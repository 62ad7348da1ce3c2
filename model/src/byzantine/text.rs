//! The text of a strategy: `name` or `name(key=value, key=value)`.
//!
//! The grammar is small on purpose, so that a strategy fits into a TOML string or a shell argument unquoted
//! by anything else. A value that would be mistaken for part of the grammar is written as `0x` and hex digits.

use std::fmt;
use std::str::FromStr;

use super::{Strategy, WireAttack};
use crate::types::{AccessNumber, Value};

/// Why a text is no strategy. Each message says what is wrong and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// There is no strategy of this name.
    #[error("there is no strategy {0:?}: give one of {names}", names = Strategy::ALL_NAMES.join(", "))]
    UnknownName(String),
    /// The text is not of the form `name` or `name(key=value, key=value)`.
    #[error("{0:?} is no strategy: write name or name(key=value, key=value)")]
    Malformed(String),
    /// The strategy takes no such argument, or takes it once only.
    #[error("{strategy} has no use for {key:?}: write {usage}", usage = usage(strategy))]
    UnknownKey {
        /// The strategy.
        strategy: &'static str,
        /// The argument's name as given.
        key: String,
    },
    /// An argument is missing.
    #[error("{strategy} lacks {key}: write {usage}", usage = usage(strategy))]
    Missing {
        /// The strategy.
        strategy: &'static str,
        /// The argument's name.
        key: &'static str,
    },
    /// An argument cannot be used.
    #[error("{strategy}: {key} = {given:?}: give {wanted}")]
    BadArgument {
        /// The strategy.
        strategy: &'static str,
        /// The argument's name.
        key: &'static str,
        /// The argument as given.
        given: String,
        /// What can be given.
        wanted: &'static str,
    },
}

fn usage(name: &str) -> &'static str {
    Strategy::describe(name).or_else(|| WireAttack::describe(name)).unwrap_or("one of the strategies")
}

/// The arguments between the parentheses, from which a strategy or a wire attack takes its own.
pub(super) struct Arguments<'a> {
    pub(super) strategy: &'static str,
    given: Vec<(&'a str, &'a str)>,
}

impl<'a> Arguments<'a> {
    /// Takes a text apart; `names` are those that it may begin with.
    pub(super) fn parse(text: &'a str, names: &[&'static str]) -> Result<Self, StrategyError> {
        let malformed = || StrategyError::Malformed(text.to_owned());
        let (name, inside) = match text.trim().split_once('(') {
            None => (text.trim(), None),
            Some((name, rest)) => (name.trim_end(), Some(rest.strip_suffix(')').ok_or_else(malformed)?)),
        };
        let strategy = names.iter().copied().find(|known| *known == name);
        let strategy = strategy.ok_or_else(|| StrategyError::UnknownName(name.to_owned()))?;
        let mut given = Vec::new();
        for argument in
            inside.filter(|inside| !inside.trim().is_empty()).into_iter().flat_map(|inside| inside.split(','))
        {
            let (key, value) = argument.split_once('=').ok_or_else(malformed)?;
            given.push((key.trim(), value.trim()));
        }
        Ok(Self { strategy, given })
    }

    fn take(&mut self, key: &'static str) -> Option<&'a str> {
        let index = self.given.iter().position(|(given, _)| *given == key)?;
        Some(self.given.remove(index).1)
    }

    /// The value given under this key, if any.
    fn value(&mut self, key: &'static str) -> Result<Option<Value>, StrategyError> {
        let wanted = "a text of one byte or more, or 0x and an even number of hex digits";
        self.parsed(key, wanted, Value::parse)
    }

    /// The number of an access that is not the first.
    fn later_access(&mut self, key: &'static str) -> Result<Option<AccessNumber>, StrategyError> {
        let later = |given: &str| given.parse().ok().and_then(AccessNumber::new).filter(|k| k.get() > 1);
        self.parsed(key, "the number of an access, from 2 on", later)
    }

    pub(super) fn parsed<T>(
        &mut self,
        key: &'static str,
        wanted: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, StrategyError> {
        let Some(given) = self.take(key) else { return Ok(None) };
        let bad =
            || StrategyError::BadArgument { strategy: self.strategy, key, given: given.to_owned(), wanted };
        parse(given).map(Some).ok_or_else(bad)
    }

    fn missing(&self, key: &'static str) -> StrategyError {
        StrategyError::Missing { strategy: self.strategy, key }
    }

    /// Everything that was given must have been taken.
    pub(super) fn finish(self) -> Result<(), StrategyError> {
        match self.given.first() {
            None => Ok(()),
            Some((key, _)) => {
                Err(StrategyError::UnknownKey { strategy: self.strategy, key: (*key).to_owned() })
            }
        }
    }
}

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        let mut given = Arguments::parse(text, &Self::ALL_NAMES)?;
        let strategy = match given.strategy {
            "absent" => Self::Absent,
            "silent" => Self::Silent,
            "collude" => {
                Self::Collude { value: given.value("value")?.ok_or_else(|| given.missing("value"))? }
            }
            "distinct" => Self::Distinct { value: given.value("value")? },
            "late-append" => Self::LateAppend {
                access: given.later_access("access")?.ok_or_else(|| given.missing("access"))?,
                value: given.value("value")?.ok_or_else(|| given.missing("value"))?,
            },
            name => return Err(StrategyError::UnknownName(name.to_owned())),
        };
        given.finish()?;
        Ok(strategy)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Absent | Self::Silent | Self::Distinct { value: None } => f.pad(name),
            Self::Collude { value } | Self::Distinct { value: Some(value) } => {
                write!(f, "{name}(value={})", argument(value))
            }
            Self::LateAppend { access, value } => {
                write!(f, "{name}(access={access}, value={})", argument(value))
            }
        }
    }
}

impl From<Strategy> for String {
    fn from(strategy: Strategy) -> Self {
        strategy.to_string()
    }
}

impl TryFrom<String> for Strategy {
    type Error = StrategyError;

    fn try_from(text: String) -> Result<Self, StrategyError> {
        text.parse()
    }
}

/// A value's text, or its hex digits where the text would not survive the grammar.
fn argument(value: &Value) -> String {
    let text = value.to_string();
    if text.trim() == text && !text.contains([',', '(', ')']) {
        return text;
    }
    value.as_bytes().iter().fold("0x".to_owned(), |hex, byte| hex + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy as Generator, any, prop, prop_assert_eq, prop_oneof, proptest};

    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Strategy>().unwrap_err().to_string()
    }

    #[test]
    fn every_name_is_described_and_understood() {
        for name in Strategy::ALL_NAMES {
            assert!(Strategy::describe(name).unwrap().starts_with(name));
            match format!("{name}(access=2, value=v)").parse::<Strategy>() {
                Ok(strategy) => assert_eq!(strategy.name(), name),
                Err(error) => assert!(matches!(error, StrategyError::UnknownKey { .. }), "{error}"),
            }
        }
        assert_eq!(Strategy::describe("honest"), None);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        assert_eq!(
            refused("slient"),
            "there is no strategy \"slient\": give one of absent, silent, collude, distinct, late-append"
        );
        assert_eq!(
            refused("silent(value=a)"),
            "silent has no use for \"value\": write silent: joins, then says nothing"
        );
        assert!(refused("collude").starts_with("collude lacks value: write collude(value=V)"));
        assert!(refused("collude(value=a, value=b)").starts_with("collude has no use for \"value\""));
        assert!(refused("late-append(value=a)").starts_with("late-append lacks access"));
        assert_eq!(
            refused("late-append(access=1, value=a)"),
            "late-append: access = \"1\": give the number of an access, from 2 on"
        );
        assert!(refused("collude(value=0x4)").starts_with("collude: value = \"0x4\": give a text"));
        assert!(refused("collude(value=)").starts_with("collude: value = \"\": give a text"));
        for text in ["collude(value=a", "collude(value)", "collude(value=a,)"] {
            assert!(refused(text).ends_with("write name or name(key=value, key=value)"), "{text}");
        }
    }

    #[test]
    fn spaces_and_empty_parentheses_are_forgiven() {
        let same = |text: &str| text.parse::<Strategy>().unwrap().to_string();
        assert_eq!(same(" late-append ( value = b ,access=2 ) "), "late-append(access=2, value=b)");
        assert_eq!(same("distinct()"), "distinct");
    }

    fn any_strategy() -> impl Generator<Value = Strategy> {
        let value = || prop::collection::vec(any::<u8>(), 1..6).prop_map(|bytes| Value::new(&bytes).unwrap());
        let text = || "[a-c ,()=x0\"]{1,6}".prop_map(|text| Value::new(text.as_bytes()).unwrap());
        let value = move || prop_oneof![value(), text()];
        prop_oneof![
            Just(Strategy::Absent),
            Just(Strategy::Silent),
            value().prop_map(|value| Strategy::Collude { value }),
            prop::option::of(value()).prop_map(|value| Strategy::Distinct { value }),
            (2_u64.., value()).prop_map(|(access, value)| Strategy::LateAppend {
                access: AccessNumber::new(access).unwrap(),
                value
            }),
        ]
    }

    proptest! {
        #[test]
        fn the_canonical_text_reads_back(strategy in any_strategy()) {
            prop_assert_eq!(strategy.to_string().parse(), Ok(strategy.clone()));
            let json = serde_json::to_string(&strategy).unwrap();
            prop_assert_eq!(serde_json::from_str::<Strategy>(&json).unwrap(), strategy);
        }
    }
}
