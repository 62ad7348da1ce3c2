//! The settings of `serve`, from four layers: defaults, a file in TOML, the environment, flags. A later layer
//! wins.
//!
//! One [`table`] has the key, type, default, kind and purpose of each setting. Flags, names of environment
//! variables, help texts, `config show`, `docs/operate/configuration.md` and the errors are all made from it.
//! Each layer is read into [`SettingEntry`]s, each with its origin, and they are written over the defaults in
//! turn.
//!
//! The `config` crate is not used: it drops the lines that the parser of TOML tells, so that a value has no
//! origin but the name of its file, an unknown key has no line, and only the first mistake is told.

mod args;
#[cfg(test)]
mod bounds_page;
mod check;
mod file;
mod kind;
mod show;
mod table;

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use crate::config::{AuthMode, ClusterConfig, Config, CredentialFolder, RELOAD_EVERY, TokenConfig};
use crate::limits::Limits;
use crate::memory::Memory;

pub(crate) use args::{LIMITS_HEADING, SettingsArgs};
pub(crate) use show::{reference, show};
pub(crate) use table::{Setting, Settings, removed};

/// The environment variable that names the file.
pub(crate) const CONFIG_VARIABLE: &str = "STICKYCAS_CONFIG";

impl Default for Settings {
    fn default() -> Self {
        Self::with(Limits::default())
    }
}

impl Settings {
    /// The configuration of the server. The settings have passed all checks.
    ///
    /// # Errors
    /// If there is no folder for the log.
    pub(crate) fn into_config(self) -> Result<Config, SettingsError> {
        let cluster = self.cluster_config();
        let data = match &cluster {
            Some(_) => Ok(None),
            None => self.data.folder(),
        };
        let data = data.map_err(|why| SettingsError(vec![why]))?;
        let auth_mode = match self.credentials {
            Some(path) => AuthMode::Certificates(CredentialFolder {
                path,
                trust_domain: self.trust_domain,
                allow_missing_revocation_list: self.allow_missing_revocation_list,
            }),
            None => AuthMode::InsecurePrincipals,
        };
        Ok(Config {
            auth_mode,
            coordinators: self.coordinators.into_iter().collect(),
            observers: self.observers.into_iter().collect(),
            admins: self.admins.into_iter().collect(),
            tokens: self
                .token_listen
                .map(|_| TokenConfig { issuer: self.token_issuer, audience: self.token_audience }),
            reload_every: RELOAD_EVERY,
            limits: self.limits,
            admission: self.admission,
            data,
            cluster,
            drain: self.drain,
            http_hosts: self.http_hosts,
            reflection: self.reflection,
        })
    }

    /// The cluster that the server belongs to, if it does.
    fn cluster_config(&self) -> Option<ClusterConfig> {
        if self.etcd.is_empty() {
            return None;
        }
        let advertise = self.advertise.clone().unwrap_or_else(|| self.listen.to_string());
        let name = || advertise.to_lowercase().replace([':', '[', ']'], "-").trim_matches('-').to_owned();
        Some(ClusterConfig {
            etcd: self.etcd.clone(),
            etcd_credentials: self.etcd_credentials.clone(),
            etcd_quota: self.etcd_quota,
            name: self.cluster.clone(),
            server: self.server_name.clone().unwrap_or_else(name),
            advertise,
            lease: self.lease,
            shards: self.shards,
        })
    }
}

/// The place of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// In the usual folder.
    Auto,
    /// Nowhere.
    InMemory,
    /// In this folder.
    Folder(PathBuf),
}

impl Data {
    /// The folder; `None`: everything is kept in memory.
    ///
    /// # Errors
    /// If there is no usual folder.
    pub(crate) fn folder(&self) -> Result<Option<PathBuf>, String> {
        match self {
            Self::Folder(folder) => Ok(Some(folder.clone())),
            Self::InMemory => Ok(None),
            Self::Auto => {
                let folder =
                    |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
                // systemd gives several folders separated by colons; the first is ours.
                let of_systemd = env::var_os("STATE_DIRECTORY");
                let of_systemd = of_systemd.and_then(|paths| env::split_paths(&paths).next());
                let state =
                    || folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
                let found = of_systemd
                    .filter(|path| path.is_absolute())
                    .or_else(|| state().map(|state| state.join("stickycas")));
                found.map(Some).ok_or_else(|| {
                    "there is no folder for the log: give one with --data DIR, or serve with --in-memory"
                        .to_owned()
                })
            }
        }
    }
}

impl From<&str> for Data {
    fn from(text: &str) -> Self {
        match text {
            "auto" => Self::Auto,
            "off" => Self::InMemory,
            folder => Self::Folder(folder.into()),
        }
    }
}

impl fmt::Display for Data {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => out.write_str("auto"),
            Self::InMemory => out.write_str("off"),
            Self::Folder(folder) => folder.display().fmt(out),
        }
    }
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Environment(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(out, "default"),
            Self::File { path, line } => write!(out, "{}:{line}", path.display()),
            Self::Environment(variable) => write!(out, "environment {variable}"),
            Self::Flag(flag) => write!(out, "flag --{flag}"),
        }
    }
}

/// A setting that a layer gives.
#[derive(Clone, Debug)]
struct SettingEntry {
    setting: &'static Setting,
    /// The value as it was given; only a list has other than one text.
    texts: Vec<String>,
    origin: Origin,
}

impl SettingEntry {
    /// # Errors
    /// If the setting cannot have this value: the mistake and its place.
    fn new(setting: &'static Setting, texts: Vec<String>, origin: Origin) -> Result<Self, String> {
        let entry = Self { setting, texts, origin };
        entry.write(&mut Settings::with(Limits::of(0))).map_err(|why| {
            let given = if let [text] = &entry.texts[..] {
                format!("{text:?}")
            } else {
                format!("{:?}", entry.texts)
            };
            match &entry.origin {
                Origin::Flag(flag) => format!("--{flag} {given}: {why}"),
                Origin::File { .. } => format!("{}: {} = {given}: {why}", entry.origin, setting.key),
                origin => format!("{origin} = {given}: {why}"),
            }
        })?;
        Ok(entry)
    }

    fn write(&self, settings: &mut Settings) -> Result<(), String> {
        (self.setting.write)(settings, &self.texts)
    }
}

/// The settings, and the origin of each.
#[derive(Clone, Debug)]
pub(crate) struct Effective {
    pub(crate) settings: Settings,
    /// In the order in which they were written.
    entries: Vec<SettingEntry>,
    /// The memory from which the defaults of the limits follow.
    pub(crate) memory: Memory,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
}

/// Every mistake that was found in the settings, each with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n       "))]
pub(crate) struct SettingsError(pub(crate) Vec<String>);

impl SettingsError {
    fn of(errors: Vec<String>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self(errors)) }
    }
}

/// The environment: the value of a variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Effective {
    /// Puts the layers together and checks the whole.
    ///
    /// # Errors
    /// Every mistake in the file, the environment and the flags.
    pub(crate) fn load(args: &SettingsArgs, environment: Environment<'_>) -> Result<Self, SettingsError> {
        // An empty variable is one that is not set, as compose files leave it.
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        let file = args.config.clone().or_else(|| variable(CONFIG_VARIABLE).map(PathBuf::from));
        let mut read = match file.as_deref().map(|path| (path, std::fs::read_to_string(path))) {
            None => Vec::new(),
            Some((path, Ok(text))) => file::read(path, &text),
            Some((path, Err(error))) => {
                vec![Err(format!("cannot read the configuration {}: {error}", path.display()))]
            }
        };
        for setting in table::all() {
            let name = setting.variable();
            read.extend(variable(&name).map(|text| match text.into_string() {
                Ok(text) => SettingEntry::new(setting, setting.kind.split(&text), Origin::Environment(name)),
                Err(text) => Err(format!("environment {name} = {text:?}: it is no UTF-8")),
            }));
        }
        read.extend(args.entries());
        Self::of(file, read)
    }

    pub(crate) fn defaults() -> Self {
        Self { settings: Settings::default(), entries: Vec::new(), file: None, memory: Memory::found() }
    }

    /// The settings of a file with this text.
    ///
    /// # Errors
    /// Every mistake in it.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn of_text(path: &std::path::Path, text: &str) -> Result<Self, SettingsError> {
        Self::of(Some(path.to_owned()), file::read(path, text))
    }

    /// The settings of the entries that were read from the layers, in their order, checked as a whole.
    fn of(file: Option<PathBuf>, read: Vec<Result<SettingEntry, String>>) -> Result<Self, SettingsError> {
        let mut effective = Self { file, ..Self::defaults() };
        let mut errors = Vec::new();
        for entry in read {
            entry.map_or_else(|error| errors.push(error), |entry| effective.entries.push(entry));
        }
        effective.settings = effective.with_memory(effective.memory.bytes);
        effective.memory = effective.settings.memory.map_or(effective.memory, Memory::given);
        effective.settings = effective.with_memory(effective.memory.bytes);
        check::whole(&effective, &mut errors);
        SettingsError::of(errors).map(|()| effective)
    }

    /// The settings of the entries, with the defaults of the limits for so much memory.
    fn with_memory(&self, bytes: u64) -> Settings {
        let mut settings = Settings::with(Limits::of(bytes));
        for entry in &self.entries {
            entry.write(&mut settings).expect("the entry was checked when it was made");
        }
        settings.limits.fit_connections();
        settings
    }

    /// The origin of the setting with this key.
    pub(crate) fn origin(&self, key: &str) -> &Origin {
        debug_assert!(table::find(key).is_some(), "{key} is no key of the table");
        let last = self.entries.iter().rev().find(|entry| entry.setting.key == key);
        last.map_or(&Origin::Default, |entry| &entry.origin)
    }

    /// A key and the origin of its value, for errors.
    fn at(&self, key: &str) -> String {
        format!("{key} ({})", self.origin(key))
    }

    /// The settings that are not left at their defaults, each with its place of origin, in the order of the
    /// table.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static Setting, &Origin)> {
        let origins = table::all().map(|setting| (setting, self.origin(setting.key)));
        origins.filter(|(_, origin)| **origin != Origin::Default)
    }
}

#[cfg(test)]
mod tests;
