//! The folder of the log as a platform gives it and as it can be taken away, limits of the system, and
//! signals from the first moment on.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tonic::Code;

use crate::harness::fixtures::{alone, create_request};
use crate::harness::with_timeout;
use crate::operators::get;
use crate::program::signal;
use crate::program_data::client;

const PROGRAM: &str = env!("CARGO_BIN_EXE_stickycas-server");
const FLAGS: [&str; 8] = [
    "--coordinator",
    "boss",
    "--insecure-principals",
    "--listen",
    "127.0.0.1:0",
    "--http",
    "127.0.0.1:0",
    "--data",
];

/// The program with these arguments, started by another one, which these words are.
fn by(words: &[&str], arguments: &[&str]) -> Command {
    let all = [words, arguments].concat();
    let mut command = Command::new(all[0]);
    command.args(&all[1..]).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

struct Served {
    server: Child,
    address: String,
    http: SocketAddr,
}

async fn serve_by(words: &[&str], data: &Path) -> Served {
    let arguments = [&[PROGRAM, "serve"], &FLAGS[..], &[data.to_str().unwrap()]].concat();
    let mut server = by(words, &arguments).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut addresses = Vec::new();
    for what in ["listening on ", "http on "] {
        let Some(line) = with_timeout(lines.next_line()).await.unwrap() else {
            panic!("{}", ended(server).await.1);
        };
        addresses.push(line.strip_prefix(what).unwrap().to_owned());
    }
    Served { server, address: addresses.remove(0), http: addresses[0].parse().unwrap() }
}

/// The exit code of a program, and what it has said.
async fn ended(program: Child) -> (Option<i32>, String) {
    let ended = with_timeout(program.wait_with_output()).await.unwrap();
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

async fn output_by(words: &[&str], arguments: &[&str]) -> (Option<i32>, String) {
    ended(by(words, &[&[PROGRAM], arguments].concat()).spawn().unwrap()).await
}

/// Copies a folder, as somebody does who puts an older one in its place.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for file in ["log.redb", "log.tail"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

#[tokio::test]
async fn a_folder_that_goes_away_ends_the_server() {
    type Lose = fn(&Path);
    let losses: [(&str, Lose); 4] = [
        ("removed", |data| fs::remove_dir_all(data).unwrap()),
        ("replaced", |data| {
            let old = data.with_extension("old");
            fs::rename(data, &old).unwrap();
            copy(&old, data);
        }),
        ("without its log", |data| fs::remove_file(data.join("log.redb")).unwrap()),
        ("with another log", |data| {
            let other = data.join("other");
            copy(data, &other);
            fs::rename(other.join("log.redb"), data.join("log.redb")).unwrap();
        }),
    ];
    for (how, lose) in losses {
        for is_used in [false, true] {
            let parent = tempfile::tempdir().unwrap();
            let data = parent.path().join("data");
            let Served { server, address, http } = serve_by(&[], &data).await;
            let mut boss = client(&address, "boss").await;
            boss.create(create_request(alone())).await.unwrap();
            assert_eq!(get(http, "/readyz").await.0, "HTTP/1.1 200 OK");
            lose(&data);
            if is_used {
                // The server may have gone by now.
                let created = boss.create(create_request(alone())).await;
                assert!(created.is_err(), "{how}: nobody finds that again");
            }
            drop(boss);
            let (code, said) = ended(server).await;
            assert_eq!(code, Some(5), "{how}: {said}");
            assert!(said.contains("log.redb was removed or replaced"), "{how}: {said}");
        }
    }
}

#[tokio::test]
async fn a_log_above_the_limit_of_file_sizes_ends_with_5() {
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("data");
    let Served { server, address, .. } = serve_by(&[], &data).await;
    drop(client(&address, "boss").await);
    signal(&server, "-TERM").await;
    assert_eq!(ended(server).await.0, Some(0));
    let limit = format!("--fsize={}", data.join("log.redb").metadata().unwrap().len());
    let Served { server, address, .. } = serve_by(&["prlimit", &limit], &data).await;
    let mut boss = client(&address, "boss").await;
    let refused = loop {
        let mut request = create_request(alone());
        request.parameters.as_mut().unwrap().processes = 5_000;
        request.roster = (0..5_000).map(|process| format!("{process:0100}")).collect();
        let created = with_timeout(boss.create(request)).await;
        if created.is_err() {
            break created;
        }
    };
    let refused = refused.unwrap_err();
    assert!(refused.code() == Code::Unavailable && refused.message().contains("cannot write its log"));
    let (code, said) = ended(server).await;
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("the log cannot be written") && said.contains("File too large"), "{said}");
}

#[tokio::test]
async fn what_does_not_fit_into_a_file_leaves_no_part_of_it() {
    let parent = tempfile::tempdir().unwrap();
    let path = |name: &str| parent.path().join(name).to_str().unwrap().to_owned();
    let (data, out, whole) = (path("data"), path("out"), path("whole"));
    let Served { server, address, .. } = serve_by(&[], Path::new(&data)).await;
    let mut boss = client(&address, "boss").await;
    boss.create(create_request(alone())).await.unwrap();
    drop(boss);
    signal(&server, "-TERM").await;
    assert_eq!(ended(server).await.0, Some(0));
    let (code, said) = output_by(&[], &["data", "backup", "--data", &data, "--out", &whole]).await;
    assert_eq!(code, Some(0), "{said}");
    for arguments in [
        ["backup", "--data", &data, "--out", &out],
        ["dump", "--backup", &whole, "--out", &out],
        ["restore", "--from", &whole, "--data", &out],
    ] {
        let (code, said) = output_by(&["prlimit", "--fsize=50"], &[&["data"], &arguments[..]].concat()).await;
        assert!(code == Some(3) && said.contains("File too large"), "{arguments:?}: {code:?} {said}");
        assert!(!Path::new(&out).exists(), "{arguments:?}");
    }
}

/// The file of the settings is a pipe: the program has begun and reads it until the test writes.
#[tokio::test]
async fn signals_count_from_the_first_moment_on() {
    let parent = tempfile::tempdir().unwrap();
    let pipe = parent.path().join("server.toml");
    let data = parent.path().join("data");
    for (name, ends) in [("-HUP", false), ("-TERM", true), ("-INT", true)] {
        assert!(Command::new("mkfifo").arg(&pipe).status().await.unwrap().success());
        let config = ["serve", "--config", pipe.to_str().unwrap()];
        let arguments = [&[PROGRAM], &config[..], &FLAGS[..], &[data.to_str().unwrap()]].concat();
        let mut server = by(&[], &arguments).spawn().unwrap();
        // Opens when the program reads it.
        let settings = with_timeout(tokio::fs::OpenOptions::new().write(true).open(&pipe)).await.unwrap();
        signal(&server, name).await;
        drop(settings);
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        if !ends {
            assert!(with_timeout(lines.next_line()).await.unwrap().is_some(), "{name} has ended it");
            signal(&server, "-TERM").await;
        }
        let (code, said) = ended(server).await;
        assert_eq!(code, Some(0), "{name}: {said}");
        fs::remove_file(&pipe).unwrap();
    }
}

/// As which user and in which groups a server runs. The program is given as an open file: its folder may be
/// closed to them.
fn as_user(user: u32, groups: &[u32]) -> Vec<String> {
    let (own, groups) = (groups[0], groups.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    let set = format!("exec setpriv --reuid={user} --regid={own} --groups={groups}");
    let script = format!("program=$1; shift; {set} /proc/self/fd/9 \"$@\" 9<\"$program\"");
    ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
}

/// What Kubernetes does to a volume at each mount, for the group of the pod.
fn mount(path: &Path, group: u32) {
    let mode = if path.is_dir() { 0o2770 } else { 0o660 };
    chown(path, None, Some(group)).unwrap();
    let found = path.metadata().unwrap().mode() & 0o7777;
    fs::set_permissions(path, fs::Permissions::from_mode(found | mode)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|inner| mount(&inner.unwrap().path(), group));
    }
}

/// Whether the tests run as root, as they have to where `CI` is set.
fn is_root(folder: &Path) -> bool {
    let is_root = folder.metadata().unwrap().uid() == 0;
    assert!(is_root || std::env::var_os("CI").is_none(), "only root can be other users");
    is_root
}

/// Only root can be other users.
#[tokio::test]
async fn a_volume_serves_again_after_each_mount() {
    const POD: (u32, u32) = (65_532, 5_000);
    const OPENSHIFT: u32 = 1_000_680_000;
    let as_pod = as_user(POD.0, &[POD.0, POD.1]);
    // The mode of the volume before it is given to a group, the group, the folder in it, and who serves one
    // after the other.
    let volumes = [
        (0o755, Some(POD.1), "", [as_pod.clone(), as_user(POD.0 + 1, &[POD.0, POD.1])]),
        (0o755, Some(POD.1), "log", [as_pod.clone(), as_pod.clone()]),
        (0o700, Some(POD.1), "", [as_user(OPENSHIFT, &[0, POD.1]), as_user(OPENSHIFT, &[0, POD.1])]),
        (0o777, Some(POD.1), "", [as_pod.clone(), as_pod.clone()]),
        (0o777, None, "", [as_user(OPENSHIFT, &[0]), as_user(OPENSHIFT, &[0])]),
        (0o777, None, "log", [as_pod.clone(), as_pod.clone()]),
        (0o770, None, "", [as_user(OPENSHIFT, &[0]), as_user(OPENSHIFT, &[0])]),
    ];
    for (mode, group, folder, users) in volumes {
        let parent = tempfile::tempdir().unwrap();
        if !is_root(parent.path()) {
            return;
        }
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let volume = parent.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::set_permissions(&volume, fs::Permissions::from_mode(mode)).unwrap();
        let mut instance = None;
        for user in users {
            if let Some(group) = group {
                mount(&volume, group);
            }
            let words: Vec<&str> = user.iter().map(String::as_str).collect();
            let data = volume.join(folder);
            let Served { server, address, .. } = serve_by(&words, &data).await;
            let mut boss = client(&address, "boss").await;
            let log = data.join("log.redb").metadata().unwrap();
            assert_eq!(log.mode() & 0o007, 0, "{mode:o}: what clients write is for nobody else");
            match &instance {
                None => {
                    let created = boss.create(create_request(alone())).await.unwrap().into_inner();
                    instance = Some(created.instance.unwrap().instance_id);
                }
                Some(id) => drop(boss.status(id).await),
            }
            drop(boss);
            signal(&server, "-TERM").await;
            let (code, said) = ended(server).await;
            assert_eq!(code, Some(0), "{mode:o}: {said}");
            assert_eq!(said.contains("everybody may write to"), mode == 0o777 && folder.is_empty(), "{said}");
            // What root makes there must not keep the server out.
            fs::remove_file(data.join("lock")).unwrap();
            let (code, said) = output_by(&[], &["data", "check", "--data", data.to_str().unwrap()]).await;
            assert_eq!(code, Some(0), "{mode:o}: {said}");
        }
    }
}

#[tokio::test]
async fn credentials_are_read_as_kubernetes_mounts_secrets() {
    let parent = tempfile::tempdir().unwrap();
    if !is_root(parent.path()) {
        return;
    }
    let made = parent.path().join("made");
    let (code, said) =
        output_by(&[], &["credentials", "--principals", "1", "--out", made.to_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{said}");
    let secret = parent.path().join("secret");
    let version = secret.join("..2026_01_01");
    fs::create_dir_all(&version).unwrap();
    symlink("..2026_01_01", secret.join("..data")).unwrap();
    for file in fs::read_dir(made.join("server")).unwrap() {
        let file = file.unwrap();
        let place = version.join(file.file_name());
        fs::copy(file.path(), &place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o440)).unwrap();
        chown(&place, None, Some(5_000)).unwrap();
        symlink(Path::new("..data").join(file.file_name()), secret.join(file.file_name())).unwrap();
    }
    fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let user = as_user(65_532, &[65_532, 5_000]);
    let words: Vec<&str> = user.iter().map(String::as_str).collect();
    let arguments = [
        PROGRAM,
        "serve",
        "--in-memory",
        "--no-http",
        "--listen",
        "127.0.0.1:0",
        "--credentials",
        secret.to_str().unwrap(),
    ];
    let mut server = by(&words, &arguments).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(with_timeout(lines.next_line()).await.unwrap().is_some(), "{}", ended(server).await.1);
}
