//! The grammar of strategies and wire attacks: `name` or `name(key=value, key=value)`.
//!
//! The grammar is small on purpose, so that a strategy fits into a TOML string or a shell argument unquoted
//! by anything else. A value that would be mistaken for part of the grammar is written as `0x` and hex
//! digits. The value of an argument may be a strategy with arguments of its own, to a small depth.

use std::fmt::Display;

use super::observations::Conduct;
use crate::types::{AccessNumber, Phase, Value};

/// How deep strategies may stand within each other: enough for any that makes sense, and no text can exhaust
/// the stack.
pub(super) const MAX_DEPTH: usize = 4;

/// Why a text is no strategy. Each message says what is wrong and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// There is no strategy of this name.
    #[error("there is no strategy {given:?}: {}", meant(given, names))]
    UnknownName {
        /// The name as given.
        given: String,
        /// The names that there are.
        names: &'static [&'static str],
    },
    /// The text is not of the form `name` or `name(key=value, key=value)`.
    #[error("{0:?} is no strategy: write name or name(key=value, key=value)")]
    Malformed(String),
    /// The strategy takes no such argument, or takes it once only.
    #[error("{strategy} has no use for {key:?}: write {usage}")]
    UnknownKey {
        /// The strategy.
        strategy: &'static str,
        /// The argument's name as given.
        key: String,
        /// How the strategy is written.
        usage: &'static str,
    },
    /// The strategy takes no such argument, and lacks one whose name is almost the same.
    #[error("{strategy} has no argument {given}: did you mean {key}?")]
    Misspelt {
        /// The strategy.
        strategy: &'static str,
        /// The argument's name as given.
        given: String,
        /// The argument that is missing.
        key: &'static str,
    },
    /// An argument is missing.
    #[error("{strategy} lacks {key}: write {usage}")]
    Missing {
        /// The strategy.
        strategy: &'static str,
        /// The argument's name.
        key: &'static str,
        /// How the strategy is written.
        usage: &'static str,
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
        /// The arguments that can be given.
        wanted: String,
    },
}

/// The name that was most likely meant, or all of them.
fn meant(given: &str, names: &[&'static str]) -> String {
    match names.iter().find(|name| is_almost(given, name)) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("give one of {}", names.join(", ")),
    }
}

/// Whether a name was most likely meant: at most two letters are missing, additional or other ones, and at
/// most a third of them.
fn is_almost(given: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    // The distance of Levenshtein, row by row.
    let mut distances: Vec<usize> = (0..=name.len()).collect();
    for (row, letter) in given.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut distances[0], row + 1);
        for (column, other) in name.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = distances[column + 1];
            distances[column + 1] = replaced.min(diagonal + 1).min(distances[column] + 1);
        }
    }
    distances[name.len()] <= 2.min(name.len() / 3)
}

/// A strategy that may be the argument of another one. It is a type parameter there, because the registry
/// imports the files of all strategies.
pub(super) trait Nested: Display + Sized {
    /// Parses a strategy within which others may stand to this depth.
    ///
    /// # Errors
    /// The text is no such strategy.
    fn parse_within(text: &str, depth: usize) -> Result<Self, StrategyError>;

    /// The conduct of a process with this strategy.
    fn conduct(&self) -> &dyn Conduct;
}

/// The names and usages that a text is parsed against.
#[derive(Clone, Copy)]
pub(super) struct Vocabulary {
    pub(super) names: &'static [&'static str],
    /// In the order of the names.
    pub(super) usages: &'static [&'static str],
}

/// The same text of each row of a table, as a constant.
macro_rules! column {
    ($table:expr, |$row:ident| $text:expr) => {{
        let mut column = [""; $table.len()];
        let mut index = 0;
        while index < column.len() {
            let $row = &$table[index];
            column[index] = $text;
            index += 1;
        }
        column
    }};
}
pub(super) use column;

/// The arguments between the parentheses, from which a strategy or a wire attack takes its own.
pub(super) struct Arguments<'a> {
    name: &'static str,
    usage: &'static str,
    /// How deep other strategies may stand within this one.
    depth: usize,
    given: Vec<(&'a str, &'a str)>,
}

impl<'a> Arguments<'a> {
    /// Takes a text apart.
    pub(super) fn parse(text: &'a str, known: Vocabulary, depth: usize) -> Result<Self, StrategyError> {
        let malformed = || StrategyError::Malformed(text.to_owned());
        let (name, inside) = match text.trim().split_once('(') {
            None => (text.trim(), None),
            Some((name, rest)) => (name.trim_end(), Some(rest.strip_suffix(')').ok_or_else(malformed)?)),
        };
        let index = known.names.iter().position(|known| *known == name);
        let index =
            index.ok_or_else(|| StrategyError::UnknownName { given: name.to_owned(), names: known.names })?;
        let mut given = Vec::new();
        if let Some(inside) = inside.filter(|inside| !inside.trim().is_empty()) {
            for argument in at_outer_commas(inside).ok_or_else(malformed)? {
                let (key, value) = argument.split_once('=').ok_or_else(malformed)?;
                given.push((key.trim(), value.trim()));
            }
        }
        Ok(Self { name: known.names[index], usage: known.usages[index], depth, given })
    }

    /// The one argument of the short form `name@K`.
    pub(super) fn short(
        name: &'static str,
        usage: &'static str,
        key: &'static str,
        value: &'a str,
        depth: usize,
    ) -> Self {
        Self { name, usage, depth, given: vec![(key, value)] }
    }

    /// The name before the parentheses.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The value given under this key, if any.
    pub(super) fn value(&mut self, key: &'static str) -> Result<Option<Value>, StrategyError> {
        let wanted = "a text of one byte or more, or 0x and an even number of hex digits";
        self.parsed(key, wanted, Value::parse)
    }

    /// The number of an access that is not the first.
    pub(super) fn later_access(&mut self, key: &'static str) -> Result<Option<AccessNumber>, StrategyError> {
        let later = |given: &str| given.parse().ok().and_then(AccessNumber::new).filter(|k| k.get() > 1);
        self.parsed(key, "the number of an access, from 2 on", later)
    }

    /// The number of an access.
    pub(super) fn access(&mut self, key: &'static str) -> Result<Option<AccessNumber>, StrategyError> {
        let access = |given: &str| given.parse().ok().and_then(AccessNumber::new);
        self.parsed(key, "the number of an access, from 1 on", access)
    }

    /// The number of a phase.
    pub(super) fn phase(&mut self, key: &'static str) -> Result<Option<Phase>, StrategyError> {
        let phase = |given: &str| given.parse().ok().and_then(Phase::new);
        self.parsed(key, "the number of a phase, from 1 on", phase)
    }

    /// A strategy of a process that joins.
    pub(super) fn strategy<S: Nested>(&mut self, key: &'static str) -> Result<Option<Box<S>>, StrategyError> {
        let Some(given) = self.take(key) else { return Ok(None) };
        let bad = |wanted| self.bad_argument(key, given, wanted);
        let depth = self.depth.checked_sub(1);
        let depth = depth.ok_or_else(|| bad("a strategy that is not so deep inside others"))?;
        let strategy = S::parse_within(given, depth)?;
        if strategy.conduct().joins() {
            Ok(Some(Box::new(strategy)))
        } else {
            Err(bad("a strategy that joins"))
        }
    }

    /// The argument given under this key, if any, as `parse` makes it.
    pub(super) fn parsed<T>(
        &mut self,
        key: &'static str,
        wanted: impl Into<String>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, StrategyError> {
        let Some(given) = self.take(key) else { return Ok(None) };
        parse(given).map(Some).ok_or_else(|| self.bad_argument(key, given, wanted))
    }

    /// The argument under this key, which must be given.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        argument: impl FnOnce(&mut Self, &'static str) -> Result<Option<T>, StrategyError>,
    ) -> Result<T, StrategyError> {
        let given = argument(self, key)?;
        self.present(key, given)
    }

    /// The argument under this key, which must be there.
    pub(super) fn present<T>(&self, key: &'static str, given: Option<T>) -> Result<T, StrategyError> {
        let (strategy, usage) = (self.name, self.usage);
        given.ok_or_else(|| match self.given.iter().find(|(given, _)| is_almost(given, key)) {
            Some((given, _)) => StrategyError::Misspelt { strategy, given: (*given).to_owned(), key },
            None => StrategyError::Missing { strategy, key, usage },
        })
    }

    /// Everything that was given must have been taken.
    pub(super) fn finish(self) -> Result<(), StrategyError> {
        match self.given.first() {
            None => Ok(()),
            Some((key, _)) => Err(StrategyError::UnknownKey {
                strategy: self.name,
                key: (*key).to_owned(),
                usage: self.usage,
            }),
        }
    }

    fn take(&mut self, key: &'static str) -> Option<&'a str> {
        let index = self.given.iter().position(|(given, _)| *given == key)?;
        Some(self.given.remove(index).1)
    }

    fn bad_argument(&self, key: &'static str, given: &str, wanted: impl Into<String>) -> StrategyError {
        let (strategy, given, wanted) = (self.name, given.to_owned(), wanted.into());
        StrategyError::BadArgument { strategy, key, given, wanted }
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

/// A value's text, or its hex digits where the text would not survive the grammar.
pub(super) fn value_text(value: &Value) -> String {
    let text = value.to_string();
    if text.trim() == text && !text.contains([',', '(', ')']) {
        return text;
    }
    value.as_bytes().iter().fold("0x".to_owned(), |hex, byte| hex + &format!("{byte:02x}"))
}
