//! The table of all settings: of each its key, type, default, kind and purpose. Those of the table `[limits]`
//! are the bounds of [`crate::limits`] that have a kind.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use super::Data;
use super::kind::{self, Field, Form, Kind, size_text};
use crate::config::Admission;
use crate::limits::{GIB, KIB, Limits, MIB, for_each_limit};
use crate::logging::LINES_PER_SECOND;
use crate::memory::{LimitDefault, MemoryPart, part};

/// One setting, or a bound that is none.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The key in the file, with that of its table: `limits.retention`.
    pub(crate) key: &'static str,
    /// A second flag that takes no value, and the value that it stands for.
    pub(crate) off_flag: Option<(&'static str, &'static str)>,
    pub(crate) kind: Kind,
    doc: &'static str,
    pub(crate) toml: fn(&Settings) -> String,
    pub(crate) write: fn(&mut Settings, &[String]) -> Result<(), String>,
    /// The part of the memory that its default is, if it is one.
    part: fn() -> Option<MemoryPart>,
    /// Whether it is a bound that nobody sets.
    pub(super) is_constant: bool,
}

/// Every setting, in the order of helps and pages.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(LIMITS).filter(|setting| !setting.is_constant)
}

/// The setting with this key.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.key == key)
}

/// The message about a key, a flag or a variable that was a setting once: of a bound that is a constant now,
/// or of the live page. `name_of`: the name of that kind.
pub(crate) fn removed(name: &str, name_of: impl Fn(&Setting) -> String) -> Option<String> {
    let plain = name.to_lowercase().replace(['-', '.'], "_");
    let plain = plain.strip_prefix("stickycas_").unwrap_or(&plain);
    let of_page = plain.strip_prefix("limits_").filter(|name| *name != "page").unwrap_or(plain);
    if of_page.starts_with("page_host") {
        return Some("is now http_hosts (--http-host), for what operators ask".to_owned());
    }
    if of_page == "page" || of_page.starts_with("page_") {
        let where_it_is = "the live page is served by `stickycas-loadgen view --server URL`";
        return Some(format!("is no setting of a server: {where_it_is}"));
    }
    // Three flags had other names.
    let name = match name {
        "instance-memory" => "instance-bytes",
        "record-memory" => "event-bytes",
        "list-page" => "page",
        name => name,
    };
    let bound = LIMITS.iter().find(|bound| bound.is_constant && name_of(bound) == name)?;
    Some(format!("is now a constant: {}", bound.default().replace('"', "")))
}

impl Setting {
    /// The key without its table.
    pub(crate) fn name(&self) -> &'static str {
        self.key.rsplit('.').next().unwrap_or(self.key)
    }

    pub(crate) fn is_limit(&self) -> bool {
        self.key.starts_with("limits.")
    }

    /// The flag, without its dashes: `requests-per-second`. That of a list takes one item: `coordinator`.
    pub(crate) fn flag(&self) -> String {
        let name = match self.kind.form {
            Form::List(_) => self.name().trim_end_matches('s'),
            _ => self.name(),
        };
        name.replace('_', "-")
    }

    /// The environment variable: `STICKYCAS_LIMITS_RETENTION`.
    pub(crate) fn variable(&self) -> String {
        format!("STICKYCAS_{}", self.key.replace('.', "_").to_uppercase())
    }

    /// Its default, as a file has it, or how that follows from the memory.
    pub(crate) fn default(&self) -> String {
        self.part_text().unwrap_or_else(|| (self.toml)(&Settings::default()))
    }

    /// The rule by which its default follows from the memory; `None`: there is none.
    pub(crate) fn part_text(&self) -> Option<String> {
        let MemoryPart { share, of, most } = (self.part)()?;
        let (text, most_text) = match self.kind.form {
            Form::Size(_) => (format!("{share}/{of} of the memory"), size_text(most)),
            _ => (format!("{share} for each {} of the memory", size_text(of)), most.to_string()),
        };
        Some(if most == u64::MAX { text } else { format!("{text}, at most {most_text}") })
    }

    /// Its purpose, as plain text. The first sentence is enough for most readers.
    pub(crate) fn text(&self) -> String {
        self.doc.trim().replace("[`Limits::", "`").replace("`]", "`")
    }
}

/// The one item of a list that may be empty.
const fn only<T: Copy>(items: &[T]) -> Option<T> {
    if let [item, ..] = items { Some(*item) } else { None }
}

/// Makes the type of all settings, and their table.
macro_rules! define_settings {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty = $default:expr, $kind:expr
        $(, off $off_flag:literal is $off:literal)?;
    )+) => {
        /// The settings of one server, each checked for itself.
        #[derive(Clone, Debug)]
        pub(crate) struct Settings {
            $($(#[doc = $doc])+ pub(crate) $name: $type,)+
            pub(crate) limits: Limits,
        }

        impl Settings {
            /// The defaults, with these limits.
            pub(super) fn with(limits: Limits) -> Self {
                Self { $($name: $default,)+ limits }
            }
        }

        const SETTINGS: &[Setting] = &[$(Setting {
            key: stringify!($name),
            off_flag: only(&[$(($off_flag, $off))?]),
            kind: $kind,
            doc: concat!($($doc),+),
            toml: |settings| settings.$name.toml(&$kind),
            write: |settings, texts| {
                settings.$name = Field::parse(&$kind, texts)?;
                Ok(())
            },
            part: || None,
            is_constant: false,
        },)+];
    };
}

/// Makes the settings and constants of the list of all limits.
macro_rules! define_limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr $(, $kind:ident)?;)+) => {
        /// Every bound.
        pub(super) const LIMITS: &[Setting] = &[$({
            const GIVEN: Option<Kind> = only(&[$(kind::$kind)?]);
            const KIND: Kind = if let Some(kind) = GIVEN { kind } else { kind_of_constant(stringify!($name)) };
            Setting {
                key: concat!("limits.", stringify!($name)),
                off_flag: None,
                kind: KIND,
                doc: concat!($($doc),+),
                toml: |settings| settings.limits.$name.toml(&KIND),
                write: |settings, texts| {
                    settings.limits.$name = Field::parse(&KIND, texts)?;
                    Ok(())
                },
                part: || LimitDefault::<$type>::part($default),
                is_constant: GIVEN.is_none(),
            }
        },)+];
    };
}

for_each_limit!(define_limits);

/// The kind in which the value of a constant is shown: its name says whether it counts bytes.
const fn kind_of_constant(name: &str) -> Kind {
    match name.as_bytes() {
        [.., b'_', b'b', b'y', b't', b'e', b's'] | [b'b', b'y', b't', b'e', b's', ..] => kind::SIZE,
        _ => kind::COUNT,
    }
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

define_settings! {
    /// Address to listen on for clients. Port 0 takes a free one. The address is printed on standard output.
    listen: SocketAddr = loopback(7420), kind::ADDRESS;
    /// Address for operators: probes and metrics. Port 0 takes a free one. A given address is printed on
    /// standard output; if the default one is in use, the server goes on without it.
    http: Option<SocketAddr> = Some(loopback(7421)), kind::ADDRESS.or("off"), off "no-http" is "off";
    /// Names of this machine that browsers may use for the operators' pages on a loopback address, beside
    /// these addresses. Requests for any other name are refused (DNS rebinding). Repeat the flag for several.
    http_hosts: Vec<String> = Vec::new(), kind::PRINCIPALS;
    /// Folder of the log; auto: the usual one. It is made if it does not exist. auto: $STATE_DIRECTORY as
    /// systemd sets it, else $XDG_STATE_HOME/stickycas, else ~/.local/state/stickycas. off: no log, and all
    /// instances are lost when the server stops.
    data: Data = Data::Auto, kind::DATA, off "in-memory" is "off";
    /// Members of an etcd (http://HOST:PORT or https://...) that several servers share. This server then
    /// belongs to a cluster, and its logs are in etcd and in no folder. Needs a build with the feature
    /// `cluster`. Repeat the flag for several.
    etcd: Vec<String> = Vec::new(), kind::URLS;
    /// With etcd: folder of this server's credentials for it. The CAs of etcd (ca.crt), a certificate and its
    /// key (tls.crt, tls.key), and a user and its password (user, password); a file that is missing is not
    /// used.
    etcd_credentials: Option<PathBuf> = None, kind::FOLDER.or("off");
    /// With etcd: its quota (--quota-backend-bytes), which etcd 3.4 does not tell. From 70 % of it on the
    /// server warns, and from 90 % on it creates no instances.
    etcd_quota: u64 = 2 * GIB, kind::SIZE;
    /// With etcd: the name of the cluster, under which its keys are. Several clusters may share an etcd.
    cluster: String = "stickycas".to_owned(), kind::TEXT;
    /// With etcd: the name of this server in the cluster; auto: its address for clients. Other servers have
    /// other names.
    server_name: Option<String> = None, kind::NAME.or("auto");
    /// With etcd: host and port for clients of other servers; auto: the address to listen on. Other servers
    /// name it to clients whose instances are here.
    advertise: Option<String> = None, kind::NAME.or("auto");
    /// With etcd: how long a server that is silent keeps its shards. Then others take them. etcd makes a very
    /// short lease longer. Safety does not rest on it.
    lease: Duration = Duration::from_secs(5), kind::TIMEOUT;
    /// With etcd: the number of shards that the servers share. Each has a log of its own. The number is fixed
    /// when the first server joins, and the same at all of them.
    shards: u32 = 64, kind::SHARDS;
    /// Folder of certificates: callers are those that their certificates name. It has the server's
    /// certificate (tls.crt) and key (tls.key), and the CAs of clients (client-ca.crt) with their revocation
    /// lists (client-ca.crl), for TLS 1.3. The files are read again when they change, and at once on SIGHUP.
    /// `stickycas-server credentials` makes such folders for development.
    credentials: Option<PathBuf> = None, kind::FOLDER.or("off");
    /// With credentials: the trust domain of the CAs of clients. A certificate names its principal as
    /// spiffe://TRUST-DOMAIN/principal/NAME.
    trust_domain: String = "stickycas".to_owned(), kind::TRUST_DOMAIN;
    /// With credentials, trust CAs of clients that have no revocation list.
    allow_missing_revocation_list: bool = false, kind::SWITCH;
    /// With credentials: address to listen on for clients with bearer tokens (JWT). Tokens prove their
    /// principals in place of certificates. The folder of credentials then has the public keys of tokens,
    /// token-keys.json.
    token_listen: Option<SocketAddr> = None, kind::ADDRESS.or("off");
    /// The claim iss of tokens that are taken.
    token_issuer: String = "stickycas".to_owned(), kind::TEXT;
    /// The value that the claim aud of tokens that are taken must contain.
    token_audience: String = "stickycas".to_owned(), kind::TEXT;
    /// Believe the principal that a caller names in the metadata key `stickycas-principal`. Proves nothing,
    /// so the server listens on a loopback address only.
    insecure_principals: bool = false, kind::SWITCH;
    /// With insecure_principals, allow listening on an address that other machines may reach.
    insecure_allow_remote: bool = false, kind::SWITCH;
    /// Principals that may create instances; without one no instance can be created. Repeat the flag for
    /// several.
    coordinators: Vec<String> = Vec::new(), kind::PRINCIPALS;
    /// Principals that may look at every instance. Repeat the flag for several.
    observers: Vec<String> = Vec::new(), kind::PRINCIPALS;
    /// Principals that may see the counts of every principal. Repeat the flag for several.
    admins: Vec<String> = Vec::new(), kind::PRINCIPALS;
    /// Requests above a rate or a share: off, observe or enforce. off serves them, observe serves, counts and
    /// logs them, enforce refuses them. Bounds of the whole server hold in every mode.
    admission: Admission = Admission::default(), kind::ADMISSION;
    /// The time that connections have to end once the server is told to stop.
    drain: Duration = Duration::from_secs(5), kind::DURATION;
    /// Threads that serve; auto: one for each processor.
    workers: Option<u16> = None, kind::WORKERS.or("auto");
    /// Memory that the server may use; auto: the limit of its cgroups. The defaults of the limits are parts
    /// of it, and the limits may not come to more. auto: the smallest limit of the cgroups, memory.high
    /// included, else the memory of the machine.
    memory: Option<u64> = None, kind::MEMORY.or("auto");
    /// Tell tools the service definitions (gRPC reflection).
    reflection: bool = true, kind::SWITCH, off "no-reflection" is "false";
    /// Log on standard error: off, error, warn, info, debug, trace, or filters. A filter names a module and
    /// its level, such as `info,h2=debug`.
    log: String = "info".to_owned(), kind::FILTER;
    /// Log as JSON, one object a line.
    log_json: bool = false, kind::SWITCH;
    /// Lines of one kind that are logged in a second. A line says how many more there were. The kind of a
    /// line is the place in the code that logs it.
    log_lines_per_second: u32 = LINES_PER_SECOND, kind::COUNT;
    /// Endpoint for traces by OTLP over gRPC, with a span for each call. Needs a build with the feature
    /// `otlp`.
    otlp_endpoint: Option<String> = None, kind::URL.or("off");
}
