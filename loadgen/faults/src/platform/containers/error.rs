//! The failures of operations on containers, with advice for people.

use std::fmt;
use std::io;

use crate::plan::{Action, Service};

/// A failure of an operation on a container.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    /// The program cannot be started.
    #[error(
        "cannot start {program}: {error}: install Docker, or give another program with --docker or --compose"
    )]
    NoProgram {
        /// Which.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// The daemon behind the program does not answer.
    #[error("the Docker engine does not answer: start it, or say with DOCKER_HOST where it is ({said})")]
    NoEngine {
        /// The output of the program.
        said: String,
    },
    /// The engine runs, but refuses this user.
    #[error(
        "the Docker engine lets nobody in who is not in its group: run this as root or in the group docker ({said})"
    )]
    NotAllowed {
        /// The output of the program.
        said: String,
    },
    /// The program failed.
    #[error("{command} failed: {said}")]
    Failed {
        /// The command.
        command: String,
        /// Its output.
        said: String,
    },
    /// The output of the program has another form than expected.
    #[error("{command} answered what is not understood: {error}")]
    NotUnderstood {
        /// The command.
        command: String,
        /// Why not.
        error: serde_json::Error,
    },
    /// The project has no containers.
    #[error("there are no containers of the project {project}: {}", advice(others))]
    NoProject {
        /// The project.
        project: String,
        /// The projects that have some.
        others: Vec<String>,
    },
    /// The project has none for this service.
    #[error("the project {project} has no container of {service}: start it with docker compose up --detach")]
    NoService {
        /// The project.
        project: String,
        /// The service.
        service: Service,
    },
    /// The container is not in the state that the plan needs.
    #[error("{service} {what}: bring it up with docker compose up --detach --force-recreate {service}")]
    NotReady {
        /// The service.
        service: Service,
        /// Its state.
        what: &'static str,
    },
    /// The engine reports success, and the operation had no effect.
    #[error("{action} {service}: the engine says that it is done, and the container {what}")]
    WithoutEffect {
        /// The operation.
        action: Action,
        /// The service.
        service: Service,
        /// Its state.
        what: &'static str,
    },
    /// The operation is one of the kill test.
    #[error("{action} is an operation of the kill test: give another one to a container")]
    NotOfContainers {
        /// The operation.
        action: Action,
    },
    /// Some containers were not put back into their earlier state.
    #[error("not put back as it was: {}", Listed(.0))]
    NotRestored(Vec<(Service, Box<DockerError>)>),
}

fn advice(others: &[String]) -> String {
    if others.is_empty() {
        return "start it with docker compose up --detach".to_owned();
    }
    format!(
        "start it with docker compose up --detach, or give another one with --project: {}",
        others.join(", ")
    )
}

struct Listed<'a>(&'a [(Service, Box<DockerError>)]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (service, error)) in self.0.iter().enumerate() {
            let separator = if index > 0 { "; " } else { "" };
            write!(f, "{separator}{service}: {error}")?;
        }
        Ok(())
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

impl DockerError {
    /// The error for this output of a program that failed.
    pub(super) fn understood(command: String, said: &str) -> Self {
        let said = said.trim().to_owned();
        let has = |what: &str| said.to_ascii_lowercase().contains(what);
        if has("permission denied while trying to connect") {
            return Self::NotAllowed { said };
        }
        if has("cannot connect to the docker daemon")
            || has("error during connect")
            || has("is the docker daemon running")
        {
            return Self::NoEngine { said };
        }
        Self::Failed { command, said: shortened(&said) }
    }
}
