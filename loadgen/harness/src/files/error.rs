//! A problem in a file, and its place.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use super::plain_words::plain;

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{0}")]
    Invalid(Problem),
    /// Something is wrong with it through a value that took the place of the file's.
    #[error(transparent)]
    Setting(SettingError),
}

/// A problem of a value that was to take the place of a file's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {reason}")]
pub struct SettingError {
    /// Where it came from: the flag with its argument, or file and line.
    pub origin: String,
    /// The problem and its remedy.
    pub reason: String,
}

/// The first thing that is wrong with the text of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The text of the line.
    pub text: String,
    /// The problem and its remedy.
    pub reason: String,
}

impl Problem {
    /// The problem in this text of a file.
    #[must_use]
    pub fn new(file: &str, text: &str, fault: Fault) -> Self {
        let start = fault.span.start.min(text.len());
        let before = &text.as_bytes()[..start];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let there = text.lines().nth(line - 1).unwrap_or_default();
        Self { file: file.to_owned(), line, text: there.to_owned(), reason: fault.reason }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, text, reason } = self;
        write!(f, "{file}:{line}: {reason}\n  {line} | {text}")
    }
}

/// A problem before the place in bytes is turned into a line.
#[derive(Debug)]
pub struct Fault {
    /// The bytes that it is about.
    pub span: Range<usize>,
    /// The problem and its remedy.
    pub reason: String,
}

impl Fault {
    /// A fault in these bytes.
    pub fn new(span: Range<usize>, reason: impl fmt::Display) -> Self {
        Self { span, reason: reason.to_string() }
    }
}

impl From<toml::de::Error> for Fault {
    fn from(error: toml::de::Error) -> Self {
        Self::new(error.span().unwrap_or_default(), plain(error.message()))
    }
}
