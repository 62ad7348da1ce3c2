//! The program with credentials: made by itself, served with, replaced, probed, and what its log says of who
//! came.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use stickycas_certificates::development::DevelopmentCas;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::with_timeout;
use crate::operators;
use crate::program::{command, output, signal};

/// A server as a program, with credentials that the program has made.
struct Program {
    folder: TempDir,
    server: Child,
    log: Lines<BufReader<ChildStderr>>,
    certificates: SocketAddr,
    tokens: SocketAddr,
    http: SocketAddr,
}

impl Program {
    async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With further flags.
    async fn with(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("made").display().to_string();
        let made = output(&["credentials", "--out", &out, "--principals", "1", "--tokens"]).await;
        assert_eq!(made.status.code(), Some(0), "{made:?}");
        let credentials = format!("{out}/server");
        let any = "127.0.0.1:0";
        let serve = [
            "serve",
            "--in-memory",
            "--credentials",
            &credentials,
            "--listen",
            any,
            "--token-listen",
            any,
            "--http",
            any,
            "--log-json",
        ];
        let serve = [&serve, flags].concat();
        let mut server = command(&serve).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut addresses = Vec::new();
        for what in ["listening on ", "tokens on ", "http on "] {
            let line = with_timeout(lines.next_line()).await.unwrap().expect("it says where it listens");
            addresses.push(line.strip_prefix(what).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap());
        }
        let log = BufReader::new(server.stderr.take().unwrap()).lines();
        Self { folder, server, log, certificates: addresses[0], tokens: addresses[1], http: addresses[2] }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("made").join(name)
    }

    /// The next line of the log with this message.
    async fn line(&mut self, message: &str) -> Value {
        self.line_of(&[message]).await
    }

    /// The same with one of these messages.
    async fn line_of(&mut self, messages: &[&str]) -> Value {
        loop {
            let line = with_timeout(self.log.next_line()).await.unwrap().expect("the server runs");
            let line: Value = serde_json::from_str(&line).unwrap();
            if messages.iter().any(|message| line["fields"]["message"] == *message) {
                return line;
            }
        }
    }

    async fn metric(&self, name: &str) -> f64 {
        let (_, text) = operators::get(self.http, "/metrics").await;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    }

    /// A connection that shows the certificate in this folder, or none.
    async fn connect(&self, address: SocketAddr, folder: Option<&Path>) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        let ca = self.path("clients/process-1/ca.crt");
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let mut config = match folder {
            None => config.with_no_client_auth(),
            Some(folder) => {
                let certificate = CertificateDer::from_pem_file(folder.join("tls.crt")).unwrap();
                let key = PrivateKeyDer::from_pem_file(folder.join("tls.key")).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tcp = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
    }

    /// A call on the listener for tokens; its gRPC code.
    async fn call(&self, authorization: &str) -> String {
        let (mut client, connection) =
            h2::client::handshake(self.connect(self.tokens, None).await).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post("https://localhost/stickycas.v1.InstanceService/List")
            .header("content-type", "application/grpc")
            .header("authorization", authorization)
            .body(())
            .unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
        let response = with_timeout(response).await.unwrap();
        let status = response.headers().get("grpc-status").cloned();
        let status = match status {
            Some(status) => status,
            None => {
                let mut body = response.into_body();
                while with_timeout(body.data()).await.is_some() {}
                with_timeout(body.trailers()).await.unwrap().unwrap()["grpc-status"].clone()
            }
        };
        status.to_str().unwrap().to_owned()
    }

    async fn stop(mut self) {
        signal(&self.server, "-TERM").await;
        assert_eq!(with_timeout(self.server.wait()).await.unwrap().code(), Some(0));
    }
}

#[tokio::test]
async fn the_audit_log_says_who_came_with_what_and_who_was_refused_why() {
    let mut program = Program::start().await;
    let audit = |line: &Value| {
        assert_eq!(line["target"], "stickycas_server::audit", "{line}");
        line["fields"].clone()
    };
    let mut ann = program.connect(program.certificates, Some(&program.path("clients/process-1"))).await;
    ann.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let fields = audit(&program.line("admitted by certificate").await);
    let address = ann.get_ref().0.local_addr().unwrap().to_string();
    assert_eq!((&fields["principal"], &fields["address"]), (&"process-1".into(), &address.into()));
    assert!(fields["serial"].as_str().is_some_and(|serial| !serial.is_empty()), "{fields}");

    let mut nobody = program.connect(program.certificates, None).await;
    let _alert = nobody.read_to_end(&mut Vec::new()).await;
    let fields = audit(&program.line("handshake refused").await);
    assert!(fields["reason"].as_str().unwrap().contains("no certificates"), "{fields}");
    assert!(fields["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{fields}");

    let token = std::fs::read_to_string(program.path("tokens/process-1/token")).unwrap();
    let token = token.trim();
    assert_eq!(program.call(&format!("Bearer {token}")).await, "0");
    let fields = audit(&program.line("admitted by token").await);
    assert_eq!((&fields["principal"], &fields["key_id"]), (&"process-1".into(), &"development".into()));
    assert_eq!(program.metric("stickycas_credentials_cached_tokens").await, 1.0);

    assert_eq!(program.call(&format!("Bearer {token}x")).await, "16");
    let line = program.line("call refused").await;
    assert!(audit(&line)["reason"].as_str().unwrap().contains("token"), "{line}");
    let secret = token.rsplit('.').next().unwrap();
    assert!(!line.to_string().contains(secret), "the log shows no token");
    drop((ann, nobody));
    program.stop().await;
}

#[tokio::test]
async fn a_balancer_that_looks_whether_somebody_listens_alarms_nobody() {
    const CHECKS: u32 = 100;
    let mut program = Program::with(&[]).await;
    for _ in 0..CHECKS {
        drop(TcpStream::connect(program.certificates).await.unwrap());
    }
    let kind = |kind: &str| format!("stickycas_client_faults_total{{kind=\"{kind}\"}}");
    let counted =
        async { while program.metric(&kind("connection_closed_early")).await < f64::from(CHECKS) {} };
    with_timeout(counted).await;
    for alarming in ["handshake_failed", "connection_silent", "connection_refused"] {
        assert!(program.metric(&kind(alarming)).await < 0.5, "{alarming}");
    }
    // The first line of the audit log is about whoever shows no certificate.
    let mut nobody = program.connect(program.certificates, None).await;
    let _alert = nobody.read_to_end(&mut Vec::new()).await;
    let line = loop {
        let line = with_timeout(program.log.next_line()).await.unwrap().expect("the server runs");
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["target"] == "stickycas_server::audit" {
            break line;
        }
    };
    assert!(line["fields"]["reason"].as_str().unwrap().contains("no certificates"), "{line}");
    program.stop().await;
}

#[tokio::test]
async fn refusals_without_end_do_not_fill_the_audit_log() {
    let mut program = Program::with(&["--log-lines-per-second", "2"]).await;
    for _ in 0..50 {
        let mut nobody = program.connect(program.certificates, None).await;
        let _alert = nobody.read_to_end(&mut Vec::new()).await;
    }
    // The alert leaves before it is counted.
    let counted = async {
        while program.metric("stickycas_client_faults_total{kind=\"handshake_failed\"}").await < 50.0 {}
    };
    with_timeout(counted).await;
    let (mut refused, mut left_out) = (0, 0);
    while refused + left_out < 50 {
        let line = with_timeout(program.log.next_line()).await.unwrap().expect("the server runs");
        let line: Value = serde_json::from_str(&line).unwrap();
        match line["target"].as_str().unwrap() {
            "stickycas_server::audit" => refused += 1,
            "stickycas_server::logging" => {
                // "left out 48 like this: handshake refused ..."
                let message = line["fields"]["message"].as_str().unwrap();
                assert!(message.contains("like this: handshake refused"), "{message}");
                left_out += message.split(' ').nth(2).unwrap().parse::<u64>().unwrap();
            }
            _ => {}
        }
    }
    assert_eq!(refused + left_out, 50);
    assert!(left_out > 0, "the attack took place");
    program.stop().await;
}

#[tokio::test]
async fn on_sighup_new_files_are_in_force_and_bad_ones_are_not() {
    let mut program = Program::start().await;
    assert_eq!(program.metric("stickycas_credentials_generation").await, 1.0);
    assert!(program.metric("stickycas_credentials_certificate_expiry_seconds").await > 29.0 * 86_400.0);
    // Only who sends the signal is told that nothing has changed.
    signal(&program.server, "-HUP").await;
    let line = program.line("credentials are read again").await;
    assert_eq!(line["fields"]["changed"], false);
    std::fs::write(program.path("server/denied"), "process-1\n").unwrap();
    signal(&program.server, "-HUP").await;
    let line = program.line("new credentials are in force").await;
    assert_eq!(
        (&line["fields"]["generation"], &line["target"]),
        (&2.into(), &"stickycas_server::audit".into())
    );
    let token = std::fs::read_to_string(program.path("tokens/process-1/token")).unwrap();
    assert_eq!(program.call(&format!("Bearer {}", token.trim())).await, "16");
    assert_eq!(program.metric("stickycas_credentials_cached_tokens").await, 0.0);

    std::fs::write(program.path("server/roles.toml"), "observers = ['a b']").unwrap();
    signal(&program.server, "-HUP").await;
    let line = program.line("credentials cannot be used: the old ones stay in force").await;
    assert!(line["fields"]["error"].as_str().unwrap().contains("roles.toml: line 1: \"a b\""), "{line}");
    assert_eq!(program.metric("stickycas_credentials_reload_failed").await, 1.0);
    assert!(program.metric("stickycas_credentials_reload_failures_total").await >= 1.0);
    assert_eq!(program.metric("stickycas_credentials_generation").await, 2.0);
    std::fs::remove_file(program.path("server/roles.toml")).unwrap();
    signal(&program.server, "-HUP").await;
    program.line("credentials are read again").await;
    assert_eq!(program.metric("stickycas_credentials_reload_failed").await, 0.0);
    program.stop().await;
}

/// Somebody who looks at the metrics hears of a list that nobody has renewed, and of one that is not that of
/// its CA.
#[tokio::test]
async fn revocation_lists_that_are_late_or_foreign_show_in_the_metrics() {
    let mut program = Program::start().await;
    // The CAs that the program has made are gone with it: these take their place.
    let mut cas = DevelopmentCas::new("stickycas", Duration::from_secs(3600)).unwrap();
    let own = cas.server(&["localhost".to_owned()]).unwrap();
    let folder = program.path("server");
    cas.write_server(&folder, &own).unwrap();
    signal(&program.server, "-HUP").await;
    program.line("new credentials are in force").await;
    assert_eq!(program.metric("stickycas_credentials_revocation_list_expired").await, 0.0);

    let yesterday = OffsetDateTime::now_utc() - Duration::from_secs(24 * 3600);
    cas.write_changed_revocation_list(&folder, |list| {
        (list.this_update, list.next_update) = (yesterday - Duration::from_secs(3600), yesterday);
    })
    .unwrap();
    signal(&program.server, "-HUP").await;
    let line = program.line("new credentials are in force").await;
    assert_eq!(line["fields"]["generation"], 3);
    assert_eq!(program.metric("stickycas_credentials_revocation_list_expired").await, 1.0);
    assert_eq!(program.metric("stickycas_credentials_reload_failed").await, 0.0);

    cas.namesakes().unwrap().write_revocation_list(&folder).unwrap();
    signal(&program.server, "-HUP").await;
    let line = program.line("credentials cannot be used: the old ones stay in force").await;
    assert!(line["fields"]["error"].as_str().unwrap().contains("is not signed by the key"), "{line}");
    assert_eq!(program.metric("stickycas_credentials_reload_failed").await, 1.0);
    assert_eq!(program.metric("stickycas_credentials_generation").await, 3.0);
    assert_eq!(program.metric("stickycas_credentials_revocation_list_expired").await, 1.0);
    program.stop().await;
}

/// Whoever starts it again would find the same: a supervisor does not (docs/operate/operations.md).
#[tokio::test]
async fn credentials_that_cannot_be_used_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("made").display().to_string();
    let made = output(&["credentials", "--out", &out, "--principals", "1", "--tokens"]).await;
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let server = format!("{out}/server");
    let flags = ["--credentials", &server, "--listen", "127.0.0.1:0", "--token-listen", "127.0.0.1:0"];
    let serve = [&["serve", "--in-memory", "--no-http", "--log", "off"], &flags[..]].concat();
    let check = [&["config", "check"], &flags[..]].concat();
    let checked = output(&check).await;
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let der = CertificateDer::from_pem_file(format!("{server}/client-ca.crt")).unwrap().to_vec();
    for (name, content, expected) in [
        ("tls.crt", &b""[..], "there is no CERTIFICATE in PEM in it: it is empty"),
        ("tls.key", b"", "there is no PRIVATE KEY"),
        ("client-ca.crt", &der, "it is DER"),
        ("client-ca.crl", b"", "there is no X509 CRL in PEM in it"),
        ("denied", b"ann\nbo", "its last line has no end"),
        ("roles.toml", b"admins = [", "line 1"),
        (
            "token-keys.json",
            b"{\"keys\": [{\"kty\": \"RSA\", \"kid\": \"a\"}]}",
            "key 1 is not used: give `alg`",
        ),
    ] {
        let path = format!("{server}/{name}");
        let good = std::fs::read(&path).ok();
        std::fs::write(&path, content).unwrap();
        for command in [&serve, &check] {
            let refused = output(command).await;
            let said = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{name}: {refused:?}");
            assert!(said.contains(&format!("{path}: ")) && said.contains(expected), "{said}");
        }
        match good {
            Some(good) => std::fs::write(&path, good).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
    std::fs::remove_file(format!("{server}/tls.crt")).unwrap();
    assert_eq!(output(&check).await.status.code(), Some(2));
}

#[tokio::test]
async fn a_probe_with_files_that_cannot_be_used_is_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("made").display().to_string();
    let made = output(&["credentials", "--out", &out, "--principals", "1"]).await;
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let client = format!("{out}/clients/process-1");
    let key = std::fs::read(format!("{client}/tls.key")).unwrap();
    for (name, content) in [("tls.crt", &b"x"[..]), ("tls.key", b""), ("ca.crt", &key)] {
        let path = format!("{client}/{name}");
        let good = std::fs::read(&path).unwrap();
        std::fs::write(&path, content).unwrap();
        let probe = ["health", "--server", "https://127.0.0.1:1", "--credentials", &client];
        let refused = output(&probe).await;
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(&format!("{path}: ")), "{said}");
        std::fs::write(&path, good).unwrap();
    }
}

/// Of a CA that ends while it is in force somebody hears, in the log and by a metric, and whose key is lost
/// is still shut out.
#[tokio::test]
async fn a_client_ca_that_expires_in_force_is_an_alarm() {
    const REFUSED: &str = "credentials cannot be used: the old ones stay in force";
    let mut program = Program::start().await;
    // They have to be read before they end, however busy the machine is.
    for seconds in 2.. {
        let mut cas = DevelopmentCas::new("stickycas", Duration::from_secs(seconds)).unwrap();
        let own = cas.server(&["localhost".to_owned()]).unwrap();
        cas.write_server(&program.path("server"), &own).unwrap();
        signal(&program.server, "-HUP").await;
        if program.line_of(&["new credentials are in force", REFUSED]).await["fields"]["generation"] == 2 {
            break;
        }
    }
    for name in ["tls.crt", "client-ca.crt", "client-ca.crl"] {
        let line = program.line("something is wrong with the credentials, which are used all the same").await;
        let warning = line["fields"]["warning"].as_str().unwrap();
        assert!(warning.contains(name) && warning.contains("has expired"), "{line}");
    }
    for metric in ["certificate_expiry_seconds", "client_ca_expiry_seconds"] {
        assert!(program.metric(&format!("stickycas_credentials_{metric}")).await <= 0.0, "{metric}");
    }
    std::fs::write(program.path("server/denied"), "process-1\n").unwrap();
    signal(&program.server, "-HUP").await;
    program.line("new credentials are in force").await;
    program.stop().await;
}

#[tokio::test]
async fn a_probe_shows_credentials() {
    let program = Program::start().await;
    let probe = async |address: SocketAddr, folder: &str| {
        let server = format!("https://localhost:{}", address.port());
        let folder = program.path(folder).display().to_string();
        output(&["health", "--server", &server, "--credentials", &folder, "--timeout", "1min"]).await
    };
    for (address, folder) in
        [(program.certificates, "clients/coordinator"), (program.tokens, "tokens/coordinator")]
    {
        let probed = probe(address, folder).await;
        assert_eq!(String::from_utf8_lossy(&probed.stdout), "SERVING\n", "{probed:?}");
    }
    // Without a certificate, and with a folder of another kind.
    assert_eq!(probe(program.certificates, "tokens/coordinator").await.status.code(), Some(3));
    assert_eq!(probe(program.certificates, "server").await.status.code(), Some(2));
    let plain = format!("http://localhost:{}", program.certificates.port());
    let folder = program.path("clients/coordinator").display().to_string();
    let refused = output(&["health", "--server", &plain, "--credentials", &folder]).await;
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    program.stop().await;
}

#[tokio::test]
async fn private_keys_and_tokens_are_for_their_owner_alone() {
    let program = Program::start().await;
    for name in
        ["server/tls.key", "clients/process-1/tls.key", "tokens/process-1/token", "token-signing-key.pem"]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(program.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let keys = std::fs::read_to_string(program.path("server/token-keys.json")).unwrap();
    assert!(!keys.contains("\"d\""), "{keys}");
    program.stop().await;
}
