//! The table of all settings. Those of the table `[limits]` are made of the list of all limits, [`crate::limits`].

use super::kind::{self, Kind, Number, Value};
use super::limits::LIMIT_SETTINGS;
use super::setting::Setting;
use super::{Data, Settings};
use crate::auth::is_trust_domain;
use crate::config::Admission;

/// Every setting, in the order of helps and pages.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(LIMIT_SETTINGS)
}

/// The setting with this key.
pub(crate) fn find(key: &str) -> Option<(usize, &'static Setting)> {
    all().enumerate().find(|(_, setting)| setting.key == key)
}

/// A setting whose flag is made from its key.
const fn setting(
    key: &'static str,
    kind: Kind,
    doc: &'static str,
    read: fn(&Settings) -> Value,
    write: fn(&mut Settings, Value) -> Result<(), String>,
) -> Setting {
    Setting { key, flag: None, off_flag: None, kind, doc, read, write, part: || None }
}

/// The setters of a field by the variant of its value.
macro_rules! write {
    ($($field:ident).+, $variant:ident) => {
        |settings, value| {
            if let Value::$variant(value) = value {
                settings.$($field).+ = value;
            }
            Ok(())
        }
    };
    ($field:ident, optional $variant:ident) => {
        |settings, value| {
            settings.$field = if let Value::$variant(value) = value { Some(value) } else { None };
            Ok(())
        }
    };
}

const SETTINGS: &[Setting] = &[
    setting(
        "listen",
        Kind::Address,
        "Address to listen on for clients; port 0 takes a free one. The address is printed on standard output.",
        |settings| Value::Address(settings.listen),
        write!(listen, Address),
    ),
    Setting {
        off_flag: Some(("no-http", "off")),
        ..setting(
            "http",
            Kind::AddressOrOff,
            "Address to listen on for operators: /livez, /readyz and /metrics over HTTP. Port 0 takes a free one. An \
             address that is given is printed on standard output; if the default one is in use, the server goes on \
             without it and says so in its log.",
            |settings| settings.http.map_or(Value::None("off"), Value::Address),
            write!(http, optional Address),
        )
    },
    Setting {
        flag: Some("http-host"),
        ..setting(
            "http_hosts",
            Kind::Names,
            "Names of this machine by which browsers may ask for what operators ask on a loopback address, beside these \
             addresses. Requests for any other name are refused: a page of another site could have its name lead here (DNS \
             rebinding). Repeat the flag for several.",
            |settings| Value::Names(settings.http_hosts.clone()),
            write!(http_hosts, Names),
        )
    },
    Setting {
        off_flag: Some(("in-memory", "off")),
        ..setting(
            "data",
            Kind::Folder,
            "Folder of the log, made if it does not exist: a server that is started again on it goes on where it was, \
             however it ended. auto: $STATE_DIRECTORY as systemd sets it, else $XDG_STATE_HOME/stickycas, else \
             ~/.local/state/stickycas. off: no log, and all instances are lost when the server stops.",
            |settings| match &settings.data {
                Data::Auto => Value::None("auto"),
                Data::InMemory => Value::None("off"),
                Data::Folder(folder) => Value::Text(folder.display().to_string()),
            },
            |settings, value| {
                settings.data = match value {
                    Value::None("auto") => Data::Auto,
                    Value::Text(folder) => Data::Folder(folder.into()),
                    _ => Data::InMemory,
                };
                Ok(())
            },
        )
    },
    setting(
        "etcd",
        Kind::Urls,
        "Addresses of the members of an etcd (http://HOST:PORT or https://...), which several servers share: this one belongs to \
         a cluster, and its logs are in etcd and in no folder. Needs a build with the feature `cluster`. Repeat the flag \
         for several.",
        |settings| Value::Names(settings.etcd.clone()),
        write!(etcd, Names),
    ),
    setting(
        "etcd_credentials",
        Kind::FolderOrOff,
        "With etcd: folder of its CAs (ca.crt), of the certificate and key that prove to it who this is (tls.crt, tls.key), and \
         of a user and its password (user, password); what is not there is not used. The files are read again when a request to \
         etcd fails, for each new token of the user, and on SIGHUP.",
        |settings| {
            let folder = settings.etcd_credentials.as_ref();
            folder.map_or(Value::None("off"), |folder| Value::Text(folder.display().to_string()))
        },
        |settings, value| {
            settings.etcd_credentials =
                if let Value::Text(folder) = value { Some(folder.into()) } else { None };
            Ok(())
        },
    ),
    setting(
        "etcd_quota",
        kind::SIZE,
        "With etcd: its quota (--quota-backend-bytes), which etcd 3.4 does not tell. From 70 % of it on the server warns, and from \
         90 % on it creates no instances: see the chapter about several servers.",
        |settings| Value::Size(settings.etcd_quota),
        write!(etcd_quota, Size),
    ),
    setting(
        "cluster",
        Kind::Text,
        "With etcd: the name of the cluster, under which its keys are. Several clusters may share an etcd.",
        |settings| Value::Text(settings.cluster.clone()),
        write!(cluster, Text),
    ),
    setting(
        "server_name",
        Kind::TextOrAuto,
        "With etcd: the name of this server in the cluster, different from those of others; auto: its address for clients.",
        |settings| settings.server_name.clone().map_or(Value::None("auto"), Value::Text),
        write!(server_name, optional Text),
    ),
    setting(
        "advertise",
        Kind::TextOrAuto,
        "With etcd: host and port at which clients reach this server, as other servers name it to them; auto: the address that \
         it listens on.",
        |settings| settings.advertise.clone().map_or(Value::None("auto"), Value::Text),
        write!(advertise, optional Text),
    ),
    setting(
        "lease",
        kind::TIMEOUT,
        "With etcd: how long a server that is silent keeps its shards, before others take them. etcd makes a very short one \
         longer. Safety does not rest on it.",
        |settings| Value::Duration(settings.lease),
        write!(lease, Duration),
    ),
    setting(
        "shards",
        Kind::Count { min: 1, max: 1 << 20 },
        "With etcd: the number of shards that the servers share, each with a log of its own. It is fixed when the first server \
         joins, and the same at all of them.",
        |settings| Value::Number(settings.shards.into()),
        |settings, value| {
            settings.shards = Number::from_value(value)?;
            Ok(())
        },
    ),
    setting(
        "credentials",
        Kind::FolderOrOff,
        "Folder of the server's certificate (tls.crt) and key (tls.key), and of the CAs of clients (client-ca.crt) with \
         their revocation lists (client-ca.crl): callers are the principals that their certificates name, over TLS 1.3. A file \
         `denied` in it may list principals that are refused, a file `roles.toml` grant roles. The files are read again \
         when they change, and at once on SIGHUP. `stickycas-server credentials` makes such folders for development.",
        |settings| {
            let folder = settings.credentials.as_ref();
            folder.map_or(Value::None("off"), |folder| Value::Text(folder.display().to_string()))
        },
        |settings, value| {
            settings.credentials = if let Value::Text(folder) = value { Some(folder.into()) } else { None };
            Ok(())
        },
    ),
    setting(
        "trust_domain",
        Kind::Text,
        "With credentials: the trust domain to which the CAs of clients are bound. A certificate names its principal as \
         spiffe://TRUST-DOMAIN/principal/NAME.",
        |settings| Value::Text(settings.trust_domain.clone()),
        |settings, value| {
            let Value::Text(name) = value else { return Ok(()) };
            if !is_trust_domain(&name) {
                return Err("give 1 to 255 lower-case letters, digits, '.', '_' or '-'".to_owned());
            }
            settings.trust_domain = name;
            Ok(())
        },
    ),
    setting(
        "allow_missing_revocation_list",
        Kind::Switch,
        "With credentials, trust CAs of clients that have no revocation list.",
        |settings| Value::Switch(settings.allow_missing_revocation_list),
        write!(allow_missing_revocation_list, Switch),
    ),
    setting(
        "token_listen",
        Kind::AddressOrOff,
        "With credentials: second address to listen on, for clients that prove their principals by bearer tokens (JWT) in \
         place of certificates. The folder then has the public keys of tokens, token-keys.json.",
        |settings| settings.token_listen.map_or(Value::None("off"), Value::Address),
        write!(token_listen, optional Address),
    ),
    setting(
        "token_issuer",
        Kind::Text,
        "The claim iss of tokens that are taken.",
        |settings| Value::Text(settings.token_issuer.clone()),
        write!(token_issuer, Text),
    ),
    setting(
        "token_audience",
        Kind::Text,
        "What the claim aud of tokens that are taken has in it.",
        |settings| Value::Text(settings.token_audience.clone()),
        write!(token_audience, Text),
    ),
    setting(
        "insecure_principals",
        Kind::Switch,
        "Believe the principal that a caller names in the metadata key `stickycas-principal`. Proves nothing, so the \
         server listens on a loopback address only.",
        |settings| Value::Switch(settings.insecure_principals),
        write!(insecure_principals, Switch),
    ),
    setting(
        "insecure_allow_remote",
        Kind::Switch,
        "With insecure_principals, allow listening on an address that other machines may reach.",
        |settings| Value::Switch(settings.insecure_allow_remote),
        write!(insecure_allow_remote, Switch),
    ),
    Setting {
        flag: Some("coordinator"),
        ..setting(
            "coordinators",
            Kind::Names,
            "Principals that may create instances; without one no instance can be created. Repeat the flag for several.",
            |settings| Value::Names(settings.coordinators.clone()),
            write!(coordinators, Names),
        )
    },
    Setting {
        flag: Some("observer"),
        ..setting(
            "observers",
            Kind::Names,
            "Principals that may look at every instance. Repeat the flag for several.",
            |settings| Value::Names(settings.observers.clone()),
            write!(observers, Names),
        )
    },
    Setting {
        flag: Some("admin"),
        ..setting(
            "admins",
            Kind::Names,
            "Principals that may see the counts of every principal. Repeat the flag for several.",
            |settings| Value::Names(settings.admins.clone()),
            write!(admins, Names),
        )
    },
    setting(
        "admission",
        Kind::Text,
        "What becomes of requests above the rate or a share of their principal: off, they are served; observe, they are \
         served, counted and logged as what would be refused; enforce, they are refused. Bounds of the whole server, which \
         protect its memory, hold in every mode.",
        |settings| Value::Text(settings.admission.name().to_owned()),
        |settings, value| {
            let Value::Text(name) = value else { return Ok(()) };
            settings.admission =
                Admission::from_name(&name).ok_or_else(|| "give off, observe or enforce".to_owned())?;
            Ok(())
        },
    ),
    setting(
        "drain",
        kind::DURATION,
        "How long connections have to end once the server is told to stop.",
        |settings| Value::Duration(settings.drain),
        write!(drain, Duration),
    ),
    setting(
        "workers",
        Kind::CountOrAuto { min: 1, max: 1_024 },
        "Threads that serve; auto: one for each processor. Fewer leave processors to others on the same machine.",
        |settings| settings.workers.map_or(Value::None("auto"), |workers| Value::Number(workers.into())),
        |settings, value| {
            settings.workers = match value {
                Value::None(_) => None,
                number => Some(Number::from_value(number)?),
            };
            Ok(())
        },
    ),
    setting(
        "memory",
        Kind::SizeOrAuto,
        "Memory that the server may use: the defaults of the limits are parts of it, and they may not come to more; auto: the \
         smallest limit of its cgroups, memory.high included, else what the machine has.",
        |settings| settings.memory.map_or(Value::None("auto"), Value::Size),
        write!(memory, optional Size),
    ),
    Setting {
        off_flag: Some(("no-reflection", "false")),
        ..setting(
            "reflection",
            Kind::Switch,
            "Tell tools the service definitions (gRPC reflection).",
            |settings| Value::Switch(settings.reflection),
            write!(reflection, Switch),
        )
    },
    setting(
        "log",
        Kind::Text,
        "What to log, on standard error: off, error, warn, info, debug, trace, or filters by module.",
        |settings| Value::Text(settings.log.filter.clone()),
        |settings, value| {
            if let Value::Text(filter) = value {
                crate::logging::check_filter(&filter)?;
                settings.log.filter = filter;
            }
            Ok(())
        },
    ),
    setting(
        "log_json",
        Kind::Switch,
        "Log as JSON, one object a line.",
        |settings| Value::Switch(settings.log.json),
        write!(log.json, Switch),
    ),
    setting(
        "log_lines_per_second",
        kind::COUNT,
        "Lines of one kind that are logged in a second; a line says how many more there were. The kind of a line is the \
         place in the code that logs it.",
        |settings| Value::Number(settings.log.lines_per_second.into()),
        |settings, value| {
            settings.log.lines_per_second = Number::from_value(value)?;
            Ok(())
        },
    ),
    setting(
        "otlp_endpoint",
        Kind::UrlOrOff,
        "Where traces go by OTLP over gRPC, a span for each call. Needs a build with the feature `otlp`.",
        |settings| settings.otlp_endpoint.clone().map_or(Value::None("off"), Value::Text),
        write!(otlp_endpoint, optional Text),
    ),
];
