//! Bars, as SVG that reads well on a light and on a dark page.

use std::fmt::Write;

/// Bars that are compared with each other.
pub struct Group {
    pub title: &'static str,
    pub bars: Vec<Bar>,
}

/// A median with its spread.
pub struct Bar {
    pub label: String,
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub is_ours: bool,
}

const WIDTH: f64 = 860.0;
const MARGIN: f64 = 12.0;
/// Where bars begin, and how long the longest is.
const LEFT: f64 = 210.0;
const LONGEST: f64 = 540.0;
const TITLE: f64 = 30.0;
const ROW: f64 = 22.0;
const GAP: f64 = 16.0;
const FOOTNOTE: &str = "Bars are medians, lines go from the lowest to the highest lap. A bare producer, which reads no database, is not shown.";

/// One picture of all groups, each with its own scale.
pub fn svg(groups: &[Group]) -> String {
    let groups_height: f64 = groups.iter().map(|group| TITLE + ROW * group.bars.len() as f64 + GAP).sum();
    let height = groups_height + TITLE + GAP;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <title>Events a second: medians, with the lowest and the highest</title>\n\
         <style>.page {{ fill: #ffffff }} text {{ fill: #1f2328 }} .other {{ fill: #9aa4b2 }} .ours {{ fill: #1f6feb }} \
         .spread {{ stroke: #1f2328; stroke-width: 1.2 }} @media (prefers-color-scheme: dark) \
         {{ .page {{ fill: #0d1117 }} text {{ fill: #e6edf3 }} .other {{ fill: #57606a }} .spread {{ stroke: #e6edf3 }} }}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    let mut top = GAP;
    for group in groups {
        writeln!(
            text,
            "<text x=\"{MARGIN}\" y=\"{}\" font-weight=\"600\">{}, events a second</text>",
            top + 14.0,
            group.title
        )
        .unwrap();
        top += TITLE;
        let highest = group.bars.iter().map(|bar| bar.high).fold(1.0, f64::max);
        for bar in &group.bars {
            draw(&mut text, bar, top, LONGEST / highest);
            top += ROW;
        }
        top += GAP;
    }
    writeln!(text, "<text x=\"{MARGIN}\" y=\"{}\" font-size=\"11\">{FOOTNOTE}</text>", top + 12.0).unwrap();
    text.push_str("</svg>\n");
    text
}

fn draw(text: &mut String, bar: &Bar, top: f64, scale: f64) {
    let (middle, base) = (top + 8.0, top + 12.5);
    let class = if bar.is_ours { "ours" } else { "other" };
    let [value, low, high] = [bar.value, bar.low, bar.high].map(|figure| figure * scale);
    writeln!(
        text,
        "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{}</text>\n\
         <rect class=\"{class}\" x=\"{LEFT}\" y=\"{top}\" width=\"{value:.1}\" height=\"16\" rx=\"2\"/>\n\
         <line class=\"spread\" x1=\"{:.1}\" y1=\"{middle}\" x2=\"{:.1}\" y2=\"{middle}\"/>\n\
         <text x=\"{:.1}\" y=\"{base}\">{}</text>",
        LEFT - 10.0,
        bar.label,
        LEFT + low,
        LEFT + high,
        LEFT + high.max(value) + 8.0,
        thousands(bar.value)
    )
    .unwrap();
}

/// 61234 as 61,200: nobody believes the last digits.
fn thousands(value: f64) -> String {
    let rounded = (value / 100.0).round() as u64 * 100;
    if rounded >= 1000 { format!("{},{:03}", rounded / 1000, rounded % 1000) } else { rounded.to_string() }
}
