//! What reports for people are made of: one HTML file each that needs nothing else, neither network nor scripts.
//!
//! | where | what |
//! | --- | --- |
//! | `document` | what every page has |
//! | `figure` | what all figures have: caption, legend, the command that makes it again, its data as a table |
//! | `chart/` | scales, axes and marks, as SVG |
//! | `words` | numbers as a reader wants them |
//! | `style.css` | how it looks: light, dark, printed, on a telephone |
//!
//! All text passes through `maud`, which escapes it: names, strategies and commands come out of files.

pub mod chart;
pub mod document;
pub mod figure;
pub mod words;
