//! The flags of all settings, made from the table.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::kind::Kind;
use super::setting::Setting;
use super::table;
use super::{CONFIG_VARIABLE, Effective, Given, Settings, SettingsError};

/// The flags that were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingsArgs {
    /// The file of settings.
    pub(crate) config: Option<PathBuf>,
    /// By key: the flag, and its value.
    given: BTreeMap<&'static str, (String, Given)>,
}

impl SettingsArgs {
    /// The settings that these flags, the file and the environment of the process give together.
    pub(crate) fn load(&self) -> Result<Effective, SettingsError> {
        Effective::load(self, &|variable| std::env::var_os(variable))
    }

    /// A file and nothing else.
    #[cfg(test)]
    pub(super) fn of_file(path: impl Into<PathBuf>) -> Self {
        Self { config: Some(path.into()), ..Self::default() }
    }

    /// The flag and the value that were given for this setting.
    pub(super) fn get(&self, setting: &Setting) -> Option<(&str, &Given)> {
        self.given.get(setting.key).map(|(flag, given)| (flag.as_str(), given))
    }
}

const CONFIG: &str = "config";

fn config_arg() -> Arg {
    Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help(format!("File of settings, in TOML; flags and variables win over it [env: {CONFIG_VARIABLE}]"))
}

/// The flags of one setting.
fn args(setting: &'static Setting) -> impl Iterator<Item = Arg> {
    let default = (setting.read)(&Settings::default()).toml().replace('"', "");
    let note = match setting.kind {
        Kind::Switch | Kind::Names | Kind::Urls => format!(" [env: {}]", setting.variable()),
        _ => format!(" [default: {default}] [env: {}]", setting.variable()),
    };
    let text = setting.text();
    let (short, _) = text.split_once(". ").unwrap_or((&text, ""));
    let flag = setting.flag();
    let is_limit = setting.key.starts_with("limits.");
    let arg = Arg::new(setting.key)
        .long(flag)
        .value_name(setting.kind.value_name())
        .help(format!("{}{note}", short.trim_end_matches('.')))
        .long_help(format!("{text}{note}"))
        .help_heading(is_limit.then_some("Limits"))
        .hide_short_help(is_limit);
    let arg = match setting.kind {
        Kind::Switch => {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true").action(ArgAction::Set)
        }
        Kind::Names | Kind::Urls => arg.action(ArgAction::Append),
        _ => arg.action(ArgAction::Set),
    };
    let off = setting.off_flag.map(|(name, value)| {
        let help = format!("The same as --{} {value}", setting.flag());
        Arg::new(name).long(name).action(ArgAction::SetTrue).conflicts_with(setting.key).help(help)
    });
    [arg].into_iter().chain(off)
}

impl clap::Args for SettingsArgs {
    fn augment_args(command: Command) -> Command {
        command.arg(config_arg()).args(table::all().flat_map(args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SettingsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = BTreeMap::new();
        for setting in table::all() {
            let values: Vec<String> = matches.get_many(setting.key).into_iter().flatten().cloned().collect();
            if let Some(last) = values.last().cloned() {
                let value = match setting.kind {
                    Kind::Names | Kind::Urls => Given::One(values.join(",")),
                    _ => Given::One(last),
                };
                given.insert(setting.key, (setting.flag(), value));
            }
            if let Some((flag, value)) = setting.off_flag
                && matches.get_flag(flag)
            {
                given.insert(setting.key, (flag.to_owned(), Given::One(value.to_owned())));
            }
        }
        Ok(Self { config: matches.get_one(CONFIG).cloned(), given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
