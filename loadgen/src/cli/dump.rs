//! The common part of `replay` and `explain` when they are given a dump.

use std::path::Path;

use clap::Args;
use stickycas_harness::dump::{Dump, DumpedInstance};
use stickycas_harness::exit::UsageError;

/// Which instances of a dump.
#[derive(Debug, Args)]
pub(super) struct InstanceArgs {
    /// Of a dump, only the instance with this id or name. Repeat for several
    #[arg(long = "instance", value_name = "ID|NAME")]
    instances: Vec<String>,
}

impl InstanceArgs {
    /// # Errors
    /// If there are any, though no dump was given.
    pub(super) fn check_unused(&self) -> Result<(), UsageError> {
        if self.instances.is_empty() {
            return Ok(());
        }
        Err(UsageError("--instance is for a dump: a run folder has one instance".to_owned()))
    }
}

/// Looks at the instances of a dump that are asked for, one after the other.
///
/// # Errors
/// If the dump cannot be read, or an instance that is asked for is not in it.
pub(super) fn each_instance(
    path: &Path,
    wanted: &InstanceArgs,
    mut look: impl FnMut(&DumpedInstance) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut missing: Vec<&String> = wanted.instances.iter().collect();
    for instance in Dump::open(path)? {
        let instance = instance?;
        if wanted.instances.is_empty() || wanted.instances.iter().any(|text| instance.is_called(text)) {
            look(&instance)?;
        }
        missing.retain(|text| !instance.is_called(text));
    }
    match missing.first() {
        Some(text) => Err(UsageError(format!("there is no instance {text} in {}", path.display())).into()),
        None => Ok(()),
    }
}
