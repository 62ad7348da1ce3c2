//! The frame of every page: its head, the style sheets, header and footer.

use maud::{DOCTYPE, Markup, PreEscaped, html};

pub(super) const STYLE: &str = include_str!("style.css");
/// How drawings look.
pub(super) const CHART: &str = include_str!("chart.css");

/// A page.
pub struct Document<'a> {
    /// The kind of its subject, such as `load`.
    pub kind: &'a str,
    /// The name of its subject.
    pub name: &'a str,
    /// The text under the name.
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
                    style { (PreEscaped(STYLE)) (PreEscaped(CHART)) }
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
