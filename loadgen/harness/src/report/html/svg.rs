//! Drawings as files of their own, in `figures/` beside the report: each carries its style, in the light
//! colours, without variables, which many programs that read SVG do not know.

use std::fs;
use std::io;
use std::path::Path;

use maud::Markup;

use super::document::{CHART, STYLE};
use super::figure::Figure;

/// Writes the drawings of these figures into `figures/` of a folder, in the place of older ones:
/// `NUMBER.svg`, or `NUMBER-PLACE.svg` of a figure of several panels.
///
/// # Errors
/// If they cannot be written.
pub fn write<'a>(figures: impl IntoIterator<Item = (usize, &'a Figure)>, folder: &Path) -> io::Result<()> {
    let folder = folder.join("figures");
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(&folder)?,
    }
    for (number, figure) in figures {
        for (place, panel) in (1..).zip(&figure.panels) {
            let name = if figure.panels.len() == 1 {
                format!("{number}.svg")
            } else {
                format!("{number}-{place}.svg")
            };
            fs::write(folder.join(name), document(&panel.drawing))?;
        }
    }
    Ok(())
}

/// A drawing of a page as an SVG document.
fn document(drawing: &Markup) -> String {
    let inside = drawing.0.strip_prefix("<svg ").and_then(|rest| rest.split_once('>'));
    let (attributes, content) = inside.expect("a drawing is one element");
    format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {attributes}><style>{}</style>{content}\n", style())
}

/// The style sheet of drawings with values in the place of its variables: those of the first block, `:root`.
fn style() -> String {
    let block = STYLE.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let (variables, _) = block.expect("the style sheet begins with them");
    let variables = variables.split(';').filter_map(|line| line.split_once(':'));
    variables.fold(CHART.to_owned(), |style, (name, value)| {
        style.replace(&format!("var({})", name.trim()), value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::super::chart::Drawing;
    use super::*;

    #[test]
    fn a_drawing_stands_alone_with_its_style() {
        let drawing = Drawing { id: "a", title: "t", description: "d", width: 9.0, height: 9.0 };
        let document = document(&drawing.svg(&maud::html! { path class="frontier" d="M0 0" {} }));
        assert!(document.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"a\""), "{document}");
        assert!(document.contains(".frontier { fill: none; stroke: #0072b2;"), "{document}");
        assert!(!document.contains("var("), "{document}");
    }
}
