//! The flags of all settings, made from the table.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::kind::Form;
use super::table::{self, Setting};
use super::{CONFIG_VARIABLE, Effective, Origin, SettingEntry, SettingsError};

/// The flags that were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingsArgs {
    /// The file of settings.
    pub(crate) config: Option<PathBuf>,
    /// Of a setting: the flag, and its values.
    given: Vec<(&'static Setting, String, Vec<String>)>,
}

impl SettingsArgs {
    /// The settings that these flags, the file and the environment of the process give together.
    pub(crate) fn load(&self) -> Result<Effective, SettingsError> {
        Effective::load(self, &|variable| std::env::var_os(variable))
    }

    /// The entries that the flags give, each with its mistake if it has one.
    pub(super) fn entries(&self) -> impl Iterator<Item = Result<SettingEntry, String>> {
        let given = self.given.iter().cloned();
        given.map(|(setting, flag, texts)| SettingEntry::new(setting, texts, Origin::Flag(flag)))
    }
}

const CONFIG: &str = "config";

/// The heading of the limits in helps.
pub(crate) const LIMITS_HEADING: &str = "Limits";

fn config_arg() -> Arg {
    let help = format!("File of settings, in TOML; flags and variables win over it [env: {CONFIG_VARIABLE}]");
    Arg::new(CONFIG).long(CONFIG).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
}

/// The flags of one setting. A help text has only the first sentence of its purpose, so that all of them fit
/// on two screens.
fn args(setting: &'static Setting) -> impl Iterator<Item = Arg> {
    let text = setting.text();
    let (first, _) = text.split_once(". ").unwrap_or((&text, ""));
    let default = match (setting.part_text(), setting.kind.form) {
        (Some(_), _) => " [default: a part of the memory]".to_owned(),
        (None, Form::Switch | Form::List(_)) => String::new(),
        (None, _) => match setting.default().trim_matches('"') {
            "off" => String::new(),
            default => format!(" [default: {default}]"),
        },
    };
    let off = setting.off_flag.map(|(flag, value)| format!(" [{value}: --{flag}]")).unwrap_or_default();
    let arg = Arg::new(setting.key)
        .long(setting.flag())
        .value_name(setting.kind.value_name)
        .help(format!("{}{default}{off}", first.trim_end_matches('.')))
        .help_heading(setting.is_limit().then_some(LIMITS_HEADING));
    let arg = match setting.kind.form {
        Form::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Form::List(_) => arg.action(ArgAction::Append),
        _ => arg,
    };
    let off = setting.off_flag.map(|(flag, _)| {
        Arg::new(flag).long(flag).action(ArgAction::SetTrue).conflicts_with(setting.key).hide(true)
    });
    [arg].into_iter().chain(off)
}

impl clap::Args for SettingsArgs {
    fn augment_args(command: Command) -> Command {
        let limits =
            Arg::new("help-limits").long("help-limits").action(ArgAction::Help).help("Print the limits");
        command.arg(config_arg()).args(table::all().flat_map(args)).arg(limits)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SettingsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Vec::new();
        for setting in table::all() {
            let texts = matches.get_many::<String>(setting.key).into_iter().flatten();
            let texts: Vec<String> = texts.flat_map(|text| setting.kind.split(text)).collect();
            if !texts.is_empty() {
                given.push((setting, setting.flag(), texts));
            }
            given.extend(
                setting
                    .off_flag
                    .filter(|(flag, _)| matches.get_flag(flag))
                    .map(|(flag, value)| (setting, flag.to_owned(), vec![value.to_owned()])),
            );
        }
        Ok(Self { config: matches.get_one(CONFIG).cloned(), given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
