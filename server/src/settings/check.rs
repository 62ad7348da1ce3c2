//! The conditions on the settings as a whole.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::kind::size_text;
use super::{Effective, Origin, Settings, SettingsError};
use crate::limits::MIB;
use crate::memory::LEAST;

/// Adds the mistakes in the settings as a whole.
pub(super) fn whole(effective: &Effective, errors: &mut Vec<String>) {
    check_callers(effective, errors);
    check_listeners(effective, errors);
    if !effective.settings.etcd.is_empty() {
        check_cluster(effective, errors);
    }
    check_memory(effective, errors);
}

/// A function that adds a mistake if its condition holds.
fn refuse(errors: &mut Vec<String>) -> impl FnMut(bool, String) {
    |is_wrong, why| errors.extend(is_wrong.then_some(why))
}

/// The identification of callers, and the features of this build.
fn check_callers(effective: &Effective, errors: &mut Vec<String>) {
    let settings = &effective.settings;
    let (listen, certified) = (settings.listen, settings.credentials.is_some());
    let at = |key| effective.at(key);
    let mut refuse = refuse(errors);
    refuse(
        !certified && !settings.insecure_principals,
        "callers cannot be identified: give --credentials DIR (stickycas-server credentials makes one for \
         development), or add --insecure-principals, with which any caller can name any principal"
            .to_owned(),
    );
    refuse(
        certified && settings.insecure_principals,
        format!("{} and {} exclude each other: leave one out", at("credentials"), at("insecure_principals")),
    );
    refuse(
        settings.insecure_principals && !listen.ip().is_loopback() && !settings.insecure_allow_remote,
        format!(
            "{listen} can be reached from other machines, and any caller can name any principal: listen on a loopback \
             address, or add --insecure-allow-remote"
        ),
    );
    refuse(
        settings.token_listen.is_some() && !certified,
        format!("{}: tokens are taken by TLS only: give --credentials DIR too", at("token_listen")),
    );
    refuse(
        settings.otlp_endpoint.is_some() && !cfg!(feature = "otlp"),
        format!("{}: this build has no traces, build it with --features otlp", at("otlp_endpoint")),
    );
}

/// The addresses, and the connections of one client.
fn check_listeners(effective: &Effective, errors: &mut Vec<String>) {
    let settings = &effective.settings;
    let listen = settings.listen;
    let mut refuse = refuse(errors);
    if let Some(tokens) = settings.token_listen.filter(|it| it.port() != 0) {
        refuse(
            tokens == listen || Some(tokens) == settings.http,
            format!("{tokens} is the address of a listener for tokens and of another: give a free one"),
        );
    }
    refuse(
        settings.http == Some(listen) && listen.port() != 0,
        format!("{listen} is the address of clients and of operators: give them different ones"),
    );
    let limits = &settings.limits;
    let (key, most) = ("limits.unclaimed_connections_per_address", limits.unclaimed_connections);
    let given = limits.unclaimed_connections_per_address;
    refuse(
        // A default above it is only without effect.
        given > most && *effective.origin(key) != Origin::Default,
        format!("{} is {given}, above unclaimed_connections: give {most} at most", effective.at(key)),
    );
}

/// A server of a cluster.
fn check_cluster(effective: &Effective, errors: &mut Vec<String>) {
    let settings = &effective.settings;
    let (etcd, listen, advertised) = (effective.at("etcd"), settings.listen, settings.advertise.is_some());
    let mut refuse = refuse(errors);
    refuse(
        !cfg!(feature = "cluster"),
        format!("{etcd}: this build belongs to no cluster, build it with --features cluster"),
    );
    refuse(
        *effective.origin("data") != Origin::Default,
        format!(
            "{etcd} and {} exclude each other: the logs of a cluster are in etcd alone",
            effective.at("data")
        ),
    );
    refuse(
        !advertised && listen.ip().is_unspecified(),
        format!(
            "{etcd}: {listen} is every address of the machine, and clients are told one: give --advertise HOST:PORT"
        ),
    );
    refuse(
        !advertised && listen.port() == 0,
        format!(
            "{etcd}: port 0 takes a free port, and clients are told one: give --listen or --advertise a port"
        ),
    );
}

/// The bounds of memory come to no more than there is.
fn check_memory(effective: &Effective, errors: &mut Vec<String>) {
    let memory = &effective.memory;
    let fits =
        |memory| memory >= LEAST && effective.with_memory(memory).limits.bytes_of_all(memory) <= memory;
    if fits(memory.bytes) {
        return;
    }
    // The least memory that is enough: the defaults that follow from the memory grow more slowly than it.
    let (mut less, mut enough) = (memory.bytes / MIB, 1 << 40);
    while less + 1 < enough {
        let middle = less.midpoint(enough);
        if fits(middle * MIB) { enough = middle } else { less = middle }
    }
    let lower = match effective.origin("limits.connections") {
        Origin::Default => String::new(),
        origin => format!(", or lower connections ({origin})"),
    };
    errors.push(format!(
        "{} is {:?}, {}, and the limits may take more: {:?} is the least that does: give --memory as \
         much if the server may use it{lower}",
        effective.at("memory"),
        size_text(memory.bytes / MIB * MIB),
        memory.source,
        size_text(enough * MIB),
    ));
}

impl Effective {
    /// Looks at the files that the settings name: whether they are there, and can be read. `data`: also at
    /// the folder of the log, which a server makes if it is not there.
    ///
    /// # Errors
    /// Every folder that cannot be used.
    pub(crate) fn check_files(&self, data: bool) -> Result<(), SettingsError> {
        let Settings { credentials, etcd_credentials, .. } = &self.settings;
        let of_credentials = self.unusable("credentials", credentials.as_deref(), false);
        let of_etcd = self.unusable("etcd_credentials", etcd_credentials.as_deref(), false);
        let of_etcd =
            of_etcd.or_else(|| self.check_etcd().err().map(|(key, why)| format!("{}: {why}", self.at(key))));
        let log = self.settings.data.folder().ok().flatten();
        let log = log.filter(|_| data && self.settings.etcd.is_empty());
        let of_log = self.unusable("data", log.as_deref(), true);
        SettingsError::of([of_credentials, of_etcd, of_log].into_iter().flatten().collect())
    }

    /// The mistake in a folder. `is_made`: it may be missing, since the server makes it.
    fn unusable(&self, key: &str, folder: Option<&Path>, is_made: bool) -> Option<String> {
        let folder = folder?;
        let error = fs::read_dir(folder).err().filter(|it| !is_made || it.kind() != ErrorKind::NotFound)?;
        Some(format!("{}: {}: {error}", self.at(key), folder.display()))
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
