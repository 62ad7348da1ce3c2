//! `config`: checks and shows settings.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::auth::CredentialStore;
use crate::settings::{Data, Settings, SettingsArgs, reference, show};

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check the settings that `serve` would start with, and the files and credentials that they name, and
    /// say what is wrong.
    Check(SettingsArgs),
    /// Print the settings that `serve` would start with, as a file, with where each comes from.
    Show(Box<Show>),
    /// Print the page with all settings, as in docs/operate/configuration.md.
    Reference,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// Every setting, those at their defaults too.
    #[arg(long)]
    effective: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

impl ConfigCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let text = match self {
            Self::Check(args) => {
                let effective = args.load()?;
                effective.check_files(true)?;
                // The place of the log is not checked here.
                let settings = Settings { data: Data::InMemory, ..effective.settings.clone() };
                let credentials = CredentialStore::of(&settings.into_config()?)?;
                let set = effective.given().count();
                let file = effective.file.as_ref().map(|file| format!("{}: ", file.display()));
                let warnings = credentials.map_or_else(Vec::new, |store| store.warnings());
                let warnings: String =
                    warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
                let (file, memory) = (file.unwrap_or_default(), &effective.memory);
                format!(
                    "{warnings}{file}good: {set} settings are not left at their defaults; memory is {memory}\n"
                )
            }
            Self::Show(args) => show(&args.settings.load()?, args.effective),
            Self::Reference => reference(),
        };
        let mut out = std::io::stdout();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}
