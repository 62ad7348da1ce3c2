//! Whole plans. The judge is a child process, started by what takes the place of Compose.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stickycas_client::Client;
use stickycas_client_program::run_from;
use stickycas_faults::{Plan, PlanOutcome, Target, perturb};
use stickycas_harness::run::{COORDINATOR, OwnServer};
use stickycas_model::judge::Outcome;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::engine::Engine;

const SCENARIO: &str = r#"
name = "four"
[instance]
processes = 4
warp_size = 1
read_size = 4
patience = "1m"
[proposals]
values = ["tea", "tea", "tea", "tea"]
"#;

const PLAN: &str = r#"
name = "twice"
expect = "valid"
[instance]
pace = "50ms"
[[steps]]
when = "before"
do = "disconnect"
services = ["process-1"]
[[steps]]
when = { phase = 2 }
do = "pause"
services = ["process-2", "process-3"]
[[steps]]
when = { answered = 4, access = 1 }
do = "unpause"
services = ["process-3"]
[[steps]]
when = { after = "1ms" }
do = "restart"
services = ["server"]
[expectations]
decided = [1, 2, 3, 4]
sessions = { 4 = 1 }
lives = { 4 = 1 }
appends = { 4 = 1 }
"#;

/// A server, four clients, and what the engine has of them.
struct Demo {
    engine: Engine,
    server: OwnServer,
    clients: JoinSet<()>,
}

impl Demo {
    async fn up() -> Self {
        let engine = Engine::with(&["server", "judge", "process-1", "process-2", "process-3", "process-4"]);
        fs::remove_file(engine.path("id-of-judge/running")).unwrap();
        let server = OwnServer::start().await.unwrap();
        fs::write(engine.path("four.toml"), SCENARIO).unwrap();
        // Who reports need not be waited for. The port is free until the judge of the plan takes it.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let judge = format!(
            "here=$(dirname \"$0\"); '{}' judge \"$here/four.toml\" --server {} --principal {COORDINATOR} --seed 5 \
             --listen 127.0.0.1:{port} --runs \"$here/runs\"; echo $? > \"$here/id-of-judge/exit\"; \
             rm \"$here/id-of-judge/running\"",
            env!("CARGO_BIN_EXE_stickycas-loadgen"),
            server.url(),
        );
        fs::write(engine.path("judge"), judge).unwrap();
        let mut clients = JoinSet::new();
        for process in 1..=4 {
            let line = format!(
                "client --server {} --principal process-{process} propose --instance demo --again --value tea \
                 --report-to http://127.0.0.1:{port}",
                server.url()
            );
            clients.spawn(async move {
                let words: Vec<&str> = line.split(' ').collect();
                let (mut out, mut err) = (Vec::new(), Vec::new());
                let exit = run_from(words, &mut out, &mut err).await;
                panic!("{line} has ended with {exit:?}: {}", String::from_utf8_lossy(&err));
            });
        }
        Self { engine, server, clients }
    }

    fn target(&self) -> Target {
        let client = Client::builder(self.server.url()).principal(COORDINATOR).connect_lazy();
        let folder = |name: &str| self.engine.path(name).to_str().unwrap().to_owned();
        Target {
            docker: self.engine.docker(),
            compose: Vec::new(),
            project: "demo".to_owned(),
            client: client.unwrap(),
            instance: "demo".parse().unwrap(),
            scenario: "four".to_owned(),
            plans_of_judge: folder("plans"),
            runs_of_judge: folder("runs"),
            runs: self.engine.path("copies"),
            timeout: Duration::from_secs(3600),
        }
    }

    /// Carries out a plan, unless it is stopped first.
    async fn perturb(
        &self,
        plan: &str,
        tell: &dyn Fn(&str),
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<PlanOutcome> {
        let file: PathBuf = self.engine.path("plans/twice.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, plan).unwrap();
        perturb(&self.target(), &file, &Plan::load(&file).unwrap(), tell, stop).await
    }

    async fn whole(&self, plan: &str) -> PlanOutcome {
        self.perturb(plan, &|_| {}, std::future::pending()).await.unwrap()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.clients.abort_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_are_carried_out_judged_and_undone_in_order() {
    let demo = Demo::up().await;
    let mut instances = Vec::new();
    for first in [0, 9] {
        let done = demo.whole(PLAN).await;
        assert_eq!(done.mismatches, Vec::<String>::new(), "{:?}", done.reasons);
        assert!(done.as_expected);
        assert_eq!((done.verdict, done.f, done.judge_exit), (Outcome::Valid, 0, 0));
        assert!(done.folder.join("verdict.json").is_file());
        let steps: Vec<String> =
            done.steps.iter().map(|step| format!("{} {}", step.action, step.when)).collect();
        assert_eq!(
            steps,
            [
                "disconnect before the instance",
                "pause phase 2 has come",
                "unpause access 1 of process 4 is executed",
                "restart 1ms after the step before",
            ]
        );
        assert_eq!(
            demo.engine.changes()[first..],
            [
                "network disconnect demo_default id-of-process-1",
                "compose -p demo up --detach --no-deps --force-recreate judge",
                &format!(
                    "plan: {}/plans/twice.toml",
                    demo.engine.path("").to_str().unwrap().trim_end_matches('/')
                ),
                "pause id-of-process-2",
                "pause id-of-process-3",
                "unpause id-of-process-3",
                "restart -t 10 id-of-server",
                "network connect --alias process-1 demo_default id-of-process-1",
                "unpause id-of-process-2",
            ]
        );
        assert!(!instances.contains(&done.instance));
        instances.push(done.instance);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_seen_or_came_too_late_is_told() {
    let demo = Demo::up().await;
    let plan = PLAN
        .replace("do = \"restart\"", "do = \"restart\"\nby = { joined = 1 }")
        .replace("sessions = { 4 = 1 }", "sessions = { 4 = 2 }\nnever_joined = [2]\nstill = \"1h\"")
        .replace(
            "appends = { 4 = 1 }",
            "appends = { 4 = 2 }\ntold_unknown = 4\nmissing = { agreement = \"open\" }",
        )
        .replace("lives = { 4 = 1 }", "lives = { 4 = 3 }\nnever_decided = [3]")
        .replace("expect = \"valid\"", "expect = \"outside\"");
    let plan = plan.replace(
        "[expectations]",
        "[[steps]]\nwhen = { phase = 99 }\ndo = \"pause\"\nservices = [\"process-4\"]\n[expectations]",
    );
    let done = demo.whole(&plan).await;
    assert!(!done.as_expected);
    for (index, wanted) in [
        "pause process-4 was never due: phase 99 has come was not seen",
        "restart server came",
        "the verdict is VALID, and BROKEN was expected",
        "process 2 has joined",
        "process 3 has decided",
        "process 4 has opened 1 sessions, and not 2 or more",
        "the client of process 4 has had 1 lives, and not 3",
        "1 appends of process 4 were executed, and not 2",
        "nothing happened for",
        "0 processes say that they were told that the instance is unknown, and not 4",
        "agreement was promised, and \"open\" was to be missing",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(
            done.mismatches.get(index).is_some_and(|mismatches| mismatches.starts_with(wanted)),
            "{wanted}: {:#?}",
            done.mismatches
        );
    }
    assert_eq!(done.mismatches.len(), 11, "{:#?}", done.mismatches);
    assert!(done.line().contains("not as planned"), "{}", done.line());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_stops_it_in_the_middle_finds_everything_put_back() {
    let demo = Demo::up().await;
    let (paused, told) = (Notify::new(), Arc::new(Mutex::new(Vec::new())));
    let tell = |line: &str| {
        told.lock().unwrap().push(line.to_owned());
        if line.starts_with("pause") {
            paused.notify_one();
        }
    };
    let plan = PLAN.replace("answered = 4, access = 1", "phase = 1000000");
    let error = demo.perturb(&plan, &tell, paused.notified()).await.unwrap_err();
    assert_eq!(error.to_string(), "interrupted", "{told:?}");
    let mut changes = demo.engine.changes();
    // The judge may have ended before.
    changes.retain(|change| change != "stop -t 10 id-of-judge");
    assert_eq!(
        changes[changes.len() - 3..],
        [
            "network connect --alias process-1 demo_default id-of-process-1",
            "unpause id-of-process-2",
            "unpause id-of-process-3",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_judge_that_ends_badly_is_told_whatever_its_verdict() {
    let demo = Demo::up().await;
    let judge = fs::read_to_string(demo.engine.path("judge")).unwrap();
    fs::write(demo.engine.path("judge"), judge.replace("echo $?", "echo 3")).unwrap();
    let done = demo.whole(PLAN).await;
    assert!(!done.as_expected);
    assert_eq!(done.mismatches, ["the judge ended with exit code 3: see docker logs of the judge"]);
}

#[tokio::test]
async fn a_judge_that_ends_at_once_is_told_and_everything_put_back() {
    let demo = Demo::up().await;
    fs::write(demo.engine.path("judge"), "rm \"$(dirname \"$0\")/id-of-judge/running\"").unwrap();
    let error = demo.perturb(PLAN, &|_| {}, std::future::pending()).await.unwrap_err();
    assert!(
        error.to_string().starts_with("the judge has ended, and there is no new instance demo"),
        "{error}"
    );
    assert!(demo.engine.changes().last().unwrap().starts_with("network connect --alias process-1"));
}

#[tokio::test]
async fn steps_of_the_kill_test_are_refused_before_anything_is_changed() {
    let demo = Demo::up().await;
    for (from, to) in [
        ("do = \"restart\"", "do = \"depose\""),
        ("do = \"restart\"", "do = \"drop_incoming\""),
        ("after = \"1ms\"", "served = \"1ms\""),
        ("do = \"restart\"", "do = \"kill\"\nahead = \"1h\""),
    ] {
        let error = demo.perturb(&PLAN.replace(from, to), &|_| {}, std::future::pending()).await.unwrap_err();
        assert!(error.to_string().contains("this is a step of the kill test"), "{error}");
        assert!(!demo.engine.path("calls").exists(), "{to}");
    }
}

#[test]
fn a_plan_that_is_wrong_is_told_before_anything_is_done() {
    let engine = Engine::with(&["server", "process-1"]);
    let (good, bad) = (engine.path("good.toml"), engine.path("bad.toml"));
    fs::write(&good, PLAN).unwrap();
    fs::write(&bad, PLAN.replace("do = \"restart\"", "do = \"freeze\"")).unwrap();
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    let output =
        program.arg("perturb").arg("--docker").arg(engine.path("docker")).args([&good, &bad]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("bad.toml:20: there is no value freeze: give one of kill"), "{told}");
    assert!(!engine.path("calls").exists());
}
