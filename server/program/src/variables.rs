//! The environment variables that begin with `STICKYCAS_`, of all programs. Another such name is a mistake.
//!
//! An unknown name would be ignored silently, and the server would run with a default in the place of a
//! setting. One list serves all programs, because they often share an environment. The tests of each program
//! compare its flags with it.

use std::env;
use std::ffi::OsString;

const PREFIX: &str = "STICKYCAS_";

/// Settings of the server, without the prefix.
const SERVER: &[&str] = &[
    "CONFIG",
    "LISTEN",
    "HTTP",
    "HTTP_HOSTS",
    "DATA",
    "ETCD",
    "ETCD_CREDENTIALS",
    "ETCD_QUOTA",
    "CLUSTER",
    "SERVER_NAME",
    "ADVERTISE",
    "LEASE",
    "SHARDS",
    "CREDENTIALS",
    "TRUST_DOMAIN",
    "TOKEN_LISTEN",
    "TOKEN_ISSUER",
    "TOKEN_AUDIENCE",
    "ALLOW_MISSING_REVOCATION_LIST",
    "INSECURE_PRINCIPALS",
    "INSECURE_ALLOW_REMOTE",
    "COORDINATORS",
    "OBSERVERS",
    "ADMINS",
    "ADMISSION",
    "DRAIN",
    "WORKERS",
    "MEMORY",
    "REFLECTION",
    "LOG",
    "LOG_JSON",
    "LOG_LINES_PER_SECOND",
    "OTLP_ENDPOINT",
];

/// Its limits, without the prefix `STICKYCAS_LIMITS_`.
const LIMITS: &[&str] = &[
    "CONNECTIONS",
    "CONNECTIONS_PER_PRINCIPAL",
    "UNCLAIMED_CONNECTIONS_PER_ADDRESS",
    "STREAMS_PER_CONNECTION",
    "READ_BYTES",
    "REQUESTS_PER_SECOND",
    "LOG_BYTES",
    "LOG_BYTES_PER_CREATOR",
    "LIVE_INSTANCES",
    "LIVE_INSTANCES_PER_CREATOR",
    "INSTANCES",
    "INSTANCES_PER_CREATOR",
    "RETENTION",
    "IDLE_LIFETIME",
    "REJOIN",
];

/// Flags of the client and of the load generator.
const CLIENTS: &[&str] = &[
    "SERVER",
    "PRINCIPAL",
    "CLIENT_CREDENTIALS",
    "RUN_CREDENTIALS",
    "LISTEN_CREDENTIALS",
    "KEEP_ALIVE",
    "INSTANCE",
    "REPORT_TO",
    "SCENARIO",
    "PLAN",
    "SERIES",
];

/// Of builds, tests, scripts and the demo.
const TOOLS: &[&str] = &[
    "COMMIT",
    "BENCH_RUSTC",
    "BLESS",
    "LONG",
    "SEEDS",
    "RANDOM_RUNS",
    "RANDOM_SEED",
    "MUTANT",
    "PROGRAMS",
    "IMAGE",
];

/// Variables that begin like ours and that no program has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n       "))]
pub struct UnknownVariables(Vec<String>);

/// Checks that the environment has no variable that begins like ours and that no program has. `removed`: the
/// message about a former variable of this name, if there was one.
///
/// # Errors
/// Those that there are, each with that or with the name that was probably meant.
pub fn check_variables(removed: impl Fn(&str) -> Option<String>) -> Result<(), UnknownVariables> {
    // A name that is no UTF-8 is none of ours either; it is shown as far as it can be.
    let text = |text: OsString| text.to_string_lossy().into_owned();
    check(env::vars_os().map(|(name, value)| (text(name), text(value))), removed)
}

/// Whether a program has a variable of this name.
#[must_use]
pub fn is_variable(name: &str) -> bool {
    all().any(|known| known == name)
}

/// The variables of the settings of the server.
pub fn variables_of_server() -> impl Iterator<Item = String> {
    let settings = SERVER.iter().map(|name| format!("{PREFIX}{name}"));
    settings.chain(LIMITS.iter().map(|name| format!("{PREFIX}LIMITS_{name}")))
}

/// The variables that the flags of a program take values from.
#[must_use]
pub fn variables_of(command: &clap::Command) -> Vec<String> {
    let own = command
        .get_arguments()
        .filter_map(|flag| flag.get_env())
        .map(|name| name.to_string_lossy().into_owned());
    own.chain(command.get_subcommands().flat_map(variables_of)).collect()
}

fn all() -> impl Iterator<Item = String> {
    variables_of_server().chain(CLIENTS.iter().chain(TOOLS).map(|name| format!("{PREFIX}{name}")))
}

fn check(
    variables: impl Iterator<Item = (String, String)>,
    removed: impl Fn(&str) -> Option<String>,
) -> Result<(), UnknownVariables> {
    // An empty variable is one that is not set, as everywhere else.
    let is_unknown = |(name, value): &(String, String)| {
        let is_ours = name.strip_prefix(PREFIX).is_some_and(|rest| !is_of_kubernetes(rest, value));
        is_ours && !value.is_empty() && !is_variable(name)
    };
    let mut unknown: Vec<_> = variables.filter(is_unknown).map(|(name, _)| name).collect();
    unknown.sort();
    let messages: Vec<_> = unknown.iter().map(|name| message(name, removed(name))).collect();
    if messages.is_empty() { Ok(()) } else { Err(UnknownVariables(messages)) }
}

/// Whether Kubernetes sets a variable of this name, behind the prefix, to such a value, for a service that is
/// called stickycas or stickycas-something: `STICKYCAS_SERVICE_HOST`, `STICKYCAS_PORT_7420_TCP_ADDR`. Where a
/// person might have written the name, the value decides: `STICKYCAS_PORT` is `tcp://10.0.0.1:7420` of
/// Kubernetes, and `7420` is a mistake.
fn is_of_kubernetes(rest: &str, value: &str) -> bool {
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let words: Vec<&str> = rest.split('_').collect();
    // The words before are the rest of the name of the service.
    (0..words.len()).any(|first| match &words[first..] {
        ["SERVICE", "HOST"] | ["SERVICE", "PORT", ..] => true,
        ["PORT"] => is_url,
        ["PORT", number, _protocol] => is_number(number) && is_url,
        ["PORT", number, _protocol, "PROTO" | "PORT" | "ADDR"] => is_number(number),
        _ => false,
    })
}

fn message(name: &str, removed: Option<String>) -> String {
    if let Some(removed) = removed {
        return format!("environment {name} {removed}");
    }
    let advice = nearest(name).map_or_else(
        || "docs/operate/configuration.md has those of the server, --help those of a command".to_owned(),
        |known| format!("did you mean {known}?"),
    );
    format!("environment {name}: there is no such variable: {advice}")
}

/// The known name that was probably meant: one of nearly the same letters, or the same without the name of
/// its table.
fn nearest(name: &str) -> Option<String> {
    let rest = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let bare = |name: &str| rest(name).trim_start_matches("LIMITS_").to_owned();
    let closeness = |known: &str| {
        strsim::jaro_winkler(&rest(name), &rest(known)).max(strsim::jaro_winkler(&bare(name), &bare(known)))
    };
    let best = all().max_by(|one, other| closeness(one).total_cmp(&closeness(other)))?;
    (closeness(&best) > 0.85).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(names: &[&str]) -> Vec<String> {
        problems_with(&names.iter().map(|name| (*name, "x")).collect::<Vec<_>>())
    }

    fn problems_with(variables: &[(&str, &str)]) -> Vec<String> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let checked = check(variables, |name| (name == "STICKYCAS_OLD").then(|| "is gone".to_owned()));
        checked.err().map(|UnknownVariables(messages)| messages).unwrap_or_default()
    }

    #[test]
    fn a_misspelt_variable_is_refused_with_the_name_meant() {
        assert_eq!(
            problems(&["STICKYCAS_SRVER", "STICKYCAS_DRIAN", "STICKYCAS_RETENTION", "STICKYCAS_XYZ", "PATH"]),
            [
                "environment STICKYCAS_DRIAN: there is no such variable: did you mean STICKYCAS_DRAIN?",
                "environment STICKYCAS_RETENTION: there is no such variable: did you mean STICKYCAS_LIMITS_RETENTION?",
                "environment STICKYCAS_SRVER: there is no such variable: did you mean STICKYCAS_SERVER?",
                "environment STICKYCAS_XYZ: there is no such variable: docs/operate/configuration.md has those of the server, \
                 --help those of a command",
            ]
        );
    }

    #[test]
    fn of_a_variable_that_was_removed_it_is_told_what_became_of_it() {
        assert_eq!(problems(&["STICKYCAS_OLD"]), ["environment STICKYCAS_OLD is gone"]);
    }

    #[test]
    fn variables_of_every_program_are_left_alone() {
        let known: Vec<String> = all().collect();
        assert_eq!(problems(&known.iter().map(String::as_str).collect::<Vec<_>>()), [""; 0]);
        assert_eq!(problems(&["STICKYCAS", "stickycas_drian", "HOME"]), [""; 0]);
        let distinct: std::collections::BTreeSet<_> = known.iter().collect();
        assert_eq!(distinct.len(), known.len(), "a name stands in the list twice");
    }

    #[test]
    fn what_kubernetes_sets_for_a_service_is_left_alone() {
        for service in ["STICKYCAS", "STICKYCAS_SERVER", "STICKYCAS_HTTP"] {
            for (variable, value) in [
                ("SERVICE_HOST", "10.0.0.1"),
                ("SERVICE_PORT", "7420"),
                ("SERVICE_PORT_GRPC", "7420"),
                ("PORT", "tcp://10.0.0.1:7420"),
                ("PORT_7420_TCP", "tcp://10.0.0.1:7420"),
                ("PORT_53_UDP", "udp://10.0.0.1:53"),
                ("PORT_7420_TCP_PROTO", "tcp"),
                ("PORT_7420_TCP_PORT", "7420"),
                ("PORT_7420_TCP_ADDR", "10.0.0.1"),
            ] {
                let name = format!("{service}_{variable}");
                assert_eq!(problems_with(&[(&name, value)]), [""; 0]);
                assert!(!is_variable(&name), "{name} is a variable of ours, and would not be checked");
            }
        }
        assert!(
            all().all(|known| !is_of_kubernetes(known.strip_prefix(PREFIX).unwrap(), "tcp://10.0.0.1:1"))
        );
    }

    #[test]
    fn a_port_that_kubernetes_does_not_set_is_a_mistake() {
        let mistakes = [
            ("STICKYCAS_PORT", "7430"),
            ("STICKYCAS_HTTP_PORT", "9000"),
            ("STICKYCAS_PORT_7420_TCP", "7420"),
            ("STICKYCAS_PORT_HTTP_TCP_ADDR", "10.0.0.1"),
            ("STICKYCAS_PORT_RANGE", "tcp://10.0.0.1:7420"),
            ("STICKYCAS_MYSERVICE_HOST", "10.0.0.1"),
        ];
        for mistake in mistakes {
            assert_eq!(problems_with(&[mistake]).len(), 1, "{mistake:?}");
        }
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        assert_eq!(problems_with(&[("STICKYCAS_DRIAN", "")]), [""; 0]);
        assert_eq!(problems_with(&[("STICKYCAS_DRIAN", " ")]).len(), 1);
    }
}
