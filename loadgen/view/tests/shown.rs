//! What viewers see of an instance.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use http::StatusCode;

use super::browser::{EventStream, get, with_timeout};
use super::{ROSTER, Site, indices};

#[tokio::test]
async fn a_viewer_sees_an_instance_from_its_first_event_to_its_end() {
    let site = Site::start().await;
    let id = site.instance().await;
    let mut viewer = site.events(id, "").await.unwrap();
    let setting = viewer.expect("setting").await;
    assert_eq!((&setting["processes"], &setting["live"]), (&3.into(), &true.into()));
    let gathering = viewer.expect("frame").await;
    assert_eq!(gathering["now"]["state"], "gathering");
    assert_eq!(gathering["now"]["awaited_count"], 3);
    site.play(id, &ROSTER).await;
    let (events, (last, _)) = viewer.rest().await;
    assert_eq!(last, "end");
    assert_eq!(indices(&events), (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["event"], "finished");
    assert_eq!(events.iter().filter(|event| event["event"] == "decided").count(), 3);

    // Whoever comes later sees the same, and one that comes back goes on where it was.
    let mut later = site.events(id, "").await.unwrap();
    assert_eq!(later.expect("setting").await["live"], false);
    assert_eq!(later.rest().await.0, events);
    let from = events.len() as u64 - 2;
    let mut again = site.events(id, &format!("?from={from}")).await.unwrap();
    again.expect("setting").await;
    let rest: BTreeSet<u64> = indices(&again.rest().await.0).into_iter().collect();
    assert!(rest.contains(&from) && rest.contains(&(from + 1)), "{rest:?}");
    // As after a restart of the server that has lost its memory.
    let ahead = site.events(id, &format!("?from={}", events.len() + 1)).await.err();
    assert_eq!(ahead, Some(StatusCode::CONFLICT));
}

#[tokio::test]
async fn the_last_frame_tells_the_state_of_the_machine() {
    let site = Site::start().await;
    let id = site.instance().await;
    let mut viewer = site.events(id, "").await.unwrap();
    viewer.expect("setting").await;
    site.play(id, &ROSTER).await;
    let mut states = Vec::new();
    while let Some((name, data)) = with_timeout(viewer.next()).await
        && name == "frame"
    {
        states.extend(data["now"].as_object().cloned());
    }
    let last = states.last().unwrap();
    assert_eq!(
        (&last["state"], &last["joined"], &last["open"]),
        (&"finished".into(), &3.into(), &false.into())
    );
    let status = site.client("observer").get(id).await.unwrap().status;
    assert_eq!(last["phase"].as_u64(), status.phase.map(stickycas_client::Phase::get));
}

#[tokio::test]
async fn one_watch_and_one_encoder_serve_all_viewers() {
    let site = Site::start().await;
    let id = site.instance().await;
    let mut viewers = Vec::new();
    for _ in 0..5 {
        let mut viewer = site.events(id, "").await.unwrap();
        viewer.expect("setting").await;
        viewers.push(viewer);
    }
    site.play(id, &ROSTER).await;
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
    assert!(seen.windows(2).all(|two| two[0] == two[1]) && !seen[0].is_empty());
    let metrics = get(site.http, "/metrics", &[]).await.body;
    let watches =
        metrics.lines().find_map(|line| line.strip_prefix("stickycas_calls_total{method=\"Watch\"} "));
    assert_eq!(watches, Some("2"), "a snapshot, and the events");
}

#[tokio::test]
async fn what_is_not_kept_is_a_snapshot_that_says_so() {
    let site =
        Site::with(|config| (config.limits.events, config.limits.events_per_process) = (8, 0), |_| ()).await;
    let id = site.instance().await;
    site.play(id, &ROSTER).await;
    let mut viewer = site.events(id, "").await.unwrap();
    let setting = viewer.expect("setting").await;
    let snapshot = viewer.expect("snapshot").await;
    let index = snapshot["index"].as_u64().unwrap();
    assert!(index > 8 && snapshot["missing"].as_u64() == Some(index), "{snapshot}");
    assert_eq!((setting["first_event"].as_u64(), &setting["live"]), (Some(index), &false.into()));
    assert_eq!((&snapshot["now"]["state"], &snapshot["length"]), (&"finished".into(), &3.into()));
    assert_eq!(snapshot["entries"].as_array().unwrap().len(), 3);
    // joined, won, left, executed: all three have.
    let marks =
        base64::engine::general_purpose::STANDARD.decode(snapshot["marks"].as_str().unwrap()).unwrap();
    assert_eq!(marks, [1 + 2 + 16, 2].repeat(3));
    assert_eq!(viewer.rest().await.1.0, "end");
    let why = site.page(&format!("/api/instances/{id}/explanation")).await;
    assert_eq!(why.status, StatusCode::CONFLICT, "{why:?}");
}

#[tokio::test]
async fn where_frames_are_not_kept_the_machine_makes_the_snapshot() {
    let site = Site::with(|_| (), |page| page.bounds.frame_bytes = 500).await;
    let id = site.instance().await;
    site.client("p1").decide(id, "yes").await.unwrap();
    site.client("p2").decide(id, "yes").await.unwrap();
    let mut viewer = site.events(id, "").await.unwrap();
    viewer.expect("setting").await;
    let snapshot = viewer.expect("snapshot").await;
    let marks =
        base64::engine::general_purpose::STANDARD.decode(snapshot["marks"].as_str().unwrap()).unwrap();
    assert_eq!(marks, [1 + 16, 0, 1 + 16, 0, 0, 0], "joined and left: {snapshot}");
    assert_eq!(snapshot["now"]["awaited_count"], 1);
}

#[tokio::test]
async fn the_page_explains_what_it_cannot_know_as_assumed() {
    let site = Site::start().await;
    let id = site.instance().await;
    site.play(id, &ROSTER).await;
    let reasons = site.page(&format!("/api/instances/{id}/explanation")).await.json();
    assert_eq!((&reasons["verdict"], &reasons["headline"]), (&"valid".into(), &"VALID".into()));
    let sections = &reasons["sections"];
    assert_eq!((&sections[0]["title"], &sections[1]["title"]), (&"VALID".into(), &"What is assumed".into()));
    assert!(sections.to_string().contains("does not know who is Byzantine"));
    assert!(sections.to_string().contains("decided yes"));
    let told = site.page(&format!("/api/instances/{id}/told?process=2")).await.json();
    let sentences = told["sentences"].as_array().unwrap();
    assert!(sentences.iter().any(|it| it[1].as_str().unwrap().starts_with("process 2 decides")), "{told}");
    let promise = site.page(&format!("/api/instances/{id}/promise?f=0&values=1")).await.json();
    assert_eq!(promise["properties"][1]["promised"], true);
    for path in ["nothing", "0123456789abcdef0123456789abcdef", "%2e%2e"] {
        for what in ["events", "explanation", "told?process=1", "promise?f=0&values=1"] {
            let answer = site.page(&format!("/api/instances/{path}/{what}")).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}/{what}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn who_only_looks_keeps_no_instance_alive() {
    let site = Site::with(|config| config.limits.idle_lifetime = Duration::from_secs(1), |_| ()).await;
    let id = site.instance().await;
    with_timeout(async {
        // Each look would prolong its life.
        loop {
            let answer = site.page(&format!("/api/instances/{id}/told?process=1")).await;
            let Ok(mut viewer) = site.events(id, "").await else { break };
            viewer.expect("setting").await;
            site.rows("").await;
            if answer.status == StatusCode::NOT_FOUND {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            while let Ok(Some((name, _))) =
                tokio::time::timeout(Duration::from_millis(10), viewer.next()).await
            {
                if name == "end" {
                    return;
                }
            }
        }
    })
    .await;
    let gone = site.client("observer").get(id).await.unwrap_err();
    assert_eq!(gone.reason(), Some(stickycas_client::RefusalReason::InstanceUnknown));
}

/// Its calls touch the instance, so it makes none while it looks.
#[tokio::test]
async fn a_member_that_looks_on_keeps_no_instance_alive() {
    let lifetime = Duration::from_secs(3);
    let site = Site::with(
        |config| {
            config.limits.idle_lifetime = lifetime;
            (config.limits.events, config.limits.events_per_process) = (2, 0);
        },
        |_| (),
    )
    .await;
    let id = site.instance().await;
    for member in ["p1", "p2"] {
        site.client(member).decide(id, "yes").await.unwrap();
    }
    let page = super::serve(site.client("p3"), stickycas_view::PageOptions::default()).await.1;
    let mut viewer = EventStream::open(page, &format!("/api/instances/{id}/events"), &[]).await.unwrap();
    viewer.expect("setting").await;
    viewer.expect("snapshot").await;
    assert_eq!(viewer.rest().await.1.0, "end");
    let gone = site.client("observer").get(id).await.unwrap_err();
    assert_eq!(gone.reason(), Some(stickycas_client::RefusalReason::InstanceUnknown));
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let site = Site::with(|config| config.drain = Duration::from_secs(60), |_| ()).await;
    let id = site.instance().await;
    let mut viewer = site.events(id, "").await.unwrap();
    viewer.expect("setting").await;
    site.stop.notify_one();
    let (_, (name, data)) = viewer.rest().await;
    assert_eq!((name.as_str(), &data["status"]), ("refused", &503.into()));
}
