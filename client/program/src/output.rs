//! Where results go: text for people, or one line of JSON each for programs.

use std::io::{self, Write};

use serde::Serialize;
use stickycas_model::printable::printable;

/// The output of one command.
pub(super) struct Output<'a> {
    out: &'a mut (dyn Write + Send),
    json: bool,
}

impl<'a> Output<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send), json: bool) -> Self {
        Self { out, json }
    }

    /// Takes what is no result of a call, whatever form results have.
    pub(super) fn writer(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// One result: `record` for programs, `text` for people.
    pub(super) fn result(
        &mut self,
        record: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut *self.out, record)?;
            self.out.write_all(b"\n")?;
        } else {
            // Servers are not believed either: they pass on what others say.
            let text = text();
            let text = printable(&text);
            self.out.write_all(text.as_bytes())?;
            if !text.ends_with('\n') {
                self.out.write_all(b"\n")?;
            }
        }
        // Somebody may be reading along.
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_people_holds_nothing_that_a_terminal_obeys() {
        let mut out = Vec::new();
        let text = || "by \u{1b}[31m\u{202e}evil\u{200b}\nsecond line".to_owned();
        Output::new(&mut out, false).result(&(), text).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "by \\u{1b}[31m\\u{202e}evil\\u{200b}\nsecond line\n");
    }
}
