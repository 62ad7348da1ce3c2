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
    assert_eq!(credentials(&out, &[]).await.1, Some(0));
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
async fn tokens_are_verified_and_made_anew_without_the_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join("made").join(name);
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let out = folder.path().join("made").display().to_string();
    let asked = async |more: &[&str]| credentials(&out, &[&["--tokens"], more].concat()).await;
    let (of_1, of_2) = ("tokens/process-1/token", "tokens/process-2/token");
    assert_eq!(asked(&["--lifetime", "2h"]).await.1, Some(0));
    let good = async |why: &str| {
        let (said, code) = asked(&["--lifetime", "2h", "--check"]).await;
        assert_eq!(code, Some(0), "{why}: {said}");
        assert!(asked(&["--lifetime", "2h", "--keep"]).await.0.contains("kept, all of it is there"), "{why}");
    };
    let bad = async |flags: &[&str], why: &str| {
        let (said, code) = asked(&[flags, &["--check"]].concat()).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(why), "{said}, and not: {why}");
    };
    good("as they were made").await;
    // Everything that a server would refuse, and what it will refuse soon.
    bad(&["--token-audience", "others"], "tokens/coordinator/token: the token is for another audience").await;
    bad(&["--token-issuer", "others"], "the token is of another issuer").await;
    bad(&["--lifetime", "30d"], "make it anew with --keep").await;
    let (certificate, keys, first) = (read("server/tls.crt"), read("server/token-keys.json"), read(of_1));
    std::fs::copy(path(of_2), path(of_1)).unwrap();
    bad(&["--lifetime", "2h"], "tokens/process-1/token: it names process-2").await;
    std::fs::write(path(of_1), first.replace('.', ".x")).unwrap();
    bad(&["--lifetime", "2h"], of_1).await;
    std::fs::remove_file(path(of_1)).unwrap();
    bad(&["--lifetime", "2h"], of_1).await;
    // That one alone is made anew, and verified by the key that the server has.
    let second = read(of_2);
    let (said, code) = asked(&["--lifetime", "2h", "--keep"]).await;
    assert!(said.contains("kept, and 1 tokens made anew") && code == Some(0), "{said}");
    good("after one was lost").await;
    assert_eq!((read("server/tls.crt"), read("server/token-keys.json")), (certificate.clone(), keys.clone()));
    assert_eq!(read(of_2), second);
    // All of them, if they expire soon or nobody can sign any more.
    let (said, _) = asked(&["--keep", "--lifetime", "30d"]).await;
    assert!(said.contains("kept, and 3 tokens made anew"), "{said}");
    std::fs::remove_file(path("token-signing-key.pem")).unwrap();
    std::fs::remove_file(path(of_1)).unwrap();
    let (said, _) = asked(&["--keep", "--lifetime", "2h"]).await;
    assert!(said.contains("kept, and 3 tokens made anew"), "{said}");
    good("with a new key").await;
    assert_eq!(read("server/tls.crt"), certificate);
    assert_ne!(read("server/token-keys.json"), keys);
}

#[tokio::test]
async fn the_tokens_of_many_principals_are_in_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("made");
    let text = || std::fs::read_to_string(out.join("tokens/tokens")).unwrap();
    let shown = out.display().to_string();
    let flags = ["--tokens=file", "--prefix", "load-1-", "--prefix", "load-2-"];
    let asked = async |more: &[&str]| credentials(&shown, &[&flags, more].concat()).await;
    let (said, code) = asked(&[]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("/tokens: the tokens of 5 principals"), "{said}");
    let names = ["coordinator", "load-1-1", "load-1-2", "load-2-1", "load-2-2"];
    let named = |text: &str| {
        let names = text.lines().map(|line| line.split_once(' ').unwrap().0.to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(named(&text()), names);
    assert!(!out.join("clients/load-1-1").exists(), "nobody has a certificate");
    assert!(out.join("tokens/ca.crt").exists());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(out.join("tokens/tokens")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(asked(&["--check"]).await.1, Some(0));
    let (first, _) = text().split_once('\n').map(|(line, rest)| (line.to_owned(), rest.to_owned())).unwrap();
    std::fs::write(out.join("tokens/tokens"), first).unwrap();
    let (said, code) = asked(&["--check"]).await;
    assert!(said.contains("tokens/tokens: load-1-1 has no line at its place") && code == Some(1), "{said}");
    let (said, _) = asked(&["--keep"]).await;
    assert!(said.contains("kept, and 5 tokens made anew"), "{said}");
    assert_eq!(named(&text()), names);
    assert_eq!(asked(&["--check"]).await.1, Some(0));
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
