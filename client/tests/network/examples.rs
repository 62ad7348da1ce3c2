//! The examples of the library, run against a real server.

use std::time::Duration;

use stickycas_client::Client;

use crate::support::server;

#[allow(dead_code, reason = "the tests call `run` and not `main`")]
#[path = "../../examples/propose.rs"]
mod propose;
#[allow(dead_code, reason = "the tests call `run` and not `main`")]
#[path = "../../examples/three_processes.rs"]
mod three_processes;

#[tokio::test]
async fn the_example_propose_decides() {
    let url = format!("http://{}", server().await);
    let coordinator = Client::builder(&url).principal("coordinator").connect().await.unwrap();
    coordinator.create_instance().name("demo").roster(["ann", "bob"]).send().await.unwrap();
    let (ann, bob) =
        tokio::join!(propose::run(&url, "demo", "ann", "tea"), propose::run(&url, "demo", "bob", "tea"),);
    assert_eq!(ann.unwrap(), bob.unwrap());
}

#[tokio::test]
async fn the_example_of_three_processes_ends_with_one_decision() {
    let url = format!("http://{}", server().await);
    let ended = three_processes::run(&url, "coordinator");
    let decisions = tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap().unwrap();
    assert_eq!(decisions.len(), 3);
    assert!(decisions.iter().all(|decision| *decision == decisions[0]), "{decisions:?}");
}
