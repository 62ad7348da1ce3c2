//! The live page of a server that believes the names of its clients: streams, tables, bounds, names of hosts.

use std::collections::BTreeSet;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::browser::{Answer, EventStream, get};
use crate::harness::fixtures::{PROPOSAL, alone, create_request, instance, instance_with, parameters, play};
use crate::harness::{COORDINATOR, Server, with_timeout};

impl Server {
    pub(crate) async fn page(&self, path: &str) -> Answer {
        get(self.page, path, &[]).await
    }

    async fn events(&self, id: &str, query: &str) -> Result<EventStream, StatusCode> {
        EventStream::open(self.page, &format!("/api/instances/{id}/events{query}"), &[]).await
    }

    /// Until the metric of a limit says so.
    async fn until_used(&self, limit: &str, used: usize) {
        with_timeout(async {
            while self.limit_used(limit).await != used {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

fn indices(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["index"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn the_page_has_its_policy_and_nothing_of_the_operators() {
    let server = Server::start().await;
    for path in ["/", "/main.js", "/api/about", "/api/instances"] {
        let answer = server.page(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    for path in [
        "/metrics",
        "/livez",
        "/readyz",
        "/api/metrics",
        "/..%2fmetrics",
        "/stickycas.v1.InstanceService/Get",
    ] {
        assert_eq!(server.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    // And the operators' listener has no page.
    assert_eq!(server.get("/api/about").await.0, "HTTP/1.1 404 Not Found");
    let about = server.page("/api/about").await.json();
    assert_eq!(
        (&about["live"], &about["token"], &about["plays"]),
        (&true.into(), &false.into(), &false.into())
    );
    let mut tcp = TcpStream::connect(server.page).await.unwrap();
    let post =
        b"POST /api/instances HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    tcp.write_all(post).await.unwrap();
    let mut answer = String::new();
    with_timeout(tcp.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}

#[tokio::test]
async fn the_page_answers_to_its_own_names_only() {
    let server = Server::with(|config| config.page_hosts = vec!["page.example".to_owned()]).await;
    for (host, status) in [
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("PAGE.example:7", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("169.254.169.254", 421),
        ("", 421),
    ] {
        for path in ["/", "/api/about", "/api/instances"] {
            let answer = get(server.page, path, &[("host", host)]).await;
            assert_eq!(answer.status.as_u16(), status, "{host} {path}");
        }
    }
}

#[tokio::test]
async fn pages_of_other_sites_ask_for_nothing() {
    let server = Server::start().await;
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)] {
        for path in ["/api/about", "/api/instances"] {
            let answer = get(server.page, path, &[("sec-fetch-site", site)]).await;
            assert_eq!(answer.status.as_u16(), status, "{site} {path}");
        }
        // A link from elsewhere leads to the page.
        assert_eq!(get(server.page, "/", &[("sec-fetch-site", site)]).await.status, StatusCode::OK, "{site}");
    }
}

#[tokio::test]
async fn a_viewer_sees_an_instance_from_its_first_event_to_its_end() {
    let server = Server::start().await;
    let id = instance(&server).await;
    let mut viewer = server.events(&id, "").await.unwrap();
    let setting = viewer.expect("setting").await;
    assert_eq!((&setting["processes"], &setting["live"]), (&3.into(), &true.into()));
    let gathering = viewer.expect("frame").await;
    assert_eq!(gathering["now"]["state"], "gathering");
    assert_eq!(gathering["now"]["awaited_count"], 3);
    play(&server, &id, PROPOSAL).await;
    let (events, (last, _)) = viewer.rest().await;
    assert_eq!(last, "end");
    assert_eq!(indices(&events), (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["event"], "finished");
    assert_eq!(events.iter().filter(|event| event["event"] == "decided").count(), 3);

    // Whoever comes later sees the same, and one that comes back goes on where it was.
    let mut later = server.events(&id, "").await.unwrap();
    assert_eq!(later.expect("setting").await["live"], false);
    assert_eq!(later.rest().await.0, events);
    let from = events.len() as u64 - 2;
    let mut again = server.events(&id, &format!("?from={from}")).await.unwrap();
    again.expect("setting").await;
    let rest: BTreeSet<u64> = indices(&again.rest().await.0).into_iter().collect();
    assert!(rest.contains(&from) && rest.contains(&(from + 1)), "{rest:?}");
    // As after a restart of the server that has lost its memory.
    let ahead = server.events(&id, &format!("?from={}", events.len() + 1)).await.err();
    assert_eq!(ahead, Some(StatusCode::CONFLICT));
}

#[tokio::test]
async fn a_frame_is_encoded_once_for_all_viewers() {
    let server = Server::start().await;
    let id = instance(&server).await;
    let mut viewers = Vec::new();
    for _ in 0..5 {
        let mut viewer = server.events(&id, "").await.unwrap();
        viewer.expect("setting").await;
        viewers.push(viewer);
    }
    assert_eq!((server.limit_used("page_viewers").await, server.limit_used("page_instances").await), (5, 1));
    play(&server, &id, PROPOSAL).await;
    let mut seen = Vec::new();
    for mut viewer in viewers {
        let mut frames = Vec::new();
        while let Some((name, data)) = viewer.next().await
            && name == "frame"
        {
            frames.push(data);
        }
        seen.push(frames);
    }
    assert!(seen.windows(2).all(|two| two[0] == two[1]));
    let (_, metrics) = server.get("/metrics").await;
    let encoded = metrics.lines().find_map(|line| line.strip_prefix("stickycas_page_frames_total ")).unwrap();
    assert_eq!(encoded.parse::<usize>().unwrap(), seen[0].len());
    server.until_used("page_viewers", 0).await;
}

#[tokio::test]
async fn what_is_not_kept_is_a_snapshot_that_says_so() {
    let server =
        Server::with(|config| (config.limits.events, config.limits.events_per_process) = (8, 0)).await;
    let id = instance(&server).await;
    play(&server, &id, PROPOSAL).await;
    let mut viewer = server.events(&id, "").await.unwrap();
    let setting = viewer.expect("setting").await;
    let snapshot = viewer.expect("snapshot").await;
    let index = snapshot["index"].as_u64().unwrap();
    assert!(index > 8 && snapshot["missing"].as_u64() == Some(index), "{snapshot}");
    assert_eq!(setting["first_event"].as_u64(), Some(index));
    assert_eq!((&snapshot["now"]["state"], &snapshot["length"]), (&"finished".into(), &3.into()));
    assert_eq!(snapshot["entries"].as_array().unwrap().len(), 3);
    // joined, won, left, executed: all three have.
    use base64::Engine as _;
    let marks =
        base64::engine::general_purpose::STANDARD.decode(snapshot["marks"].as_str().unwrap()).unwrap();
    assert_eq!(marks, [1 + 2 + 16, 2].repeat(3));
    assert_eq!(viewer.rest().await.1.0, "end");
    let why = server.page(&format!("/api/instances/{id}/explanation")).await;
    assert_eq!(why.status, StatusCode::CONFLICT, "{why:?}");
}

#[tokio::test]
async fn the_page_explains_what_it_cannot_know_as_assumed() {
    let server = Server::start().await;
    let id = instance(&server).await;
    play(&server, &id, PROPOSAL).await;
    let sections = server.page(&format!("/api/instances/{id}/explanation")).await.json();
    assert_eq!(sections[0]["title"], "What is assumed");
    assert!(sections.to_string().contains("does not know who is Byzantine"));
    assert!(sections.to_string().contains("decided yes"));
    let told = server.page(&format!("/api/instances/{id}/told?process=2")).await.json();
    let sentences = told["sentences"].as_array().unwrap();
    assert!(sentences.iter().any(|it| it.as_str().unwrap().starts_with("process 2 decides")), "{told}");
    let promise = server.page(&format!("/api/instances/{id}/promise?f=0&values=1")).await.json();
    assert_eq!(promise["properties"][1]["promised"], true);
    for path in ["nothing", "0123456789abcdef0123456789abcdef", "%2e%2e"] {
        for what in ["events", "explanation", "told?process=1", "promise?f=0&values=1"] {
            let answer = server.page(&format!("/api/instances/{path}/{what}")).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}/{what}");
        }
    }
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let server = Server::with(|config| config.drain = Duration::from_secs(60)).await;
    let id = instance(&server).await;
    let mut viewer = server.events(&id, "").await.unwrap();
    let mut overview = EventStream::open(server.page, "/api/overview", &[]).await.unwrap();
    viewer.expect("setting").await;
    // Keeps the server from ending.
    let _call = server.client("p1").await.append_and_wait(&id, PROPOSAL).await;
    let (page, stopping) = (server.page, server.begin_shutdown());
    let (_, (name, data)) = viewer.rest().await;
    assert_eq!((name.as_str(), &data["status"]), ("refused", &503.into()));
    while let Some((name, data)) = overview.next().await {
        assert!(name == "overview" || data["status"] == 503, "{name}: {data}");
    }
    drop((viewer, overview, page));
    stopping.stopped().await;
}

#[tokio::test]
async fn viewers_and_what_they_look_at_are_bounded() {
    let server = Server::with(|config| {
        let limits = &mut config.limits;
        (limits.page_viewers, limits.page_viewers_per_principal, limits.page_instances) = (3, 2, 1);
    })
    .await;
    let [one, other] = [instance(&server).await, instance(&server).await];
    let first = server.events(&one, "").await.unwrap();
    assert_eq!(server.events(&other, "").await.err(), Some(StatusCode::TOO_MANY_REQUESTS), "one instance");
    let _second = server.events(&one, "").await.unwrap();
    let refused = server.page(&format!("/api/instances/{one}/events")).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "two viewers");
    assert_eq!(refused.headers["retry-after"], "2");
    drop((first, _second));
    server.until_used("page_viewers", 0).await;
    // The instance that nobody looks at makes room.
    server.events(&other, "").await.unwrap();
    let (_, metrics) = server.get("/metrics").await;
    for bound in ["page_instances", "page_viewers_per_principal"] {
        let refused = format!("stickycas_page_refused_total{{bound=\"{bound}\"}} 1");
        assert!(metrics.contains(&refused), "{refused}");
    }
}

#[tokio::test]
async fn connections_to_the_page_above_the_limit_are_closed() {
    let server = Server::with(|config| {
        (config.limits.page_connections, config.limits.page_connections_per_address) = (8, 4);
    })
    .await;
    let mut open = Vec::new();
    for _ in 0..6 {
        open.push(TcpStream::connect(server.page).await.unwrap());
    }
    for tcp in &mut open[4..] {
        assert!(matches!(with_timeout(tcp.read(&mut [0])).await, Ok(0) | Err(_)));
    }
    assert_eq!(server.limit_used("page_connections").await, 4);
    // gRPC does not notice.
    instance(&server).await;
    drop(open);
    server.until_used("page_connections", 0).await;
    assert_eq!(server.page("/").await.status, StatusCode::OK);
}

#[tokio::test]
async fn many_instances_are_sorted_and_filtered_in_pages() {
    let server = Server::start().await;
    let mut coordinator = server.client(COORDINATOR).await;
    for number in 0..130 {
        let request = create_request(alone());
        let name = if number % 10 == 0 { format!("Tea-{number}") } else { String::new() };
        coordinator.create(stickycas_proto::v1::CreateRequest { name, ..request }).await.unwrap();
    }
    let ended = instance_with(&server, alone()).await;
    play(&server, &ended, PROPOSAL).await;
    let mut seen = Vec::new();
    let mut page = String::new();
    loop {
        let list =
            server.page(&format!("/api/instances?sort=length&descending=true&page={page}")).await.json();
        assert_eq!(list["total"], 131);
        seen.extend(
            list["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()),
        );
        match list["next"].as_str() {
            Some(next) => next.clone_into(&mut page),
            None => break,
        }
    }
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (131, 131));
    assert_eq!(seen[0], ended, "the only one with an entry");
    // A token says nothing, and one that was changed is none.
    assert!(!page.contains(&seen[99].replace('-', "")[..8]));
    let forged = page.replace(|it: char| it.is_ascii_digit(), "0");
    assert_eq!(server.page(&format!("/api/instances?page={forged}")).await.status, StatusCode::BAD_REQUEST);

    let rows = async |query: &str| {
        let list = server.page(&format!("/api/instances?{query}")).await.json();
        (list["rows"].as_array().unwrap().len(), list["total"].as_u64())
    };
    assert_eq!(rows("state=finished").await, (1, Some(1)));
    assert_eq!(rows("text=tea").await, (13, None));
    assert_eq!(rows(&format!("text={}", &ended[..10])).await, (1, None));
    assert_eq!(rows("state=gathering&text=TEA-12").await, (1, None));
    for wrong in ["sort=creator", "state=odd", "colour=red", "page=x", &format!("text={}", "x".repeat(300))] {
        assert_eq!(
            server.page(&format!("/api/instances?{wrong}")).await.status,
            StatusCode::BAD_REQUEST,
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn the_overview_tells_of_offences_as_they_come() {
    let server = Server::start().await;
    let id = instance_with(&server, parameters()).await;
    let mut overview = EventStream::open(server.page, "/api/overview", &[]).await.unwrap();
    let first = overview.expect("overview").await;
    assert_eq!((&first["live"], &first["ended"], &first["viewers"]), (&1.into(), &0.into(), &1.into()));
    assert_eq!(first["offences"].as_array().unwrap().len(), 0);
    let mut process = server.client("p1").await;
    process.append(&id, 1, "").await.unwrap_err();
    let offence = loop {
        let event = overview.expect("overview").await;
        if let Some(offence) = event["offences"].as_array().unwrap().first() {
            break offence.clone();
        }
    };
    assert_eq!((offence["instance"].as_str(), &offence["process"]), (Some(id.as_str()), &1.into()));
    assert!(offence["says"].as_str().unwrap().starts_with("process 1 commits an offence"));
}

#[tokio::test]
async fn who_asks_the_page_too_often_is_told() {
    let server = Server::with(|config| config.limits.page_requests_per_second = 1).await;
    with_timeout(async {
        while server.page("/api/instances").await.status != StatusCode::TOO_MANY_REQUESTS {}
    })
    .await;
    assert_eq!(server.page("/").await.status, StatusCode::OK, "files need no work");
}
