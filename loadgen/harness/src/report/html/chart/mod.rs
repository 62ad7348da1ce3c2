//! Charts as SVG inside the page: a few shapes on a frame, coloured by classes, so that one style sheet
//! serves screens light and dark and paper.
//!
//! Colour is never the only cue: series differ by the shape of their points and the dashes of their lines,
//! cells carry their number. Title and description stand for the drawing where it cannot be seen.

mod heat;
mod marks;
mod scale;

use maud::{Markup, html};

pub use self::heat::{Shade, cell, ramp};
pub use self::marks::{Series, bar, line, mark, point, whisker};
pub use self::scale::{Scale, Tick, bottom_axis, left_axis};

/// A drawing without its content.
pub struct Drawing<'a> {
    /// Unique in the page.
    pub id: &'a str,
    /// Its name.
    pub title: &'a str,
    /// Its content in words, for readers who cannot see it.
    pub description: &'a str,
    /// In pixels, where the page has room for it.
    pub width: f64,
    /// In pixels.
    pub height: f64,
}

impl Drawing<'_> {
    /// The whole drawing.
    pub fn svg(&self, content: &Markup) -> Markup {
        let (title, description) = (format!("{}-title", self.id), format!("{}-desc", self.id));
        html! {
            svg id=(self.id) role="img" aria-labelledby=(format!("{title} {description}"))
                viewBox=(format!("0 0 {} {}", px(self.width), px(self.height)))
                width=(px(self.width)) height=(px(self.height)) {
                title id=(title) { (self.title) }
                desc id=(description) { (self.description) }
                (content)
            }
        }
    }
}

/// Where the data of a drawing lie.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The place of the left edge.
    pub left: f64,
    /// The place of the right edge.
    pub right: f64,
    /// The place of the upper edge.
    pub top: f64,
    /// The place of the lower edge.
    pub bottom: f64,
}

/// A length with as many digits as can be seen.
pub fn px(length: f64) -> String {
    let text = format!("{length:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_no_digits_that_nobody_sees() {
        assert_eq!([0.0, 10.0, 2.5, 1.0 / 3.0, -4.999].map(px), ["0", "10", "2.5", "0.33", "-5"]);
    }
}
