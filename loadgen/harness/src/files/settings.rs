//! Values that take the place of a file's, from elsewhere than the file: `--set KEY=VALUE`, another flag, or
//! a plan.
//!
//! They are written down as TOML and merged into the tables of the file before anything is checked. An error
//! in one of them names where it came from.

use std::fmt;

use stickycas_model::types::ProcessId;

use super::error::{Fault, SettingError};

/// Values that take the place of a file's. Of two for one key the later one holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<Setting>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Its name in errors.
    origin: String,
    pub(super) key: String,
    pub(super) edit: Edit,
    /// `key = value`, in one line, with its end.
    pub(super) line: String,
}

/// The effect of a setting on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// Its value takes the place of the key's.
    Put,
    /// Its values come behind those of the list that the key has.
    Extend,
    /// The key is taken out of the file.
    Remove,
}

/// The keys and tables that stand at the top of a file. Any other key without a dot is one of `[instance]`.
const OF_THE_FILE: [&str; 17] = [
    "name",
    "about",
    "seed",
    "expect",
    "late",
    "faulty",
    "faults",
    "fail_if",
    "budget",
    "network",
    "instance",
    "proposals",
    "load",
    "axes",
    "sweep",
    "steps",
    "expectations",
];

impl Settings {
    /// The settings of `--set`, given several times.
    ///
    /// # Errors
    /// The first that is no `KEY=VALUE`.
    pub fn from_flags(arguments: &[String]) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        for argument in arguments {
            settings.set("--set", argument)?;
        }
        Ok(settings)
    }

    /// Takes the argument of a flag: `KEY=VALUE`. A key without a dot is one of `[instance]`, unless it
    /// stands at the top of the file. The value is TOML, or a bare word that is taken as a text; if it is
    /// empty, the key is left as it is.
    ///
    /// # Errors
    /// It is no such argument.
    pub fn set(&mut self, flag: &str, argument: &str) -> Result<(), SettingError> {
        let origin = format!("{flag} {argument}");
        let Some((key, value)) = argument.split_once('=') else {
            let reason = "give KEY=VALUE, such as pace=250ms".to_owned();
            return Err(SettingError { origin, reason });
        };
        let (key, value) = (key.trim(), value.trim());
        if value.is_empty() {
            return Ok(());
        }
        let value = value.parse().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
        let at_the_top = key.contains('.') || OF_THE_FILE.contains(&key);
        let key = if at_the_top { key.to_owned() } else { format!("instance.{key}") };
        self.put(&origin, &key, &value);
        Ok(())
    }

    /// Whether a value takes the place of this key's.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|setting| setting.edit == Edit::Put && setting.key == key)
    }

    /// Lets what was set for one key be set for another one.
    pub fn rename(&mut self, from: &str, to: &str) {
        for setting in self.0.iter_mut().filter(|setting| setting.key == from) {
            let (_, value) = setting.line.split_once(" = ").unwrap_or_default();
            setting.line = format!("{} = {value}", quoted_path(to));
            setting.key = to.to_owned();
        }
    }

    /// Puts a value in the place of the key's.
    pub fn put(&mut self, origin: &str, key: &str, value: &toml::Value) {
        self.0.retain(|other| other.key != key);
        self.push(origin, key, Edit::Put, value);
    }

    /// Puts values behind those of the list that the key has.
    pub fn extend_list(&mut self, origin: &str, key: &str, values: Vec<toml::Value>) {
        self.push(origin, key, Edit::Extend, &toml::Value::Array(values));
    }

    /// Puts processes behind those that the key names.
    pub fn extend_processes(
        &mut self,
        origin: &str,
        key: &str,
        processes: impl IntoIterator<Item = ProcessId>,
    ) {
        let numbers = processes.into_iter().map(|process| i64::from(process.get()).into()).collect();
        self.extend_list(origin, key, numbers);
    }

    /// Takes a key out of the file.
    pub fn remove(&mut self, key: &str) {
        self.0.push(Setting {
            origin: String::new(),
            key: key.to_owned(),
            edit: Edit::Remove,
            line: String::new(),
        });
    }

    fn push(&mut self, origin: &str, key: &str, edit: Edit, value: &toml::Value) {
        let line = format!("{} = {value}\n", quoted_path(key));
        self.0.push(Setting { origin: origin.to_owned(), key: key.to_owned(), edit, line });
    }

    /// Takes over those of `later`.
    pub fn extend(&mut self, later: Self) {
        for new in later.0 {
            if new.edit == Edit::Put {
                self.0.retain(|other| other.key != new.key || other.edit != Edit::Put);
            }
            self.0.push(new);
        }
    }

    /// Each with its place, behind a text so many bytes long.
    pub(super) fn placed(&self, text_len: usize) -> impl Iterator<Item = (usize, &Setting)> {
        // Not at the very end of the text, where faults of the text itself may lie.
        let mut end = text_len + 1;
        self.0.iter().map(move |setting| {
            let place = end;
            end += setting.line.len();
            (place, setting)
        })
    }

    /// The fault as the error of one of these, if it is about one; `text_len` as for
    /// [`placed`](Self::placed).
    pub(super) fn blame(&self, text_len: usize, fault: &Fault) -> Option<SettingError> {
        let mut placed = self.placed(text_len);
        let about = |(place, setting): &(usize, &Setting)| {
            (*place..place + setting.line.len()).contains(&fault.span.start)
        };
        let (_, blamed) = placed.find(about)?;
        Some(SettingError { origin: blamed.origin.clone(), reason: fault.reason.clone() })
    }
}

/// A key with its tables, as TOML has it.
fn quoted_path(key: &str) -> String {
    let parts: Vec<String> = key.split('.').map(|part| quoted(part).to_string()).collect();
    parts.join(".")
}

/// A key as TOML has it.
fn quoted(key: &str) -> impl fmt::Display + '_ {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_bare = !key.is_empty() && key.bytes().all(bare);
    if is_bare { key.to_owned() } else { toml::Value::String(key.to_owned()).to_string() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stickycas_model::params::{self, Patience};

    use super::Settings;
    use crate::scenario::Scenario;

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
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let settings = Settings::from_flags(&settings).map_err(|error| error.to_string())?;
        Scenario::parse_with("six.toml", SCENARIO, None, &settings).map_err(|error| error.to_string())
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
    fn any_key_of_any_table_can_be_set() {
        let scenario =
            with(&["name=seven", "late=[6]", "proposals.distinct=2", "instance.pace=1ms"]).unwrap();
        assert_eq!((scenario.name.as_str(), scenario.truth.late().len()), ("seven", 1));
        assert_eq!(scenario.params.spec().pace, Duration::from_millis(1));
        let scenario = with(&["faults=[{ processes = [2], strategy = \"silent\" }]"]).unwrap();
        assert_eq!(scenario.truth.correct().count(), 5);
    }

    #[test]
    fn a_table_takes_the_place_of_a_table_and_a_file_may_be_long() {
        let settings = Settings::from_flags(&["proposals={ distinct = 2 }".to_owned()]).unwrap();
        let text = SCENARIO.replace("distinct = 1", "distinct = 1\nseed = 4");
        let long = format!("{}{text}", "# a comment\n".repeat(9_000));
        let scenario = Scenario::parse_with("six.toml", &long, None, &settings).unwrap();
        assert_eq!(
            scenario.truth.correct_proposals().into_iter().collect::<std::collections::BTreeSet<_>>().len(),
            2
        );
        let told = with(&["instance=1"]).unwrap_err();
        assert_eq!(told, "--set instance=1: the number 1 stands where a table is wanted");
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
        assert_eq!(refused(&["peace=1s"]), "--set peace=1s: there is no key peace: did you mean pace?");
        assert!(refused(&["a b=1"]).starts_with("--set a b=1: there is no key a b: give one of processes,"));
        assert_eq!(refused(&["pace=7"]), "--set pace=7: the number 7 stands where a text is wanted");
        assert_eq!(refused(&["name.first=b"]), "--set name.first=b: a table stands where a text is wanted");
        let told = refused(&["join_timeout=9s", "pace=soon", "seed=1"]);
        assert!(told.starts_with("--set pace=soon: pace = \"soon\": "), "{told}");
        let told = refused(&["seed=1", "warp_size=7"]);
        assert_eq!(told, "--set warp_size=7: warp size p = 7: give 1 to n = 6");
    }

    #[test]
    fn what_is_wrong_with_the_file_is_told_with_its_line() {
        let settings = Settings::from_flags(&["pace=1ms".to_owned()]).unwrap();
        let spoilt = SCENARIO.replace("distinct = 1", "distinct = 9");
        let told = Scenario::parse_with("six.toml", &spoilt, None, &settings).unwrap_err().to_string();
        assert!(told.starts_with("six.toml:8: "), "{told}");
        let cut = SCENARIO.split("[proposals]").next().unwrap();
        let told = Scenario::parse_with("six.toml", cut, None, &settings).unwrap_err().to_string();
        assert!(told.starts_with("six.toml:"), "{told}");
    }
}
