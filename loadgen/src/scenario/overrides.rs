//! Values that take the place of a scenario's, from elsewhere than its file: `--set KEY=VALUE`, or a plan.
//!
//! They are written down as TOML and read as if they stood behind the text of the file, so that the place of a
//! fault tells whose it is. A value that is wrong in itself is refused when it is given; whether it goes with the
//! rest shows when the scenario is checked. Either way the error names where it came from.

use std::fmt;

use serde::Deserialize;
use stickycas_model::params::{AppendWindow, Order};
use stickycas_model::types::ProcessId;
use toml::Spanned;

use super::error::{Fault, OverrideError, read_toml};
use super::file::{Arbiter, File, Instance};

/// Values that take the place of a scenario's. Of two for one key the later one holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides(Vec<Override>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Override {
    /// What errors call it.
    origin: String,
    key: String,
    /// `key = value`, in one line, with its end.
    line: String,
}

impl Overrides {
    /// Takes the argument of a flag: `KEY=VALUE`, a key of `[instance]`. The value is TOML, or a bare word that
    /// is taken as a text; if it is empty, the key is left as it is.
    ///
    /// # Errors
    /// It is no such argument, there is no such key, or it takes no such value.
    pub fn set(&mut self, flag: &str, argument: &str) -> Result<(), OverrideError> {
        let origin = format!("{flag} {argument}");
        let Some((key, value)) = argument.split_once('=') else {
            let reason = "give KEY=VALUE, such as pace=250ms".to_owned();
            return Err(OverrideError { origin, reason });
        };
        let (key, value) = (key.trim(), value.trim());
        if value.is_empty() {
            return Ok(());
        }
        let value: toml::Value = value.parse().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
        let reason = |fault: Fault| OverrideError { origin: origin.clone(), reason: fault.reason };
        self.put(&origin, &format!("instance.{}", quoted(key)), &value).map_err(reason)
    }

    /// Takes a key of `[instance]`; `origin` is what errors call it.
    pub(crate) fn instance(&mut self, origin: &str, key: &str, value: &toml::Value) -> Result<(), Fault> {
        self.put(origin, &format!("instance.{}", quoted(key)), value)
    }

    /// Takes more correct processes that come late.
    pub(crate) fn late(&mut self, origin: &str, processes: impl IntoIterator<Item = ProcessId>) {
        self.processes(origin, "late", processes);
    }

    /// Takes more correct processes that are made faulty.
    pub(crate) fn faulty(&mut self, origin: &str, processes: impl IntoIterator<Item = ProcessId>) {
        self.processes(origin, "faulty", processes);
    }

    fn processes(&mut self, origin: &str, key: &str, processes: impl IntoIterator<Item = ProcessId>) {
        let numbers = processes.into_iter().map(|process| i64::from(process.get()).into()).collect();
        let put = self.put(origin, key, &toml::Value::Array(numbers));
        put.expect("a list of numbers is what the key takes");
    }

    fn put(&mut self, origin: &str, key: &str, value: &toml::Value) -> Result<(), Fault> {
        let line = format!("{key} = {value}\n");
        read_toml::<Given>(&line)?;
        self.0.retain(|other| other.key != key);
        self.0.push(Override { origin: origin.to_owned(), key: key.to_owned(), line });
        Ok(())
    }

    /// Takes over those of `later`.
    pub fn extend(&mut self, later: Self) {
        for new in later.0 {
            self.0.retain(|other| other.key != new.key);
            self.0.push(new);
        }
    }

    /// Puts them into what was read of a text so many bytes long.
    pub(super) fn apply(&self, file: &mut File, text_len: usize) -> Result<(), Fault> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut text = " ".repeat(behind(text_len));
        text.extend(self.0.iter().map(|given| given.line.as_str()));
        read_toml::<Given>(&text)?.put_into(file);
        Ok(())
    }

    /// The fault as the error of one of these, if it is about one; `text_len` as for [`apply`](Self::apply).
    pub(super) fn blame(&self, text_len: usize, fault: &Fault) -> Option<OverrideError> {
        let mut end = behind(text_len);
        let blamed = self.0.iter().find(|given| {
            let begin = end;
            end += given.line.len();
            (begin..end).contains(&fault.span.start)
        });
        blamed.map(|given| OverrideError { origin: given.origin.clone(), reason: fault.reason.clone() })
    }
}

/// Where they begin, behind a text so long: not at its very end, where faults of the text itself may lie.
const fn behind(text_len: usize) -> usize {
    text_len + 1
}

/// A key as TOML has it.
fn quoted(key: &str) -> impl fmt::Display + '_ {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_bare = !key.is_empty() && key.bytes().all(bare);
    if is_bare { key.to_owned() } else { toml::Value::String(key.to_owned()).to_string() }
}

/// Every key that there is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    #[serde(default)]
    late: Vec<Spanned<u32>>,
    #[serde(default)]
    faulty: Vec<Spanned<u32>>,
    #[serde(default)]
    instance: GivenInstance,
}

/// The keys of [`Instance`], none of them required.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenInstance {
    processes: Option<Spanned<u32>>,
    warp_size: Option<Spanned<u32>>,
    read_size: Option<Spanned<u32>>,
    order: Option<Order>,
    arbiter: Option<Spanned<Arbiter>>,
    append_window: Option<AppendWindow>,
    patience: Option<Spanned<String>>,
    join_timeout: Option<Spanned<String>>,
    pace: Option<Spanned<String>>,
    pipeline: Option<Spanned<u32>>,
    max_value_bytes: Option<Spanned<u32>>,
    seed: Option<Spanned<u64>>,
}

impl Given {
    fn put_into(self, file: &mut File) {
        file.late.extend(self.late);
        file.faulty.extend(self.faulty);
        let span = file.instance.span();
        let old = file.instance.get_ref().clone();
        let given = self.instance;
        let instance = Instance {
            processes: given.processes.unwrap_or(old.processes),
            warp_size: given.warp_size.unwrap_or(old.warp_size),
            read_size: given.read_size.unwrap_or(old.read_size),
            order: given.order.unwrap_or(old.order),
            arbiter: given.arbiter.or(old.arbiter),
            append_window: given.append_window.unwrap_or(old.append_window),
            patience: given.patience.or(old.patience),
            join_timeout: given.join_timeout.or(old.join_timeout),
            pace: given.pace.or(old.pace),
            pipeline: given.pipeline.or(old.pipeline),
            max_value_bytes: given.max_value_bytes.or(old.max_value_bytes),
            seed: given.seed.or(old.seed),
        };
        file.instance = Spanned::new(span, instance);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stickycas_model::params::{self, Patience};

    use crate::scenario::{Overrides, Scenario};

    const SCENARIO: &str = r#"name = "six"
[instance]
processes = 6
warp_size = 2
read_size = 3
pace = "1s"
[proposals]
distinct = 1
"#;

    fn with(settings: &[&str]) -> Result<Scenario, String> {
        let mut overrides = Overrides::default();
        for setting in settings {
            overrides.set("--set", setting).map_err(|error| error.to_string())?;
        }
        Scenario::parse_with("six.toml", SCENARIO, None, &overrides).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_toml_or_bare_words_and_the_last_one_holds() {
        let scenario = with(&[
            "pace=250ms",
            "join_timeout = 3s",
            "patience=none",
            "arbiter={ priority = [3, 1] }",
            "seed=7",
            "warp_size=1",
            "warp_size=3",
        ])
        .unwrap();
        let spec = scenario.params.spec();
        assert_eq!((spec.pace, spec.join_timeout), (Duration::from_millis(250), Duration::from_secs(3)));
        assert_eq!((spec.patience, spec.warp_size, scenario.seed), (Patience::Endless, 3, 7));
        assert!(matches!(&spec.arbiter, params::Arbiter::Priority(order) if order.len() == 2));
        assert_eq!(with(&["arbiter=uniform"]).unwrap().params.spec().arbiter, params::Arbiter::Uniform);
    }

    #[test]
    fn an_empty_value_leaves_the_key_as_it_is() {
        let scenario = with(&["pace=", "no_such_key="]).unwrap();
        assert_eq!(scenario.params.spec().pace, Duration::from_secs(1));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_flag() {
        let refused = |settings: &[&str]| with(settings).unwrap_err();
        assert_eq!(refused(&["pace"]), "--set pace: give KEY=VALUE, such as pace=250ms");
        let told = refused(&["peace=1s"]);
        assert!(
            told.starts_with("--set peace=1s: unknown field `peace`, expected one of `processes`"),
            "{told}"
        );
        let told = refused(&["a b=1"]);
        assert!(told.starts_with("--set a b=1: unknown field `a b`"), "{told}");
        let told = refused(&["pace=7"]);
        assert_eq!(told, "--set pace=7: invalid type: integer `7`, expected a string");
        let told = refused(&["join_timeout=9s", "pace=soon", "seed=1"]);
        assert!(told.starts_with("--set pace=soon: pace = \"soon\": "), "{told}");
        let told = refused(&["seed=1", "warp_size=7"]);
        assert_eq!(told, "--set warp_size=7: warp size p = 7: give 1 to n = 6");
    }

    #[test]
    fn what_is_wrong_with_the_file_is_told_with_its_line() {
        let mut overrides = Overrides::default();
        overrides.set("--set", "pace=1ms").unwrap();
        let spoilt = SCENARIO.replace("distinct = 1", "distinct = 9");
        let told = Scenario::parse_with("six.toml", &spoilt, None, &overrides).unwrap_err().to_string();
        assert!(told.starts_with("six.toml:8: "), "{told}");
        let cut = SCENARIO.split("[proposals]").next().unwrap();
        let told = Scenario::parse_with("six.toml", cut, None, &overrides).unwrap_err().to_string();
        assert!(told.starts_with("six.toml:"), "{told}");
    }
}
