//! Which requests are answered, and how many.

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Site;
use super::browser::{EventStream, get, with_timeout};

#[tokio::test]
async fn the_page_has_its_policy_and_nothing_of_the_operators() {
    let site = Site::start().await;
    for path in ["/", "/main.js", "/api/about", "/api/instances"] {
        let answer = site.page(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    for path in ["/metrics", "/livez", "/api/metrics", "/..%2fmetrics", "/stickycas.v1.InstanceService/Get"] {
        assert_eq!(site.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let about = site.page("/api/about").await.json();
    assert_eq!(
        (&about["live"], &about["token"], &about["plays"]),
        (&true.into(), &false.into(), &false.into())
    );
    let mut tcp = TcpStream::connect(site.page).await.unwrap();
    let post =
        b"POST /api/instances HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    tcp.write_all(post).await.unwrap();
    let mut answer = String::new();
    with_timeout(tcp.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}

#[tokio::test]
async fn the_page_answers_to_its_own_names_only() {
    let site = Site::with(|_| (), |page| page.hosts = vec!["page.example".to_owned()]).await;
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
            let answer = get(site.page, path, &[("host", host)]).await;
            assert_eq!(answer.status.as_u16(), status, "{host} {path}");
        }
    }
}

#[tokio::test]
async fn pages_of_other_sites_ask_for_nothing() {
    let site = Site::start().await;
    for (other, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)] {
        for path in ["/api/about", "/api/instances"] {
            let answer = get(site.page, path, &[("sec-fetch-site", other)]).await;
            assert_eq!(answer.status.as_u16(), status, "{other} {path}");
        }
        // A link from elsewhere leads to the page.
        assert_eq!(get(site.page, "/", &[("sec-fetch-site", other)]).await.status, StatusCode::OK, "{other}");
    }
}

#[tokio::test]
async fn viewers_and_what_they_look_at_are_bounded() {
    let site = Site::with(|_| (), |page| (page.bounds.viewers, page.bounds.instances) = (2, 1)).await;
    let [one, other] = [site.instance().await, site.instance().await];
    let first = site.events(one, "").await.unwrap();
    assert_eq!(site.events(other, "").await.err(), Some(StatusCode::TOO_MANY_REQUESTS), "one instance");
    let second = site.events(one, "").await.unwrap();
    let refused = site.page(&format!("/api/instances/{one}/events")).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "two viewers");
    assert_eq!(refused.headers["retry-after"], "2");
    drop((first, second));
    // The instance that nobody looks at makes room.
    with_timeout(async { while site.events(other, "").await.is_err() {} }).await;
}

#[tokio::test]
async fn connections_to_the_page_above_the_limit_are_closed() {
    let site = Site::with(|_| (), |page| page.bounds.connections = 4).await;
    let mut open = Vec::new();
    for _ in 0..6 {
        open.push(TcpStream::connect(site.page).await.unwrap());
    }
    for tcp in &mut open[4..] {
        assert!(matches!(with_timeout(tcp.read(&mut [0])).await, Ok(0) | Err(_)));
    }
    // The server does not notice.
    site.instance().await;
    drop(open);
    with_timeout(async {
        loop {
            let mut tcp = TcpStream::connect(site.page).await.unwrap();
            let asked =
                tcp.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
            let mut answer = String::new();
            if asked.is_ok()
                && tcp.read_to_string(&mut answer).await.is_ok()
                && answer.starts_with("HTTP/1.1 200 ")
            {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn who_asks_the_page_too_often_is_told() {
    let site = Site::with(|_| (), |page| page.bounds.requests_per_second = 1).await;
    with_timeout(async {
        while site.page("/api/instances").await.status != StatusCode::TOO_MANY_REQUESTS {}
    })
    .await;
    assert_eq!(site.page("/").await.status, StatusCode::OK, "files need no work");
}

#[tokio::test]
async fn many_instances_are_filtered_in_pages() {
    let site = Site::start().await;
    for number in 0..130 {
        site.create(&if number % 10 == 0 { format!("Tea-{number}") } else { String::new() }, ["alone"]).await;
    }
    let ended = site.create("", ["alone"]).await;
    site.play(ended, &["alone"]).await;
    let mut seen = Vec::new();
    let mut page = String::new();
    with_timeout(async {
        // The table of the server is of a moment before.
        while !site.rows("state=finished").await.iter().any(|row| row["id"] == ended.to_string()) {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
    loop {
        let list = site.page(&format!("/api/instances?page={page}")).await.json();
        let rows = list["rows"].as_array().unwrap();
        seen.extend(rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        match list["next"].as_str() {
            Some(next) => next.clone_into(&mut page),
            None => break,
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 131);
    let row = &site.rows(&format!("text={}", &ended.to_string()[..10])).await[0];
    assert_eq!((&row["state"], &row["decided"]), (&"finished".into(), &1.into()));
    assert!(row["decision"].is_string() && row["created"].as_u64() > Some(1_700_000_000_000), "{row}");
    assert_eq!(site.rows("text=tea").await.len(), 13);
    let waiting = &site.rows("state=gathering&text=TEA-12").await[0];
    assert_eq!(
        (&waiting["awaited"], &waiting["phase"]),
        (&serde_json::json!([1, 1]), &serde_json::Value::Null)
    );
    for wrong in ["state=odd", "colour=red", "page=x", &format!("text={}", "x".repeat(300))] {
        let answer = site.page(&format!("/api/instances?{wrong}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test]
async fn the_overview_tells_what_servers_tell() {
    let site = Site::start().await;
    let id = site.instance().await;
    let with_metrics = {
        let options =
            stickycas_view::PageOptions { metrics: vec![site.http.to_string()], ..Default::default() };
        super::serve(site.client("observer"), options).await.1
    };
    let mut overview = EventStream::open(with_metrics, "/api/overview", &[]).await.unwrap();
    let mut bare = EventStream::open(site.page, "/api/overview", &[]).await.unwrap();
    let first = overview.expect("overview").await;
    assert_eq!((&first["live"], &first["ended"], &first["viewers"]), (&1.into(), &0.into(), &1.into()));
    assert_eq!(first["accesses"], 0.0);
    let untold = bare.expect("overview").await;
    assert_eq!((&untold["live"], &untold["ended"], &untold["accesses"]), (&1.into(), &().into(), &().into()));
    // One at an instance that somebody looks at.
    let mut viewer =
        EventStream::open(with_metrics, &format!("/api/instances/{id}/events"), &[]).await.unwrap();
    viewer.expect("setting").await;
    site.client("p1").decide(id, "yes").await.unwrap();
    site.client("p1").decide(id, "no").await.unwrap_err();
    let (mut offence, mut kinds) = (None, None);
    while offence.is_none() || kinds.is_none() {
        let event = overview.expect("overview").await;
        offence = offence.or_else(|| event["offences"].as_array().unwrap().first().cloned());
        kinds = kinds.or_else(|| event["offence_kinds"].as_array().unwrap().first().cloned());
    }
    let (offence, kinds) = (offence.unwrap(), kinds.unwrap());
    assert_eq!((&offence["instance"], &offence["process"]), (&id.to_string().into(), &1.into()));
    assert!(offence["says"].as_str().unwrap().starts_with("process 1 commits an offence"));
    assert_eq!(kinds, serde_json::json!({ "kind": "second_decision", "count": 1 }));
}
