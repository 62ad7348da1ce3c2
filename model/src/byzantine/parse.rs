//! The text of a strategy: `name` or `name(key=value, key=value)`.
//!
//! The grammar is small on purpose, so that a strategy fits into a TOML string or a shell argument unquoted
//! by anything else. A value that would be mistaken for part of the grammar is written as `0x` and hex digits.
//! The value of an argument may be a strategy with arguments of its own, to a small depth.

use std::fmt;
use std::str::FromStr;

use super::{Strategy, WireAttack};
use crate::types::{AccessNumber, Phase, Value};

/// How deep strategies may stand within each other: enough for any that makes sense, and no text can exhaust
/// the stack.
const DEEPEST: usize = 4;

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
        if let Some(inside) = inside.filter(|inside| !inside.trim().is_empty()) {
            for argument in at_outer_commas(inside).ok_or_else(malformed)? {
                let (key, value) = argument.split_once('=').ok_or_else(malformed)?;
                given.push((key.trim(), value.trim()));
            }
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

    /// The number of an access.
    fn access(&mut self, key: &'static str) -> Result<Option<AccessNumber>, StrategyError> {
        let access = |given: &str| given.parse().ok().and_then(AccessNumber::new);
        self.parsed(key, "the number of an access, from 1 on", access)
    }

    /// The number of a phase.
    fn phase(&mut self, key: &'static str) -> Result<Option<Phase>, StrategyError> {
        let phase = |given: &str| given.parse().ok().and_then(Phase::new);
        self.parsed(key, "the number of a phase, from 1 on", phase)
    }

    /// A strategy of a process that joins. `depth`: how deep others may stand within it.
    fn strategy(&mut self, key: &'static str, depth: usize) -> Result<Option<Box<Strategy>>, StrategyError> {
        let Some(given) = self.take(key) else { return Ok(None) };
        let bad = |wanted| {
            let (strategy, given) = (self.strategy, given.to_owned());
            StrategyError::BadArgument { strategy, key, given, wanted }
        };
        let depth =
            depth.checked_sub(1).ok_or_else(|| bad("a strategy that is not so deep inside others"))?;
        match parse(given, depth)? {
            Strategy::Absent => Err(bad("a strategy that joins")),
            strategy => Ok(Some(Box::new(strategy))),
        }
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

    /// What was given under this key, which must be there.
    fn required<T>(&self, key: &'static str, given: Option<T>) -> Result<T, StrategyError> {
        given.ok_or(StrategyError::Missing { strategy: self.strategy, key })
    }

    fn required_value(&mut self, key: &'static str) -> Result<Value, StrategyError> {
        let value = self.value(key)?;
        self.required(key, value)
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

/// Splits at those commas that stand within no parentheses. `None` if these do not match.
fn at_outer_commas(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (depth == 0).then_some(parts)
}

/// Parses a strategy within which others may stand to this depth.
fn parse(text: &str, depth: usize) -> Result<Strategy, StrategyError> {
    let mut given = match text.trim().strip_prefix("crash@") {
        Some(access) => Arguments { strategy: "crash", given: vec![("access", access.trim())] },
        None => Arguments::parse(text, &Strategy::ALL_NAMES)?,
    };
    let strategy = match given.strategy {
        "absent" => Strategy::Absent,
        "silent" => Strategy::Silent,
        "crash" => {
            let access = given.access("access")?;
            Strategy::Crash { access: given.required("access", access)? }
        }
        "empty" => Strategy::Empty,
        "distinct" => Strategy::Distinct { value: given.value("value")? },
        "collude" => Strategy::Collude { value: given.required_value("value")? },
        "mimic" => Strategy::Mimic { value: given.required_value("value")? },
        "mixed" => Strategy::Mixed {
            collude: given.required_value("collude")?,
            mimic: given.required_value("mimic")?,
        },
        "late-append" => {
            let access = given.later_access("access")?;
            Strategy::LateAppend {
                access: given.required("access", access)?,
                value: given.required_value("value")?,
            }
        }
        "repeat-append" => Strategy::RepeatAppend { value: given.value("value")? },
        "reader" => Strategy::Reader,
        "stall" => Strategy::Stall { conduct: given.strategy("conduct", depth)? },
        "adaptive" => {
            let (phase, then) = (given.phase("phase")?, given.strategy("then", depth)?);
            Strategy::Adaptive { phase: given.required("phase", phase)?, then: given.required("then", then)? }
        }
        "liar" => Strategy::Liar { value: given.value("value")? },
        name => return Err(StrategyError::UnknownName(name.to_owned())),
    };
    given.finish()?;
    Ok(strategy)
}

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        parse(text, DEEPEST)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Absent
            | Self::Silent
            | Self::Empty
            | Self::Reader
            | Self::Distinct { value: None }
            | Self::RepeatAppend { value: None }
            | Self::Liar { value: None }
            | Self::Stall { conduct: None } => f.pad(name),
            Self::Collude { value }
            | Self::Mimic { value }
            | Self::Distinct { value: Some(value) }
            | Self::RepeatAppend { value: Some(value) }
            | Self::Liar { value: Some(value) } => write!(f, "{name}(value={})", argument(value)),
            Self::Mixed { collude, mimic } => {
                write!(f, "{name}(collude={}, mimic={})", argument(collude), argument(mimic))
            }
            Self::Crash { access } => write!(f, "{name}(access={access})"),
            Self::LateAppend { access, value } => {
                write!(f, "{name}(access={access}, value={})", argument(value))
            }
            Self::Stall { conduct: Some(conduct) } => write!(f, "{name}(conduct={conduct})"),
            Self::Adaptive { phase, then } => write!(f, "{name}(phase={phase}, then={then})"),
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
    use proptest::prelude::{
        BoxedStrategy, Just, Strategy as Generator, any, prop, prop_assert_eq, prop_oneof, proptest,
    };

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
                Err(StrategyError::UnknownKey { strategy, .. } | StrategyError::Missing { strategy, .. }) => {
                    assert_eq!(strategy, name);
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(Strategy::describe("honest"), None);
    }

    #[test]
    fn what_is_described_is_what_is_understood() {
        let filled = |usage: &str| {
            let usage = usage.replace("access=K", "access=2").replace("phase=K", "phase=2");
            usage.replace("@K", "@2").replace("=S", "=silent")
        };
        for name in Strategy::ALL_NAMES {
            let (usages, _) = Strategy::describe(name).unwrap().split_once(": ").unwrap();
            for usage in usages.split(" or ") {
                let strategy: Strategy = filled(usage).parse().unwrap();
                assert_eq!(strategy.name(), name, "{usage}");
            }
        }
    }

    #[test]
    fn a_crash_may_be_written_as_the_rules_write_it() {
        assert_eq!("crash@3".parse::<Strategy>().unwrap().to_string(), "crash(access=3)");
        assert_eq!(refused("crash@0"), "crash: access = \"0\": give the number of an access, from 1 on");
        assert!(refused("stall@3").starts_with("there is no strategy \"stall@3\""));
    }

    #[test]
    fn strategies_stand_within_strategies_to_a_small_depth() {
        let text = "adaptive(phase=3, then=stall(conduct=mixed(collude=0, mimic=b)))";
        let strategy: Strategy = text.parse().unwrap();
        assert_eq!(strategy.to_string(), text);
        let spaced = "adaptive( then = late-append(access=2, value=0x2c28) , phase=9 )";
        let strategy: Strategy = spaced.parse().unwrap();
        assert_eq!(strategy.to_string(), "adaptive(phase=9, then=late-append(access=2, value=0x2c28))");

        let nested = |depth| format!("{}{}", "stall(conduct=".repeat(depth), ")".repeat(depth));
        let within = |depth| nested(depth).replacen("=)", "=silent)", 1);
        assert!(within(DEEPEST).parse::<Strategy>().is_ok());
        assert!(refused(&within(DEEPEST + 1)).ends_with("give a strategy that is not so deep inside others"));
        assert!(refused(&within(100_000)).ends_with("give a strategy that is not so deep inside others"));
    }

    #[test]
    fn what_is_wrong_with_an_inner_strategy_is_told() {
        assert!(
            refused("adaptive(phase=2)").starts_with("adaptive lacks then: write adaptive(phase=K, then=S)")
        );
        assert!(refused("adaptive(phase=2, then=collude)").starts_with("collude lacks value"));
        assert_eq!(
            refused("stall(conduct=absent)"),
            "stall: conduct = \"absent\": give a strategy that joins"
        );
        assert_eq!(
            refused("adaptive(phase=0, then=silent)"),
            "adaptive: phase = \"0\": give the number of a phase, from 1 on"
        );
        assert!(refused("mimic").starts_with("mimic lacks value: write mimic(value=V)"));
        assert!(refused("mixed(collude=0)").starts_with("mixed lacks mimic"));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        assert_eq!(
            refused("slient"),
            "there is no strategy \"slient\": give one of absent, silent, crash, empty, distinct, collude, mimic, \
             mixed, late-append, repeat-append, reader, stall, adaptive, liar"
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
        for text in [
            "collude(value=a",
            "collude(value)",
            "collude(value=a,)",
            "collude(value=a))",
            "stall(conduct=(silent)",
        ] {
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
        let access = || (2_u64..).prop_map(|access| AccessNumber::new(access).unwrap());
        let maybe = || prop::option::of(value());
        let inner = prop_oneof![
            Just(Strategy::Silent),
            Just(Strategy::Empty),
            Just(Strategy::Reader),
            access().prop_map(|access| Strategy::Crash { access }),
            value().prop_map(|value| Strategy::Collude { value }),
            value().prop_map(|value| Strategy::Mimic { value }),
            maybe().prop_map(|value| Strategy::Distinct { value }),
            maybe().prop_map(|value| Strategy::RepeatAppend { value }),
            maybe().prop_map(|value| Strategy::Liar { value }),
            (value(), value()).prop_map(|(collude, mimic)| Strategy::Mixed { collude, mimic }),
            (access(), value()).prop_map(|(access, value)| Strategy::LateAppend { access, value }),
        ];
        let outer = |inner: BoxedStrategy<Strategy>| {
            let phase = (1_u64..).prop_map(|phase| Phase::new(phase).unwrap());
            let inner = inner.prop_map(Box::new);
            prop_oneof![
                prop::option::of(inner.clone()).prop_map(|conduct| Strategy::Stall { conduct }),
                (phase, inner).prop_map(|(phase, then)| Strategy::Adaptive { phase, then }),
            ]
        };
        let depth = u32::try_from(DEEPEST).unwrap();
        prop_oneof![1 => Just(Strategy::Absent), 20 => inner.prop_recursive(depth, 8, 1, outer)]
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
