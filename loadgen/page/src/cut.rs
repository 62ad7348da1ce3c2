//! Texts with values of clients in them, cut so that what is sent stays small.

use crate::explanation::{Block, Reasons, Section};

/// The most characters of a text.
const CHARS: usize = 1_024;

/// The text, or its beginning.
#[must_use]
pub fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(CHARS) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// The reasons with each of their texts cut.
#[must_use]
pub fn reasons(Reasons { verdict, headline, sections: all }: Reasons) -> Reasons {
    Reasons { verdict, headline: cut(headline), sections: sections(all) }
}

fn sections(sections: Vec<Section>) -> Vec<Section> {
    let each = |Section { title, blocks }| Section {
        title: cut(title),
        blocks: blocks.into_iter().map(block).collect(),
    };
    sections.into_iter().map(each).collect()
}

fn block(block: Block) -> Block {
    match block {
        Block::Paragraph(text) => Block::Paragraph(cut(text)),
        Block::Point(text) => Block::Point(cut(text)),
        Block::Detail(text) => Block::Detail(cut(text)),
        Block::Table(mut table) => {
            table.rows.iter_mut().flatten().for_each(|text| *text = cut(std::mem::take(text)));
            Block::Table(table)
        }
        Block::LeftOut(more) => Block::LeftOut(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stickycas_model::history::{Event, Recorded};
    use stickycas_model::types::{ProcessId, Time, Value};

    use crate::explanation::Table;
    use crate::source::Told;

    #[test]
    fn every_text_of_a_section_is_cut() {
        let (fits, long) = ("é".repeat(CHARS), "é".repeat(CHARS + 1));
        let table = |text: &String| Table { head: vec!["value"], rows: vec![vec![text.clone()]] };
        let section = |text: &String| Section {
            title: text.clone(),
            blocks: vec![
                Block::Paragraph(text.clone()),
                Block::Point(text.clone()),
                Block::Detail(text.clone()),
                Block::Table(table(text)),
                Block::LeftOut(1),
            ],
        };
        let shown = sections(vec![section(&fits), section(&long)]);
        assert_eq!(shown, [section(&fits), section(&format!("{fits}..."))]);
    }

    #[test]
    fn what_is_told_of_a_long_value_is_short() {
        let process = ProcessId::new(1).unwrap();
        let event = Event::Decided { process, value: Value::new(&[0xff; 9_000]).unwrap() };
        let told = Told::of(7, &[Recorded { at: Time::ZERO, event }], process);
        let (index, sentence) = &told.sentences[0];
        assert!(*index == 7 && sentence.starts_with("process 1 decides 0xff"));
        assert_eq!(sentence.len(), CHARS + "...".len());
    }
}
