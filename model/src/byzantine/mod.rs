//! Byzantine strategies and wire attacks (SPEC section 8).
//!
//! A [`Strategy`] is the name of a role with its arguments, as scenarios and command lines write it:
//! `silent`, `collude(value=aaa)`, `adaptive(phase=5, then=late-append(access=2, value=b))`. Knowledge that a
//! strategy needs beforehand, such as the proposals of others, is an argument of it; it learns all else from
//! its reads. It acts through [`Behaviour`], so the same code runs in the simulator and over the network.
//!
//! A [`WireAttack`] is an attack below the protocol of processes, which only the network can show: the model
//! knows its name, its offences and what shows that it happened, and the client carries it out.
//!
//! # How to add a strategy
//! 1. Write a struct that holds the arguments, in the file of its kind; its `Definition` (in
//!    `definition.rs`): name, usage and parsing; and its `Conduct` (in `observations.rs`): whether it ends by
//!    itself, behaviour, and what shows in the history that it was at work. A strategy that only proposes
//!    another value implements `OtherProposal` instead (in `proposals.rs`). Its tests make histories from
//!    `test_events`.
//! 2. Add it to the list below.
//!
//! The compiler asks for the rest of the definition; the tests of this file, which go through the list, check
//! that the usage is what is parsed.

mod adaptive;
mod appends;
mod definition;
mod liar;
mod observations;
mod parse;
mod proposals;
mod silence;
#[cfg(test)]
mod test_events;
mod wire_attack;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::adaptive::Adaptive;
pub use self::appends::{LateAppend, Reader, RepeatAppend};
use self::definition::Definition;
pub use self::definition::own_value;
pub use self::liar::Liar;
use self::observations::Conduct;
pub use self::observations::Observations;
pub(crate) use self::observations::ObservedProcess;
pub use self::parse::StrategyError;
use self::parse::{Arguments, MAX_DEPTH, Nested, Vocabulary, column};
pub use self::proposals::{Collude, Distinct, Empty, Mimic, Mixed};
pub use self::silence::{Absent, Crash, Silent, Stall};
pub use self::wire_attack::{WireAttack, WireAttackError, WireAttackKind};
use crate::history::OffenceKind;
use crate::machine::brief_value;
use crate::params::Params;
use crate::process::Behaviour;
use crate::types::{ProcessId, Value};

/// Declares [`Strategy`] with one variant each, and [`REGISTRY`].
macro_rules! strategies {
    ($($Name:ident $(<$Inner:ident>)?,)*) => {
        /// A strategy with its arguments. Its text, which is also its form in JSON, is `name` or
        /// `name(key=value, key=value)`; see [`Strategy::ALL_NAMES`].
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub enum Strategy {
            $(
                #[doc = concat!("See [`", stringify!($Name), "`].")]
                $Name($Name $(<$Inner>)?),
            )*
        }

        /// All strategies.
        const REGISTRY: &[Registered] = &[
            $(
                Registered {
                    name: <$Name $(<$Inner>)? as Definition>::NAME,
                    usage: <$Name $(<$Inner>)? as Definition>::USAGE,
                    short_key: <$Name $(<$Inner>)? as Definition>::SHORT_KEY,
                    parse: |given| Definition::parse(given).map(Strategy::$Name),
                },
            )*
        ];

        /// Calls the same of the definition, whichever strategy it is.
        macro_rules! of_definition {
            ($strategy:expr, $definition:ident => $call:expr) => {
                match $strategy {
                    $(Strategy::$Name($definition) => $call,)*
                }
            };
        }
    };
}

strategies! {
    Absent,
    Silent,
    Crash,
    Empty,
    Distinct,
    Collude,
    Mimic,
    Mixed,
    LateAppend,
    RepeatAppend,
    Reader,
    Stall<Strategy>,
    Adaptive<Strategy>,
    Liar,
}

/// A strategy without its arguments.
struct Registered {
    name: &'static str,
    usage: &'static str,
    short_key: Option<&'static str>,
    parse: fn(&mut Arguments<'_>) -> Result<Strategy, StrategyError>,
}

const USAGES: [&str; REGISTRY.len()] = column!(REGISTRY, |row| row.usage);
const VOCABULARY: Vocabulary = Vocabulary { names: &Strategy::ALL_NAMES, usages: &USAGES };

impl Strategy {
    /// The names of all strategies.
    pub const ALL_NAMES: [&'static str; REGISTRY.len()] = column!(REGISTRY, |row| row.name);

    /// The name, without arguments.
    #[must_use]
    pub fn name(&self) -> &'static str {
        of_definition!(self, strategy => name_of(strategy))
    }

    /// How the strategy of this name is written and what it does, in one line. `None` if there is no such.
    #[must_use]
    pub fn describe(name: &str) -> Option<&'static str> {
        REGISTRY.iter().find(|registered| registered.name == name).map(|registered| registered.usage)
    }

    /// The offences of the closed list (B2) that the history shows the process to have committed, whether or
    /// not the whole strategy shows.
    pub(crate) fn offences(&self, process: &ObservedProcess<'_>) -> BTreeSet<OffenceKind> {
        let by_strategy = self.conduct().offences(process).iter().copied();
        process.offences().chain(by_strategy).collect()
    }

    /// Whether a process with this strategy joins at all.
    #[must_use]
    pub fn joins(&self) -> bool {
        self.conduct().joins()
    }

    /// Whether the strategy comes to an end by itself, as a correct process does: it reports a decision, or
    /// stops. A run waits for those that do, so that the evidence of their actions is whole.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.conduct().ends()
    }

    /// The behaviour of process `me`. Where the strategy follows Algorithm 1, it proposes `proposal`; its
    /// random choices come from `seed`.
    #[must_use]
    pub fn behaviour(&self, me: ProcessId, proposal: &Value, seed: u64) -> Box<dyn Behaviour> {
        self.conduct().behaviour(me, proposal, seed)
    }

    /// Checks that an instance takes the values that process `me` would send.
    ///
    /// # Errors
    /// The first that is too long.
    pub fn check_values(&self, me: ProcessId, params: &Params) -> Result<(), LongValue> {
        let limit = params.spec().max_value_bytes;
        let long = |value: &Value| value.as_bytes().len() > limit as usize;
        match self.conduct().values(me, params).into_iter().find(long) {
            Some(value) => Err(LongValue { strategy: self.name(), value, limit }),
            None => Ok(()),
        }
    }

    /// Whether the history shows that the process carried out the strategy (B3). See [`crate::detection`].
    pub(crate) fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        self.conduct().is_shown_by(process)
    }
}

/// A strategy sends a value that is too long for its instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{strategy} sends {}, which has {} bytes: give a value of at most max_value_bytes = {limit}, or a larger max_value_bytes",
    brief_value(.value),
    .value.as_bytes().len()
)]
pub struct LongValue {
    strategy: &'static str,
    value: Value,
    limit: u32,
}

fn name_of<D: Definition>(_: &D) -> &'static str {
    D::NAME
}

impl Nested for Strategy {
    fn parse_within(text: &str, depth: usize) -> Result<Self, StrategyError> {
        let mut given = match short_form(text, depth) {
            Some(given) => given,
            None => Arguments::parse(text, VOCABULARY, depth)?,
        };
        let named = REGISTRY.iter().find(|registered| registered.name == given.name());
        let strategy = (named.expect("the arguments bear a name of the registry").parse)(&mut given)?;
        given.finish()?;
        Ok(strategy)
    }

    fn conduct(&self) -> &dyn Conduct {
        of_definition!(self, strategy => strategy)
    }
}

/// The arguments of a text `name@K`, if the strategy of that name has a short form.
fn short_form(text: &str, depth: usize) -> Option<Arguments<'_>> {
    REGISTRY.iter().find_map(|registered| {
        let value = text.trim().strip_prefix(registered.name)?.strip_prefix('@')?;
        Some(Arguments::short(registered.name, registered.usage, registered.short_key?, value.trim(), depth))
    })
}

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        Self::parse_within(text, MAX_DEPTH)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments = of_definition!(self, strategy => strategy.arguments());
        if arguments.is_empty() {
            return f.pad(self.name());
        }
        let arguments: Vec<String> = arguments.iter().map(|(key, value)| format!("{key}={value}")).collect();
        write!(f, "{}({})", self.name(), arguments.join(", "))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::{
        BoxedStrategy, Just, Strategy as Generator, any, prop, prop_assert_eq, prop_oneof, proptest,
    };

    use super::*;
    use crate::types::{AccessNumber, Phase};

    fn refused(text: &str) -> String {
        text.parse::<Strategy>().unwrap_err().to_string()
    }

    /// The usages of a strategy, each with its placeholders filled in.
    fn examples(registered: &Registered) -> Vec<String> {
        let (usages, _) = registered.usage.split_once(": ").expect("usage, colon, what it does");
        let filled = |usage: &str| {
            let usage = usage.replace("access=K", "access=2").replace("phase=K", "phase=2");
            usage.replace("@K", "@2").replace("=S", "=silent")
        };
        usages.split(" or ").map(filled).collect()
    }

    #[test]
    fn every_strategy_reads_its_own_usage_and_its_own_text() {
        for registered in REGISTRY {
            for example in examples(registered) {
                let strategy: Strategy = example.parse().unwrap();
                assert_eq!(strategy.name(), registered.name, "{example}");
                assert_eq!(strategy.to_string().parse(), Ok(strategy.clone()));
                let json = serde_json::to_string(&strategy).unwrap();
                assert_eq!(serde_json::from_str::<Strategy>(&json).unwrap(), strategy);
            }
        }
    }

    #[test]
    fn every_strategy_has_a_name_of_its_own_and_describes_it() {
        for registered in REGISTRY {
            assert!(registered.usage.starts_with(registered.name));
            assert_eq!(Strategy::describe(registered.name), Some(registered.usage));
            assert_eq!(Strategy::ALL_NAMES.iter().filter(|name| **name == registered.name).count(), 1);
        }
        assert_eq!(Strategy::describe("honest"), None);
    }

    #[test]
    fn every_strategy_refuses_an_argument_that_it_does_not_take() {
        for registered in REGISTRY {
            for example in examples(registered) {
                let canonical = example.parse::<Strategy>().unwrap().to_string();
                let surprised = match canonical.strip_suffix(')') {
                    Some(open) => format!("{open}, surprise=1)"),
                    None => format!("{canonical}(surprise=1)"),
                };
                assert!(refused(&surprised).starts_with(&format!("{} has no use for", registered.name)));
            }
        }
    }

    #[test]
    fn every_strategy_that_joins_stands_within_another() {
        for example in REGISTRY.iter().flat_map(examples) {
            let inner: Strategy = example.parse().unwrap();
            let nested = format!("adaptive(phase=1, then={inner})").parse::<Strategy>();
            assert_eq!(nested.is_ok(), inner.joins(), "{example}");
            if let Ok(outer) = nested {
                assert_eq!(outer.ends(), inner.ends(), "{example}");
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
        assert!(within(MAX_DEPTH).parse::<Strategy>().is_ok());
        assert!(
            refused(&within(MAX_DEPTH + 1)).ends_with("give a strategy that is not so deep inside others")
        );
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
            refused("quiet"),
            "there is no strategy \"quiet\": give one of absent, silent, crash, empty, distinct, collude, mimic, \
             mixed, late-append, repeat-append, reader, stall, adaptive, liar"
        );
        assert_eq!(refused("slient"), "there is no strategy \"slient\": did you mean silent?");
        assert_eq!(
            refused("late-append(acces=2, value=b)"),
            "late-append has no argument acces: did you mean access?"
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
            Just(Strategy::Silent(Silent)),
            Just(Strategy::Empty(Empty)),
            Just(Strategy::Reader(Reader)),
            access().prop_map(|access| Strategy::Crash(Crash { access })),
            value().prop_map(|value| Strategy::Collude(Collude { value })),
            value().prop_map(|value| Strategy::Mimic(Mimic { value })),
            maybe().prop_map(|value| Strategy::Distinct(Distinct { value })),
            maybe().prop_map(|value| Strategy::RepeatAppend(RepeatAppend { value })),
            maybe().prop_map(|value| Strategy::Liar(Liar { value })),
            (value(), value()).prop_map(|(collude, mimic)| Strategy::Mixed(Mixed { collude, mimic })),
            (access(), value())
                .prop_map(|(access, value)| Strategy::LateAppend(LateAppend { access, value })),
        ];
        let outer = |inner: BoxedStrategy<Strategy>| {
            let phase = (1_u64..).prop_map(|phase| Phase::new(phase).unwrap());
            let inner = inner.prop_map(Box::new);
            prop_oneof![
                prop::option::of(inner.clone()).prop_map(|conduct| Strategy::Stall(Stall { conduct })),
                (phase, inner).prop_map(|(phase, then)| Strategy::Adaptive(Adaptive { phase, then })),
            ]
        };
        let depth = u32::try_from(MAX_DEPTH).unwrap();
        prop_oneof![1 => Just(Strategy::Absent(Absent)), 20 => inner.prop_recursive(depth, 8, 1, outer)]
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
