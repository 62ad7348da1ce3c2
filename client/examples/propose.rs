//! One correct process of an instance that exists already.
//!
//! ```sh
//! cargo run -p stickycas-client --example propose -- http://127.0.0.1:7420 demo ann tea
//! ```
//!
//! Prints the decision, which is the same for all correct processes.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::process::ExitCode;

use stickycas_client::{Client, Error, Value};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, instance, principal, value] = arguments.as_slice() else {
        eprintln!("usage: propose URL INSTANCE PRINCIPAL VALUE");
        return ExitCode::from(2);
    };
    match run(url, instance, principal, value).await {
        Ok(decision) => {
            println!("{decision}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            if error.may_have_happened() {
                eprintln!("the process may have acted: running it again is safe, and tells");
            }
            ExitCode::FAILURE
        }
    }
}

/// Proposes a value and gives the decision.
pub(crate) async fn run(url: &str, instance: &str, principal: &str, value: &str) -> Result<Value, Error> {
    let client = Client::builder(url).principal(principal).connect().await?;
    let decision = client.propose(instance, value).await?;
    Ok(decision.value)
}
