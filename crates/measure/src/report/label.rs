//! Labels of drawings: approximate widths of text, and lines of labels that are too wide for one.

use std::fmt::Write;

use super::html::escape;

/// Mean width of a letter, as an upper estimate over the fonts that browsers take for `system-ui`.
const LETTER: f64 = 7.4;
/// Width of a letter of a title.
const TITLE_LETTER: f64 = 9.0;
/// Distance of two lines of text.
pub(super) const LINE_STEP: f64 = 16.0;

/// Returns the width that a text takes at most. In short ones each letter counts.
pub(super) fn width(text: &str) -> f64 {
    let of = |letter: char| match letter {
        'm' | 'w' | 'M' | 'W' | '%' => 11.9,
        'A'..='Z' => 9.0,
        '0'..='9' => 7.7,
        ' ' | '.' | ',' | ':' | '(' | ')' | '/' | 'i' | 'l' | 'j' => 4.8,
        _ => LETTER,
    };
    text.chars().map(of).sum()
}

/// Breaks a text into lines that are at most `room` wide, at spaces where there are any.
pub(super) fn wrapped(text: &str, room: f64) -> Vec<String> {
    broken(text, (room / LETTER) as usize)
}

fn broken(text: &str, letters: usize) -> Vec<String> {
    let letters = letters.max(1);
    let mut lines = vec![String::new()];
    let mut add = |word: &str| {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        let is_first = line.is_empty();
        if is_first || line.chars().count() + 1 + word.chars().count() <= letters {
            line.push_str(if is_first { "" } else { " " });
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    };
    for word in text.split(' ') {
        // A word that is wider than a line is cut.
        let characters: Vec<char> = word.chars().collect();
        characters.chunks(letters).for_each(|part| add(&part.iter().collect::<String>()));
    }
    lines
}

/// Writes lines of text from a position downwards and returns the height that they take.
pub(super) fn write_lines(
    svg: &mut String,
    class: &str,
    (x, y): (f64, f64),
    lines: &[String],
) -> f64 {
    for (number, line) in lines.iter().enumerate() {
        let y = y + LINE_STEP * number as f64;
        let line = escape(line);
        let _ = write!(svg, "<text class='{class}' x='{x:.1}' y='{y:.1}'>{line}</text>");
    }
    LINE_STEP * lines.len() as f64
}

/// Writes the title of a drawing that is `room` wide and returns the height that it takes.
pub(super) fn write_title(svg: &mut String, title: &str, room: f64) -> f64 {
    let lines = broken(title, (room / TITLE_LETTER) as usize);
    write_lines(svg, "title", (0.0, 14.0), &lines) + 4.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_wide_as_there_is_room_and_lose_nothing() {
        for text in ["", "one", "one two three four", "averyverylongwordwithoutaspace and more"] {
            let lines = broken(text, 9);
            assert!(lines.iter().all(|line| line.chars().count() <= 9), "{lines:?}");
            assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
        }
        assert_eq!(broken("one two three", 7), ["one two", "three"]);
    }

    #[test]
    fn short_labels_of_wide_letters_are_as_wide_as_browsers_draw_them() {
        // Widths in DejaVu Sans of 12 pixels.
        for (text, wide) in [("16M", 25.7), ("100%", 34.4), ("1 000 000", 61.1), ("ns", 13.9)] {
            assert!((wide..wide * 1.2).contains(&width(text)), "{text}: {}", width(text));
        }
    }
}
