//! How etcd is reached: addresses, keys, a user, time limits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs};

use stickycas_certificates::FileError;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tonic::transport::{Certificate, ClientTlsConfig};

/// The longest time for a request of a server with a lease.
const LONGEST_REQUEST: Duration = Duration::from_secs(2);
/// The part of a lease that a request may take at most. A keep-alive takes a third of a lease at most, and is
/// sent a third after the last one: if the member is silent, it has failed at two thirds of the lease, and
/// the next one goes to another member in time.
const REQUEST_PART: u32 = 4;
/// The shortest lease that etcd grants.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// How etcd is reached. Files are read when the client is made, and again for each new connection and each
/// new token.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses of the members for their clients: `https://HOST:PORT` or `http://HOST:PORT`. One is
    /// asked as long as it answers, then the next one.
    pub endpoints: Vec<String>,
    /// The index of the endpoint that is asked first; `None`: it is drawn at random, so that clients spread.
    pub first: Option<usize>,
    /// Keys for `https`; all endpoints are `https` with it, and none is without it.
    pub tls: Option<Tls>,
    /// The user, where etcd wants one. Without TLS its password can be read on the way.
    pub user: Option<User>,
    /// The folder that keys and user are from: [`Config::with_folder`].
    pub folder: Option<PathBuf>,
    /// The time for a request and its answer, a new connection and a new token included.
    pub request_limit: Duration,
    /// The time for a new connection. When it has passed, nothing was sent, and the request may be sent
    /// again. At most `request_limit`.
    pub connect_limit: Duration,
    /// The time after which a watch without changes asks whether the member still lives; it ends if there is
    /// no answer within `request_limit`.
    pub watch_idle: Duration,
    /// The time for the defragmentation of a member, which answers nothing else meanwhile.
    pub defragment_limit: Duration,
}

/// Keys for TLS, as PEM files.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificates of the authorities that may sign those of etcd.
    pub authorities: PathBuf,
    /// The certificate of this client, where etcd wants one.
    pub identity: Option<Identity>,
    /// The name in etcd's certificate, if it is not the host of the endpoint.
    pub domain: Option<String>,
}

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate, followed by those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A user of etcd.
#[derive(Clone, Debug)]
pub struct User {
    /// Its name.
    pub name: String,
    /// The file with its password: the first line.
    pub password_file: PathBuf,
}

/// Why no client can be made of a [`Config`].
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The list of endpoints is empty.
    #[error("no endpoint of etcd is given")]
    NoEndpoint,
    /// An endpoint is no address, or does not go with the other options.
    #[error("the endpoint {endpoint:?} of etcd: {reason}")]
    Endpoint {
        /// The endpoint as it was given.
        endpoint: String,
        /// Why it is not taken.
        reason: String,
    },
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file of a password is empty.
    #[error("{}: its first line is empty, and should be a password", .0.display())]
    Password(PathBuf),
    /// A file goes with another one, which is not there.
    #[error("{} is there without {missing}: put it into the folder too, or remove the file", .file.display())]
    Alone {
        /// The file.
        file: PathBuf,
        /// The name of the other one.
        missing: &'static str,
    },
    /// A folder has nothing that is used.
    #[error("{}: it has none of ca.crt, tls.crt, tls.key, user and password", .0.display())]
    NoCredentials(PathBuf),
    /// A time limit is zero, or that of a connection is longer than that of a request.
    #[error("time limits must be above zero, and that of a connection at most that of a request")]
    Limits,
}

/// A password. It is never printed.
#[derive(Clone)]
pub(super) struct Password(pub(super) String);

impl Config {
    /// These endpoints without TLS and user, with limits of 5 s for a request, 2 s for a connection, 5 s for
    /// an idle watch and 60 s for a defragmentation.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            first: None,
            tls: None,
            user: None,
            folder: None,
            request_limit: Duration::from_secs(5),
            connect_limit: Duration::from_secs(2),
            watch_idle: Duration::from_secs(5),
            defragment_limit: Duration::from_mins(1),
        }
    }

    /// The same with limits for a server that keeps a lease of this time alive: a quarter of it for a request
    /// and for a connection, and 2 s at most. So a member that is silent is left before the lease ends.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.request_limit = (lease.max(SHORTEST_LEASE) / REQUEST_PART).min(LONGEST_REQUEST);
        self.connect_limit = self.connect_limit.min(self.request_limit);
        self
    }

    /// The same with what this folder holds: `ca.crt` (TLS), `tls.crt` and `tls.key` (the certificate of this
    /// client), `user` (the name of a user) with `password`. A file that is not there is not used.
    ///
    /// # Errors
    /// If the folder or the file `user` cannot be read, nothing is there, or a file without the one that goes
    /// with it.
    pub fn with_folder(mut self, folder: &Path) -> Result<Self, ConfigError> {
        fs::read_dir(folder).map_err(|error| unusable(folder, error))?;
        let file = |name: &str| {
            let path = folder.join(name);
            let is_there = path.try_exists().map_err(|error| unusable(&path, error))?;
            Ok::<_, FileError>(is_there.then_some(path))
        };
        let (ca, certificate, key) = (file("ca.crt")?, file("tls.crt")?, file("tls.key")?);
        let (user, password) = (file("user")?, file("password")?);
        if [&ca, &certificate, &key, &user, &password].into_iter().all(Option::is_none) {
            return Err(ConfigError::NoCredentials(folder.to_owned()));
        }
        for (file, missing, other) in [
            (&certificate, "tls.key", &key),
            (&key, "tls.crt", &certificate),
            (&certificate, "ca.crt", &ca),
            (&user, "password", &password),
            (&password, "user", &user),
        ] {
            if let (Some(file), None) = (file, other) {
                return Err(ConfigError::Alone { file: file.clone(), missing });
            }
        }
        let identity = certificate.zip(key).map(|(certificate, key)| Identity { certificate, key });
        self.tls = ca.map(|authorities| Tls { authorities, identity, domain: None });
        self.user = match user.zip(password) {
            Some((name, password_file)) => Some(User { name: read(&name)?.trim().to_owned(), password_file }),
            None => None,
        };
        self.folder = Some(folder.to_owned());
        Ok(self)
    }

    /// The same with what the folder holds now.
    fn read_again(&self) -> Result<Self, ConfigError> {
        match &self.folder {
            Some(folder) => self.clone().with_folder(folder),
            None => Ok(self.clone()),
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.endpoints.is_empty() {
            return Err(ConfigError::NoEndpoint);
        }
        let limits = [self.request_limit, self.connect_limit, self.watch_idle, self.defragment_limit];
        if limits.contains(&Duration::ZERO) || self.connect_limit > self.request_limit {
            return Err(ConfigError::Limits);
        }
        Ok(())
    }
}

impl Tls {
    pub(super) fn load(&self) -> Result<ClientTlsConfig, ConfigError> {
        let authorities = stickycas_certificates::roots(&self.authorities)?;
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities));
        if let Some(Identity { certificate, key }) = &self.identity {
            let (certificate, key) = stickycas_certificates::identity(certificate, key)?;
            tls = tls.identity(tonic::transport::Identity::from_pem(certificate, key));
        }
        if let Some(domain) = &self.domain {
            tls = tls.domain_name(domain);
        }
        Ok(tls)
    }
}

impl User {
    pub(super) fn load(&self) -> Result<Password, ConfigError> {
        let text = read(&self.password_file)?;
        match text.lines().next() {
            Some(line) if !line.is_empty() => Ok(Password(line.to_owned())),
            _ => Err(ConfigError::Password(self.password_file.clone())),
        }
    }
}

fn unusable(path: &Path, why: impl fmt::Display) -> FileError {
    FileError { path: path.to_owned(), what: why.to_string() }
}

fn read(path: &Path) -> Result<String, FileError> {
    let bytes = stickycas_certificates::read(path).map_err(|error| unusable(path, error))?;
    String::from_utf8(bytes).map_err(|error| unusable(path, error))
}

/// Reads the files of a configuration again: on a thread that may wait, since a folder on a network may not
/// answer, and one at a time, so that one thread at most waits for it.
#[derive(Debug)]
pub(super) struct Reader {
    config: Config,
    free: Arc<Semaphore>,
}

impl Reader {
    pub(super) fn new(config: &Config) -> Self {
        Self { config: config.clone(), free: Arc::new(Semaphore::new(1)) }
    }

    /// Whether they are being read.
    pub(super) fn is_busy(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// The result of `load` for the configuration with the present content of its folder.
    ///
    /// # Errors
    /// If that cannot be used.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        load: impl FnOnce(Config) -> Result<T, ConfigError> + Send + 'static,
    ) -> Result<T, ConfigError> {
        let (config, turn) = (self.config.clone(), self.free.clone().acquire_owned().await);
        let read = spawn_blocking(move || {
            let _turn = turn;
            load(config.read_again()?)
        });
        // The thread was not started, since the program ends.
        read.await.unwrap_or_else(|error| Err(unusable(Path::new("credentials for etcd"), error).into()))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line_and_is_never_printed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let user = User { name: "root".to_owned(), password_file: file.clone() };
        assert!(user.load().unwrap_err().to_string().contains("password"), "a missing file is named");
        fs::write(&file, "secret\r\nignored\n").unwrap();
        let password = user.load().unwrap();
        assert_eq!(password.0, "secret");
        assert!(!format!("{password:?}").contains("secret"));
        fs::write(&file, "\n").unwrap();
        assert!(matches!(user.load(), Err(ConfigError::Password(_))));
    }

    #[test]
    fn a_folder_that_does_not_have_what_it_should_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |folder: &Path| {
            let config = Config::new(["http://localhost:2379"]).with_folder(folder);
            config.and_then(|config| config.verify()).unwrap_err().to_string()
        };
        for there in [&[][..], &["tls.crt"], &["tls.key"], &["tls.crt", "tls.key"], &["user"], &["password"]]
        {
            there.iter().for_each(|name| fs::write(folder.path().join(name), "x").unwrap());
            let told = refused(folder.path());
            let expected = if there.is_empty() { "it has none of" } else { "is there without" };
            assert!(
                told.contains(expected) && told.contains(folder.path().to_str().unwrap()),
                "{there:?}: {told}"
            );
            there.iter().for_each(|name| fs::remove_file(folder.path().join(name)).unwrap());
        }
        let gone = folder.path().join("gone");
        assert!(refused(&gone).contains(gone.to_str().unwrap()));
        fs::write(&gone, "x").unwrap();
        assert!(refused(&gone).contains("gone"), "it is no folder");
        for text in ["", "x", "-----BEGIN PRIVATE KEY-----"] {
            fs::write(folder.path().join("ca.crt"), text).unwrap();
            assert!(refused(folder.path()).contains("ca.crt: "), "{text:?}");
        }
    }

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        assert!(matches!(Config::new([""; 0]).check(), Err(ConfigError::NoEndpoint)));
        let config = Config::new(["http://localhost:2379"]);
        assert!(config.check().is_ok());
        let zero = Config { watch_idle: Duration::ZERO, ..config.clone() };
        assert!(matches!(zero.check(), Err(ConfigError::Limits)));
        let long = Config { connect_limit: config.request_limit * 2, ..config };
        assert!(matches!(long.check(), Err(ConfigError::Limits)));
    }

    #[test]
    fn a_request_takes_a_quarter_of_a_lease_at_most() {
        for (lease, limit) in [(1, 250), (100, 250), (2_000, 500), (5_000, 1_250), (60_000, 2_000)] {
            let lease = Duration::from_millis(lease);
            let config = Config::new(["http://localhost:2379"]).with_lease(lease);
            assert_eq!(config.request_limit, Duration::from_millis(limit), "{lease:?}");
            assert!(config.check().is_ok(), "{lease:?}");
        }
    }
}
