//! Drawings of many lines with the spread of every point. The legend stands above the drawing; the
//! ticks of an axis are the caller's or are chosen as round numbers.

use std::fmt::Write;

use super::label::{LINE_STEP, width, wrapped, write_lines, write_title};
use super::svg::{Axis, COLOURS, Projection, WIDTH, draw_axes, framed, not_measured};

/// Height of the box of the axes.
const HEIGHT: f64 = 210.0;
const RIGHT: f64 = 10.0;
/// Length of the sample of a line in the legend, with the room beside it.
const SAMPLE: f64 = 20.0;
/// Room between two labels in a row of the legend.
const LEGEND_GAP: f64 = 12.0;
/// Largest number of points of a line that are marked: more marks would hide the line.
const MARKED_MAX: usize = 100;

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
    curves_beside(title, x, y, lines, &[])
}

/// Draws lines like [`curves`], with a paper's numbers as dashed lines with hollow marks. Each has
/// the index of the line whose colour it shares.
pub(super) fn curves_beside(
    title: &str,
    x: &Axis,
    y: &Axis,
    lines: &[Curve],
    papers: &[(usize, Curve)],
) -> String {
    let mut svg = String::new();
    let mut top = write_title(&mut svg, title, WIDTH);
    let ours = lines.iter().enumerate().map(|(series, line)| (series, false, line));
    let papers = papers.iter().map(|(series, line)| (*series, true, line));
    let all: Vec<Drawn<'_>> = ours.chain(papers).collect();
    let points = || all.iter().flat_map(|(.., line)| &line.points);
    if points().next().is_none() {
        let height = top + not_measured(&mut svg, top);
        return framed(title, height + 8.0, &svg);
    }
    top += legend(&mut svg, top, &all);
    top += write_lines(&mut svg, "axis", (0.0, top + 12.0), &wrapped(&y.label, WIDTH)) + 10.0;
    let bottom = top + HEIGHT;
    let heights = points().flat_map(|p| [p.y, p.low, p.high]);
    let up = Projection::new(y, heights, bottom, top);
    let (left, right) = (up.labels_width(&y.ticks) + 8.0, WIDTH - RIGHT);
    let across = Projection::new(x, points().map(|p| p.x), left + 8.0, right);
    let end = draw_axes(&mut svg, (x, &across), (y, &up), (left, top, right, bottom));
    for one in &all {
        draw(&mut svg, one, &across, &up);
    }
    framed(title, end + 4.0, &svg)
}

/// Line with the index of its colour, and whether it is a paper's.
type Drawn<'a> = (usize, bool, &'a Curve);

/// Returns the class of a line.
fn class((series, is_paper, _): &Drawn<'_>) -> String {
    format!("line{} l{}", if *is_paper { " theirs" } else { "" }, series % COLOURS)
}

fn draw(svg: &mut String, one: &Drawn<'_>, across: &Projection, up: &Projection) {
    let (series, is_paper, line) = one;
    let colour = series % COLOURS;
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
        if *is_paper {
            let (left, top) = (x - 4.0, y);
            let _ = write!(
                marks,
                "<path class='mark l{colour}' d='M{left:.1} {top:.1}l4 -4l4 4l-4 4z'/>"
            );
        } else if line.points.len() <= MARKED_MAX {
            let _ = write!(marks, "<circle class='s{colour}' cx='{x:.1}' cy='{y:.1}' r='2.6'/>");
        }
    }
    let _ = write!(svg, "<path class='{}' d='{path}'/>{marks}", class(one));
}

/// Writes the legend and returns the height that it takes. A label that is wider than the drawing
/// takes several lines.
fn legend(svg: &mut String, top: f64, all: &[Drawn<'_>]) -> f64 {
    let (mut x, mut y) = (0.0, top + 12.0);
    for one in all {
        let label = &one.2.label;
        let lines = wrapped(label, WIDTH - SAMPLE);
        let wide = SAMPLE + width(label) + LEGEND_GAP;
        if x > 0.0 && x + wide - LEGEND_GAP > WIDTH {
            (x, y) = (0.0, y + LINE_STEP);
        }
        let _ = write!(svg, "<path class='{}' d='M{x:.1} {:.1}h14'/>", class(one), y - 4.0);
        write_lines(svg, "legend", (x + SAMPLE, y), &lines);
        x += wide;
        if lines.len() > 1 {
            (x, y) = (WIDTH, y + LINE_STEP * (lines.len() - 1) as f64);
        }
    }
    if all.is_empty() { 0.0 } else { y + 6.0 - top }
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
