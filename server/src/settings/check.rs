//! What settings must fulfil together.

use std::fs;
use std::io;
use std::path::Path;

use super::kind::Value;
use super::{Effective, Origin, SettingsError};
use crate::limits::{Limits, MIB};
use crate::memory::{LEAST, Memory};

/// Adds what is wrong with the whole.
pub(super) fn whole(effective: &Effective, errors: &mut Vec<String>) {
    let settings = &effective.settings;
    match (&settings.credentials, settings.insecure_principals) {
        (None, false) => errors.push(
            "callers cannot be identified: give --credentials DIR (stickycas-server credentials makes one for \
             development), or add --insecure-principals, with which any caller can name any principal"
                .to_owned(),
        ),
        (Some(_), true) => errors.push(format!(
            "credentials ({}) and insecure_principals ({}) exclude each other: leave one out",
            effective.origin("credentials"),
            effective.origin("insecure_principals")
        )),
        _ => {}
    }
    if settings.insecure_principals && !settings.listen.ip().is_loopback() && !settings.insecure_allow_remote
    {
        errors.push(format!(
            "{} can be reached from other machines, and any caller can name any principal: listen on a loopback \
             address, or add --insecure-allow-remote",
            settings.listen
        ));
    }
    if settings.token_listen.is_some() && settings.credentials.is_none() {
        errors.push(format!(
            "token_listen ({}): tokens are taken by TLS only: give --credentials DIR too",
            effective.origin("token_listen")
        ));
    }
    if let Some(tokens) = settings.token_listen
        && tokens.port() != 0
        && (tokens == settings.listen || Some(tokens) == settings.http)
    {
        errors.push(format!(
            "{tokens} is the address of a listener for tokens and of another: give a free one"
        ));
    }
    if let Some(http) = settings.http
        && http == settings.listen
        && http.port() != 0
    {
        errors.push(format!("{http} is the address of clients and of operators: give them different ones"));
    }
    if settings.otlp_endpoint.is_some() && !cfg!(feature = "otlp") {
        let origin = effective.origin("otlp_endpoint");
        errors.push(format!(
            "otlp_endpoint ({origin}): this build has no traces, build it with --features otlp"
        ));
    }
    if !settings.etcd.is_empty() {
        check_cluster(effective, errors);
    }
    for (smaller, larger) in NOT_ABOVE {
        check_order(effective, smaller, larger, errors);
    }
    check_memory(effective, errors);
}

/// The bounds of memory come to no more than there is.
fn check_memory(effective: &Effective, errors: &mut Vec<String>) {
    let (memory, origin) = (&effective.memory, effective.origin("memory"));
    let needed = |memory: u64| {
        let mut with = effective.clone();
        with.follow_memory(Memory::given(memory));
        with.settings.limits.bytes_of_all(memory)
    };
    let fits = |memory: u64| memory >= LEAST && needed(memory) <= memory;
    if fits(memory.bytes) {
        return;
    }
    // The least that does: what follows from the memory grows more slowly than the memory.
    let (mut less, mut enough) = (memory.bytes / MIB, 1 << 40);
    while less + 1 < enough {
        let middle = less.midpoint(enough);
        if fits(middle * MIB) { enough = middle } else { less = middle }
    }
    let given = Limits::IN_MEMORY
        .iter()
        .filter(|name| *effective.origin(&format!("limits.{name}")) != Origin::Default);
    let given: Vec<String> =
        given.map(|name| format!("{name} ({})", effective.origin(&format!("limits.{name}")))).collect();
    let lower = if given.is_empty() { String::new() } else { format!(", or lower {}", given.join(", ")) };
    let (bytes, least) = (Value::Size(memory.bytes / MIB * MIB).toml(), Value::Size(enough * MIB).toml());
    errors.push(format!(
        "memory ({origin}) is {bytes}, {}, and the limits may take more: {least} is the least that does: give --memory as \
         much if the server may use it{lower}",
        memory.source
    ));
}

impl Effective {
    /// Looks at the files that the settings name: whether they are there, and can be read.
    ///
    /// # Errors
    /// Every folder that cannot be used.
    pub(crate) fn check_files(&self) -> Result<(), SettingsError> {
        let mut errors = Vec::new();
        let mut wrong = |key, why: String| errors.push(format!("{key} ({}): {why}", self.origin(key)));
        if let Some(folder) = &self.settings.credentials
            && let Err(error) = fs::read_dir(folder)
        {
            wrong("credentials", format!("{}: {error}", folder.display()));
        }
        if let Some(folder) = &self.settings.etcd_credentials
            && let Err(error) = fs::read_dir(folder)
        {
            wrong("etcd_credentials", format!("{}: {error}", folder.display()));
        } else if let Err((key, why)) = self.check_etcd() {
            wrong(key, why);
        }
        if errors.is_empty() { Ok(()) } else { Err(SettingsError(errors)) }
    }

    /// As [`Self::check_files`], and the folder of the log, which a server makes if it is not there.
    ///
    /// # Errors
    /// Every folder that cannot be used.
    pub(crate) fn check_all_files(&self) -> Result<(), SettingsError> {
        let mut errors = self.check_files().err().map_or_else(Vec::new, |SettingsError(errors)| errors);
        let folder = self.settings.data.folder(&|variable| std::env::var_os(variable)).ok().flatten();
        if let Some(folder) = folder.filter(|_| self.settings.etcd.is_empty())
            && let Err(error) = check_can_be_made(&folder)
        {
            errors.push(format!("data ({}): {}: {error}", self.origin("data"), folder.display()));
        }
        if errors.is_empty() { Ok(()) } else { Err(SettingsError(errors)) }
    }

    #[cfg(feature = "cluster")]
    fn check_etcd(&self) -> Result<(), (&'static str, String)> {
        use stickycas_cluster::etcd::{Config, ConfigError};
        let settings = &self.settings;
        if settings.etcd.is_empty() {
            return Ok(());
        }
        let config = Config::new(settings.etcd.clone()).with_lease(settings.lease);
        let config = match &settings.etcd_credentials {
            Some(folder) => config.with_folder(folder),
            None => Ok(config),
        };
        config.and_then(|config| config.verify()).map_err(|error| {
            let key = if let ConfigError::Endpoint { .. } = error { "etcd" } else { "etcd_credentials" };
            (key, error.to_string())
        })
    }

    #[cfg(not(feature = "cluster"))]
    fn check_etcd(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }
}

/// Whether a folder can be read, or if it is not there, what it would be made in is a folder.
fn check_can_be_made(folder: &Path) -> io::Result<()> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above =
                folder.ancestors().skip(1).find(|above| above.as_os_str().is_empty() || above.exists());
            match above {
                Some(above) if !above.as_os_str().is_empty() && !above.is_dir() => Err(io::Error::new(
                    io::ErrorKind::NotADirectory,
                    format!("{} is no folder", above.display()),
                )),
                _ => Ok(()),
            }
        }
        read => read.map(drop),
    }
}

/// A server of a cluster.
fn check_cluster(effective: &Effective, errors: &mut Vec<String>) {
    let (settings, origin) = (&effective.settings, effective.origin("etcd"));
    if !cfg!(feature = "cluster") {
        errors.push(format!(
            "etcd ({origin}): this build belongs to no cluster, build it with --features cluster"
        ));
    }
    if *effective.origin("data") != Origin::Default {
        errors.push(format!(
            "etcd ({origin}) and data ({}) exclude each other: the logs of a cluster are in etcd alone",
            effective.origin("data")
        ));
    }
    if settings.advertise.is_none() && settings.listen.ip().is_unspecified() {
        errors.push(format!(
            "etcd ({origin}): {} is every address of the machine, and clients are told one: give --advertise HOST:PORT",
            settings.listen
        ));
    }
    if settings.advertise.is_none() && settings.listen.port() == 0 {
        errors.push(format!(
            "etcd ({origin}): port 0 takes a free port, and clients are told one: give --listen or --advertise a port"
        ));
    }
}

/// Limits that must not be above others.
const NOT_ABOVE: [(&str, &str); 5] = [
    ("limits.unread_frames_to_pause", "limits.unread_frames"),
    ("limits.unclaimed_connections", "limits.connections"),
    ("limits.unclaimed_connections_per_address", "limits.unclaimed_connections"),
    ("limits.stream_window_bytes", "limits.connection_window_bytes"),
    ("limits.call_bytes", "limits.message_bytes"),
];

fn check_order(effective: &Effective, smaller: &str, larger: &str, errors: &mut Vec<String>) {
    let value = |key: &str| {
        let (_, setting) = super::table::find(key)?;
        match (setting.read)(&effective.settings) {
            Value::Number(number) | Value::Size(number) => Some(number),
            _ => None,
        }
    };
    // What was only left at its default is not what is wrong.
    let given = |key| *effective.origin(key) != Origin::Default;
    if value(smaller) > value(larger) {
        let (wrong, other) = if given(smaller) { (smaller, larger) } else { (larger, smaller) };
        let how = if given(smaller) { "above" } else { "below" };
        errors.push(format!(
            "{wrong} ({}) is {how} {other}: {smaller} is at most {larger}",
            effective.origin(wrong)
        ));
    }
}
