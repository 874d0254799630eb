//! Drawings of bars and of lines as inline SVG. Colours follow the page's light or dark scheme
//! through its style sheet; nothing is fetched. Numbers of a paper stand in the same drawing as
//! those that were measured: as marks across bars, and as dashed lines.

use std::fmt::Write;

use super::curves::{Curve, CurvePoint, curves_beside};
use super::html::escape;
use super::label::{LINE_STEP, width, wrapped, write_lines, write_title};
use super::table::number;

pub(super) const WIDTH: f64 = 460.0;
/// Distance of labels of an axis below which the later one is left out.
const LABELS_APART: f64 = 6.0;
const BAR_HEIGHT: f64 = 14.0;
/// Room below a bar.
const BAR_GAP: f64 = 8.0;
/// Least room for the longest bar.
const BAR_ROOM_MIN: f64 = 80.0;

/// Mapping of values to positions on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equal distances.
    Linear,
    /// Equal ratios are equal distances; values must be positive.
    Logarithmic,
}

/// Bar of a drawing.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Label beside the bar.
    pub label: String,
    /// Value that the bar's length shows.
    pub value: f64,
    /// Index of the colour, from 0; bars of one subject share a colour.
    pub series: usize,
}

/// Draws horizontal bars from zero, each below its label and with its value.
#[must_use]
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let alone: Vec<(Bar, Option<f64>)> = bars.iter().map(|bar| (bar.clone(), None)).collect();
    bars_beside(title, unit, &alone)
}

/// Draws bars like [`bars`], with a mark across a bar where a paper prints a number for it.
#[must_use]
pub fn bars_beside(title: &str, unit: &str, bars: &[(Bar, Option<f64>)]) -> String {
    let text = |(bar, paper): &(Bar, Option<f64>)| {
        let value = format!("{} {unit}", number(bar.value));
        let paper = paper.map_or(String::new(), |paper| format!(" (paper {})", number(paper)));
        format!("{}{paper}", value.trim_end())
    };
    let texts: Vec<String> = bars.iter().map(text).collect();
    let values = || bars.iter().flat_map(|(bar, paper)| [bar.value, paper.unwrap_or(0.0)]);
    let longest = values().filter(|value| value.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
    let widest = texts.iter().map(|text| width(text)).fold(0.0, f64::max);
    let room = (WIDTH - widest - 8.0).max(BAR_ROOM_MIN);
    let length = |value: f64| (value / longest).clamp(0.0, 1.0) * room;
    let mut svg = String::new();
    let mut y = write_title(&mut svg, title, WIDTH);
    if bars.is_empty() {
        y += not_measured(&mut svg, y);
    }
    for ((bar, paper), text) in bars.iter().zip(&texts) {
        y += write_lines(&mut svg, "label", (0.0, y + 12.0), &wrapped(&bar.label, WIDTH));
        let long = length(bar.value);
        let _ = write!(
            svg,
            "<rect class='s{}' x='0' y='{y:.1}' width='{long:.1}' height='{BAR_HEIGHT}' rx='2'/>",
            bar.series % COLOURS,
        );
        let mark = paper.map_or(0.0, length);
        if paper.is_some() {
            let (top, height) = (y - 1.0, BAR_HEIGHT + 2.0);
            let _ = write!(svg, "<path class='paper' d='M{mark:.1} {top:.1}v{height}'/>");
        }
        let text = [text.clone()];
        write_lines(&mut svg, "value", (long.max(mark) + 6.0, y + 11.5), &text);
        y += BAR_HEIGHT + BAR_GAP;
    }
    framed(title, y, &svg)
}

/// Number of ours beside one of a paper.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Label above both.
    pub label: String,
    /// Number that was measured.
    pub ours: f64,
    /// Number that the paper prints.
    pub paper: f64,
    /// Unit of both.
    pub unit: &'static str,
    /// True if ours is not within its tolerance.
    pub fails: bool,
}

/// Draws pairs of numbers of any units. Each has a line of its own, on which equal ratios are equal
/// distances: all of the paper's numbers lie in one place, ours where their ratio to it puts them.
#[must_use]
pub fn pairs(title: &str, pairs: &[Pair]) -> String {
    let text = |pair: &Pair| {
        let text = format!("{} (paper {}) {}", number(pair.ours), number(pair.paper), pair.unit);
        text.trim_end().to_owned()
    };
    let far = |pair: &Pair| (pair.ours / pair.paper).ln();
    let usable = pairs.iter().map(|pair| far(pair).abs()).filter(|far| far.is_finite());
    let farthest = usable.fold(LEAST_FACTOR.ln(), f64::max);
    let widest = pairs.iter().map(|pair| width(&text(pair))).fold(0.0, f64::max);
    let half = (WIDTH - widest - 12.0).max(BAR_ROOM_MIN) / 2.0;
    let mut svg = String::new();
    let mut y = write_title(&mut svg, title, WIDTH);
    for pair in pairs {
        y += write_lines(&mut svg, "label", (0.0, y + 12.0), &wrapped(&pair.label, WIDTH));
        let (middle, colour) = (y + 6.0, if pair.fails { 4 } else { 0 });
        let share = if far(pair).is_nan() { 0.0 } else { (far(pair) / farthest).clamp(-1.0, 1.0) };
        let _ = write!(
            svg,
            "<path class='grid' d='M4 {middle:.1}H{:.1}'/><path class='paper' d='M{:.1} {:.1}v12'/>\
             <circle class='s{colour}' cx='{:.1}' cy='{middle:.1}' r='4'/>",
            2.0 * half,
            half + 2.0,
            y,
            half + 2.0 + share * (half - 4.0),
        );
        write_lines(&mut svg, "value", (2.0 * half + 8.0, y + 10.5), &[text(pair)]);
        y += BAR_HEIGHT + BAR_GAP;
    }
    framed(title, y, &svg)
}

/// Ratio of ours to the paper's that the ends of a line are apart at least.
const LEAST_FACTOR: f64 = 1.25;

/// Says that there is nothing to draw and returns the height that this takes.
pub(super) fn not_measured(svg: &mut String, y: f64) -> f64 {
    write_lines(svg, "label", (0.0, y + 12.0), &["not measured: no value".to_owned()])
}

/// Returns the whole drawing of this content and height.
pub(super) fn framed(title: &str, height: f64, content: &str) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox='0 0 {WIDTH} {height:.0}' role='img' aria-label='{title}'>{content}</svg>"
    )
}

/// Line of points in ascending order of their x.
#[derive(Debug, Clone)]
pub struct Line {
    /// Label in the legend.
    pub label: String,
    /// Points of the line.
    pub points: Vec<(f64, f64)>,
}

/// Axis of a drawing: its name with the unit, its scale and its ticks.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Name of the quantity along the axis, with its unit.
    pub label: String,
    /// Mapping of values to positions.
    pub scale: Scale,
    /// Positions and texts of the ticks; if empty, ticks are chosen as round numbers.
    pub ticks: Vec<(f64, String)>,
}

/// Draws lines over two axes, with the legend above.
#[must_use]
pub fn lines(title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    lines_beside(title, x, y, lines, &[])
}

/// Draws lines like [`lines`], with a paper's numbers as dashed lines with hollow marks. Each has
/// the index of the line whose colour it shares.
#[must_use]
pub fn lines_beside(
    title: &str,
    x: &Axis,
    y: &Axis,
    lines: &[Line],
    papers: &[(usize, Line)],
) -> String {
    let exact = |&(x, y): &(f64, f64)| CurvePoint { x, y, low: y, high: y };
    let curve = |line: &Line| Curve {
        label: line.label.clone(),
        points: line.points.iter().map(exact).collect(),
    };
    let papers: Vec<_> = papers.iter().map(|(of, line)| (*of, curve(line))).collect();
    curves_beside(title, x, y, &lines.iter().map(curve).collect::<Vec<_>>(), &papers)
}

/// Draws response times by percentile: x runs towards ever rarer requests, y is logarithmic time.
#[must_use]
pub fn latency_curve(title: &str, curves: &[Line]) -> String {
    let ticks = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
    let x = Axis {
        label: "percentile".to_owned(),
        scale: Scale::Logarithmic,
        ticks: ticks.iter().map(|&tick| (rarity(tick), format!("{tick}%"))).collect(),
    };
    let y = Axis {
        label: "response time, us".to_owned(),
        scale: Scale::Logarithmic,
        ticks: Vec::new(),
    };
    let placed: Vec<Line> = curves
        .iter()
        .map(|line| Line {
            label: line.label.clone(),
            points: line.points.iter().map(|&(percent, us)| (rarity(percent), us)).collect(),
        })
        .collect();
    lines(title, &x, &y, &placed)
}

/// Returns the number of requests of which one is slower than the percentile `percent`.
fn rarity(percent: f64) -> f64 {
    100.0 / (100.0 - percent).max(1e-6)
}

/// Number of colours in the page's style sheet.
pub(super) const COLOURS: usize = 8;

/// Draws both axes with their grid into a box: left, top, right, bottom. Labels of ticks that would
/// overlap are left out; the name of the x axis is below.
pub(super) fn draw_axes(
    svg: &mut String,
    x: (&Axis, &Projection),
    y: (&Axis, &Projection),
    (left, top, right, bottom): (f64, f64, f64, f64),
) -> f64 {
    let mut lowest = f64::INFINITY;
    for (value, text) in y.1.ticks(&y.0.ticks) {
        let at = y.1.place(value);
        let _ = write!(svg, "<path class='grid' d='M{left:.1} {at:.1}H{right:.1}'/>");
        if lowest - at >= LINE_STEP {
            lowest = at;
            let (x, y) = (left - 6.0, at + 4.0);
            let _ = write!(
                svg,
                "<text class='tick' x='{x:.1}' y='{y:.1}' text-anchor='end'>{text}</text>"
            );
        }
    }
    let mut end = f64::NEG_INFINITY;
    for (value, text) in x.1.ticks(&x.0.ticks) {
        let at = x.1.place(value);
        let _ = write!(svg, "<path class='grid' d='M{at:.1} {top:.1}V{bottom:.1}'/>");
        let half = width(&text) / 2.0;
        // A label at the end of the axis lies within the drawing.
        let at = at.min(WIDTH - half).max(half);
        if at - half >= end + LABELS_APART {
            end = at + half;
            let y = bottom + 16.0;
            let _ = write!(
                svg,
                "<text class='tick' x='{at:.1}' y='{y:.1}' text-anchor='middle'>{text}</text>"
            );
        }
    }
    let lines = wrapped(&x.0.label, right - left);
    bottom + 20.0 + write_lines(svg, "axis", (left, bottom + 34.0), &lines)
}

/// Maps the values of one axis to positions on the page.
pub(super) struct Projection {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    /// Round ticks from end to end; empty if the axis has ticks of its own.
    round: Vec<f64>,
}

impl Projection {
    pub(super) fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        from: f64,
        to: f64,
    ) -> Projection {
        let usable =
            |value: &f64| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(usable) {
            low = low.min(value);
            high = high.max(value);
        }
        match axis.scale {
            Scale::Linear => {
                (low, high) = (low.min(0.0), high.max(0.0));
                high = if high > low { high } else { low + 1.0 };
            }
            Scale::Logarithmic => {
                low = if low.is_finite() { low } else { 1.0 };
                high = if high > low { high } else { low * 10.0 };
            }
        }
        let mut projection =
            Projection { scale: axis.scale, low, high, from, to, round: Vec::new() };
        if axis.ticks.is_empty() {
            projection.widen_to_round_ticks();
        }
        projection
    }

    /// Moves both ends to round values; the ticks then cover everything that is drawn.
    fn widen_to_round_ticks(&mut self) {
        self.round = match self.scale {
            Scale::Linear => {
                let step = round_step((self.high - self.low) / 5.0);
                let (first, last) = ((self.low / step).floor(), (self.high / step).ceil());
                (first as i64..=last as i64).map(|number| number as f64 * step).collect()
            }
            Scale::Logarithmic => {
                // Over many powers of ten, the powers alone are enough.
                let digits: &[f64] =
                    if self.high / self.low > 2e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let power = |value: f64| value.log10().floor() as i32;
                let all: Vec<f64> = (power(self.low)..=power(self.high) + 1)
                    .flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)))
                    .collect();
                let first = all.iter().rposition(|&tick| tick <= self.low).unwrap_or(0);
                let last = all.iter().position(|&tick| tick >= self.high);
                all[first..=last.unwrap_or(all.len() - 1)].to_vec()
            }
        };
        if let (Some(first), Some(last)) = (self.round.first(), self.round.last()) {
            (self.low, self.high) = (self.low.min(*first), self.high.max(*last));
        }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => {
                (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Returns the width of the widest label.
    pub(super) fn labels_width(&self, given: &[(f64, String)]) -> f64 {
        self.ticks(given).iter().map(|(_, text)| width(text)).fold(0.0, f64::max)
    }

    /// Returns the given ticks that lie within the axis, or the projection's own round ones.
    fn ticks(&self, given: &[(f64, String)]) -> Vec<(f64, String)> {
        let inside = |value: f64| value >= self.low * 0.999 && value <= self.high * 1.001;
        if !given.is_empty() {
            return given.iter().filter(|(value, _)| inside(*value)).cloned().collect();
        }
        self.round.iter().map(|&value| (value, number(value))).collect()
    }
}

/// Returns the largest of 1, 2 and 5 times a power of ten that does not exceed `step`.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.max(f64::MIN_POSITIVE).log10().floor());
    [5.0, 2.0].into_iter().map(|d| d * power).find(|&r| r <= step).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(svg: &str, name: &str) -> Vec<f64> {
        let opening = format!(" {name}='");
        svg.split(&opening)
            .skip(1)
            .filter_map(|rest| rest.split('\'').next().and_then(|text| text.parse().ok()))
            .collect()
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bar = |label: &str, value| Bar { label: label.into(), value, series: 0 };
        let svg = bars("Times", "ns", &[bar("a<b", 50.0), bar("b", 100.0)]);
        let widths = attribute(&svg, "width");
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.01, "{widths:?}");
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
    }

    #[test]
    fn a_latency_curve_climbs_to_the_right() {
        let points = vec![(50.0, 10.0), (99.0, 100.0), (99.9, 1000.0)];
        let svg = latency_curve("Response", &[Line { label: "ours".into(), points }]);
        // The first match is the legend's.
        let path = svg.split("class='line l0' d='M").nth(2).unwrap();
        let path = path.split('\'').next().unwrap();
        let points: Vec<(f64, f64)> = path
            .split('L')
            .map(|point| {
                let (x, y) = point.split_once(' ').unwrap();
                (x.parse().unwrap(), y.parse().unwrap())
            })
            .collect();
        assert_eq!(points.len(), 3);
        assert!(points.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 > two[1].1));
        // Times that grow tenfold are equal distances up.
        let steps: Vec<f64> = points.windows(2).map(|two| two[0].1 - two[1].1).collect();
        assert!((steps[0] - steps[1]).abs() < 0.3, "{steps:?}");
    }

    #[test]
    fn the_ticks_of_an_axis_reach_as_far_as_what_is_drawn() {
        let axis = |scale| Axis { label: "x".into(), scale, ticks: Vec::new() };
        let check = |scale, low: f64, high: f64| {
            let axis = axis(scale);
            let projection = Projection::new(&axis, [low, high].into_iter(), 0.0, 100.0);
            let ticks: Vec<f64> = projection.ticks(&[]).into_iter().map(|tick| tick.0).collect();
            let text = format!("{scale:?} {low} to {high}: {ticks:?}");
            assert!(ticks[0] <= low && ticks[ticks.len() - 1] >= high, "{text}");
            assert!((2..=15).contains(&ticks.len()), "{text}");
            let places: Vec<f64> = ticks.iter().map(|&tick| projection.place(tick)).collect();
            assert!(places.windows(2).all(|two| two[1] > two[0] + 1.0), "{text}: {places:?}");
            assert!((places[0], places[places.len() - 1]) == (0.0, 100.0), "{text}: {places:?}");
        };
        let mut high: f64 = 0.000_9;
        while high < 3e9 {
            check(Scale::Linear, 0.0, high);
            check(Scale::Linear, -high, high / 3.0);
            check(Scale::Linear, -high, -high / 2.0);
            check(Scale::Logarithmic, high / 1.9, high);
            check(Scale::Logarithmic, high / 999.0, high);
            check(Scale::Logarithmic, high / 1e6, high);
            high *= 1.37;
        }
    }

    /// Asserts that no text reaches beyond the drawing, by the estimated widths of letters.
    fn holds_its_texts(svg: &str) {
        for text in svg.split("<text ").skip(1) {
            let attributes = text.split('>').next().unwrap_or_default();
            let content = text.split('>').nth(1).and_then(|it| it.split('<').next()).unwrap();
            let x = attribute(attributes, "x")[0];
            let share = match attributes {
                it if it.contains("'end'") => 1.0,
                it if it.contains("'middle'") => 0.5,
                _ => 0.0,
            };
            let from = x - share * width(content);
            assert!(from > -1.0 && from + width(content) < WIDTH + 1.0, "{attributes} {content}");
        }
    }

    #[test]
    fn labels_of_any_length_stay_within_the_drawing() {
        let long = "a label of many words, such as the name of a check with all of its conditions";
        let bar = |value| Bar { label: long.into(), value, series: 0 };
        for paper in [None, Some(2.0e6), Some(9.0e6)] {
            let all = [(bar(1.0), paper), (bar(3.0e6), paper)];
            holds_its_texts(&bars_beside(long, "operations a second", &all));
        }
        let pair = |ours, paper| Pair { label: long.into(), ours, paper, unit: "us", fails: false };
        holds_its_texts(&pairs(long, &[pair(1.0, 9.0e6), pair(9.0e6, 1.0), pair(2.0, 2.0)]));
        let axis = |scale| Axis { label: long.into(), scale, ticks: Vec::new() };
        let line = |of: &str| Line { label: of.into(), points: vec![(1.0, 0.1), (5.0e6, 3.0e8)] };
        for (x, y) in [(Scale::Linear, Scale::Logarithmic), (Scale::Logarithmic, Scale::Linear)] {
            let ours = [line("short"), line(long), line("short again")];
            let svg = lines_beside(long, &axis(x), &axis(y), &ours, &[(1, line("paper: x"))]);
            holds_its_texts(&svg);
        }
    }

    #[test]
    fn numbers_of_a_paper_are_told_from_ours() {
        let bar = |value| Bar { label: "b".into(), value, series: 0 };
        let svg = bars_beside("t", "ns", &[(bar(50.0), Some(100.0)), (bar(25.0), None)]);
        assert_eq!(svg.matches("class='paper'").count(), 1);
        assert!(svg.contains(">50.0 ns (paper 100)<") && svg.contains(">25.0 ns<"), "{svg}");
        let lengths = attribute(&svg, "width");
        let mark = svg.split("class='paper' d='M").nth(1).unwrap();
        let mark: f64 = mark.split(' ').next().unwrap().parse().unwrap();
        assert!((mark - 2.0 * lengths[0]).abs() < 0.2, "the mark is at twice the bar: {svg}");
        let axis = Axis { label: "x".into(), scale: Scale::Linear, ticks: Vec::new() };
        let line = |label: &str| Line { label: label.into(), points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let svg = lines_beside("t", &axis, &axis, &[line("ours")], &[(0, line("paper"))]);
        let of = |class: &str| svg.matches(&format!("class='{class}'")).count();
        // One more of each is in the legend.
        assert_eq!((of("line l0"), of("line theirs l0"), of("mark l0")), (2, 2, 2));
        assert_eq!(svg.matches("<circle").count(), 2);
    }

    #[test]
    fn a_ratio_is_as_far_to_the_right_as_its_reciprocal_is_to_the_left() {
        let pair = |ours| Pair { label: "p".into(), ours, paper: 2.0, unit: "", fails: ours > 3.0 };
        let svg = pairs("t", &[pair(1.0), pair(4.0), pair(2.0)]);
        let at = attribute(&svg, "cx");
        assert!((at[0] + at[1] - 2.0 * at[2]).abs() < 0.2 && at[0] < at[2], "{at:?}");
        assert_eq!((svg.matches("class='s4'").count(), svg.matches("class='s0'").count()), (1, 2));
    }

    #[test]
    fn nothing_to_draw_is_drawn_without_trouble() {
        assert!(bars("Empty", "", &[]).contains("not measured: "));
        let svg = latency_curve("Empty", &[]);
        assert!(svg.contains("not measured: "));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>") && !svg.contains("NaN"));
        assert!(!bars("Empty", "", &[]).contains("NaN"));
    }
}
