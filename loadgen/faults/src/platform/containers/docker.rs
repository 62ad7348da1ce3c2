//! Containers, through the program `docker`.
//!
//! Everything goes through the program and nothing through a shell. An operation on a container is carried
//! out to its end, also if the caller no longer waits for it: the code that restores the containers then
//! knows their state. Ctrl-C at a terminal is for this program alone, not for those that it has started.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::error::DockerError;

const PROJECT_LABEL: &str = "com.docker.compose.project";
const SERVICE_LABEL: &str = "com.docker.compose.service";
/// Whether it was made by `docker compose run`, and not by `up`.
const ONE_OFF_LABEL: &str = "com.docker.compose.oneoff";

/// The program `docker`.
#[derive(Clone, Debug)]
pub struct Docker {
    pub(super) program: PathBuf,
    /// One call that changes something at a time.
    pub(super) turn: Arc<Mutex<()>>,
}

/// The id of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerId(pub(super) String);

/// The state of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) running: bool,
    pub(super) paused: bool,
    /// When it was started last, as the engine writes it.
    pub(super) started_at: String,
    pub(super) networks: Vec<String>,
    /// Its ports that this machine publishes, each with the address to call.
    pub(super) published: Vec<(String, String)>,
}

/// Where a port of a container is published.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Binding {
    host_ip: String,
    host_port: String,
}

impl Binding {
    /// The address to call. A port that is published at all addresses is called at loopback.
    fn address(&self) -> String {
        let Self { host_ip, host_port } = self;
        match host_ip.as_str() {
            "" | "0.0.0.0" | "::" => format!("127.0.0.1:{host_port}"),
            ip if ip.contains(':') => format!("[{ip}]:{host_port}"),
            ip => format!("{ip}:{host_port}"),
        }
    }
}

impl Docker {
    /// The program of this name or path.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), turn: Arc::default() }
    }

    /// The containers of a project, running or not, each with its service.
    pub(super) async fn containers(&self, project: &str) -> Result<Vec<(String, ContainerId)>, DockerError> {
        let project = format!("--filter=label={PROJECT_LABEL}={project}");
        let from_up = format!("--filter=label={ONE_OFF_LABEL}=False");
        let format = format!("--format={{{{.ID}}}} {{{{.Label \"{SERVICE_LABEL}\"}}}}");
        let listed = self.ask(&["ps", "--all", "--no-trunc", &project, &from_up, &format]).await?;
        let container = |line: &str| {
            let (id, service) = line.split_once(' ')?;
            Some((service.to_owned(), ContainerId(id.to_owned())))
        };
        Ok(listed.lines().filter_map(container).collect())
    }

    /// The projects that have containers.
    pub(super) async fn projects(&self) -> Result<Vec<String>, DockerError> {
        let filter = format!("--filter=label={PROJECT_LABEL}");
        let format = format!("--format={{{{.Label \"{PROJECT_LABEL}\"}}}}");
        let listed = self.ask(&["ps", "--all", &filter, &format]).await?;
        let mut projects: Vec<String> = listed.lines().map(str::to_owned).collect();
        projects.sort();
        projects.dedup();
        Ok(projects)
    }

    pub(super) async fn inspect(&self, container: &ContainerId) -> Result<Standing, DockerError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Inspected {
            state: State,
            network_settings: NetworkSettings,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct State {
            running: bool,
            paused: bool,
            started_at: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct NetworkSettings {
            networks: BTreeMap<String, IgnoredAny>,
            #[serde(default)]
            ports: BTreeMap<String, Option<Vec<Binding>>>,
        }
        let arguments = ["inspect", "--type=container", "--format={{json .}}", &container.0];
        let text = self.ask(&arguments).await?;
        let inspected: Inspected =
            serde_json::from_str(&text).map_err(|error| self.not_understood(&arguments, &error))?;
        let State { running, paused, started_at } = inspected.state;
        let NetworkSettings { networks, ports } = inspected.network_settings;
        let networks = networks.into_keys().collect();
        let published = |(port, bindings): (String, Option<Vec<Binding>>)| {
            let binding = bindings?.into_iter().next()?;
            Some((port.strip_suffix("/tcp")?.to_owned(), binding.address()))
        };
        Ok(Standing {
            running,
            paused,
            started_at,
            networks,
            published: ports.into_iter().filter_map(published).collect(),
        })
    }

    /// Until a container has ended: its exit code.
    pub(super) async fn wait(&self, container: &ContainerId) -> Result<i64, DockerError> {
        let arguments = ["wait", &container.0];
        let text = self.ask(&arguments).await?;
        serde_json::from_str(&text).map_err(|error| self.not_understood(&arguments, &error))
    }

    /// Copies a file or folder out of a container, which may have ended.
    pub(super) async fn copy(
        &self,
        container: &ContainerId,
        from: &str,
        to: &Path,
    ) -> Result<(), DockerError> {
        let from = format!("{}:{from}", container.0);
        let arguments = [OsStr::new("cp"), OsStr::new(&from), to.as_os_str()];
        self.ask(&arguments).await.map(drop)
    }

    /// A call that changes nothing, and is cancelled with the task that waits for it.
    pub(super) async fn ask(&self, arguments: &[impl AsRef<OsStr>]) -> Result<String, DockerError> {
        let mut command = Command::new(&self.program);
        command.args(arguments).kill_on_drop(true);
        run(command, self.named(arguments)).await
    }

    /// A call that changes something.
    pub(super) async fn act(&self, arguments: &[impl AsRef<OsStr>]) -> Result<(), DockerError> {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        self.to_its_end(command, self.named(arguments)).await
    }

    /// Runs a command to its end, also if the caller no longer waits for it, when no other such command runs.
    pub(super) async fn to_its_end(&self, command: Command, named: String) -> Result<(), DockerError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let running = tokio::spawn(async move {
            let _until_the_end = turn;
            run(command, named).await.map(drop)
        });
        running.await.expect("it neither panics nor is aborted")
    }

    fn not_understood(&self, arguments: &[impl AsRef<OsStr>], error: &serde_json::Error) -> DockerError {
        DockerError::Other(format!("{} answered what is not understood: {error}", self.named(arguments)))
    }

    fn named(&self, arguments: &[impl AsRef<OsStr>]) -> String {
        named(self.program.as_os_str(), arguments)
    }
}

/// A command as people write it.
pub(super) fn named(program: &OsStr, arguments: &[impl AsRef<OsStr>]) -> String {
    let words: Vec<OsString> = [program.to_owned()]
        .into_iter()
        .chain(arguments.iter().map(|word| word.as_ref().to_owned()))
        .collect();
    words.join(OsStr::new(" ")).to_string_lossy().into_owned()
}

async fn run(mut command: Command, named: String) -> Result<String, DockerError> {
    command.stdin(Stdio::null()).process_group(0);
    let output = command.output().await.map_err(|error| {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        DockerError::NoProgram(program, error)
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(DockerError::understood(&named, &String::from_utf8_lossy(&output.stderr)))
}
