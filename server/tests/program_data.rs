//! `stickycas-server data`: what an operator does with the log of a server, as a program beside the server.

use std::path::Path;
use std::process::Stdio;

use prost::Message as _;
use stickycas_proto::log::v1::DumpedInstance;
use stickycas_proto::v1::{ListRequest, State};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tonic::Code;
use tonic::transport::Endpoint;

use crate::harness::fixtures::{alone, create_request, parameters};
use crate::harness::{Client, assert_refused, with_timeout};
use crate::operators::get;
use crate::program::{command, output, signal};
use crate::restarts::private_folder;

/// A server on this folder, and its address.
pub(crate) async fn serve(data: &Path) -> (Child, String) {
    let data = data.to_str().unwrap();
    let flags = ["--no-http", "--coordinator", "boss", "--insecure-principals", "--listen", "127.0.0.1:0"];
    let arguments = [&["serve", "--data", data], &flags[..]].concat();
    let mut server = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = with_timeout(lines.next_line()).await.unwrap().expect("it says where it listens");
    (server, line.strip_prefix("listening on ").unwrap().to_owned())
}

pub(crate) async fn client(address: &str, principal: &str) -> Client {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = Client::on(channel, principal);
    // It may still read its log.
    with_timeout(async {
        while client.instances.list(ListRequest::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    client
}

/// What a command prints, and its exit code.
pub(crate) async fn data(arguments: &[&str]) -> (String, Option<i32>) {
    let done = output(&[&["data"], arguments].concat()).await;
    let printed = [done.stdout, done.stderr].concat();
    (String::from_utf8(printed).unwrap(), done.status.code())
}

/// `serve` with these flags, for as long as it takes to fail.
pub(crate) async fn refused(flags: &[&str]) -> (String, Option<i32>) {
    let usual = ["serve", "--no-http", "--insecure-principals", "--listen", "127.0.0.1:0"];
    let refused = output(&[&usual[..], flags].concat()).await;
    assert!(refused.stdout.is_empty(), "it says that it listens");
    (String::from_utf8(refused.stderr).unwrap(), refused.status.code())
}

/// A folder in which one instance has ended and one has not; the ids.
pub(crate) async fn played(folder: &Path) -> (Child, String, [String; 2]) {
    let (server, address) = serve(folder).await;
    let mut boss = client(&address, "boss").await;
    let mut ids = Vec::new();
    for parameters in [alone(), parameters()] {
        let created = boss.create(create_request(parameters)).await.unwrap().into_inner();
        ids.push(created.instance.unwrap().instance_id);
    }
    let mut first = client(&address, "p1").await;
    first.append(&ids[0], 1, "yes").await.unwrap();
    first.decide(&ids[0], "yes").await.unwrap();
    drop(first.append_and_wait(&ids[1], "yes").await);
    (server, address, ids.try_into().unwrap())
}

#[tokio::test]
async fn a_backup_of_a_server_that_runs_is_another_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (log, copy, backup) = (path("log"), path("copy"), path("backup"));
    let (mut server, address, [ended, live]) = played(Path::new(&log)).await;
    let (printed, code) = data(&["backup", "--data", &log, "--out", &backup]).await;
    assert!(code == Some(0) && printed.contains("from a server that runs"), "{printed}");
    let (printed, code) = data(&["backup", "--data", &log, "--out", &backup]).await;
    assert!(code == Some(3) && printed.contains("cannot make"), "a file is never overwritten: {printed}");
    for command in ["check", "compact"] {
        let (printed, code) = data(&[command, "--data", &log]).await;
        assert!(code == Some(3) && printed.contains("is in use by another stickycas-server"), "{printed}");
    }
    // What comes after the backup is not in it.
    client(&address, "p2").await.append_and_wait(&live, "no").await.abort();
    let (printed, code) = data(&["check", "--backup", &backup]).await;
    assert!(code == Some(0) && printed.starts_with("whole: 2 instances"), "{printed}");

    let (printed, code) = data(&["restore", "--from", &backup, "--data", &copy]).await;
    assert!(code == Some(0) && printed.contains("1 instances that had not ended were closed"), "{printed}");
    let (printed, code) = data(&["restore", "--from", &backup, "--data", &copy]).await;
    assert!(code == Some(3) && printed.contains("holds a log, which would be lost"), "{printed}");
    let (mut restored, address) = serve(Path::new(&copy)).await;
    let mut boss = client(&address, "boss").await;
    assert_eq!(boss.status(&ended).await.state(), State::Finished);
    assert_eq!(boss.status(&live).await.state(), State::Closed, "nobody goes on from less than was told");
    let refused = client(&address, "p3").await.append(&live, 1, "yes").await;
    assert_refused(refused, Code::FailedPrecondition, "INSTANCE_CLOSED");
    for server in [&mut server, &mut restored] {
        signal(server, "-KILL").await;
        with_timeout(server.wait()).await.unwrap();
    }
}

#[tokio::test]
async fn the_log_of_a_server_that_was_killed_is_checked_dumped_and_compacted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (log, out) = (path("log"), path("dump"));
    let (mut server, _, [ended, live]) = played(Path::new(&log)).await;
    signal(&server, "-KILL").await;
    with_timeout(server.wait()).await.unwrap();
    let (printed, code) = data(&["check", "--data", &log]).await;
    assert!(code == Some(0) && printed.starts_with("whole: 2 instances"), "{printed}");

    let (printed, code) = data(&["dump", "--data", &log, "--instance", &ended, "--out", &out]).await;
    assert!(code == Some(0) && printed.starts_with("1 instances in "), "{printed}");
    let dumped = std::fs::read(&out).unwrap();
    let dumped = DumpedInstance::decode_length_delimited(&*dumped).unwrap();
    assert_eq!((dumped.first_index, dumped.events.len()), (0, 9), "{dumped:?}");
    let (printed, code) = data(&["dump", "--data", &log, "--instance", "nobody", "--out", &path("no")]).await;
    assert!(code == Some(2) && printed.contains("there is no instance nobody"), "{printed}");

    let (printed, code) = data(&["compact", "--data", &log]).await;
    assert!(code == Some(0) && printed.contains("bytes before"), "{printed}");
    let (printed, code) = data(&["check", "--data", &log]).await;
    assert!(code == Some(0) && printed.starts_with("whole: 2 instances"), "{printed}");
    let (mut server, address) = serve(Path::new(&log)).await;
    assert_eq!(client(&address, "p1").await.own(&live).await.waiting.len(), 1);
    signal(&server, "-TERM").await;
    with_timeout(server.wait()).await.unwrap();
}

#[tokio::test]
async fn damage_is_named_and_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (log, backup) = (path("log"), path("backup"));
    let (mut server, ..) = played(Path::new(&log)).await;
    signal(&server, "-TERM").await;
    with_timeout(server.wait()).await.unwrap();
    assert_eq!(data(&["backup", "--data", &log, "--out", &backup]).await.1, Some(0));

    let file = Path::new(&log).join("log.tail");
    let mut bytes = std::fs::read(&file).unwrap();
    // A page that is not in use may have it too.
    let values: Vec<usize> = (0..bytes.len() - 3).filter(|at| bytes[*at..*at + 3] == *b"yes").collect();
    assert!(!values.is_empty(), "the value is in the file");
    values.iter().for_each(|at| bytes[*at] ^= 1);
    std::fs::write(&file, &bytes).unwrap();
    let (printed, code) = data(&["check", "--data", &log]).await;
    assert!(code == Some(1) && printed.starts_with("damaged: "), "{printed}");
    let flags = ["--insecure-principals", "--no-http", "--listen", "127.0.0.1:0"];
    let refused = output(&[&["serve", "--data", &log], &flags[..]].concat()).await;
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("log.redb"), "{refused:?}");

    let whole = std::fs::read(&backup).unwrap();
    std::fs::write(&backup, &whole[..whole.len() - 3]).unwrap();
    let (printed, code) = data(&["check", "--backup", &backup]).await;
    assert!(code == Some(1) && printed.contains("backup"), "{printed}");
    let (printed, code) = data(&["restore", "--from", &backup, "--data", &path("copy")]).await;
    assert!(code == Some(1) && printed.contains("backup"), "{printed}");
    assert!(!Path::new(&path("copy")).join("log.redb").exists(), "half a log is not left behind");
    for command in ["check", "compact"] {
        let (printed, code) = data(&[command, "--data", &path("nowhere")]).await;
        assert!(code == Some(2) && printed.contains("there is no log in"), "{printed}");
    }
}

/// Only root can do that, and give a folder to another user.
#[tokio::test]
async fn root_reads_the_log_of_another_user_and_leaves_it_usable() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    const OWNER: u32 = 12_345;
    let folder = tempfile::tempdir().unwrap();
    if folder.path().metadata().unwrap().uid() != 0 {
        return;
    }
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let log = path("log");
    let (mut server, ..) = played(Path::new(&log)).await;
    chown(&log, Some(OWNER), Some(OWNER)).unwrap();
    let (printed, code) = data(&["backup", "--data", &log, "--out", &path("running")]).await;
    assert!(code == Some(0) && printed.contains("from a server that runs"), "{printed}");
    signal(&server, "-TERM").await;
    with_timeout(server.wait()).await.unwrap();

    let lock = Path::new(&log).join("lock");
    std::fs::remove_file(&lock).unwrap();
    for read in [&["check"][..], &["dump", "--out", &path("dump")], &["backup", "--out", &path("stopped")]] {
        let (printed, code) = data(&[read, &["--data", &log]].concat()).await;
        assert_eq!(code, Some(0), "{printed}");
        assert!(!lock.exists(), "the server of the owner must be able to make it");
    }
    let refusals = [data(&["compact", "--data", &log]).await, refused(&["--data", &log]).await];
    for (said, code) in refusals {
        assert!(code == Some(3) && said.contains("belongs to the user with id 12345"), "{said}");
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_named_before_anything_listens() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let (server, _) = serve(&log).await;
    let (said, code) = refused(&["--data", log.to_str().unwrap()]).await;
    assert!(code == Some(3) && said.contains("is in use by another stickycas-server"), "{said}");
    drop(server);
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (said, code) = refused(&["--data", folder.path().to_str().unwrap()]).await;
    assert!(code == Some(3) && said.contains("has mode 755"), "{said}");
}

#[tokio::test]
async fn a_server_says_that_it_recovers_while_it_opens_its_log() {
    let folder = private_folder();
    // It takes for ever to open a pipe that nobody writes to.
    let pipe = Command::new("mkfifo").arg(folder.path().join("log.redb")).status();
    assert!(with_timeout(pipe).await.unwrap().success());
    let data = folder.path().to_str().unwrap();
    let flags = [
        "serve",
        "--data",
        data,
        "--http",
        "127.0.0.1:0",
        "--insecure-principals",
        "--listen",
        "127.0.0.1:0",
    ];
    let mut server = command(&flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines();
    let mut address = async |what: &str| {
        let line = with_timeout(lines.next_line()).await.unwrap().expect("it says where it listens");
        line.strip_prefix(what).unwrap().to_owned()
    };
    let (clients, operators) = (address("listening on ").await, address("http on ").await.parse().unwrap());
    let channel =
        with_timeout(Endpoint::from_shared(format!("http://{clients}")).unwrap().connect()).await.unwrap();
    let listed = with_timeout(Client::on(channel, "boss").instances.list(ListRequest::default())).await;
    assert_refused(listed, Code::Unavailable, "RECOVERING");
    assert_eq!(get(operators, "/livez").await.0, "HTTP/1.1 200 OK");
    let (status, why) = get(operators, "/readyz").await;
    assert!(status.contains(" 503 ") && why.contains("reads its log"), "{status}: {why}");
    with_timeout(async {
        while !log.next_line().await.unwrap().expect("it still opens its log").contains("still opening") {}
    })
    .await;
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_disk_with_less_than_instances_may_take_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (limit, warns) in [("1000000GiB", true), ("1MiB", false)] {
        let log = folder.path().join(limit);
        let flags =
            ["--log-bytes", limit, "--log-bytes-per-creator", "1MiB", "--listen", "127.0.0.1:0", "--no-http"];
        let flags =
            [&["serve", "--insecure-principals", "--data", log.to_str().unwrap()], &flags[..]].concat();
        let mut server = command(&flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        assert!(with_timeout(lines.next_line()).await.unwrap().is_some());
        signal(&server, "-TERM").await;
        let said = with_timeout(server.wait_with_output()).await.unwrap();
        let said = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.contains("set log_bytes lower (--log-bytes)"), warns, "{said}");
        assert_eq!(said.contains(&format!("log_bytes={}", 1_000_000_u64 << 30)), warns, "{said}");
    }
}
