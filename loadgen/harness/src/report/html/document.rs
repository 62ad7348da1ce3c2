//! What every page has: its head, the one style sheet, and who it is by.

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// A page. `kind` is what it reports on, such as `load`.
pub struct Document<'a> {
    /// What it reports on.
    pub kind: &'a str,
    /// The name of that.
    pub name: &'a str,
    /// What stands under the name.
    pub header: Markup,
    /// The page itself.
    pub main: Markup,
    /// One paragraph.
    pub footer: Markup,
}

impl Document<'_> {
    /// The whole page.
    #[must_use]
    pub fn markup(&self) -> Markup {
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
