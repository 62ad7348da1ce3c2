//! The settings of `serve`, from four layers: defaults, a file in TOML, the environment, flags. A later layer wins.
//!
//! One [`table`] says of each setting its key, its flag, its kind, its default and what it is for. Flags, names of
//! environment variables, help texts, `config show`, `docs/configuration.md` and the errors are all made from it.
//!
//! The `config` crate is not used: it keeps the name of the file that a value comes from but not the line, and so can
//! name neither the line of an unknown key nor that of a value that is wrong.

mod args;
mod check;
mod file;
mod kind;
mod limits;
#[cfg(test)]
mod limits_page;
mod setting;
mod show;
mod table;

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{
    Admission, AuthMode, ClusterConfig, Config, CredentialFolder, RELOAD_EVERY, TokenConfig,
};
use crate::limits::Limits;
use crate::logging::{LINES_PER_SECOND, LogOptions};
use crate::memory::Memory;

pub(crate) use args::SettingsArgs;
pub(crate) use file::PAGE_IS_ELSEWHERE;
pub(crate) use show::{reference, show};

use setting::Setting;

/// The environment variable that names the file.
pub(crate) const CONFIG_VARIABLE: &str = "STICKYCAS_CONFIG";

/// The settings of one server, each checked for itself.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    /// `None`: operators have no listener.
    pub(crate) http: Option<SocketAddr>,
    pub(crate) data: Data,
    /// The members of etcd; empty: the server belongs to no cluster.
    pub(crate) etcd: Vec<String>,
    pub(crate) etcd_credentials: Option<PathBuf>,
    /// In bytes.
    pub(crate) etcd_quota: u64,
    pub(crate) cluster: String,
    /// `None`: made of the address for clients.
    pub(crate) server_name: Option<String>,
    /// `None`: the address that it listens on.
    pub(crate) advertise: Option<String>,
    pub(crate) lease: Duration,
    pub(crate) shards: u32,
    pub(crate) http_hosts: Vec<String>,
    /// `None`: callers show no certificates.
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) trust_domain: String,
    pub(crate) allow_missing_revocation_list: bool,
    /// `None`: no tokens are taken.
    pub(crate) token_listen: Option<SocketAddr>,
    pub(crate) token_issuer: String,
    pub(crate) token_audience: String,
    pub(crate) insecure_principals: bool,
    pub(crate) insecure_allow_remote: bool,
    pub(crate) coordinators: Vec<String>,
    pub(crate) observers: Vec<String>,
    pub(crate) admins: Vec<String>,
    pub(crate) drain: Duration,
    /// `None`: one for each processor.
    pub(crate) workers: Option<u16>,
    /// In bytes. `None`: what the system tells.
    pub(crate) memory: Option<u64>,
    pub(crate) reflection: bool,
    pub(crate) log: LogOptions,
    /// `None`: traces go nowhere.
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) admission: Admission,
    pub(crate) limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            http: Some(SocketAddr::from(([127, 0, 0, 1], 7421))),
            http_hosts: Vec::new(),
            data: Data::Auto,
            etcd: Vec::new(),
            etcd_credentials: None,
            etcd_quota: 2 << 30,
            cluster: "stickycas".to_owned(),
            server_name: None,
            advertise: None,
            lease: Duration::from_secs(5),
            shards: 64,
            credentials: None,
            trust_domain: "stickycas".to_owned(),
            allow_missing_revocation_list: false,
            token_listen: None,
            token_issuer: "stickycas".to_owned(),
            token_audience: "stickycas".to_owned(),
            insecure_principals: false,
            insecure_allow_remote: false,
            coordinators: Vec::new(),
            observers: Vec::new(),
            admins: Vec::new(),
            drain: Duration::from_secs(5),
            workers: None,
            memory: None,
            reflection: true,
            log: LogOptions { filter: "info".to_owned(), json: false, lines_per_second: LINES_PER_SECOND },
            otlp_endpoint: None,
            admission: Admission::default(),
            limits: Limits::default(),
        }
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
            None => self.data.folder(&|variable| std::env::var_os(variable)),
        };
        let data = data.map_err(|why| SettingsError(vec![why]))?;
        debug_assert!(self.insecure_principals == self.credentials.is_none(), "checked with the whole");
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
}

impl Settings {
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

/// Where the log is kept.
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
    pub(crate) fn folder(&self, environment: Environment<'_>) -> Result<Option<PathBuf>, String> {
        match self {
            Self::Folder(folder) => Ok(Some(folder.clone())),
            Self::InMemory => Ok(None),
            Self::Auto => {
                let folder = |variable: &str| {
                    environment(variable).map(PathBuf::from).filter(|path| path.is_absolute())
                };
                // systemd gives several folders separated by colons; the first is ours.
                let state = environment("STATE_DIRECTORY").and_then(|paths| paths.into_string().ok());
                let state = state.and_then(|paths| paths.split(':').next().map(PathBuf::from));
                let state = state.filter(|path| path.is_absolute());
                let usual = || {
                    let state =
                        folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
                    Some(state?.join("stickycas"))
                };
                let found = state.or_else(usual).map(Some);
                found.ok_or_else(|| {
                    "there is no folder for the log: give one with --data DIR, or serve with --in-memory"
                        .to_owned()
                })
            }
        }
    }
}

/// Where a value comes from.
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

/// A value as it was given: text, or a list of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    One(String),
    Many(Vec<String>),
}

/// The settings, and where each comes from.
#[derive(Clone, Debug)]
pub(crate) struct Effective {
    pub(crate) settings: Settings,
    /// In the order of the table.
    origins: Vec<Origin>,
    /// What the defaults of the limits follow from.
    pub(crate) memory: Memory,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
}

/// What is wrong with the settings: every mistake that was found, each with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n       "))]
pub(crate) struct SettingsError(pub(crate) Vec<String>);

/// The environment: the value of a variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Effective {
    /// Puts the layers together and checks the whole.
    ///
    /// # Errors
    /// Every mistake in the file, the environment and the flags.
    pub(crate) fn load(args: &SettingsArgs, environment: Environment<'_>) -> Result<Self, SettingsError> {
        let mut effective = Self::defaults();
        let mut errors = Vec::new();
        let named = environment(CONFIG_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        effective.file = args.config.clone().or(named);
        if let Some(path) = effective.file.clone() {
            effective.read_file(&path, &mut errors);
        }
        for (index, setting) in table::all().enumerate() {
            let variable = setting.variable();
            // An empty variable is one that is not set, as compose files leave it.
            if let Some(text) = environment(&variable).filter(|text| !text.is_empty()) {
                match text.into_string() {
                    Ok(text) => {
                        let origin = Origin::Environment(variable);
                        errors.extend(effective.set(index, setting, &Given::One(text), origin).err());
                    }
                    Err(text) => errors.push(format!("environment {variable} = {text:?}: it is no UTF-8")),
                }
            }
        }
        for (index, setting) in table::all().enumerate() {
            if let Some((flag, given)) = args.get(setting) {
                errors.extend(effective.set(index, setting, given, Origin::Flag(flag.to_owned())).err());
            }
        }
        effective.follow_memory(effective.settings.memory.map_or_else(Memory::found, Memory::given));
        check::whole(&effective, &mut errors);
        if errors.is_empty() { Ok(effective) } else { Err(SettingsError(errors)) }
    }

    pub(crate) fn defaults() -> Self {
        let origins = table::all().map(|_| Origin::Default).collect();
        Self { settings: Settings::default(), origins, file: None, memory: Memory::found() }
    }

    /// The limits that were left at their defaults follow from this memory.
    fn follow_memory(&mut self, memory: Memory) {
        let defaults = Settings { limits: Limits::of(memory.bytes), ..Settings::default() };
        for (setting, origin) in table::all().zip(&self.origins) {
            if setting.part_text().is_some() && *origin == Origin::Default {
                let written = (setting.write)(&mut self.settings, (setting.read)(&defaults));
                debug_assert_eq!(written, Ok(()), "{}", setting.key);
            }
        }
        self.memory = memory;
    }

    fn read_file(&mut self, path: &Path, errors: &mut Vec<String>) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                errors.push(format!("cannot read the configuration {}: {error}", path.display()));
                return;
            }
        };
        self.read_text(path, &text, errors);
    }

    /// The settings of a file with this text.
    ///
    /// # Errors
    /// Every mistake in it.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn of_text(path: &Path, text: &str) -> Result<Self, SettingsError> {
        let (mut effective, mut errors) = (Self::defaults(), Vec::new());
        effective.read_text(path, text, &mut errors);
        effective.follow_memory(effective.settings.memory.map_or_else(Memory::found, Memory::given));
        check::whole(&effective, &mut errors);
        if errors.is_empty() { Ok(effective) } else { Err(SettingsError(errors)) }
    }

    fn read_text(&mut self, path: &Path, text: &str, errors: &mut Vec<String>) {
        let (entries, mut wrong) = file::read(path, text);
        for file::Entry { index, setting, given, line } in entries {
            let origin = Origin::File { path: path.to_owned(), line };
            wrong.extend(self.set(index, setting, &given, origin).err().map(|why| (line, why)));
        }
        // In the order in which they stand in the file.
        wrong.sort_by_key(|(line, _)| *line);
        errors.extend(wrong.into_iter().map(|(_, why)| why));
    }

    fn set(&mut self, index: usize, setting: &Setting, given: &Given, origin: Origin) -> Result<(), String> {
        let set = setting.kind.parse(given).and_then(|value| (setting.write)(&mut self.settings, value));
        set.map_err(|why| match &origin {
            Origin::Default => format!("{}: {why}", setting.key),
            Origin::File { .. } => format!("{origin}: {} = {given}: {why}", setting.key),
            Origin::Environment(variable) => format!("environment {variable} = {given}: {why}"),
            Origin::Flag(flag) => format!("--{flag} {given}: {why}"),
        })?;
        self.origins[index] = origin;
        Ok(())
    }

    /// Where the setting with this key comes from.
    pub(crate) fn origin(&self, key: &str) -> &Origin {
        let index = table::all().position(|setting| setting.key == key);
        &self.origins[index.expect("the key is one of the table")]
    }

    /// Every setting with its place of origin, in the order of the table.
    pub(crate) fn origins(&self) -> impl Iterator<Item = (&'static Setting, &Origin)> {
        table::all().zip(&self.origins)
    }
}

impl fmt::Display for Given {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(text) => write!(out, "{text:?}"),
            Self::Many(texts) => write!(out, "{texts:?}"),
        }
    }
}

#[cfg(test)]
mod tests;
