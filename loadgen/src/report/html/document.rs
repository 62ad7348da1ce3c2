//! What every page has: its head, the one style sheet, and who it is by.

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// A page. `kind` is what it reports on, such as `load`.
pub(super) struct Document<'a> {
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
    /// What stands under the name.
    pub(super) header: Markup,
    pub(super) main: Markup,
    /// One paragraph.
    pub(super) footer: Markup,
}

impl Document<'_> {
    pub(super) fn markup(&self) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.name) " \u{b7} StickyCAS " (self.kind) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        p class="kicker" { "StickyCAS \u{b7} " (self.kind) }
                        h1 { (self.name) }
                        (self.header)
                    }
                    main { (self.main) }
                    footer { p { (self.footer) } }
                }
            }
        }
    }
}
