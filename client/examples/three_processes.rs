//! Creates an instance, plays its three processes as tasks, and watches it to its end.
//!
//! ```sh
//! stickycas-server serve --insecure-principals --coordinator alice &
//! cargo run -p stickycas-client --example three_processes -- http://127.0.0.1:7420 alice
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::process::ExitCode;

use stickycas_client::{Client, Error, Event, Value, WatchFrom, Watched};
use tokio_stream::StreamExt as _;

/// The principals of processes 1, 2 and 3, and their proposals.
const PROCESSES: [(&str, &str); 3] = [("ann", "tea"), ("bob", "tea"), ("eve", "rum")];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, coordinator] = arguments.as_slice() else {
        eprintln!("usage: three_processes URL COORDINATOR");
        return ExitCode::from(2);
    };
    match run(url, coordinator).await {
        Ok(decisions) => {
            println!("decisions: {decisions:?}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Gives the decisions of the three processes.
pub(crate) async fn run(url: &str, coordinator: &str) -> Result<Vec<Value>, Error> {
    let client = Client::builder(url).principal(coordinator).connect().await?;
    let roster = PROCESSES.map(|(principal, _)| principal);
    let instance = client.create_instance().roster(roster).send().await?.instance.id;

    let mut playing = Vec::new();
    for (principal, value) in PROCESSES {
        // The three share the connection of the coordinator.
        let process = client.as_principal(principal)?;
        playing.push(tokio::spawn(async move { process.propose(instance, value).await }));
    }

    // The stream ends when every process has left.
    let mut watch = client.watch(instance, WatchFrom::Start);
    while let Some(watched) = watch.next().await {
        let Watched::Event(_, recorded) = watched? else { continue };
        match recorded.event {
            Event::Stepped { phase, warp, .. } => println!("phase {phase} of warp {warp}"),
            Event::Added { process, value, .. } => println!("  process {process} appended {value}"),
            Event::Decided { process, value } => println!("process {process} decided {value}"),
            _ => {}
        }
    }

    let mut decisions = Vec::new();
    for process in playing {
        decisions.push(process.await.expect("a process does not panic")?.value);
    }
    Ok(decisions)
}
