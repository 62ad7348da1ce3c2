//! A program `docker` without an engine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use stickycas_faults::plan::Service;
use stickycas_faults::platform::containers::{Docker, Project};
use stickycas_model::types::ProcessId;
use tempfile::TempDir;

/// The script.
const DOCKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/perturb/docker");

/// A folder with the script and containers of the project `demo`.
pub(crate) struct Engine(TempDir);

impl Engine {
    pub(crate) fn with(services: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Not written here: a file that is just being written cannot be run.
        symlink(DOCKER, folder.path().join("docker")).unwrap();
        for service in services {
            let container = folder.path().join(format!("id-of-{service}"));
            fs::create_dir(&container).unwrap();
            fs::write(container.join("service"), service).unwrap();
            for fact in ["running", "network", "started"] {
                fs::write(container.join(fact), "once").unwrap();
            }
        }
        Self(folder)
    }

    /// Puts a container on a network beside that of all.
    pub(crate) fn join(&self, service: &str, network: &str) {
        let networks = self.path(&format!("id-of-{service}/networks"));
        fs::create_dir_all(&networks).unwrap();
        fs::write(networks.join(network), "").unwrap();
    }

    pub(crate) fn docker(&self) -> Docker {
        Docker::new(self.0.path().join("docker"))
    }

    pub(crate) async fn project(&self) -> Project {
        Project::open(self.docker(), Vec::new(), "demo").await.unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn complain(&self, complaint: &str) {
        fs::write(self.path("complaint"), complaint).unwrap();
    }

    /// The calls so far that change something.
    pub(crate) fn changes(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap();
        let asks = ["ps ", "inspect ", "wait ", "cp ", "exec ", "compose version"];
        calls
            .lines()
            .filter(|call| !asks.iter().any(|ask| call.starts_with(ask)))
            .map(str::to_owned)
            .collect()
    }
}

pub(crate) fn process(number: u32) -> Service {
    Service::Process(ProcessId::new(number).unwrap())
}
