//! Axes: ticks with their numbers, and a title that tells the unit.

use maud::{Markup, html};

use super::scale::Tick;
use super::{Frame, px};

/// Below the frame.
pub fn bottom_axis(frame: Frame, ticks: &[Tick], title: &str) -> Markup {
    let Frame { left, right, bottom, .. } = frame;
    html! {
        g class="axis" {
            path d=(format!("M{} {}H{}", px(left), px(bottom), px(right))) {}
            @for Tick { at, label } in ticks {
                path d=(format!("M{} {}v4", px(*at), px(bottom))) {}
                text class="mid" x=(px(*at)) y=(px(bottom + 16.0)) { (label) }
            }
            text class="title mid" x=(px(f64::midpoint(left, right))) y=(px(bottom + 33.0)) { (title) }
        }
    }
}

/// At the left of the frame, its title above it, where it can be read without turning one's head. Lines lead
/// from its ticks through the frame.
pub fn left_axis(frame: Frame, ticks: &[Tick], title: &str) -> Markup {
    let Frame { left, right, top, .. } = frame;
    html! {
        g class="axis" {
            @for Tick { at, label } in ticks {
                path class="grid" d=(format!("M{} {}H{}", px(left), px(*at), px(right))) {}
                text class="end" x=(px(left - 6.0)) y=(px(*at + 3.5)) { (label) }
            }
            text class="title" x="2" y=(px(top - 12.0)) { (title) }
        }
    }
}
