//! Backups, restores and checks that are interrupted, refused, damaged or of what cannot be written, by the
//! program.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use stickycas_proto::v1::{Parameters, State};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::harness::fixtures::{alone, create_request};
use crate::harness::with_timeout;
use crate::program::{command, output, signal};
use crate::program_data::{client, data, played, refused, serve};

/// A user that is not root.
const NOBODY: u32 = 12_345;

/// A folder with the log of a server that was killed, and a backup of it.
struct Files {
    folder: TempDir,
}

impl Files {
    async fn new() -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        let (mut server, ..) = played(&files.path("log")).await;
        signal(&server, "-KILL").await;
        with_timeout(server.wait()).await.unwrap();
        let backed_up = data(&["backup", "--data", &files.text("log"), "--out", &files.text("backup")]).await;
        assert_eq!(backed_up.1, Some(0), "{}", backed_up.0);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    async fn check_log(&self) -> (String, Option<i32>) {
        data(&["check", "--data", &self.text("log")]).await
    }

    async fn check_backup(&self, name: &str) -> (String, Option<i32>) {
        data(&["check", "--backup", &self.text(name)]).await
    }

    async fn restore(&self, from: &str, to: &str) -> (String, Option<i32>) {
        data(&["restore", "--from", &self.text(from), "--data", &self.text(to)]).await
    }

    /// A backup that is cut off, which shows when it is restored: it has no digest.
    fn write_cut_backup(&self) {
        let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs/0.1.0.backup");
        let old = fs::read(old).unwrap();
        fs::write(self.path("cut"), &old[..old.len() - 3]).unwrap();
    }
}

/// The files in a folder, with what is in them.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.metadata().unwrap().is_file())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn check_tells_damage_from_what_it_cannot_see_and_what_is_not_there() {
    let files = Files::new().await;
    let whole = fs::read(files.path("backup")).unwrap();
    let is = |said: (String, Option<i32>), word: &str, code: i32| {
        assert!(said.1 == Some(code) && said.0.starts_with(&format!("{word}: ")), "{said:?}");
    };
    is(files.check_log().await, "whole", 0);
    is(files.check_backup("backup").await, "whole", 0);
    for flip in [0, whole.len() / 2, whole.len() - 1] {
        let mut flipped = whole.clone();
        flipped[flip] ^= 4;
        fs::write(files.path("flipped"), flipped).unwrap();
        is(files.check_backup("flipped").await, "damaged", 1);
        for command in ["dump", "restore"] {
            let arguments: [&str; 4] = match command {
                "dump" => ["--backup", &files.text("flipped"), "--out", &files.text("out")],
                _ => ["--from", &files.text("flipped"), "--data", &files.text("out")],
            };
            let (said, code) = data(&[&[command], &arguments[..]].concat()).await;
            assert!(code == Some(1) && said.contains("damaged"), "{said}");
            assert!(!files.path("out").exists(), "{command} leaves nothing");
        }
    }

    fs::create_dir(files.path("empty")).unwrap();
    for folder in ["empty", "nowhere", "backup"] {
        is(data(&["check", "--data", &files.text(folder)]).await, "not there", 2);
    }
    is(files.check_backup("nowhere").await, "not there", 2);
    let (said, code) = files.restore("nowhere", "out").await;
    assert!(code == Some(2) && said.contains("there is no backup"), "{said}");

    is(files.check_backup("empty").await, "could not be checked", 3);
    let (mut server, _) = serve(&files.path("log")).await;
    is(files.check_log().await, "could not be checked", 3);
    signal(&server, "-KILL").await;
    with_timeout(server.wait()).await.unwrap();
    if is_root() {
        let mut check = command(&["data", "check", "--data", &files.text("log")]);
        let check = with_timeout(check.uid(NOBODY).current_dir("/").output()).await.unwrap();
        is((String::from_utf8(check.stdout).unwrap(), check.status.code()), "could not be checked", 3);
    }
}

#[tokio::test]
async fn a_backup_of_before_digests_is_restored_and_said_to_have_none() {
    let files = Files { folder: tempfile::tempdir().unwrap() };
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs/0.1.0.backup");
    fs::copy(old, files.path("old")).unwrap();
    for (said, code) in [files.check_backup("old").await, files.restore("old", "log").await] {
        assert!(code == Some(0) && said.contains("carries no digest"), "{said}");
    }
    let (said, code) = files.check_log().await;
    assert!(code == Some(0) && said.starts_with("whole: ") && !said.contains("digest"), "{said}");
}

#[tokio::test]
async fn a_log_that_was_cut_off_is_said_to_be() {
    let files = Files::new().await;
    let log = files.path("log").join("log.redb");
    let whole = fs::read(&log).unwrap();
    for length in [0, 1, 511, 4_096, 8_192, whole.len() / 2, whole.len() - 4_096, whole.len() - 1] {
        fs::write(&log, &whole[..length]).unwrap();
        let (said, code) = files.check_log().await;
        assert!(code == Some(1) && said.starts_with("damaged: "), "{length}: {said}");
        let says_why = ["it was cut off", "it is no log", "its pages are not as they were written"];
        assert!(says_why.iter().any(|why| said.contains(why)), "{length}: {said}");
        assert_eq!(fs::read(&log).unwrap(), whole[..length], "a check writes nothing");
        let log = files.text("log");
        let flags = ["--no-http", "--insecure-principals", "--listen", "127.0.0.1:0"];
        let served = output(&[&["serve", "--data", &log], &flags[..]].concat()).await;
        let said = String::from_utf8(served.stderr).unwrap();
        assert!(served.status.code() == Some(3) && !said.contains("failed to fill"), "{length}: {said}");
    }
    fs::write(&log, &whole).unwrap();
    let tail = log.with_file_name("log.tail");
    let whole = fs::read(&tail).unwrap();
    for length in [0, 1, 4_096, whole.len() - 4_096, whole.len() - 1] {
        fs::write(&tail, &whole[..length]).unwrap();
        let (said, code) = files.check_log().await;
        assert!(code == Some(1) && said.contains("its tail was cut off"), "{length}: {said}");
    }
    fs::remove_file(&tail).unwrap();
    let (said, code) = files.check_log().await;
    assert!(code == Some(1) && said.contains("the file of its tail is missing"), "{said}");
}

/// What a mount that is read-only refuses, a folder refuses too that may not be written.
#[tokio::test]
async fn what_can_only_be_read_is_checked_dumped_and_backed_up() {
    let files = Files::new().await;
    let log = files.path("log");
    for has_lock in [true, false] {
        if !has_lock {
            fs::remove_file(log.join("lock")).unwrap();
        }
        let before = contents(&log);
        for (path, _) in &before {
            fs::set_permissions(path, fs::Permissions::from_mode(0o400)).unwrap();
        }
        fs::set_permissions(&log, fs::Permissions::from_mode(0o500)).unwrap();
        let out = files.path(if has_lock { "out" } else { "out-without-lock" });
        fs::create_dir(&out).unwrap();
        if is_root() {
            chown(files.folder.path(), Some(NOBODY), None).unwrap();
            for path in [&log, &out].into_iter().chain(before.iter().map(|(path, _)| path)) {
                chown(path, Some(NOBODY), None).unwrap();
            }
        }
        let run = async |arguments: &[&str]| {
            let mut command = command(&[&["data"], arguments, &["--data", log.to_str().unwrap()]].concat());
            if is_root() {
                command.uid(NOBODY);
            }
            let Output { status, stdout, stderr } =
                with_timeout(command.current_dir("/").output()).await.unwrap();
            (String::from_utf8([stdout, stderr].concat()).unwrap(), status.code())
        };
        let (dump, backup) = (out.join("dump"), out.join("backup"));
        for command in [
            &["check"][..],
            &["dump", "--out", dump.to_str().unwrap()],
            &["backup", "--out", backup.to_str().unwrap()],
        ] {
            let (said, code) = run(command).await;
            assert_eq!(code, Some(0), "{command:?}: {said}");
        }
        let (said, code) = run(&["compact"]).await;
        assert!(code == Some(3) && said.contains("may write"), "{said}");
        assert_eq!(contents(&log), before, "nothing was written");
        fs::set_permissions(&log, fs::Permissions::from_mode(0o700)).unwrap();
        let (said, code) = data(&["check", "--backup", backup.to_str().unwrap()]).await;
        assert!(code == Some(0) && said.starts_with("whole: 2 instances"), "{said}");
    }
}

/// Only root can mount; where it may not, and `CI` is not set, the test before has shown the same.
#[tokio::test]
async fn a_log_on_a_read_only_mount_is_checked_dumped_and_backed_up() {
    const SCRIPT: &str = r#"
        mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 42
        "$2" data check --data "$1" && "$2" data dump --data "$1" --out "$3" && "$2" data backup --data "$1" --out "$4"
    "#;
    let files = Files::new().await;
    for (has_lock, name) in [(true, "out"), (false, "out-without-lock")] {
        if !has_lock {
            fs::remove_file(files.path("log").join("lock")).unwrap();
        }
        let mut run = Command::new("unshare");
        run.args([
            "--mount",
            "sh",
            "-c",
            SCRIPT,
            "sh",
            &files.text("log"),
            env!("CARGO_BIN_EXE_stickycas-server"),
        ]);
        run.args([files.text(&format!("{name}-dump")), files.text(&format!("{name}-backup"))]);
        let done = with_timeout(run.output()).await.unwrap();
        let may_not =
            done.status.code() == Some(42) || String::from_utf8_lossy(&done.stderr).contains("unshare");
        let may_not = may_not && std::env::var_os("CI").is_none();
        assert!(may_not || done.status.success(), "{done:?}");
    }
}

#[tokio::test]
async fn an_interrupted_restore_is_not_served_as_an_empty_log() {
    let files = Files::new().await;
    // A restore that was killed leaves this.
    fs::create_dir(files.path("copy")).unwrap();
    fs::set_permissions(files.path("copy"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(files.path("copy").join("log.redb.restore"), "half a log").unwrap();

    files.write_cut_backup();
    for _ in 0..2 {
        let (said, code) = refused(&["--data", &files.text("copy")]).await;
        assert!(code == Some(3) && said.contains("interrupted restore"), "{said}");
        assert!(said.contains("run stickycas-server data restore again"), "{said}");
        assert_eq!(files.restore("cut", "copy").await.1, Some(1), "it fails, and there is still no log");
    }
    let (said, code) = data(&["check", "--data", &files.text("copy")]).await;
    assert!(code == Some(2) && said.starts_with("not there: "), "{said}");
    let (said, code) = files.restore("backup", "copy").await;
    assert!(code == Some(0) && said.starts_with("restored: 2 instances"), "{said}");
    let (mut server, _) = serve(&files.path("copy")).await;
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_restore_that_fails_leaves_what_was_there() {
    let files = Files::new().await;
    files.write_cut_backup();
    let fail = async |to: &str| {
        let (said, code) = files.restore("cut", to).await;
        assert!(code == Some(1) && said.contains("it is cut off"), "{said}");
    };
    fail("new").await;
    assert!(!files.path("new").exists());
    fs::create_dir(files.path("there")).unwrap();
    fs::set_permissions(files.path("there"), fs::Permissions::from_mode(0o700)).unwrap();
    fail("there").await;
    assert_eq!(contents(&files.path("there")), []);
    let file = (files.path("there").join("lock"), Vec::new());
    fs::write(&file.0, "").unwrap();
    fail("there").await;
    assert_eq!(contents(&files.path("there")), [file]);
}

/// A server on this folder whose log has more than what is on its way to a client that does not read.
async fn with_long_log(folder: &Path) -> tokio::process::Child {
    let (server, address) = serve(folder).await;
    let parameters = Parameters { max_value_bytes: 60_000, ..alone() };
    let created = client(&address, "boss").await.create(create_request(parameters)).await.unwrap();
    let id = created.into_inner().instance.unwrap().instance_id;
    let mut process = client(&address, "p1").await;
    let value = "x".repeat(60_000);
    for number in 1..=100 {
        process.append(&id, number, &value).await.unwrap();
    }
    server
}

#[tokio::test]
async fn a_server_ends_in_order_while_a_backup_of_it_is_not_read() {
    let files = Files { folder: tempfile::tempdir().unwrap() };
    let mut server = with_long_log(&files.path("log")).await;
    let mut backup = UnixStream::connect(files.path("log").join("control")).await.unwrap();
    let mut copy = vec![0];
    with_timeout(backup.read_exact(&mut copy)).await.unwrap();
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
    with_timeout(backup.read_to_end(&mut copy)).await.unwrap();
    fs::write(files.path("part"), copy).unwrap();
    let (said, code) = files.check_backup("part").await;
    assert_eq!(code, Some(1), "a part of a backup has no end of a whole one: {said}");

    let log = files.text("log");
    let flags = ["--no-http", "--insecure-principals", "--listen", "127.0.0.1:0"];
    let mut again = command(&[&["serve", "--data", &log], &flags[..]].concat());
    let mut again = again.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = tokio::io::BufReader::new(again.stderr.take().unwrap());
    let mut text = String::new();
    with_timeout(async {
        while !text.contains("recovered") {
            assert_ne!(
                tokio::io::AsyncBufReadExt::read_line(&mut said, &mut text).await.unwrap(),
                0,
                "{text}"
            );
        }
    })
    .await;
    assert!(!text.contains("did not end in order"), "{text}");
    signal(&again, "-TERM").await;
    with_timeout(again.wait()).await.unwrap();
}

#[tokio::test]
async fn a_server_on_a_folder_with_a_long_path_is_backed_up() {
    let files = Files { folder: tempfile::tempdir().unwrap() };
    let log = files.path(&"x".repeat(150));
    let (mut server, address, [ended, _]) = played(&log).await;
    let (said, code) =
        data(&["backup", "--data", log.to_str().unwrap(), "--out", &files.text("backup")]).await;
    assert!(code == Some(0) && said.contains("from a server that runs"), "{said}");
    assert_eq!(client(&address, "boss").await.status(&ended).await.state(), State::Finished);
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
    let (said, code) = files.check_backup("backup").await;
    assert!(code == Some(0) && said.starts_with("whole: 2 instances"), "{said}");
    let helped = output(&["data", "check", "--help"]).await;
    let help = String::from_utf8(helped.stdout).unwrap();
    for answer in ["whole", "damaged", "not there", "could not be checked"] {
        assert!(help.contains(&format!("\"{answer}\"")), "{help}");
    }
}
