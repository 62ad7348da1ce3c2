use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};

use super::*;
use crate::cli;

/// The settings of these flags, these variables and a file with this text.
fn load(flags: &[&str], variables: &[(&str, &str)], file: &str) -> Result<Effective, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.toml");
    std::fs::write(&path, file).unwrap();
    let command = SettingsArgs::augment_args(clap::Command::new("serve"));
    let config = format!("--config={}", path.display());
    let matches = command
        .try_get_matches_from([&["serve", &config], flags].concat())
        .unwrap_or_else(|error| panic!("{error}"));
    let args = SettingsArgs::from_arg_matches(&matches).unwrap();
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    let prefix = format!("{}/", folder.path().display());
    Effective::load(&args, &|name| variables.get(name).map(Into::into))
        .map_err(|SettingsError(errors)| errors.iter().map(|error| error.replace(&prefix, "")).collect())
}

/// The same with callers identified, so that nothing else is wrong.
fn good(flags: &[&str], variables: &[(&str, &str)], file: &str) -> Effective {
    load(&[&["--insecure-principals"], flags].concat(), variables, file).unwrap()
}

#[track_caller]
fn assert_wrong(flags: &[&str], variables: &[(&str, &str)], file: &str, expected: &[&str]) {
    let flags = [&["--insecure-principals"], flags].concat();
    assert_eq!(load(&flags, variables, file).unwrap_err(), expected);
}

#[test]
fn a_flag_wins_over_a_variable_over_a_file_over_a_default() {
    let file = "drain = '1s'\nworkers = 3\n[limits]\nretention = '2h'\n";
    let variables =
        [("STICKYCAS_DRAIN", "2s"), ("STICKYCAS_LIMITS_RETENTION", "3h"), ("STICKYCAS_WORKERS", "")];
    let effective = good(&["--drain", "3s"], &variables, file);
    assert_eq!(effective.settings.drain, Duration::from_secs(3));
    assert_eq!(effective.settings.limits.retention, Duration::from_secs(3 * 60 * 60));
    assert_eq!(effective.settings.workers, Some(3), "an empty variable is not set");
    assert_eq!(effective.settings.limits.principals, Limits::default().principals);
    let origin = |key| effective.origin(key).to_string().rsplit('/').next().unwrap().to_owned();
    assert_eq!(
        ["drain", "limits.retention", "workers", "limits.rejoin"].map(origin),
        ["flag --drain", "environment STICKYCAS_LIMITS_RETENTION", "server.toml:2", "default"]
    );
}

#[test]
fn a_file_may_give_every_kind_of_value() {
    let file = "listen = '127.0.0.1:1'\nhttp = 'off'\ninsecure_principals = true\ncoordinators = ['a', 'b']\n\
                workers = 'auto'\nmemory = 4_096\n[limits]\nconnections = 1_000\nread_bytes = '8MiB'\nlog_bytes = 4096\n\
                rejoin = '90s'\nstreams_per_connection = 0x10\n";
    let settings = load(&[], &[], file).unwrap().settings;
    assert_eq!((settings.http, settings.workers), (None, None));
    assert_eq!(settings.coordinators, ["a", "b"]);
    let limits = &settings.limits;
    assert_eq!((limits.connections, limits.read_bytes, limits.log_bytes), (1_000, 8 << 20, 4_096));
    assert_eq!(settings.memory, Some(4 << 30), "as the flag has always counted");
    assert_eq!((limits.rejoin, limits.streams_per_connection), (Duration::from_secs(90), 16));
}

#[test]
fn names_of_flags_and_variables_are_separated_by_commas() {
    let settings = good(
        &["--coordinator", "a,b", "--coordinator", "c"],
        &[("STICKYCAS_OBSERVERS", "x, y")],
        "coordinators = ['z']",
    );
    assert_eq!(settings.settings.coordinators, ["a", "b", "c"]);
    assert_eq!(settings.settings.observers, ["x", "y"]);
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_key_that_was_meant() {
    assert_wrong(
        &[],
        &[],
        "log = 'info'\n\nobserver = ['x']\nretention = '1h'\n\n[limits]\nconections = 3\n[xyz]\na = 1\n",
        &[
            "server.toml:3: there is no key `observer`: did you mean `observers`?",
            "server.toml:4: there is no key `retention`: did you mean `limits.retention`?",
            "server.toml:7: there is no key `limits.conections`: did you mean `limits.connections`?",
            "server.toml:8: there is no key `xyz`: `stickycas-server config reference` names all keys",
        ],
    );
}

#[test]
fn a_bound_that_is_a_constant_now_says_so_and_its_value() {
    assert_wrong(
        &[],
        &[],
        "drain = '1s'\n[limits]\nheader_bytes = '1KiB'\nunread_for = '1s'\ncalls = 3\nbytes_per_answer = 1\nevent_bytes = 1\n",
        &[
            "server.toml:3: limits.header_bytes is now a constant: 16KiB",
            "server.toml:4: limits.unread_for is now a constant: 1m",
            "server.toml:5: limits.calls is now a constant: 1 for each 128KiB of the memory, at most 262144",
            "server.toml:6: limits.bytes_per_answer is now a constant: 1MiB",
            "server.toml:7: limits.event_bytes is now a constant: 1/32 of the memory, at most 2GiB",
        ],
    );
    let of_flag = |flag| removed(flag, Setting::flag);
    assert_eq!(of_flag("instances-when-busy"), Some("is now a constant: 512".to_owned()));
    assert!(of_flag("record-memory").is_some_and(|text| text.contains("1/32")));
    assert!(of_flag("list-page").is_some_and(|text| text.contains("1000")));
    assert_eq!(
        [of_flag("connections"), of_flag("drain"), of_flag("nothing")],
        [None, None, None],
        "settings"
    );
}

#[test]
fn what_was_a_setting_of_the_live_page_says_where_it_is() {
    let of_variable = |variable| removed(variable, Setting::variable).unwrap();
    let answers = [
        removed("page", Setting::flag).unwrap(),
        removed("page_viewers", |bound| bound.key.to_owned()).unwrap(),
        removed("limits.page_viewers", |bound| bound.key.to_owned()).unwrap(),
        of_variable("STICKYCAS_LIMITS_PAGE_VIEWERS"),
    ];
    assert!(answers.iter().all(|answer| answer.contains("stickycas-loadgen view")), "{answers:?}");
    assert!(removed("page-host", Setting::flag).unwrap().contains("http_hosts"));
    assert!(of_variable("STICKYCAS_PAGE_HOSTS").contains("--http-host"));
    assert_eq!(of_variable("STICKYCAS_LIMITS_PAGE"), "is now a constant: 1000", "of List");
}

#[test]
fn every_mistake_is_told_with_its_place() {
    assert_wrong(
        &["--workers", "0", "--lease", "0s"],
        &[("STICKYCAS_HTTP", "localhost"), ("STICKYCAS_LOG_LINES_PER_SECOND", "5000000000")],
        "drain = 5\nlisten = 7420\n[limits]\nconnections = 0\nread_bytes = 1.5\nretention = '11y'\ninstances = ['1']\n\
         [x]\ny = 1\n",
        &[
            "server.toml:1: drain = \"5\": give a duration such as 500ms, 10min or 1h, of 3650d at most",
            "server.toml:2: listen = \"7420\": give an address and a port such as 127.0.0.1:7420",
            "server.toml:4: limits.connections = \"0\": give a whole number from 1 to 4294967295",
            "server.toml:5: limits.read_bytes is a float: give a size such as 64KiB or 16MiB",
            "server.toml:6: limits.retention = \"11y\": give a duration such as 500ms, 10min or 1h, of 3650d at most",
            "server.toml:7: limits.instances is a array: give a whole number from 0 to 4294967295",
            "server.toml:8: there is no key `x`: `stickycas-server config reference` names all keys",
            "environment STICKYCAS_HTTP = \"localhost\": give an address and a port such as 127.0.0.1:7420, or off",
            "environment STICKYCAS_LOG_LINES_PER_SECOND = \"5000000000\": give a whole number from 1 to 4294967295",
            "--lease \"0s\": give a duration above 0 such as 500ms, 10s or 1min, of 3650d at most",
            "--workers \"0\": give a whole number from 1 to 1024, or auto",
        ],
    );
}

#[test]
fn a_file_that_is_no_toml_is_refused_with_its_line() {
    let errors = load(&["--insecure-principals"], &[], "drain = '1s'\nlog = info\n").unwrap_err();
    assert!(errors[0].starts_with("server.toml:2: "), "{errors:?}");
    let errors = load(&["--insecure-principals"], &[], "drain = '1s'\ndrain = '2s'\n").unwrap_err();
    assert!(errors[0].starts_with("server.toml:2: duplicate key"), "{errors:?}");
}

#[test]
fn a_file_that_is_not_there_is_refused_by_its_name() {
    let mut args = SettingsArgs::default();
    args.config = Some("/nowhere/server.toml".into());
    let SettingsError(errors) = Effective::load(&args, &|_| None).unwrap_err();
    assert!(errors[0].starts_with("cannot read the configuration /nowhere/server.toml: "), "{errors:?}");
    // A variable names the file too, and a flag wins over it.
    let from_variable = Effective::load(&SettingsArgs::default(), &|name| {
        (name == CONFIG_VARIABLE).then(|| "/elsewhere.toml".into())
    });
    assert!(from_variable.unwrap_err().to_string().contains("/elsewhere.toml"));
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    assert_eq!(
        load(&["--listen", "0.0.0.0:1", "--http", "0.0.0.0:1"], &[], "").unwrap_err().len(),
        2,
        "no identity, one address for two"
    );
    assert_wrong(
        &["--listen", "0.0.0.0:1", "--credentials", "/somewhere"],
        &[],
        "",
        &[
            "credentials (flag --credentials) and insecure_principals (flag --insecure-principals) exclude each \
             other: leave one out",
            "0.0.0.0:1 can be reached from other machines, and any caller can name any principal: listen on a loopback \
             address, or add --insecure-allow-remote",
        ],
    );
    load(&["--listen", "0.0.0.0:1", "--credentials", "/somewhere"], &[], "").unwrap();
    assert_wrong(
        &[],
        &[],
        "[limits]\nconnections = 99\nunclaimed_connections_per_address = 51\n",
        &[
            "limits.unclaimed_connections_per_address (server.toml:3) is 51, above unclaimed_connections: give 50 at most",
        ],
    );
    let fits = "[limits]\nconnections = 99\nunclaimed_connections_per_address = 50\n";
    assert_eq!(good(&[], &[], fits).settings.limits.unclaimed_connections, 50, "half of all");
}

#[test]
fn limits_follow_from_the_memory_unless_they_are_set() {
    let settings = good(&["--memory", "256MiB"], &[], "[limits]\nread_bytes = '1KiB'\n").settings;
    assert_eq!(settings.limits.instance_bytes, ((256 - 32) * 3 / 8) << 20, "a constant follows too");
    assert_eq!((settings.limits.read_bytes, settings.limits.connections), (1 << 10, 149));
    assert_eq!(good(&["--memory", "auto"], &[], "memory = '1MiB'").settings.memory, None);
    let text = show(&good(&[], &[("STICKYCAS_MEMORY", "1GiB")], ""), true);
    assert!(text.contains("memory = \"1GiB\" # environment STICKYCAS_MEMORY\n"), "{text}");
    assert!(text.contains("# default: 1/128 of the memory, at most 64MiB\n"), "{text}");
    assert!(text.contains("# default: 1 for each 1536KiB of the memory, at most 16384\n"), "{text}");
    let text = show(&good(&[], &[], ""), true);
    let memory = text.lines().find_map(|line| line.strip_prefix("memory = \"auto\" # default: ")).unwrap();
    assert!(memory.contains(" MiB, of "), "{memory}");
}

#[test]
fn limits_that_come_to_more_than_the_memory_are_refused_with_the_least_that_does() {
    assert_wrong(
        &["--memory", "64MiB"],
        &[],
        "",
        &[
            "memory (flag --memory) is \"64MiB\", as it is set, and the limits may take more: \"96MiB\" is the least that \
           does: give --memory as much if the server may use it",
        ],
    );
    good(&["--memory", "96MiB"], &[], "");
    good(&["--memory", "128MiB"], &[], "");
    let large = ["--memory", "512MiB", "--connections", "3000"];
    let [wrong] = &load(&[&["--insecure-principals"], &large[..]].concat(), &[], "").unwrap_err()[..] else {
        panic!("one mistake")
    };
    let (_, least) = wrong.split_once("the limits may take more: \"").unwrap();
    let (least, advice) = least.split_once('"').unwrap();
    assert!(advice.ends_with(", or lower connections (flag --connections)"), "{advice}");
    let with = |memory| ["--insecure-principals", "--memory", memory, "--connections", "3000"];
    load(&with(least), &[], "").unwrap();
    let less = format!("{}MiB", least.trim_end_matches("MiB").parse::<u64>().unwrap() - 1);
    load(&with(&less), &[], "").unwrap_err();
}

#[test]
fn every_setting_has_names_of_its_own_and_says_what_it_is_for() {
    let mut names = BTreeSet::new();
    for setting in table::all() {
        for name in [setting.key.to_owned(), setting.flag(), setting.variable()] {
            assert!(names.insert(name.clone()) || name == setting.key, "{name} twice");
        }
        assert!(setting.text().ends_with('.'), "{}: {}", setting.key, setting.text());
    }
}

#[test]
fn the_help_of_serve_has_every_setting_on_a_page_or_on_that_of_limits() {
    let help = |flag| {
        let command = cli::help_of_settings(cli::command_line(), flag == "--help-limits").term_width(100);
        command.try_get_matches_from(["stickycas-server", "serve", flag]).unwrap_err().to_string()
    };
    let [short, long, limits] = ["-h", "--help", "--help-limits"].map(help);
    assert_eq!(short, long);
    for page in [&short, &limits] {
        assert!(page.lines().count() <= 110, "{} lines:\n{page}", page.lines().count());
        assert!(page.lines().all(|line| line.len() <= 100), "{page}");
    }
    for setting in table::all() {
        let (flag, page) =
            (format!("--{} ", setting.flag()), if setting.is_limit() { &limits } else { &short });
        let listed = page.replace("[=", " [=").lines().any(|line| line.trim_start().starts_with(&flag));
        assert!(listed, "{flag} is not in:\n{page}");
    }
}

#[test]
fn every_example_can_be_typed() {
    for line in cli::EXAMPLES {
        let parsed = cli::command_line().try_get_matches_from(line.split(' '));
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }
}

#[test]
fn tokens_need_credentials_and_an_address_of_their_own() {
    let tokens = "token_listen = '127.0.0.1:9'\n";
    assert_wrong(
        &[],
        &[],
        tokens,
        &["token_listen (server.toml:1): tokens are taken by TLS only: give --credentials DIR too"],
    );
    let flags = ["--credentials", "x", "--listen", "127.0.0.1:9"];
    assert_eq!(
        load(&flags, &[], tokens).unwrap_err(),
        ["127.0.0.1:9 is the address of a listener for tokens and of another: give a free one",]
    );
    let flags = ["--credentials", "x", "--token-audience", "us", "--admin", "ann"];
    let settings = load(&flags, &[("STICKYCAS_TOKEN_ISSUER", "them")], tokens).unwrap().settings;
    let config = Settings { data: Data::InMemory, ..settings }.into_config().unwrap();
    assert_eq!(config.tokens, Some(TokenConfig { issuer: "them".to_owned(), audience: "us".to_owned() }));
    assert_eq!(config.admins, BTreeSet::from(["ann".to_owned()]));
}

#[test]
fn every_variable_stands_in_the_list_of_all() {
    let settings = table::all().map(Setting::variable);
    let expected: BTreeSet<String> = settings.chain([CONFIG_VARIABLE.to_owned()]).collect();
    assert_eq!(stickycas_program::variables_of_server().collect::<BTreeSet<_>>(), expected);
    for name in stickycas_program::variables_of(&cli::command_line()) {
        assert!(stickycas_program::is_variable(&name), "{name}");
    }
}

#[test]
fn what_is_shown_is_a_file_that_gives_the_same_settings() {
    let variables = [("STICKYCAS_COORDINATORS", "boss,orange")];
    let effective =
        good(&["--no-http", "--read-bytes", "3MiB", "--drain", "90s", "--log-json"], &variables, "");
    let text = show(&effective, true);
    assert!(text.contains("drain = \"1m30s\" # flag --drain\n"), "{text}");
    assert!(text.contains("http = \"off\" # flag --no-http\n"), "{text}");
    assert!(text.contains("read_bytes = \"3MiB\" # flag --read-bytes\n"), "{text}");
    assert!(text.contains("# environment STICKYCAS_COORDINATORS\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(" = ")).count(), table::all().count());
    let again = load(&[], &[], &text).unwrap();
    assert_eq!(format!("{:?}", again.settings), format!("{:?}", effective.settings));
    let changed = show(&effective, false);
    assert_eq!(changed.lines().filter(|line| line.contains(" = ")).count(), 6, "{changed}");
}

#[test]
fn the_page_of_all_settings_is_the_one_in_the_documentation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate/configuration.md");
    if env::var_os("STICKYCAS_BLESS").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(
        page == reference(),
        "docs/operate/configuration.md is not what `stickycas-server config reference` prints"
    );
}

#[test]
fn roles_are_given_to_names_that_a_principal_can_have() {
    for name in ["", "a,,b", "a b", "a\u{7}", ".", "\u{e9}"] {
        for flag in ["--coordinator", "--observer"] {
            let wrong = load(&["--insecure-principals", flag, name], &[], "").unwrap_err();
            assert!(wrong.len() == 1 && wrong[0].starts_with(flag), "{name:?}: {wrong:?}");
        }
    }
}

#[test]
fn admission_has_three_modes() {
    for mode in ["off", "observe", "enforce"] {
        assert_eq!(good(&["--admission", mode], &[], "").settings.admission.name(), mode);
    }
    let expected = ["--admission \"sometimes\": give off, observe or enforce"];
    assert_wrong(&["--admission", "sometimes"], &[], "", &expected);
}

#[test]
fn the_files_for_systemd_and_kubernetes_are_good() {
    let files = [
        include_str!("../../../deploy/systemd/server.toml"),
        include_str!("../../../deploy/kubernetes/server.toml"),
    ];
    for file in files {
        let effective = load(&[], &[], file).unwrap();
        assert!(effective.given().count() > 5);
    }
}

/// A full disk lasts longer than any number of starts.
#[test]
fn the_unit_starts_the_server_again_without_end() {
    let unit = include_str!("../../../deploy/systemd/stickycas-server.service");
    let has = |line: &str| unit.lines().any(|it| it == line);
    assert!(has("StartLimitIntervalSec=0") && has("Restart=on-failure"));
    assert!(has("RestartForceExitStatus=SIGHUP"), "systemd takes that signal for a clean end");
    assert!(has("RestartPreventExitStatus=2"));
    let before = unit.lines().any(|line| line.starts_with("ExecStartPre="));
    assert!(!before, "RestartPreventExitStatus holds for the main process only");
}

#[test]
fn files_that_cannot_be_used_are_told_with_their_settings() {
    let folder = tempfile::tempdir().unwrap();
    let (file, there) = (folder.path().join("file"), folder.path().display().to_string());
    std::fs::write(&file, "x").unwrap();
    let (file, gone) = (file.display().to_string(), format!("{there}/no/such/folder"));
    let (file, gone, there) = (file.as_str(), gone.as_str(), there.as_str());
    let wrong =
        |flags: &[&str]| good(flags, &[], "").check_files(true).err().map(|SettingsError(errors)| errors);
    assert_eq!(wrong(&["--data", gone]), None, "it is made");
    assert_eq!(wrong(&["--data", there, "--etcd-credentials", there]), None);
    assert_eq!(wrong(&["--in-memory"]), None);
    let below = format!("{file}/below");
    let below = below.as_str();
    for (flags, key) in [
        (["--data", file], "data (flag --data)"),
        (["--data", below], "data (flag --data)"),
        (["--etcd-credentials", gone], "etcd_credentials (flag --etcd-credentials)"),
        (["--etcd-credentials", file], "etcd_credentials (flag --etcd-credentials)"),
    ] {
        let errors = wrong(&flags).unwrap_or_default();
        assert!(errors.len() == 1 && errors[0].starts_with(&format!("{key}: {}: ", flags[1])), "{errors:?}");
    }
    for path in [gone, file] {
        let with = load(&["--credentials", path], &[], "").unwrap();
        let SettingsError(errors) = with.check_files(false).unwrap_err();
        assert!(errors[0].starts_with(&format!("credentials (flag --credentials): {path}: ")), "{errors:?}");
    }
}

#[cfg(feature = "cluster")]
#[test]
fn credentials_for_etcd_that_cannot_be_used_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let flags = ["--etcd", "https://127.0.0.1:1", "--etcd-credentials", &path];
    let wrong = || good(&flags, &[], "").check_files(false).unwrap_err().to_string();
    assert!(wrong().contains("none of ca.crt"), "{}", wrong());
    std::fs::write(folder.path().join("user"), "root").unwrap();
    assert!(wrong().contains("user is there without password"), "{}", wrong());
    std::fs::write(folder.path().join("password"), "secret").unwrap();
    assert!(wrong().starts_with("etcd (flag --etcd): the endpoint"), "{}", wrong());
}
