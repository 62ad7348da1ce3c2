//! What a person is told who makes a mistake: a table of command lines, what standard error says and the exit
//! code. The programs run, against one server without TLS and one with it.

// Helpers of tests are tests, but clippy cannot tell.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const CLIENT: &str = env!("CARGO_BIN_EXE_stickycas-client");

/// Exit code, program, arguments and, behind the arrow, a part of standard error. PLAIN and SECURE: addresses
/// of servers; HTTP: of the operators' listener; TOKENS: of the listener for tokens; ABSENT: of nobody.
const MISTAKES: &str = r"
2 client: --principal ann => requires a subcommand
2 client: lst => unrecognized subcommand 'lst'
2 client: list --princpal ann => unexpected argument '--princpal' found
2 client: list => say who you are: --credentials DIR, or --principal NAME
2 client: list --principal a/b => principal 'a/b': give 1 to 128 letters
2 client: list --principal '' => principal '': give 1 to 128 letters
2 client: list --principal ann --server PLAIN/ --give-up-after soon => invalid value 'soon' for '--give-up-after <DURATION>'
2 client: list --principal ann --server localhost:7420 => server 'localhost:7420': give http://host:port
2 client: list --principal ann --server https://SECURE => TLS needs credentials: give a folder of them too
2 client: list --principal ann --server ftp://PLAIN => only http and https are spoken
2 client: list --server http://PLAIN --credentials creds/clients/ann => credentials are shown over TLS only: give https://host:port, or no credentials
2 client: list --server https://SECURE --credentials creds/clients => creds/clients has no ca.crt: did you mean creds/clients/alice (3 folders)?
2 client: list --server https://SECURE --credentials nowhere => nowhere is no folder with ca.crt
2 client: list --server https://SECURE --credentials creds/server => creds/server has no ca.crt
2 client: list --server https://SECURE --credentials empty => empty/ca.crt:
2 client: list --server https://SECURE --credentials creds/clients/ann --principal bob => principal 'bob': the credentials name 'ann'
2 client: list --principal ann --keep-alive 0s => give more than 0, such as 2s
2 client: get --principal ann => not provided
2 client: get no/name --principal ann => no/name
2 client: watch open --from-phase 0 --principal ann => phases count from 1
2 client: watch open --from-phase 1 --snapshot --principal ann => cannot be used with
2 client: create --principal alice => not provided
2 client: create -n 0 --principal alice => n = 0 processes: give 1 to 65536
2 client: create -n 2 -p 3 --principal alice => warp size p = 3: give 1 to n = 2
2 client: create -n 3 --roster ann,bob --principal alice => the roster names 2 principals, but n = 3
2 client: create -n 2 --arbiter last_come --principal alice => give first_come, uniform, or priority
2 client: create -n 2 --patience forever --principal alice => give a duration such as 1s, or none
2 client: create -n 2 --order random --principal alice => [possible values: ascending, descending, shuffled]
2 client: append open '' --principal ann => give one byte or more: text, or 0x and hex digits
2 client: append open x --number 0 --principal ann => access numbers count from 1
2 client: propose --instance open --principal ann => not provided
2 client: propose --instance open --strategy colude --principal ann => there is no strategy
2 client: propose --instance open --strategy silent --attack flood --principal ann => cannot be used with
2 client: propose --instance 0123456789abcdef0123456789abcdef --again --value x --principal ann => give a name, since an id names one instance only
2 client: propose --instance open --value x --wait-for-instance 8000y --principal ann => 3650d
2 client: page-link --principal ann => stickycas-loadgen view --server URL
3 client: get nobody --principal ann --server http://PLAIN => there is no instance nobody
3 client: get open --principal eve --server http://PLAIN => refused (NOT_A_MEMBER)
3 client: create -n 2 --principal ann --server http://PLAIN => refused (NOT_COORDINATOR)
3 client: create -n 2 --roster ann,ann --principal alice --server http://PLAIN => refused (BAD_PARAMETERS)
3 client: create --name done -n 2 --principal alice --server http://PLAIN => done is the name of another instance, which has finished: take another name, or close that one (stickycas-client close done, as its creator)
3 client: create --name open -n 2 --principal alice --server http://PLAIN => open is the name of another instance, which has not ended
3 client: close open --principal ann --server http://PLAIN => refused (NOT_CREATOR)
3 client: append open x --no-wait --principal bob --server http://PLAIN => refused (NOT_YOUR_PHASE)
3 client: append open x --number 7 --principal bob --server http://PLAIN => refused (ACCESS_NUMBER_OUT_OF_ORDER)
2 client: append open x --principal alice --server http://PLAIN => alice is no process of this instance
3 client: propose --instance nobody --value x --principal ann --server http://PLAIN => there is no instance nobody
3 client: list --server https://TOKENS --credentials creds/clients/ann => refused (NO_IDENTITY)
3 client: list --server https://SECURE --credentials creds/tokens/ann => it wants a certificate, and there is only a token in creds/tokens/ann
3 client: list --server https://SECURE --credentials foreign/clients/ann => its certificate is not signed by a CA in foreign/clients/ann/ca.crt
3 client: list --server https://SECURE --credentials mixed => it refuses the certificate mixed/tls.crt (UnknownCA)
3 client: list --server https://127.0.0.1:NAMED --credentials named/clients/ann => its certificate is not for the name 127.0.0.1
3 client: list --principal ann --server http://ABSENT => Connection refused; is there a server? `stickycas-server serve` starts one
3 client: list --principal ann --server http://ABSENT,http://SECURE --give-up-after 0s => Connection refused
3 client: propose --instance open --value x --principal ann --server http://ABSENT --give-up-after 100ms => Connection refused
4 client: list --principal ann --server http://SILENT --give-up-after 100ms => no answer in time
2 server: frobnicate => unrecognized subcommand 'frobnicate'
2 server: serve --lisen 127.0.0.1:0 => a similar argument exists: '--listen'
2 server: serve --in-memory --listen nowhere => --listen
2 server: serve --in-memory => --insecure-principals
2 server: serve --in-memory --insecure-principals --listen 0.0.0.0:0 => insecure
2 server: serve --in-memory --credentials creds => creds
2 server: serve --in-memory --insecure-principals --page-connections 3 => is no setting of a server
2 server: serve --in-memory --insecure-principals --drain 8000y => 3650d
2 server: serve --config missing.toml => missing.toml
2 server: serve --config wrong.toml => wrong.toml
3 server: serve --in-memory --insecure-principals --listen PLAIN --no-http --log error => cannot listen on PLAIN
2 server: config check --config wrong.toml => there is no
2 server: credentials --principals 2 => --out
2 server: health --server localhost => give a URL such as http://127.0.0.1:7420
2 server: health --server https://SECURE --credentials creds/clients => creds/clients has no ca.crt: did you mean creds/clients/alice (3 folders)?
3 server: health --server http://ABSENT => does not answer: Connection refused
3 server: health --server http://SILENT --timeout 100ms => did not answer in 100ms
3 server: health --http ABSENT => does not answer
3 server: health --http PLAIN => is no listener for operators
2 server: data restore --from nothing --data new => nothing
2 server: data dump --out x --backup a --data b => cannot be used with
";

/// Mistakes in the way to a server, told at once and in one line, whatever is asked; and what is said.
const WRONG_WAYS: [(&str, &str); 6] = [
    ("--server http://SECURE --principal ann", "it answers with TLS: use https:// and --credentials DIR"),
    ("--server https://PLAIN --credentials creds/clients/ann", "it speaks no TLS: use http://"),
    (
        "--server https://SECURE --credentials foreign/clients/ann",
        "is not signed by a CA in foreign/clients/ann/ca.crt",
    ),
    (
        "--server http://nowhere.invalid:7420 --principal ann",
        "nowhere.invalid:7420: there is no host nowhere.invalid",
    ),
    ("--server http://HTTP --principal ann", "no gRPC server but one for browsers and probes"),
    (
        "--server https://HTTP --credentials creds/clients/ann",
        "no gRPC server but one for browsers and probes",
    ),
];

/// Every command that asks a server.
const COMMANDS: [&str; 12] = [
    "propose --instance open --value x",
    "propose --instance 0123456789abcdef0123456789abcdef --value x",
    "create -n 2",
    "create -n 2 --name x",
    "close open",
    "append open x",
    "append 0123456789abcdef0123456789abcdef x --number 1 --no-wait",
    "read open --number 2",
    "decide 0123456789abcdef0123456789abcdef x",
    "get open",
    "watch open",
    "cluster",
];

/// A server that lives as long as this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Bench {
    folder: tempfile::TempDir,
    /// Words of the table, and what stands for them.
    words: Vec<(&'static str, String)>,
    _servers: Vec<Server>,
    _silent: std::net::TcpListener,
}

/// The program of the server, which lies beside that of the client.
fn server_program() -> std::path::PathBuf {
    let program = Path::new(CLIENT).with_file_name("stickycas-server");
    assert!(program.is_file(), "the program of the server is missing: cargo build -p stickycas-server");
    program
}

/// Runs a line of words in this folder.
fn run(folder: &Path, program: &str, line: &str) -> Output {
    let mut command = match program {
        "client" => Command::new(CLIENT),
        _ => Command::new(server_program()),
    };
    let words = line.split(' ').map(|word| word.trim_matches('\''));
    let environment = [("PATH", "/usr/bin:/bin"), ("HOME", "/nonexistent")];
    command
        .args(words)
        .current_dir(folder)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for (out, host) in [("creds", "127.0.0.1"), ("foreign", "127.0.0.1"), ("named", "elsewhere")] {
            let line = format!(
                "credentials --out {out} --principals 0 --principal alice --principal ann --principal bob --host {host} --tokens"
            );
            let made = run(path, "server", &line);
            assert!(made.status.success(), "{made:?}");
        }
        std::fs::create_dir_all(path.join("empty")).unwrap();
        std::fs::write(path.join("empty/ca.crt"), "").unwrap();
        std::fs::create_dir_all(path.join("mixed")).unwrap();
        for (from, file) in [("creds", "ca.crt"), ("foreign", "tls.crt"), ("foreign", "tls.key")] {
            std::fs::copy(path.join(from).join("clients/ann").join(file), path.join("mixed").join(file))
                .unwrap();
        }
        // A server of which the clients in `creds` trust the CA, and which has another name.
        std::fs::write(path.join("wrong.toml"), "lisen = '127.0.0.1:0'\n").unwrap();

        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let absent = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (plain, [plain_at, http, ..]) = serve(path, "--insecure-principals");
        let (tls, [tls_at, tokens, _]) = serve(path, "--credentials creds/server --token-listen 127.0.0.1:0");
        let (named, [named_at, ..]) = serve(path, "--credentials named/server");
        let words = vec![
            ("PLAIN", plain_at),
            ("SECURE", tls_at),
            ("HTTP", http),
            ("TOKENS", tokens),
            ("127.0.0.1:NAMED", named_at),
            ("ABSENT", absent.to_string()),
            ("SILENT", silent.local_addr().unwrap().to_string()),
        ];
        Self { folder, words, _servers: vec![plain, tls, named], _silent: silent }
    }

    /// Standard error, without the notice that a slow server has not answered yet, and the exit code of a
    /// line of the table.
    fn told(&self, program: &str, line: &str) -> (String, Option<i32>) {
        let output = run(self.folder.path(), program, &self.filled(line));
        assert!(output.stdout.is_empty(), "{line}: {output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        let is_notice = |line: &str| line.starts_with("waiting for ") && line.ends_with(": no answer yet\n");
        let told = told.split_inclusive('\n').filter(|line| !is_notice(line)).collect();
        (told, output.status.code())
    }

    fn filled(&self, line: &str) -> String {
        self.words.iter().fold(line.to_owned(), |line, (word, meant)| {
            // Not within another word, and not the name of a service.
            line.replace(&format!("//{word}"), &format!("//{meant}"))
                .replace(&format!(" {word}"), &format!(" {meant}"))
        })
    }
}

/// Starts a server; gives its addresses in the order in which it tells them.
fn serve(folder: &Path, flags: &str) -> (Server, [String; 3]) {
    let line =
        format!("serve --in-memory --listen 127.0.0.1:0 --http 127.0.0.1:0 --coordinator alice {flags}");
    let mut command = Command::new(server_program());
    let command =
        command.args(line.split(' ')).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Server(command.spawn().unwrap());
    let told = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut addresses: [String; 3] = Default::default();
    for (address, line) in addresses.iter_mut().zip(told) {
        let line = line.unwrap();
        *address = line.rsplit(' ').next().unwrap().to_owned();
        if line.starts_with("http on") {
            break;
        }
    }
    (server, addresses)
}

#[test]
fn every_mistake_is_answered_with_what_is_wrong_and_its_exit_code() {
    let bench = Bench::new();
    for line in ["create --name open --roster ann,bob --patience none", "create --name done --roster ann"] {
        let created = run(
            bench.folder.path(),
            "client",
            &bench.filled(&format!("{line} --principal alice --server http://PLAIN")),
        );
        assert!(created.status.success(), "{created:?}");
    }
    let decided = bench.filled("propose --instance done --value x --principal ann --server http://PLAIN");
    assert!(run(bench.folder.path(), "client", &decided).status.success());

    let (mut wrong, mut rows) = (Vec::new(), 0);
    for row in MISTAKES.lines().filter(|row| !row.is_empty()) {
        let (given, expected) = row.split_once(" => ").unwrap();
        let (code, line) = given.split_once(' ').unwrap();
        let (program, line) = line.split_once(": ").unwrap();
        let (told, exit) = bench.told(program, line);
        let expected = bench.filled(&format!(" {expected}"))[1..].replace('\'', "\"");
        let is_told = told.replace('\'', "\"").contains(&expected);
        let is_one_line = exit == Some(2) || told.lines().count() == 1;
        if exit.map(|exit| exit.to_string()).as_deref() != Some(code)
            || !is_told
            || !is_one_line
            || !told.contains("error: ")
        {
            wrong.push(format!("{row}\n  ended with {exit:?} and said: {told}"));
        }
        rows += 1;
    }
    for (way, expected) in WRONG_WAYS {
        for command in COMMANDS {
            let (told, exit) = bench.told("client", &format!("{command} {way}"));
            if exit != Some(3)
                || told.lines().count() != 1
                || !told.contains(expected)
                || !told.starts_with("error: ")
            {
                wrong.push(format!("{command} {way}: {expected}\n  ended with {exit:?} and said: {told}"));
            }
        }
        let way = way.replace(" --principal ann", "");
        let (told, exit) = bench.told("server", &format!("health --timeout 30s {way}"));
        if exit != Some(3) || told.lines().count() != 1 || !told.contains(expected) {
            wrong.push(format!("health {way}: {expected}\n  ended with {exit:?} and said: {told}"));
        }
    }
    assert!(wrong.is_empty() && rows > 30, "{} of {rows}:\n{}", wrong.len(), wrong.join("\n"));
}
