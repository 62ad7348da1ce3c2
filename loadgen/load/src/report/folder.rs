//! The folder of a load: everything that is known of it; and that of a search for the limit.
//! `docs/use/load-testing.md` lists its files.
//!
//! It is written beside its place and then moved there, so a folder that exists is whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use stickycas_harness::atomic_files::write_folder;
use stickycas_harness::environment::Environment;
use stickycas_harness::record::ExecutionMode;
use stickycas_harness::report::html::svg;
use stickycas_harness::report::{folder, json};

use super::page::{figures, page};
use super::{limit, limit_page, table};
use crate::Measurement;
use crate::limit::{Limit, Probe};
use crate::recorder::Second;
use crate::result::{LOG_FILE, RESULT_FILE, SECONDS_FILE};
use crate::verdicts::{Evidence, InstanceObservations};

/// Writes the folder of a load. Without `to`, it is the first of `runs/NAME-SEED`, `runs/NAME-SEED-2`, ...
/// that does not exist. Returns where it is.
///
/// # Errors
/// `to` exists already, or it cannot be written.
pub fn write(measured: &Measurement, to: Option<&Path>) -> io::Result<PathBuf> {
    let Measurement { result, recorder, evidence } = measured;
    let default = Path::new(folder::DEFAULT_PARENT).join(format!("{}-{}", result.name, result.seed));
    write_folder(to, &default, |folder| {
        fs::write(folder.join(RESULT_FILE), json::text(result))?;
        match result.profiles.as_slice() {
            [profile] => fs::write(folder.join("profile.toml"), profile)?,
            profiles => {
                for (number, profile) in (1..).zip(profiles) {
                    fs::write(folder.join(format!("profile-{number}.toml")), profile)?;
                }
            }
        }
        seconds(&folder.join(SECONDS_FILE), &recorder.seconds)?;
        fs::write(folder.join(LOG_FILE), &recorder.log)?;
        fs::write(folder.join("report.txt"), table::plain(result))?;
        let figures = figures(measured);
        fs::write(folder.join("report.html"), page(measured, &figures))?;
        svg::write((1..).zip(&figures), folder)?;
        let server = result.hosts.first().and_then(|host| host.server.clone());
        let environment = Environment::here(ExecutionMode::Tasks, server);
        for Evidence { number, reasons, observations, record, .. } in evidence {
            let instances = folder.join("instances");
            fs::create_dir_all(&instances)?;
            let seen = ObservationsFile { number: *number, reasons, observations };
            fs::write(instances.join(format!("{number}.seen.json")), json::text(&seen))?;
            if let Some(record) = record {
                folder::write(record, &environment, Some(&instances.join(number.to_string())))?;
            }
        }
        Ok(())
    })
}

/// Writes the folder of a search for the limit. Without `to`, it is the first of `runs/NAME-limit`,
/// `runs/NAME-limit-2`, ... that does not exist.
///
/// # Errors
/// `to` exists already, or it cannot be written.
pub fn write_limit(limit: &Limit, name: &str, to: Option<&Path>) -> io::Result<PathBuf> {
    let default = Path::new(folder::DEFAULT_PARENT).join(format!("{name}-limit"));
    write_folder(to, &default, |folder| {
        fs::write(folder.join("limit.json"), json::text(limit))?;
        fs::write(folder.join("profile.toml"), &limit.profile)?;
        fs::write(folder.join("report.txt"), limit::text(limit))?;
        let figures = limit_page::figures(limit);
        fs::write(folder.join("report.html"), limit_page::page(limit, name, &figures))?;
        svg::write((1..).zip(&figures), folder)?;
        let mut file = csv::Writer::from_path(folder.join("probes.csv"))?;
        file.write_record(["repeat", "rate", "done", "held", "p50_ms", "p99_ms", "broke"])?;
        for Probe { repeat, rate, done, held, broke, instance } in &limit.probes {
            let [p50, p99] =
                [instance.map(|it| it.p50), instance.map(|it| it.p99)].map(|nanos| Some(nanos? as f64 / 1e6));
            file.serialize((repeat, rate, done, held, p50, p99, broke.join("; ")))?;
        }
        file.flush()
    })
}

/// The observations of the correct processes of an instance, and the reasons of its verdict.
#[derive(Serialize)]
struct ObservationsFile<'a> {
    number: u64,
    reasons: &'a [String],
    #[serde(flatten)]
    observations: &'a InstanceObservations,
}

fn seconds(path: &Path, seconds: &[Second]) -> io::Result<()> {
    let mut file = csv::Writer::from_path(path)?;
    for second in seconds {
        file.serialize(second)?;
    }
    file.flush()
}
