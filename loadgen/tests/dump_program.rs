//! `replay` and `explain` on the dump of a server's log.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use stickycas_client::{Client, Params, ParamsSpec};
use stickycas_server::Config;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

fn loadgen(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    command.args(arguments).env_remove("RUST_LOG").output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A server plays an instance to its end, begins another one, and stops; then its log is dumped.
async fn dump(folder: &Path) -> String {
    let (log, dump) = (folder.join("log"), folder.join("dump").to_str().unwrap().to_owned());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let config = Config { data: Some(log.clone()), ..Config::insecure(["coordinator".to_owned()]) };
    let server = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        stickycas_server::run(listener, config, stopped).await.unwrap();
    });
    let client = |name: &str| Client::builder(&url).principal(name).connect_lazy().unwrap();
    for name in ["ended", "begun"] {
        let params = Params::try_new(ParamsSpec::new(2, 1, 2)).unwrap();
        client("coordinator").create_instance().params(&params).name(name).send().await.unwrap();
    }
    let (first, second) = (client("p1"), client("p2"));
    let (first, second) = tokio::join!(first.propose("ended", "tea"), second.propose("ended", "tea"));
    assert_eq!((first.unwrap().from.len(), second.unwrap().from.len()), (2, 2));
    drop(stop);
    server.await.unwrap();
    let dumped = loadgen(&["server", "data", "dump", "--data", log.to_str().unwrap(), "--out", &dump]);
    assert!(dumped.status.success(), "{dumped:?}");
    dump
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_a_log_is_replayed_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let dump = dump(folder.path()).await;

    let replayed = loadgen(&["replay", &dump]);
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");
    let text = printed(&replayed);
    assert_eq!(text.matches(": the same: ").count(), 2, "{text}");
    assert!(text.contains("(ended)") && text.contains("(begun)"), "{text}");

    let explained = loadgen(&["explain", &dump, "--instance", "ended"]);
    assert_eq!(explained.status.code(), Some(0), "{explained:?}");
    let text = printed(&explained);
    for part in ["from the log of a server", "A server does not know who is Byzantine", "\nVALID\n", "tea"] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    let begun = printed(&loadgen(&["explain", &dump, "--instance", "begun"]));
    assert!(begun.contains("\nPROVES NOTHING: "), "nobody has decided yet: {begun}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_that_was_changed_or_damaged_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let dump = dump(folder.path()).await;
    let whole = fs::read(&dump).unwrap();

    let mut changed = whole.clone();
    let value = whole.windows(3).rposition(|bytes| bytes == b"tea").unwrap();
    changed[value..value + 3].copy_from_slice(b"tee");
    fs::write(&dump, changed).unwrap();
    let replayed = loadgen(&["replay", &dump]);
    assert_eq!(replayed.status.code(), Some(1), "{replayed:?}");
    assert!(printed(&replayed).contains("(ended): different: the first event that differs is number"));

    fs::write(&dump, &whole[..whole.len() - 1]).unwrap();
    let cut = loadgen(&["replay", &dump]);
    assert_eq!(cut.status.code(), Some(2), "{cut:?}");
    assert!(String::from_utf8_lossy(&cut.stderr).contains("no dump, or damaged at or behind instance"));

    fs::write(&dump, []).unwrap();
    let empty = loadgen(&["replay", &dump]);
    assert_eq!(empty.status.code(), Some(4), "{empty:?}");
    assert!(String::from_utf8_lossy(&empty.stderr).contains("there is no instance in "), "{empty:?}");

    fs::write(&dump, &whole).unwrap();
    let missing = loadgen(&["explain", &dump, "--instance", "nobody"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
}
