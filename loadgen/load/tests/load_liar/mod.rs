//! A load is judged: a server that lies is caught, whatever the lie, and one that does the same honestly is
//! not accused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

mod server;

use stickycas_harness::run::{COORDINATOR, ServerHandle};
use stickycas_load::profile::Flags;
use stickycas_load::report::folder;
use stickycas_load::{LoadOutcome, Measurement, Profile};
use stickycas_model::judge::Outcome;

use self::server::Lie;

const PROFILE: &str = r#"
name = "liar"
seed = 5
[instance]
processes = 2
warp_size = WARP_SIZE
read_size = 2
[load]
transport = "TRANSPORT"
in_flight = 4
instances = 20
history_sample = 0.0
stall = "5s"
hard_stop = "60s"
"#;

async fn under_load(lie: Lie, transport: &str) -> (Profile, LoadOutcome) {
    let text = PROFILE.replace("WARP_SIZE", &lie.warp_size().to_string()).replace("TRANSPORT", transport);
    let profile = Profile::parse("liar.toml", &text, &Flags::default()).unwrap();
    let handle = ServerHandle::open(&server::start(lie).await, COORDINATOR).await.unwrap();
    let loaded = stickycas_load::run(&handle, &profile, std::future::pending(), |_| {}).await.unwrap();
    (profile, loaded)
}

#[tokio::test]
async fn an_honest_server_is_not_accused() {
    for transport in ["attach", "unary"] {
        let (_, loaded) = under_load(Lie::None, transport).await;
        let judged = &loaded.judged;
        assert_eq!((judged.verdict(), judged.valid), (Outcome::Valid, 20), "{transport}: {judged:?}");
        assert!(loaded.evidence.is_empty() && loaded.server.is_none());
    }
}

#[tokio::test]
async fn every_false_answer_violates_its_rule_in_every_instance() {
    for (lie, rule) in [
        (Lie::TwoWinners, "VIOLATION: A1: processes"),
        (Lie::SamePosition, "VIOLATION: A1: position 0 was won in phase 1 and in phase 2"),
        (Lie::TwoLists, "VIOLATION: R2: at position 0"),
        (Lie::Reordered, "VIOLATION: R2: at position"),
        (Lie::Forged, "VIOLATION: A3: process 1 won position 0"),
        (Lie::ShortRead, "VIOLATION: R1: a read of process 2"),
        (Lie::Shrunk, "VIOLATION: A3: the list had 2 entries in phase 3 and 1 in phase 4"),
        (Lie::OtherWarp, "VIOLATION: W1: process 2 of warp 2 was answered in phase 1"),
        (Lie::SamePhase, "VIOLATION: F7: process 2"),
        (Lie::DecisionRefused, "VIOLATION: B3: process 2, which is correct, was refused DECISION_DIFFERS"),
        (Lie::ReadRefused, "VIOLATION: B3: process 2, which is correct, was refused NOT_A_MEMBER"),
    ] {
        for transport in ["attach", "unary"] {
            let (profile, loaded) = under_load(lie, transport).await;
            let judged = loaded.judged.clone();
            // Where proposals happen to be the same, one order of them is as good as the other.
            let least = if lie == Lie::Reordered { 1 } else { 20 };
            assert!(judged.violation >= least, "{lie:?} over {transport}: {judged:?}");
            let told = judged.reasons.iter().any(|reason| reason.contains(rule));
            assert!(told, "{lie:?} over {transport}: {:?}", judged.reasons);
            assert!(!loaded.evidence.is_empty());
            let result = Measurement::of(&profile, loaded, None).result;
            assert_eq!((result.verdict, result.exit().code()), (Outcome::Violation, 1));
        }
    }
}

#[tokio::test]
async fn observations_are_evidence_where_there_is_no_history() {
    let (profile, loaded) = under_load(Lie::TwoLists, "attach").await;
    let temporary = tempfile::tempdir().unwrap();
    let place = temporary.path().join("result");
    folder::write(&Measurement::of(&profile, loaded, None), Some(&place)).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(place.join("instances")).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 8, "as many as are kept of one kind");
    let text = std::fs::read_to_string(files.remove(0).path()).unwrap();
    let seen: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(seen["reasons"][0].as_str().unwrap().starts_with("R2: at position 0"), "{text}");
    let entries = |process: usize| seen["seen"][process]["accesses"][1]["entries"].clone();
    assert_ne!(entries(0), entries(1), "{text}");
}
