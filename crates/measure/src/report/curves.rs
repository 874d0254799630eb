//! Drawings of many lines with the spread of every point. The legend stands above the drawing; the
//! ticks of an axis are the caller's or are chosen as round numbers.

use std::fmt::Write;

use super::html::escape;
use super::svg::{Axis, MARGIN_BOTTOM, Projection, WIDTH, draw_axes};

const HEIGHT: f64 = 300.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const LEGEND_STEP: f64 = 18.0;
/// Approximate width of a letter in the legend.
const LETTER: f64 = 6.6;
/// Largest number of points of a line that are marked: more marks would hide the line.
const MARKED_MAX: usize = 100;
/// Number of colours in the page's style sheet.
pub(super) const COLOURS: usize = 8;

/// Point of a curve and the range of the rounds behind it.
#[derive(Debug, Clone, Copy)]
pub struct CurvePoint {
    /// Horizontal position.
    pub x: f64,
    /// Height.
    pub y: f64,
    /// Lowest round.
    pub low: f64,
    /// Highest round.
    pub high: f64,
}

/// Line of a drawing.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Label in the legend.
    pub label: String,
    /// Points in ascending order of their x.
    pub points: Vec<CurvePoint>,
}

/// Draws lines; a point with a spread has a whisker.
#[must_use]
pub fn curves(title: &str, x: &Axis, y: &Axis, lines: &[Curve]) -> String {
    let (legend, rows) = legend(lines);
    let top = 26.0 + rows as f64 * LEGEND_STEP;
    let height = top + HEIGHT;
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = Projection::new(x, points().map(|p| p.x), LEFT + 8.0, WIDTH - RIGHT);
    let heights = points().flat_map(|p| [p.y, p.low, p.high]);
    let up = Projection::new(y, heights, height - MARGIN_BOTTOM, top);
    let mut svg = format!(
        "<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{0}'><text class='title' \
         x='0' y='14'>{0}</text>{legend}",
        escape(title)
    );
    draw_axes(&mut svg, (x, &across), (y, &up), (LEFT, top, WIDTH - RIGHT, height));
    for (series, line) in lines.iter().enumerate() {
        draw(&mut svg, series % COLOURS, line, &across, &up);
    }
    svg.push_str("</svg>");
    svg
}

fn draw(svg: &mut String, colour: usize, line: &Curve, across: &Projection, up: &Projection) {
    let mut path = String::new();
    let mut marks = String::new();
    for (position, point) in line.points.iter().enumerate() {
        let (x, y) = (across.place(point.x), up.place(point.y));
        let command = if position == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{x:.1} {y:.1}");
        if point.high > point.low {
            let ends = (up.place(point.low), up.place(point.high));
            let _ = write!(
                marks,
                "<path class='whisker l{colour}' d='M{x:.1} {:.1}V{:.1}'/>",
                ends.0, ends.1
            );
        }
        if line.points.len() <= MARKED_MAX {
            let _ = write!(marks, "<circle class='s{colour}' cx='{x:.1}' cy='{y:.1}' r='2.6'/>");
        }
    }
    let _ = write!(svg, "<path class='line l{colour}' d='{path}'/>{marks}");
}

/// Returns the legend and the number of its rows.
fn legend(lines: &[Curve]) -> (String, usize) {
    let mut text = String::new();
    let (mut x, mut row) = (LEFT, 0_usize);
    for (series, line) in lines.iter().enumerate() {
        let wide = 26.0 + LETTER * line.label.chars().count() as f64;
        if x > LEFT && x + wide > WIDTH {
            (x, row) = (LEFT, row + 1);
        }
        let y = 32.0 + LEGEND_STEP * row as f64;
        let _ = write!(
            text,
            "<path class='line l{0}' d='M{x:.1} {1:.1}h14'/><text class='legend' x='{2:.1}' \
             y='{y:.1}'>{3}</text>",
            series % COLOURS,
            y - 4.0,
            x + 19.0,
            escape(&line.label),
        );
        x += wide;
    }
    (text, if lines.is_empty() { 0 } else { row + 1 })
}

#[cfg(test)]
mod tests {
    use super::super::svg::Scale;
    use super::*;

    fn axis(scale: Scale) -> Axis {
        Axis { label: "a<b".into(), scale, ticks: Vec::new() }
    }

    #[test]
    fn every_line_is_drawn_and_named_however_many() {
        let lines: Vec<Curve> = (0..11)
            .map(|number| Curve {
                label: format!("series number {number}"),
                points: vec![
                    CurvePoint { x: 1.0, y: 2.0, low: 1.0, high: 3.0 },
                    CurvePoint { x: 8.0, y: 4.0, low: 4.0, high: 4.0 },
                ],
            })
            .collect();
        let svg = curves("t", &axis(Scale::Logarithmic), &axis(Scale::Linear), &lines);
        assert_eq!(svg.matches("class='whisker").count(), 11, "one of the two points is exact");
        assert_eq!(svg.matches("<circle").count(), 22);
        assert!((0..11).all(|number| svg.contains(&format!("series number {number}<"))));
        assert!(svg.contains("a&lt;b") && !svg.contains("NaN") && svg.ends_with("</svg>"));
    }

    #[test]
    fn nothing_to_draw_is_drawn_without_trouble() {
        let svg = curves("t", &axis(Scale::Linear), &axis(Scale::Logarithmic), &[]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
