//! Cells of a map, shaded by a share.

use maud::{Markup, html};

use super::px;

/// Shades from nothing to everything.
const SHADES: u32 = 10;

/// How much of something: 0 is none of it, 10 all of it. 1 to 9 are never none and never all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shade(u32);

impl Shade {
    /// The shade of a share.
    pub fn of(part: u64, whole: u64) -> Self {
        Self(match (part, whole) {
            (0, _) => 0,
            (part, whole) if part >= whole => SHADES,
            (part, whole) => ((part as f64 / whole as f64 * f64::from(SHADES)) as u32).clamp(1, SHADES - 1),
        })
    }

    /// All of them, in order.
    fn all() -> impl Iterator<Item = Self> {
        (0..=SHADES).map(Self)
    }
}

/// A cell with its number in it, and with words that a pointer shows.
pub fn cell(
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    shade: Shade,
    number: &str,
    words: &str,
) -> Markup {
    html! {
        g class=(format!("h{}", shade.0)) {
            title { (words) }
            rect x=(px(x + 0.5)) y=(px(y + 0.5)) width=(px(width - 1.0)) height=(px(height - 1.0)) {}
            @if !number.is_empty() {
                text class="mid" x=(px(x + width / 2.0)) y=(px(y + height / 2.0 + 3.2)) { (number) }
            }
        }
    }
}

/// All shades side by side, for a legend.
pub fn ramp() -> Markup {
    html! {
        svg class="ramp" aria-hidden="true" viewBox="0 0 132 14" width="132" height="14" {
            @for shade in Shade::all() {
                g class=(format!("h{}", shade.0)) {
                    rect x=(shade.0 * 12) y="0" width="12" height="14" {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_for_none_and_all_alone() {
        assert_eq!(
            [(0, 900), (1, 900), (450, 900), (899, 900), (900, 900)].map(|(a, b)| Shade::of(a, b).0),
            [0, 1, 5, 9, 10]
        );
        assert_eq!(Shade::of(0, 0), Shade(0));
        assert_eq!(Shade::of(5, 0), Shade(10), "more than all is all");
    }
}
