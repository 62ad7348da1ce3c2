//! Raw results: one JSON document for each run, from which other figures can be computed.
//!
//! | key | meaning |
//! | --- | --- |
//! | `format`, `version` | `stickycas-bench`, and a number that grows when a key changes its meaning or goes |
//! | `measured` | the subcommand; the header of its module tells the keys that are not in this table |
//! | `at` | when the run ended, UTC |
//! | `host` | the machine, and the version and command line of this program; as in the results of loads |
//! | `rustc` | the compiler |
//! | `programs` | other programs that took part, by name, with their versions |
//!
//! Units are at the end of the names: `_s` seconds, `_us` microseconds, `_bytes`; rates are per second.
//! Samples are in the order in which they were taken; only those of the first, uncounted round are left out.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};
use stickycas_harness::atomic_files::replace_file;
use stickycas_harness::host::Host;

const FORMAT: &str = "stickycas-bench";
const VERSION: u32 = 2;

#[derive(Serialize)]
struct Document<'a, T> {
    format: &'static str,
    version: u32,
    measured: &'a str,
    at: String,
    host: Host,
    rustc: &'static str,
    programs: &'a BTreeMap<String, String>,
    #[serde(flatten)]
    content: &'a T,
}

/// Writes the results of the subcommand `measured`, atomically.
pub(crate) fn write<T: Serialize>(
    path: &Path,
    measured: &str,
    programs: &BTreeMap<String, String>,
    content: &T,
) -> anyhow::Result<()> {
    let document = Document {
        format: FORMAT,
        version: VERSION,
        measured,
        at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        host: host(),
        rustc: env!("STICKYCAS_BENCH_RUSTC"),
        programs,
        content,
    };
    let mut text = Vec::new();
    document
        .serialize(&mut Serializer::with_formatter(&mut text, ArraysOnOneLine(PrettyFormatter::new())))?;
    text.push(b'\n');
    replace_file(path, &text).with_context(|| path.display().to_string())
}

/// A line for each key and one line for a whole array, so that thousands of samples stay readable and
/// comparable by `diff`.
struct ArraysOnOneLine(PrettyFormatter<'static>);

impl Formatter for ArraysOnOneLine {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"[")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        Ok(())
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

/// This machine, and the name of the program without its path. A script that has just built the program can
/// give its commit in `STICKYCAS_COMMIT`.
fn host() -> Host {
    let mut host = Host::here(None);
    let commit = &mut host.platform.commit;
    *commit = std::env::var("STICKYCAS_COMMIT").ok().filter(|given| !given.is_empty()).or(commit.take());
    if let Some(program) = host.arguments.first_mut() {
        let name = PathBuf::from(&*program).file_name().map(|name| name.to_string_lossy().into_owned());
        *program = name.unwrap_or_default();
    }
    host
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn arrays_are_on_one_line_and_the_text_is_json() {
        let value = serde_json::json!({"a": [1, 2], "b": [{"c": [], "d": {}}, {"e": [[1.5], [2]]}]});
        let mut text = Vec::new();
        let layout = ArraysOnOneLine(PrettyFormatter::new());
        value.serialize(&mut Serializer::with_formatter(&mut text, layout)).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("{\n  \"a\": [1, 2],\n"), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_result_names_its_format_and_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wire.json");
        write(&file, "wire", &BTreeMap::new(), &serde_json::json!({"rounds": 3})).unwrap();
        let text = fs::read_to_string(file).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["format"], FORMAT);
        assert_eq!(found["version"], VERSION);
        assert_eq!(found["rounds"], 3);
        let program = found["host"]["arguments"][0].as_str().unwrap();
        assert!(!program.is_empty() && !program.contains('/'), "{program}");
    }
}
