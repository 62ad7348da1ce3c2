//! A full block of a GPU: 1,024 processes in warps of 32, over the network.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use stickycas_harness::Scenario;
use stickycas_harness::run::{self, OwnServer, RunOptions, ServerHandle};
use stickycas_model::judge::Outcome;
use stickycas_model::types::Phase;

const FULL_BLOCK: &str = r#"
    name = "full-block"
    about = "1,024 processes in 32 warps of 32, three of which collude"

    [instance]
    processes = 1024
    warp_size = 32
    read_size = 8
    patience = "60s"

    [proposals]
    distinct = 2

    [[faults]]
    count = 3
    placement = "spread"
    strategy = "collude(value=0)"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_block_of_1024_processes_decides_in_time() {
    // The bound: f*(|Vc|+1)*p = 3*(2+1)*32 = 288 < 1024. W = 32, c = 4, so nobody decides after 32*5 = 160.
    let scenario = Scenario::parse("full-block.toml", FULL_BLOCK, Some(11)).unwrap();
    let server = OwnServer::start().await.unwrap();
    let handle = ServerHandle::open(server.url(), run::COORDINATOR).await.unwrap();
    let verdict = run::run(&handle, &scenario, &RunOptions::in_process()).await.unwrap().verdict;
    assert_eq!(verdict.verdict, Outcome::Valid, "{:?}", verdict.reasons);
    assert_eq!(verdict.decisions.len(), 1021);
    assert_eq!(verdict.last_decision_phase.map(Phase::get), Some(160));
    assert_eq!(verdict.fired["collude"], 3);
    drop(handle);
    server.stop().await.unwrap();
}
