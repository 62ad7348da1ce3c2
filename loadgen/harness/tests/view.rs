//! A run on the live page: what its server sends is what the run folder has, and nothing is sent to the wrong
//! people.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::path::Path;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{Request, Response, StatusCode};
use serde_json::Value;
use stickycas_harness::view::{ViewedRun, router};
use stickycas_harness::{Record, Scenario, play, simulate};
use stickycas_model::history::Event;
use tower::ServiceExt as _;

fn simulated(name: &str) -> Record {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/scenarios/{name}.toml"));
    simulate(&Scenario::load(&path, Some(3)).unwrap())
}

async fn ask(pages: &Router, host: &str, method: &str, path: &str, body: &str) -> Response<Body> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", host)
        .header("content-type", "application/json");
    pages.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
}

async fn get(pages: &Router, path: &str) -> Response<Body> {
    ask(pages, "localhost:1", "GET", path, "").await
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
}

/// The data of all events with this name.
fn events(stream: &str, name: &str) -> Vec<Value> {
    let blocks = stream.split("\n\n").filter(|block| block.contains(&format!("event: {name}\n")));
    blocks.map(|block| serde_json::from_str(block.split("data: ").nth(1).unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn frames_are_the_lines_of_the_history() {
    for name in ["quickstart", "silent-minority", "late-append-open", "adaptive"] {
        let record = simulated(name);
        let pages = router(ViewedRun::new(record.clone()));
        let stream = text(get(&pages, &format!("/api/instances/{name}-3/events")).await).await;
        let frames = events(&stream, "frame");
        let mut lines = Vec::new();
        for event in frames.iter().flat_map(|frame| frame["events"].as_array().unwrap()) {
            let mut line = event.clone();
            for added in ["says", "from"] {
                line.as_object_mut().unwrap().remove(added);
            }
            assert_eq!(line.as_object_mut().unwrap().remove("index").unwrap(), lines.len());
            lines.push(line);
        }
        let history: Vec<Value> =
            record.history.iter().map(|recorded| serde_json::to_value(recorded).unwrap()).collect();
        assert_eq!(lines, history);
        // The machine reproduces the history, so the state at its end is known.
        let finished = record.history.iter().any(|recorded| matches!(recorded.event, Event::Finished));
        let state = if finished { "finished" } else { "running" };
        assert_eq!(frames.last().unwrap()["now"]["state"], state, "{name}");
        assert_eq!(events(&stream, "end").len(), 1, "{name}");
    }
}

#[tokio::test]
async fn late_processes_are_those_that_the_judge_counts() {
    let record = simulated("late-correct");
    let pages = router(ViewedRun::new(record.clone()));
    let stream = text(get(&pages, "/api/instances/late-correct-3/events").await).await;
    let frames = events(&stream, "frame");
    let late: Vec<u64> = frames
        .iter()
        .filter_map(|frame| frame["late"].as_array())
        .flatten()
        .map(|process| process.as_u64().unwrap())
        .collect();
    let judged: Vec<u64> = record.verdict.late.iter().map(|process| u64::from(process.get())).collect();
    assert_eq!(late, judged);
    assert!(!late.is_empty());
}

#[tokio::test]
async fn a_reconnected_viewer_is_sent_what_it_has_not_seen() {
    let record = simulated("quickstart");
    let pages = router(ViewedRun::new(record));
    let all = text(get(&pages, "/api/instances/quickstart-3/events").await).await;
    let from = events(&all, "frame")[5]["events"][0]["index"].as_u64().unwrap();
    let rest = text(get(&pages, &format!("/api/instances/quickstart-3/events?from={from}")).await).await;
    assert_eq!(events(&rest, "frame"), events(&all, "frame")[5..]);
}

#[tokio::test]
async fn pages_under_another_name_and_other_methods_are_refused() {
    let pages = router(ViewedRun::new(simulated("quickstart")));
    for (host, method, path, status) in [
        ("localhost:9", "GET", "/", StatusCode::OK),
        ("127.0.0.1", "GET", "/main.js", StatusCode::OK),
        ("evil.example", "GET", "/", StatusCode::MISDIRECTED_REQUEST),
        ("localhost.evil.example", "GET", "/api/instances", StatusCode::MISDIRECTED_REQUEST),
        ("localhost", "POST", "/api/instances", StatusCode::METHOD_NOT_ALLOWED),
        ("localhost", "DELETE", "/api/instances/quickstart-3/events", StatusCode::METHOD_NOT_ALLOWED),
        ("localhost", "POST", "/", StatusCode::METHOD_NOT_ALLOWED),
        ("localhost", "GET", "/../Cargo.toml", StatusCode::NOT_FOUND),
        ("localhost", "GET", "/api/instances/other/events", StatusCode::NOT_FOUND),
        ("localhost", "GET", "/api/instances/quickstart-3/events?form=1", StatusCode::BAD_REQUEST),
        ("localhost", "GET", "/api/instances/quickstart-3/promise?f=-1&values=2", StatusCode::BAD_REQUEST),
        ("localhost", "GET", "/api/instances/quickstart-3/told?process=0", StatusCode::BAD_REQUEST),
    ] {
        let response = ask(&pages, host, method, path, "").await;
        assert_eq!(response.status(), status, "{method} {host}{path}");
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"));
    }
}

#[tokio::test]
async fn what_cannot_be_run_is_told() {
    let pages = play::router();
    let form = |change: &str| {
        let form = r#"{"processes":12,"warp_size":2,"read_size":3,"byzantine":1,"strategy":"silent","values":2,
            "arbiter":"uniform","append_window":"open","order":"shuffled","seed":1}"#;
        let mut form: Value = serde_json::from_str(form).unwrap();
        let change: Value = serde_json::from_str(change).unwrap();
        form.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::json!({ "form": form }).to_string()
    };
    for (wanted, says) in [
        (form(r#"{"processes":0}"#), "processes"),
        (form(r#"{"processes":1025}"#), "processes: give at most 1024 here"),
        (form(r#"{"warp_size":13}"#), "warp"),
        (form(r#"{"strategy":"fload"}"#), "\"strategy: there is no strategy"),
        (form(r#"{"strategy":"silent\"\n[instance]"}"#), "silent"),
        (form(r#"{"order":"sideways"}"#), "order"),
        (r#"{"preset":"../quickstart"}"#.to_owned(), "there is no preset"),
        ("nonsense".to_owned(), "parse"),
    ] {
        let response = ask(&pages, "localhost", "POST", "/api/play/runs", &wanted).await;
        assert!(response.status().is_client_error(), "{wanted}");
        let told = text(response).await;
        assert!(told.contains(says), "{wanted}: {told}");
    }
    let made = ask(&pages, "localhost", "POST", "/api/play/runs", &form("{}")).await;
    let id: Value = serde_json::from_str(&text(made).await).unwrap();
    let stream = get(&pages, &format!("/api/instances/{}/events", id["id"].as_str().unwrap())).await;
    assert_eq!(stream.status(), StatusCode::OK);
}
