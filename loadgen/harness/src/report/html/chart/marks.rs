//! Points, lines, whiskers and bars.

use maud::{Markup, html};

use super::px;

/// Shapes of points about the origin. As many as there are colours in the style sheet.
const SHAPES: [&str; 6] = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.6 -3.6h7.2v7.2h-7.2z",
    "M0 -4.8L4.6 3.4H-4.6z",
    "M0 -5L5 0L0 5L-5 0z",
    "M0 4.8L4.6 -3.4H-4.6z",
    "M-1.6 -4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z",
];

/// One of several things in a chart, told apart by colour, shape and dashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series(pub usize);

impl Series {
    fn number(self) -> usize {
        self.0 % SHAPES.len()
    }

    fn class(self, kind: &str) -> String {
        format!("{kind} s{}", self.number())
    }

    /// A piece of its line with its point, for a legend.
    pub fn sample(self) -> Markup {
        html! {
            svg aria-hidden="true" viewBox="0 0 34 14" width="34" height="14" {
                (line(&[(1.0, 7.0), (33.0, 7.0)], self))
                (mark((17.0, 7.0), self))
            }
        }
    }
}

/// A line through these places.
pub fn line(places: &[(f64, f64)], series: Series) -> Markup {
    let step = |(number, (x, y)): (usize, &(f64, f64))| {
        format!("{}{} {}", if number == 0 { 'M' } else { 'L' }, px(*x), px(*y))
    };
    let path: String = places.iter().enumerate().map(step).collect();
    html! {
        @if !places.is_empty() {
            path class=(series.class("line")) d=(path) {}
        }
    }
}

/// A point, with words that a pointer shows.
pub fn point(place: (f64, f64), series: Series, words: &str) -> Markup {
    html! { g { title { (words) } (mark(place, series)) } }
}

/// A point without words.
pub fn mark((x, y): (f64, f64), series: Series) -> Markup {
    let path = SHAPES[series.number()];
    html! {
        path class=(series.class("point")) transform=(format!("translate({} {})", px(x), px(y))) d=(path) {}
    }
}

/// From one height to another, with a short bar at both ends.
pub fn whisker(x: f64, from: f64, to: f64, series: Series) -> Markup {
    let (left, from, to) = (px(x - 3.0), px(from), px(to));
    html! {
        path class=(series.class("whisker"))
            d=(format!("M{left} {from}h6M{left} {to}h6M{x} {from}V{to}", x = px(x))) {}
    }
}

/// A bar that is filled for this share of its width.
pub fn bar((x, y): (f64, f64), width: f64, share: f64, series: Series) -> Markup {
    let (x, y) = (px(x), px(y));
    html! {
        rect class="trough" x=(x) y=(y) width=(px(width)) height="10" rx="2" {}
        rect class=(series.class("bar")) x=(x) y=(y) width=(px(width * share.clamp(0.0, 1.0))) height="10" rx="2" {}
    }
}
