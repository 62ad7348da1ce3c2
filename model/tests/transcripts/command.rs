//! The commands of a script, as text.
//!
//! ```text
//! instance n=4 p=2 r=2 [patience=1s|none] [join_timeout=30s] [pace=0s] [pipeline=16] [seed=0]
//!          [order=ascending|descending|shuffled] [window=first_access|open] [append_rounds=N]
//!          [arbiter=first_come|uniform|priority:3,1]
//! hello PROCESS|all [incarnation=7]         append PROCESS VALUE [#2] [session=1] [no_wait]
//! decide PROCESS VALUE                      read PROCESS START [#2] [session=1] [no_wait]
//! offence PROCESS KIND                      tick    close    status    member PROCESS    restart 5s
//! wait 400ms (a timer fires at each deadline on the way)    pass 400ms (no timer fires)
//! ```

use std::time::Duration;

use stickycas_model::history::OffenceKind;
use stickycas_model::params::{AppendWindow, Arbiter, Order, ParamsSpec, Patience};
use stickycas_model::types::{ProcessId, Seed};

/// A command cut into words: the plain ones in order, the others by what they begin with.
pub(crate) struct Words<'a> {
    plain: Vec<&'a str>,
    named: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a str) -> Self {
        let (mut plain, mut named) = (Vec::new(), Vec::new());
        for word in line.split_whitespace() {
            match (word.split_once('='), word.strip_prefix('#')) {
                (Some(pair), _) => named.push(pair),
                (None, Some(number)) => named.push(("#", number)),
                (None, None) => plain.push(word),
            }
        }
        plain.reverse();
        Self { plain, named }
    }

    /// The next plain word.
    pub(crate) fn next(&mut self) -> Result<&'a str, String> {
        self.plain.pop().ok_or_else(|| "a word is missing".to_owned())
    }

    /// Whether the next plain word is this one; it is taken if so.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        self.plain.pop_if(|next| *next == word).is_some()
    }

    /// The value given under this name.
    pub(crate) fn take_named(&mut self, name: &str) -> Option<&'a str> {
        let index = self.named.iter().position(|(given, _)| *given == name)?;
        Some(self.named.remove(index).1)
    }

    /// A process by its number.
    pub(crate) fn process(&mut self) -> Result<ProcessId, String> {
        let word = self.next()?;
        ProcessId::new(number(word)?).ok_or_else(|| "processes count from 1".to_owned())
    }

    /// Nothing must be left over.
    pub(crate) fn end(self) -> Result<(), String> {
        match (self.plain.last(), self.named.first()) {
            (None, None) => Ok(()),
            (Some(word), _) => Err(format!("what is {word}?")),
            (None, Some((name, _))) => Err(format!("what is {name}=?")),
        }
    }
}

pub(crate) fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} is not a number in range"))
}

/// A duration such as `2s` or `400ms`.
pub(crate) fn duration(word: &str) -> Result<Duration, String> {
    let (digits, unit): (&str, fn(u64) -> Duration) = if let Some(digits) = word.strip_suffix("ms") {
        (digits, Duration::from_millis)
    } else if let Some(digits) = word.strip_suffix("ns") {
        (digits, Duration::from_nanos)
    } else if let Some(digits) = word.strip_suffix('s') {
        (digits, Duration::from_secs)
    } else {
        return Err(format!("{word} has no unit: s, ms or ns"));
    };
    Ok(unit(number(digits)?))
}

/// The parameters that an `instance` command gives.
pub(crate) fn instance(mut words: Words<'_>) -> Result<ParamsSpec, String> {
    let mut required = |name| number(words.take_named(name).ok_or_else(|| format!("{name}= is missing"))?);
    let mut spec = ParamsSpec::new(required("n")?, required("p")?, required("r")?);
    if let Some(word) = words.take_named("patience") {
        spec.patience = if word == "none" { Patience::Endless } else { Patience::Finite(duration(word)?) };
    }
    if let Some(word) = words.take_named("join_timeout") {
        spec.join_timeout = duration(word)?;
    }
    if let Some(word) = words.take_named("pace") {
        spec.pace = duration(word)?;
    }
    if let Some(word) = words.take_named("pipeline") {
        spec.pipeline = number(word)?;
    }
    if let Some(word) = words.take_named("seed") {
        spec.seed = Seed::new(number(word)?);
    }
    spec.order = match words.take_named("order") {
        None | Some("ascending") => Order::Ascending,
        Some("descending") => Order::Descending,
        Some("shuffled") => Order::Shuffled,
        Some(word) => return Err(format!("there is no order {word}")),
    };
    if let Some(word) = words.take_named("append_rounds") {
        spec.append_rounds = number(word)?;
    }
    spec.append_window = match words.take_named("window") {
        None | Some("first_access") => AppendWindow::FirstAccess,
        Some("open") => AppendWindow::Open,
        Some(word) => return Err(format!("there is no window {word}")),
    };
    spec.arbiter = match words.take_named("arbiter") {
        None | Some("first_come") => Arbiter::FirstCome,
        Some("uniform") => Arbiter::Uniform,
        Some(word) => {
            let order =
                word.strip_prefix("priority:").ok_or_else(|| format!("there is no arbiter {word}"))?;
            let process = |word| Words { plain: vec![word], named: Vec::new() }.process();
            Arbiter::Priority(order.split(',').map(process).collect::<Result<_, _>>()?)
        }
    };
    words.end()?;
    Ok(spec)
}

/// An offence by its name.
pub(crate) fn offence_kind(word: &str) -> Result<OffenceKind, String> {
    let found = OffenceKind::ALL.into_iter().find(|kind| kind.name() == word);
    found.ok_or_else(|| format!("there is no offence {word}"))
}
