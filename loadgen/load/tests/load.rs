//! Loads on a real server, over the real network.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use stickycas_harness::run::{COORDINATOR, Form, OwnServer, ServerHandle};
use stickycas_load::engine::CutShort;
use stickycas_load::figures::Figures;
use stickycas_load::measure::{Measure, OperationOutcome, Party};
use stickycas_load::profile::Flags;
use stickycas_load::{LoadOutcome, Profile};
use stickycas_model::judge::Outcome;
use stickycas_server::limits::Limits;

const SMALL: &str = r#"
name = "small"
seed = 5
[instance]
processes = 6
warp_size = 2
read_size = 2
patience = "none"
[load]
in_flight = 4
instances = 40
history_sample = 0.5
"#;

fn profile(text: &str) -> Profile {
    Profile::parse("test.toml", text, &Flags::default()).unwrap_or_else(|error| panic!("{error}"))
}

async fn on(limits: Limits, profile: &Profile) -> LoadOutcome {
    let server = OwnServer::start_with(limits).await.unwrap();
    let handle = ServerHandle::open(server.url(), COORDINATOR).await.unwrap();
    stickycas_load::run(&handle, profile, std::future::pending(), |_| {}).await.unwrap()
}

async fn loaded(text: &str) -> LoadOutcome {
    on(Limits::default(), &profile(text)).await
}

fn figures(loaded: &LoadOutcome) -> Figures {
    loaded.figures.clone()
}

fn count(figures: &Figures, measure: Measure, party: Party) -> u64 {
    let rows = figures.latencies.iter();
    let wanted = rows.filter(|row| row.label.measure == measure && row.label.party == party);
    wanted.filter(|row| row.label.ended.is_answer()).map(|row| row.latency.count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_instance_of_a_closed_loop_is_played_timed_and_judged() {
    let loaded = loaded(SMALL).await;
    let figures = figures(&loaded);
    assert_eq!(loaded.judged.verdict(), Outcome::Valid, "{:?}", loaded.judged.reasons);
    assert_eq!((loaded.judged.valid, figures.counts.done, figures.counts.errors()), (40, 40, 0));
    assert!((1..40).contains(&loaded.judged.histories), "{}", loaded.judged.histories);
    // W = 3, c = 2: each process appends once and reads twice.
    assert_eq!(count(&figures, Measure::Append, Party::Correct), 6 * 40);
    assert_eq!(count(&figures, Measure::Read, Party::Correct), 12 * 40);
    assert_eq!(count(&figures, Measure::Decide, Party::Correct), 6 * 40);
    let won = figures.latencies.iter().find(|row| row.label.ended == OperationOutcome::Won).unwrap();
    assert_eq!(won.latency.count, 3 * 40, "one in each warp");
    assert_eq!(count(&figures, Measure::Append, Party::Byzantine), 0);
    let (instance, service) = (figures.latency(Measure::Instance), figures.latency(Measure::Service));
    assert!(instance.unwrap().p50 >= service.unwrap().p50);
    assert!(figures.latency(Measure::WatchLag).is_some_and(|lag| lag.count > 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unary_calls_come_to_the_same() {
    let loaded = loaded(
        &SMALL.replace("[load]", "[load]\ntransport = \"unary\"\nprincipals_per_connection = 4\nrosters = 2"),
    )
    .await;
    let figures = figures(&loaded);
    assert_eq!(loaded.judged.verdict(), Outcome::Valid, "{:?}", loaded.judged.reasons);
    assert_eq!((loaded.judged.valid, figures.counts.done), (40, 40));
    assert_eq!(count(&figures, Measure::Read, Party::Correct), 12 * 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn byzantine_processes_play_along_and_are_kept_apart() {
    let text = SMALL.replace("[load]", "[[faults]]\ncount = 1\nstrategy = \"collude(value=0)\"\n[load]")
        + "[proposals]\ndistinct = 1\n";
    let loaded = loaded(&text).await;
    let figures = figures(&loaded);
    assert_eq!(loaded.judged.verdict(), Outcome::Valid, "{:?}", loaded.judged.reasons);
    assert_eq!(count(&figures, Measure::Append, Party::Byzantine), 40);
    assert_eq!(count(&figures, Measure::Append, Party::Correct), 5 * 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_with_too_many_lingering_processes_are_replaced() {
    let text = SMALL
        .replace("patience = \"none\"", "patience = \"0s\"\njoin_timeout = \"1ms\"")
        .replace("instances = 40", "instances = 1100")
        .replace("[load]", "[[faults]]\ncount = 1\nstrategy = \"crash(access=2)\"\n[load]")
        .replace("in_flight = 4", "in_flight = 32")
        .replace("history_sample = 0.5", "history_sample = 0.0")
        + "[proposals]\ndistinct = 1\n";
    let loaded = loaded(&text).await;
    let figures = figures(&loaded);
    assert_eq!((figures.counts.begun, figures.counts.errors()), (1100, 0), "{:?}", loaded.judged);
    assert_eq!(loaded.judged.verdict(), Outcome::Valid, "{:?}", loaded.judged.reasons);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_loop_follows_its_schedule_and_counts_late_starts() {
    let open = SMALL.replace(
        "in_flight = 4",
        "rate = 400\narrivals = \"poisson\"\nlate_after = \"0s\"\nwarm_up = \"10ms\"",
    );
    let profile = profile(&open);
    let schedule = profile.arrivals().unwrap().take(40);
    let after_warm_up = schedule.filter(|start| *start >= profile.warm_up).count() as u64;
    assert!((1..40).contains(&after_warm_up));
    let loaded = on(Limits::default(), &profile).await;
    let figures = figures(&loaded);
    assert_eq!(loaded.judged.instances(), 40);
    let counts = &figures.counts;
    assert_eq!(
        (counts.planned, counts.begun, counts.late),
        (after_warm_up, after_warm_up, after_warm_up),
        "the warm-up does not count, and nothing begins at its very moment: {counts:?}"
    );
    assert!(figures.latency(Measure::StartLag).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_without_room_are_dropped_and_counted() {
    let crowded = SMALL.replace("in_flight = 4", "rate = 100000\nmax_in_flight = 2");
    let figures = figures(&loaded(&crowded).await);
    assert!(figures.counts.dropped > 0);
    assert_eq!(figures.counts.planned + figures.counts.dropped, 40);
    assert_eq!(figures.counts.missed(), figures.counts.late + figures.counts.dropped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_a_result_with_its_reason() {
    let limits = Limits { instances_per_creator: 10, ..Limits::default() };
    let loaded = on(limits, &profile(SMALL)).await;
    let figures = figures(&loaded);
    assert_eq!((figures.counts.done, figures.counts.refused), (10, 30));
    let (label, count) = figures.failures()[0];
    assert_eq!(label.ended.to_string(), "TOO_MANY_INSTANCES");
    assert_eq!(count, 30);
    assert_eq!(loaded.judged.verdict(), Outcome::Valid, "what was played was right");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_without_progress_is_an_outcome() {
    // One process never comes, and everybody waits for it for ever.
    let text = SMALL
        .replace("instances = 40", "instances = 3\nstall = \"2s\"")
        .replace("history_sample = 0.5", "history_sample = 0.0")
        .replace("[load]", "[[faults]]\ncount = 1\nstrategy = \"silent\"\n[load]")
        + "[proposals]\ndistinct = 1\n";
    for text in [text.clone(), text.replace("[load]", "[load]\ntransport = \"unary\"")] {
        let loaded = loaded(&text).await;
        let figures = figures(&loaded);
        assert_eq!((figures.counts.begun, figures.counts.stalled), (3, 3), "{:?}", figures.counts);
        assert_eq!(loaded.judged.not_created, 0);
        assert_eq!(loaded.judged.verdict(), Outcome::Unknown);
        assert_eq!(figures.failures()[0].0.ended, OperationOutcome::Stalled);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_a_load_gets_what_there_is() {
    let endless = SMALL.replace("instances = 40", "duration = \"1h\"");
    let server = OwnServer::start().await.unwrap();
    let handle = ServerHandle::open(server.url(), COORDINATOR).await.unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut stopped = stopped;
    let asked = async move { drop(stopped.wait_for(|stop| *stop).await) };
    let loaded = stickycas_load::run(&handle, &profile(&endless), asked, |progress| {
        if progress.judged.instances() > 10 {
            stop.send_replace(true);
        }
    })
    .await
    .unwrap();
    assert_eq!(loaded.cut_short, Some(CutShort::Interrupted));
    assert!(figures(&loaded).counts.done > 10);
    assert_eq!(loaded.judged.verdict(), Outcome::Valid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hard_stop_cuts_off_what_is_under_way() {
    let text = SMALL
        .replace("instances = 40", "duration = \"1h\"\nhard_stop = \"2s\"")
        .replace("patience = \"none\"", "pace = \"1h\"");
    let loaded = loaded(&text).await;
    let figures = figures(&loaded);
    assert_eq!(loaded.cut_short, Some(CutShort::HardStop));
    assert_eq!((figures.counts.cut_off, figures.counts.done), (4, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_is_an_outcome_too() {
    let server = OwnServer::start().await.unwrap();
    let handle = ServerHandle::open(server.url(), COORDINATOR).await.unwrap();
    let text = SMALL
        .replace("instances = 40", "duration = \"1h\"\nstall = \"500ms\"")
        .replace("history_sample = 0.5", "history_sample = 0.0");
    let (enough, played) = tokio::sync::oneshot::channel();
    let mut enough = Some(enough);
    let stopped = tokio::spawn(async move {
        played.await.unwrap();
        server.stop().await.unwrap();
    });
    let mut gone_since = None;
    let (noticed, mut is_noticed) = tokio::sync::watch::channel(false);
    let stop = async move { drop(is_noticed.wait_for(|noticed| *noticed).await) };
    let loaded = stickycas_load::run(&handle, &profile(&text), stop, |progress| {
        if progress.judged.valid > 10 {
            enough.take().map(|enough| enough.send(()));
        }
        // Not in the second in which it stopped: it refuses until then.
        if stopped.is_finished() {
            let seconds = progress.recorder.seconds.len();
            let since = *gone_since.get_or_insert(seconds);
            let errors =
                progress.recorder.seconds.iter().skip(since).map(|second| second.errors).sum::<u64>();
            if errors > 0 {
                noticed.send_replace(true);
            }
        }
    })
    .await
    .unwrap();
    stopped.await.unwrap();
    let figures = figures(&loaded);
    assert!(figures.counts.errors() > 0 && figures.counts.done > 10, "{:?}", figures.counts);
    assert_eq!(loaded.judged.violation, 0, "{:?}", loaded.judged.reasons);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_at_once() {
    let server = OwnServer::start().await.unwrap();
    let handle = ServerHandle::open(server.url(), COORDINATOR).await.unwrap();
    server.stop().await.unwrap();
    let error =
        stickycas_load::run(&handle, &profile(SMALL), std::future::pending(), |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("cannot connect everybody"), "{error:#}");
}

#[test]
fn every_delivered_profile_is_one_and_is_named_like_its_file() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/profiles");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let profile = Profile::load(Some(&path), &Flags::default()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), profile.name.as_str());
        assert!(!profile.about.is_empty());
        names.push(profile.name);
    }
    names.sort();
    assert_eq!(names, ["byzantine", "closed", "steady", "steps", "watch"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_without_history_is_judged_by_observations() {
    let limits = Limits { events: 1, events_per_process: 0, ..Limits::default() };
    let loaded = on(limits, &profile(&SMALL.replace("history_sample = 0.5", "history_sample = 1.0"))).await;
    assert_eq!(loaded.judged.verdict(), Outcome::Valid, "{:?}", loaded.judged.reasons);
    assert_eq!(loaded.judged.valid, 40);
    assert_eq!(loaded.judged.histories + loaded.judged.histories_lost, 40);
    assert!(loaded.judged.histories_lost > 0, "{:?}", loaded.judged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn principals_above_their_rate_are_refused_and_excused() {
    let over = async |transport| {
        let limits = Limits { requests_per_second: 60, ..Limits::default() };
        let text = SMALL
            .replace("history_sample = 0.5", "history_sample = 1.0\nstall = \"500ms\"")
            .replace("patience = \"none\"", "patience = \"0s\"\njoin_timeout = \"1ms\"")
            .replace("instances = 40", "instances = 200")
            .replace("[load]", &format!("[load]\ntransport = \"{transport}\""));
        let loaded = on(limits, &profile(&text)).await;
        let figures = figures(&loaded);
        assert_eq!(figures.counts.begun, 200);
        assert!(figures.counts.refused > 0, "{:?}", figures.counts);
        assert_eq!(figures.failures()[0].0.ended.to_string(), "RATE_EXCEEDED");
        assert_eq!(loaded.judged.violation, 0, "{:?}", loaded.judged.reasons);
    };
    tokio::join!(over("attach"), over("unary"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn principals_with_certificates_have_connections_of_their_own() {
    let principals = (1..=6).map(|process| format!("load-1-{process}"));
    let server = OwnServer::start_knowing(Form::Certificates, principals, Limits::default()).await.unwrap();
    let handle = server.connect().await.unwrap();
    let loaded = stickycas_load::run(&handle, &profile(SMALL), std::future::pending(), |_| {}).await.unwrap();
    assert_eq!((loaded.judged.verdict(), loaded.judged.valid), (Outcome::Valid, 40));
    let together = profile(&SMALL.replace("[load]\n", "[load]\nprincipals_per_connection = 2\n"));
    let refused =
        stickycas_load::run(&handle, &together, std::future::pending(), |_| {}).await.err().unwrap();
    assert_eq!(
        refused.to_string(),
        "principals_per_connection = 2: with certificates a connection is one principal's, give 1"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn principals_with_tokens_share_connections() {
    for transport in ["attach", "unary"] {
        let principals = (1..=6).map(|process| format!("load-1-{process}"));
        let server = OwnServer::start_knowing(Form::Tokens, principals, Limits::default()).await.unwrap();
        let handle = server.connect().await.unwrap();
        let load = format!("[load]\ntransport = \"{transport}\"\nprincipals_per_connection = 6\n");
        let load = profile(&SMALL.replace("[load]\n", &load));
        let loaded = stickycas_load::run(&handle, &load, std::future::pending(), |_| {}).await.unwrap();
        assert_eq!((loaded.judged.verdict(), loaded.judged.valid), (Outcome::Valid, 40), "{transport}");
    }
}
