//! A figure: panels, a caption, the command that makes them again, and their data as a table.

use maud::{Markup, html};

use super::chart::{Drawing, Frame, Series};

/// Columns of numbers and words.
#[derive(Default)]
pub struct Table {
    /// The names of the columns.
    pub head: Vec<&'static str>,
    /// Row by row.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The table.
    #[must_use]
    pub fn markup(&self) -> Markup {
        html! {
            div class="scroll" tabindex="0" {
                table {
                    thead { tr { @for name in &self.head { th scope="col" { (name) } } } }
                    tbody {
                        @for row in &self.rows { tr { @for field in row { td { (field) } } } }
                    }
                }
            }
        }
    }
}

/// A drawing with a label.
pub struct Panel {
    /// The difference from its neighbours; empty if it has none.
    pub label: String,
    /// The drawing.
    pub drawing: Markup,
}

/// One figure of the report.
pub struct Figure {
    /// Unique in the page.
    pub id: String,
    /// The title above it.
    pub title: Markup,
    /// The content of the drawings, and the claim of the paper.
    pub caption: Markup,
    /// Samples of marks with their words.
    pub legend: Vec<(Markup, Markup)>,
    /// Side by side.
    pub panels: Vec<Panel>,
    /// The command that makes it again, if it has one of its own.
    pub command: Option<String>,
    /// Its data.
    pub table: Table,
}

impl Figure {
    /// The frame of a plot that is the only panel of its figure.
    pub const FRAME: Frame = Frame { left: 50.0, right: 400.0, top: 30.0, bottom: 200.0 };

    /// A figure of one plot, within [`Figure::FRAME`], whose caption describes it. `legend`: its series, by
    /// name.
    #[must_use]
    pub fn plot(
        id: &str,
        title: &str,
        caption: &str,
        legend: &[(Series, &str)],
        content: &Markup,
        table: Table,
    ) -> Self {
        let id_of_plot = format!("{id}-chart");
        let drawing = Drawing { id: &id_of_plot, title, description: caption, width: 420.0, height: 240.0 };
        Self {
            id: id.to_owned(),
            title: html! { (title) },
            caption: html! { p { (caption) } },
            legend: legend.iter().map(|(series, name)| (series.sample(), html! { (name) })).collect(),
            panels: vec![Panel { label: String::new(), drawing: drawing.svg(content) }],
            command: None,
            table,
        }
    }

    /// The figure under its number.
    pub fn markup(&self, number: usize) -> Markup {
        html! {
            figure id=(self.id) {
                h3 { span class="number" { "Figure " (number) } " " (self.title) }
                @if self.panels.is_empty() && self.table.rows.is_empty() {
                    p class="empty" { "No cell of this figure has been run yet." }
                }
                @if !self.legend.is_empty() {
                    ul class="legend" {
                        @for (sample, words) in &self.legend { li { (sample) span { (words) } } }
                    }
                }
                div class="panels" {
                    @for panel in &self.panels {
                        div class="panel" {
                            @if !panel.label.is_empty() { h4 { (panel.label) } }
                            (panel.drawing)
                        }
                    }
                }
                figcaption { (self.caption) }
                @if let Some(command) = &self.command { (again(command)) }
                @if !self.table.rows.is_empty() {
                    // Where nothing is drawn, the table is what there is to see.
                    details open=[self.panels.is_empty().then_some("open")] {
                        summary { "Data of figure " (number) ", " (self.table.rows.len()) " rows" }
                        (self.table.markup())
                    }
                }
            }
        }
    }
}

/// The command that makes something again, ready to be copied.
pub fn again(command: &str) -> Markup {
    html! {
        p class="again" { span { "Make it again" } code tabindex="0" { (command) } }
    }
}
