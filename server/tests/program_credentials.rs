//! `credentials`, `health --http`: what containers and their probes do.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::harness::with_timeout;
use crate::program::{command, output, signal};

/// What a call with these flags said, and its exit code.
async fn credentials(folder: &str, more: &[&str]) -> (String, Option<i32>) {
    let made =
        [&["credentials", "--out", folder, "--principals", "2", "--listener", "coordinator=judge"], more];
    let made = output(&made.concat()).await;
    let said = [made.stdout, made.stderr].concat();
    (String::from_utf8(said).unwrap(), made.status.code())
}

#[tokio::test]
async fn credentials_are_kept_while_they_are_whole_and_made_anew_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let out = path("made");
    let (why, code) = credentials(&out, &["--check"]).await;
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("made/server/tls.crt: there is no such file"), "{why}");
    // Volumes are there before anything is in them.
    std::fs::create_dir_all(path("made/clients/process-1")).unwrap();
    assert_eq!(credentials(&out, &["--keep"]).await.1, Some(0));
    assert_eq!(credentials(&out, &["--check"]).await.1, Some(0));
    let certificate = || std::fs::read(path("made/server/tls.crt")).unwrap();
    let first = certificate();
    assert!(credentials(&out, &["--keep"]).await.0.contains("kept"));
    assert_eq!(certificate(), first);

    // As it is when the maker was stopped in the middle: a client of another CA than the server trusts.
    let other = path("other");
    assert_eq!(credentials(&other, &[]).await.1, Some(0));
    for name in ["tls.crt", "tls.key", "ca.crt"] {
        let of_client = format!("clients/process-2/{name}");
        std::fs::copy(path(&format!("other/{of_client}")), path(&format!("made/{of_client}"))).unwrap();
    }
    let (why, code) = credentials(&out, &["--check"]).await;
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("made/clients/process-2/tls.crt"), "{why}");
    assert_eq!(credentials(&out, &["--keep"]).await.1, Some(0));
    assert_ne!(certificate(), first);
    assert_eq!(credentials(&out, &["--check"]).await.1, Some(0));
}

#[tokio::test]
async fn credentials_that_do_not_fit_what_is_asked_for_are_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("made").display().to_string();
    assert_eq!(credentials(&out, &["--lifetime", "1s"]).await.1, Some(0));
    for (flags, why) in [
        (&["--host", "elsewhere"][..], "server/tls.crt: it is not for elsewhere"),
        (&["--principal", "ann", "--principal", "coordinator"], "clients/ann/tls.crt: No such file"),
        (&["--trust-domain", "other"], "clients/coordinator/tls.crt"),
    ] {
        let (said, code) = credentials(&out, &[flags, &["--check"]].concat()).await;
        assert_eq!(code, Some(1), "{flags:?}: {said}");
        assert!(said.contains(why), "{flags:?}: {said}");
    }
    let (said, code) = credentials(&out, &[]).await;
    assert_eq!(code, Some(2), "{said}");
    let (said, code) = credentials(&out, &["--listener", "bob=judge", "--keep"]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("give --principal bob as well"), "{said}");
}

#[tokio::test]
async fn a_maker_of_credentials_stays_until_it_is_told_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("made").display().to_string();
    let stay = ["credentials", "--out", &out, "--principals", "1", "--keep", "--wait"];
    let mut maker = command(&stay).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(maker.stdout.take().unwrap()).lines();
    let line = with_timeout(lines.next_line()).await.unwrap().unwrap();
    assert!(line.contains("for stickycas-server serve --credentials"), "{line}");
    signal(&maker, "-TERM").await;
    assert_eq!(with_timeout(maker.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn health_asks_the_listener_of_operators_without_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("made");
    let made = credentials(&out.display().to_string(), &[]).await;
    assert_eq!(made.1, Some(0), "{}", made.0);
    let server = out.join("server").display().to_string();
    let serve = [
        "serve",
        "--in-memory",
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--credentials",
        &server,
    ];
    let mut server = command(&serve).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let operators = loop {
        let line = with_timeout(lines.next_line()).await.unwrap().unwrap();
        if let Some(address) = line.strip_prefix("http on ") {
            break address.to_owned();
        }
    };
    let probe = output(&["health", "--http", &operators, "--timeout", "1min"]).await;
    assert_eq!((String::from_utf8_lossy(&probe.stdout).as_ref(), probe.status.code()), ("ready\n", Some(0)));
    signal(&server, "-TERM").await;
    with_timeout(server.wait()).await.unwrap();
    let probe = output(&["health", "--http", &operators]).await;
    assert_eq!(probe.status.code(), Some(3), "{}", String::from_utf8_lossy(&probe.stderr));
}
