//! The parts of reports for people: one HTML file each that needs nothing else, neither network nor scripts.
//!
//! | where | what |
//! | --- | --- |
//! | `document` | the frame of every page |
//! | `figure` | the parts of a figure: caption, legend, its command, its data as a table |
//! | `chart/` | scales, axes and marks, as SVG |
//! | `svg` | drawings as files of their own |
//! | `words` | numbers as a reader wants them |
//! | `style.css`, `chart.css` | how it looks: light, dark, printed, on a telephone |
//!
//! All text passes through `maud`, which escapes it: names, strategies and commands come out of files.

pub mod chart;
pub mod document;
pub mod figure;
pub mod svg;
pub mod words;
