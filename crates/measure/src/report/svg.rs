//! Drawings of bars and of lines as inline SVG. Colours follow the page's light or dark scheme
//! through its style sheet; nothing is fetched.

use std::fmt::Write;

use super::curves::{Curve, CurvePoint, curves};
use super::html::escape;
use super::table::number;

pub(super) const WIDTH: f64 = 720.0;
/// Height below the box of the axes, for the ticks and the name of the x axis.
pub(super) const MARGIN_BOTTOM: f64 = 48.0;
const MARGIN_TOP: f64 = 28.0;
const BAR_LABEL_WIDTH: f64 = 220.0;
const BAR_STEP: f64 = 26.0;

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

/// Draws horizontal bars from zero, each with its value.
#[must_use]
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let height = MARGIN_TOP + BAR_STEP * bars.len() as f64 + 8.0;
    let room = WIDTH - BAR_LABEL_WIDTH - 90.0;
    let mut svg = open(height, title);
    for (position, bar) in bars.iter().enumerate() {
        let y = MARGIN_TOP + BAR_STEP * position as f64;
        let length = (bar.value / longest).max(0.0) * room;
        let _ = write!(
            svg,
            "<text class='label' x='{:.1}' y='{:.1}' text-anchor='end'>{}</text><rect \
             class='s{}' x='{BAR_LABEL_WIDTH}' y='{:.1}' width='{length:.1}' \
             height='16' rx='2'/><text class='value' x='{:.1}' y='{:.1}'>\
             {} {}</text>",
            BAR_LABEL_WIDTH - 8.0,
            y + 13.0,
            escape(&bar.label),
            bar.series % 4,
            y,
            BAR_LABEL_WIDTH + length + 6.0,
            y + 13.0,
            number(bar.value),
            escape(unit),
        );
    }
    svg.push_str("</svg>");
    svg
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
    let exact = |&(x, y): &(f64, f64)| CurvePoint { x, y, low: y, high: y };
    let curve = |line: &Line| Curve {
        label: line.label.clone(),
        points: line.points.iter().map(exact).collect(),
    };
    curves(title, x, y, &lines.iter().map(curve).collect::<Vec<_>>())
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

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{0}'><text \
         class='title' x='0' y='14'>{0}</text>",
        escape(title)
    )
}

/// Draws both axes with their grid into a box: left, top, right and the drawing's whole height.
pub(super) fn draw_axes(
    svg: &mut String,
    x: (&Axis, &Projection),
    y: (&Axis, &Projection),
    (left, top, right, height): (f64, f64, f64, f64),
) {
    let bottom = height - MARGIN_BOTTOM;
    for (value, text) in y.1.ticks(&y.0.ticks) {
        let at = y.1.place(value);
        let _ = write!(
            svg,
            "<path class='grid' d='M{left} {at:.1}H{right}'/><text class='tick' \
             x='{:.1}' y='{:.1}' text-anchor='end'>{text}</text>",
            left - 6.0,
            at + 4.0,
        );
    }
    for (value, text) in x.1.ticks(&x.0.ticks) {
        let at = x.1.place(value);
        let _ = write!(
            svg,
            "<path class='grid' d='M{at:.1} {top}V{bottom}'/><text class='tick' \
             x='{at:.1}' y='{:.1}' text-anchor='middle'>{text}</text>",
            bottom + 16.0,
        );
    }
    let _ = write!(
        svg,
        "<text class='axis' x='{:.1}' y='{:.1}' text-anchor='middle'>{}</text>\
         <text class='axis' transform='translate(14 {:.1}) rotate(-90)' \
         text-anchor='middle'>{}</text>",
        f64::midpoint(left, right),
        height - 8.0,
        escape(&x.0.label),
        f64::midpoint(top, bottom),
        escape(&y.0.label),
    );
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

    #[test]
    fn nothing_to_draw_is_drawn_without_trouble() {
        let svg = latency_curve("Empty", &[]);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>") && !svg.contains("NaN"));
        assert!(!bars("Empty", "", &[]).contains("NaN"));
    }
}
