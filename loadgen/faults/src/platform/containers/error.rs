//! The failures of operations on containers, with advice for people.

use std::io;

use crate::plan::Service;

/// A failure of an operation on a container, with the output of the program.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    /// The program cannot be started.
    #[error("cannot start {0}: {1}: install Docker, or give another program with --docker or --compose")]
    NoProgram(String, io::Error),
    /// The daemon behind the program does not answer.
    #[error("the Docker engine does not answer: start it, or say with DOCKER_HOST where it is ({0})")]
    NoEngine(String),
    /// The engine runs, but refuses this user.
    #[error(
        "the Docker engine lets nobody in who is not in its group: run this as root or in the group docker ({0})"
    )]
    NotAllowed(String),
    /// The project has no container of a service.
    #[error("the project {0} has no container of {1}: start it with docker compose up --detach")]
    NoService(String, Service),
    /// Anything else, with what to do.
    #[error("{0}")]
    Other(String),
}

impl DockerError {
    /// A container is not in the state that the plan needs.
    pub(super) fn not_ready(service: Service, what: &str) -> Self {
        let again = "bring it up with docker compose up --detach --force-recreate";
        Self::Other(format!("{service} {what}: {again} {service}"))
    }

    /// The error for this output of a program that failed.
    pub(super) fn understood(command: &str, said: &str) -> Self {
        let said = said.trim().to_owned();
        let has = |what: &str| said.to_ascii_lowercase().contains(what);
        if has("permission denied while trying to connect") {
            return Self::NotAllowed(said);
        }
        if has("cannot connect to the docker daemon")
            || has("error during connect")
            || has("is the docker daemon running")
        {
            return Self::NoEngine(said);
        }
        Self::Other(format!("{command} failed: {}", shortened(&said)))
    }
}

/// The first and the last lines of an error message: one of them is the reason.
fn shortened(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => "it says nothing about why".to_owned(),
        [first, .., last_but_one, last] if lines.len() > 4 => format!("{first} ... {last_but_one} {last}"),
        few => few.join(" "),
    }
}
