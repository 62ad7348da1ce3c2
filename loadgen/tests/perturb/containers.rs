//! Which calls are made for what is done to containers, and what complaints are understood as.

use std::fs;
use std::path::Path;

use stickycas_faults::plan::{Action, Service};
use stickycas_faults::platform::containers::{Docker, DockerError, Project, project_name};

use super::engine::{Engine, process};

#[tokio::test]
async fn what_was_done_is_put_back_and_nothing_else() {
    let engine = Engine::with(&["server", "judge", "process-1", "process-2", "process-3", "process-4"]);
    let mut project = engine.project().await;
    project.expect_running([process(1), process(2), process(3), process(4), Service::Server]).await.unwrap();
    project.act(Action::Kill, process(1), None).await.unwrap();
    project.act(Action::Pause, process(2), None).await.unwrap();
    project.act(Action::Disconnect, process(3), None).await.unwrap();
    project.act(Action::Pause, process(4), None).await.unwrap();
    project.act(Action::Unpause, process(4), None).await.unwrap();
    project.act(Action::Restart, Service::Server, None).await.unwrap();
    assert_eq!(
        engine.changes(),
        [
            "kill id-of-process-1",
            "pause id-of-process-2",
            "network disconnect demo_default id-of-process-3",
            "pause id-of-process-4",
            "unpause id-of-process-4",
            "restart -t 10 id-of-server",
        ]
    );
    project.restore().await.unwrap();
    assert_eq!(
        engine.changes()[6..],
        [
            "start id-of-process-1",
            "unpause id-of-process-2",
            "network connect --alias process-3 demo_default id-of-process-3",
        ]
    );
    project.restore().await.unwrap();
    assert_eq!(engine.changes().len(), 9);
}

#[tokio::test]
async fn what_the_plan_restores_is_not_restored_again() {
    let engine = Engine::with(&["process-1", "process-2"]);
    let mut project = engine.project().await;
    project.expect_running([process(1), process(2)]).await.unwrap();
    for (action, service) in [
        (Action::Disconnect, process(2)),
        (Action::Kill, process(1)),
        (Action::Reconnect, process(2)),
        (Action::Start, process(1)),
    ] {
        project.act(action, service, None).await.unwrap();
    }
    let done = engine.changes();
    assert_eq!(done[2], "network connect --alias process-2 demo_default id-of-process-2");
    project.restore().await.unwrap();
    assert_eq!(engine.changes(), done);
}

#[tokio::test]
async fn one_network_of_several_is_taken_away_and_put_back() {
    let engine = Engine::with(&["server-1", "etcd-1"]);
    let server: Service = "server-1".parse().unwrap();
    engine.join("server-1", "demo_etcd");
    let mut project = engine.project().await;
    project.expect_running([server]).await.unwrap();
    project.act(Action::Disconnect, server, Some("etcd")).await.unwrap();
    project.act(Action::Reconnect, server, Some("etcd")).await.unwrap();
    project.act(Action::Disconnect, server, None).await.unwrap();
    project.restore().await.unwrap();
    assert_eq!(
        engine.changes(),
        [
            "network disconnect demo_etcd id-of-server-1",
            "network connect --alias server-1 demo_etcd id-of-server-1",
            "network disconnect demo_default id-of-server-1",
            "network disconnect demo_etcd id-of-server-1",
            "network connect --alias server-1 demo_default id-of-server-1",
            "network connect --alias server-1 demo_etcd id-of-server-1",
        ]
    );
    let member: Service = "etcd-1".parse().unwrap();
    let told = project.act(Action::Disconnect, member, Some("etcd")).await.unwrap_err().to_string();
    assert!(told.starts_with("etcd-1 is not on this network: bring it up"), "{told}");
}

#[tokio::test]
async fn a_member_of_etcd_that_is_away_is_out_of_reach() {
    let members = ["etcd-1", "etcd-2", "etcd-3"];
    let engine = Engine::with(&members);
    members.iter().for_each(|member| engine.join(member, "demo_etcd"));
    let project = engine.project().await;
    let [first, second, third] = members.map(|member| member.parse::<Service>().unwrap());
    project.act(Action::Kill, first, None).await.unwrap();
    project.act(Action::Disconnect, second, Some("etcd")).await.unwrap();
    let calls = fs::read_to_string(engine.path("calls")).unwrap();
    let asked = "exec --env ETCDCTL_ENDPOINTS=https://etcd-2:2379 id-of-etcd-3 etcdctl --command-timeout=1s endpoint status";
    assert_eq!(calls.lines().filter(|call| *call == asked).count(), 2, "before and after: {calls}");

    project.act(Action::Start, first, None).await.unwrap();
    fs::write(engine.path("tunnel"), "").unwrap();
    for (action, member, network) in
        [(Action::Pause, third, None), (Action::Kill, first, None), (Action::Disconnect, third, Some("etcd"))]
    {
        let told = project.act(action, member, network).await.unwrap_err().to_string();
        assert!(told.ends_with("the container is in reach of another member"), "{told}");
        for container in [first, third] {
            fs::write(engine.path(&format!("id-of-{container}/running")), "").unwrap();
            let _ = fs::remove_file(engine.path(&format!("id-of-{container}/paused")));
        }
    }
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_is_started_again() {
    let engine = Engine::with(&["server-2"]);
    let server: Service = "server-2".parse().unwrap();
    let mut project = engine.project().await;
    project.expect_running([server]).await.unwrap();
    project.act(Action::Stop, server, None).await.unwrap();
    project.restore().await.unwrap();
    assert_eq!(engine.changes(), ["stop -t 10 id-of-server-2", "start id-of-server-2"]);
}

#[tokio::test]
async fn services_are_called_at_their_published_ports() {
    let engine = Engine::with(&["server-1", "server-2", "judge"]);
    let bindings = |port: u16| format!("\"7420/tcp\":[{{\"HostIp\":\"0.0.0.0\",\"HostPort\":\"{port}\"}}]");
    fs::write(engine.path("id-of-server-1/published"), bindings(7430)).unwrap();
    fs::write(engine.path("id-of-server-2/published"), bindings(7431)).unwrap();
    let published = engine.project().await.published().await.unwrap();
    let wanted = [("server-1:7420", "127.0.0.1:7430"), ("server-2:7420", "127.0.0.1:7431")];
    assert_eq!(published, wanted.map(|(service, at)| (service.to_owned(), at.to_owned())).into());
}

#[tokio::test]
async fn the_judge_is_recreated_with_the_plan_only_once() {
    let engine = Engine::with(&["judge", "process-1"]);
    let mut project = engine.project().await;
    project.recreate_judge("/perturbations/x.toml").await.unwrap();
    assert_eq!(
        engine.changes(),
        ["compose -p demo up --detach --no-deps --force-recreate judge", "plan: /perturbations/x.toml",]
    );
    project.expect_running([Service::Judge]).await.unwrap();
    project.act(Action::Kill, Service::Judge, None).await.unwrap();
    assert!(!project.judge_runs().await.unwrap());
    fs::write(engine.path("id-of-judge/exit"), "3").unwrap();
    assert_eq!(project.judge_ended().await.unwrap(), 3);
    project.restore().await.unwrap();
    project.stop_judge().await.unwrap();
    assert_eq!(engine.changes()[2..], ["kill id-of-judge"]);
}

#[tokio::test]
async fn a_paused_judge_goes_on() {
    let engine = Engine::with(&["judge"]);
    let mut project = engine.project().await;
    project.expect_running([Service::Judge]).await.unwrap();
    project.act(Action::Pause, Service::Judge, None).await.unwrap();
    project.restore().await.unwrap();
    assert_eq!(engine.changes(), ["pause id-of-judge", "unpause id-of-judge"]);
}

#[tokio::test]
async fn what_has_no_effect_is_an_error() {
    let engine = Engine::with(&["process-1"]);
    fs::write(engine.path("immortal"), "").unwrap();
    let project = engine.project().await;
    let told = project.act(Action::Kill, process(1), None).await.unwrap_err().to_string();
    assert_eq!(told, "kill process-1: the engine says that it is done, and the container runs");
}

#[tokio::test]
async fn what_is_not_there_or_does_not_run_is_told_with_what_to_do() {
    let engine = Engine::with(&["process-1", "process-2", "process-3"]);
    fs::remove_file(engine.path("id-of-process-1/running")).unwrap();
    fs::write(engine.path("id-of-process-2/paused"), "").unwrap();
    fs::remove_file(engine.path("id-of-process-3/network")).unwrap();
    let mut project = engine.project().await;
    for (service, wanted) in [
        (
            process(1),
            "process-1 does not run: bring it up with docker compose up --detach --force-recreate process-1",
        ),
        (
            process(2),
            "process-2 is paused: bring it up with docker compose up --detach --force-recreate process-2",
        ),
        (
            process(3),
            "process-3 is on no network: bring it up with docker compose up --detach --force-recreate process-3",
        ),
        (
            process(17),
            "the project demo has no container of process-17: start it with docker compose up --detach",
        ),
    ] {
        let told = project.expect_running([service]).await.unwrap_err();
        assert_eq!(told.to_string(), wanted);
    }
}

#[tokio::test]
async fn a_project_without_containers_is_told_of_the_others() {
    let engine = Engine::with(&["process-1"]);
    let told = Project::open(engine.docker(), Vec::new(), "demos").await.unwrap_err().to_string();
    assert_eq!(
        told,
        "there are no containers of the project demos: start it with docker compose up --detach, or give another one \
         with --project: another, other"
    );
}

#[tokio::test]
async fn the_complaints_of_docker_are_told_with_what_to_do() {
    let engine = Engine::with(&["process-1"]);
    let project = engine.project().await;
    engine.complain(
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n",
    );
    let error = project.act(Action::Kill, process(1), None).await.unwrap_err();
    assert!(matches!(error, DockerError::NoEngine { .. }), "{error}");
    engine.complain("permission denied while trying to connect to the Docker daemon socket at unix:///x");
    let error = project.act(Action::Kill, process(1), None).await.unwrap_err();
    assert!(matches!(error, DockerError::NotAllowed { .. }), "{error}");
    engine.complain("Error response from daemon: it is raining");
    let told = project.judge_ended().await.unwrap_err().to_string();
    assert!(told.ends_with(" failed: Error response from daemon: it is raining"), "{told}");

    engine.complain("unknown flag: -p\nUsage:\n  one\n  two\n  three\n\nsee docker --help\n");
    let told = project.judge_ended().await.unwrap_err().to_string();
    assert!(told.ends_with(" failed: unknown flag: -p ... three see docker --help"), "{told}");

    let missing = Docker::new(engine.path("no-docker-here"));
    let error = Project::open(missing, Vec::new(), "demo").await.unwrap_err();
    assert!(matches!(error, DockerError::NoProgram { .. }), "{error}");
}

#[test]
fn a_project_is_called_as_compose_calls_it() {
    assert_eq!(project_name(None, Path::new("/home/me/Sticky.CAS")), "stickycas");
    assert_eq!(project_name(Some(""), Path::new("/home/me/_my-demo_2")), "my-demo_2");
    assert_eq!(project_name(Some("demo"), Path::new("/home/me/elsewhere")), "demo");
}
