//! What the memory allows at each ratio of computing to bytes, and where the runs and their operations lie, as SVG.

use super::charts::{LABEL, SIZE, TITLE};
use crate::bench::Report;
use crate::error::CommandError;
use layerlet_core::work::Work;
use plotters::prelude::*;

const ROOF: RGBColor = RGBColor(0x80, 0x80, 0x80);
const RUN: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
const OPERATION: RGBColor = RGBColor(0xd0, 0x7a, 0x2c);

/// A measured point.
struct Point {
    name: String,
    color: RGBColor,
    /// Operations for each byte.
    intensity: f64,
    /// GOP/s.
    speed: f64,
}

impl Point {
    /// None where nothing is multiplied: a logarithmic axis has no place for it.
    fn new(name: String, color: RGBColor, work: &Work, seconds: f64) -> Option<Point> {
        // A multiply-add is two operations.
        let operations = 2.0 * (work.int8_multiply_adds + work.bf16_multiply_adds) as f64;
        (operations > 0.0 && work.bytes > 0 && seconds > 0.0).then(|| Point {
            name,
            color,
            intensity: operations / work.bytes as f64,
            speed: operations / seconds / 1e9,
        })
    }
}

/// Runs and linear operations under the roof of the best read bandwidth; `None` without a bandwidth.
pub fn roofline(title: &str, report: &Report) -> Result<Option<String>, CommandError> {
    let Some(read) = &report.read_bandwidth else {
        return Ok(None);
    };
    let mut svg = String::new();
    draw(&mut svg, title, read.bytes_per_second.max, &points(report))?;
    Ok(Some(svg))
}

fn points(report: &Report) -> Vec<Point> {
    let prefill = report
        .prefill
        .movement
        .as_ref()
        .map(|m| ("prefill".into(), m));
    let decode = report.decode.iter().filter_map(|d| {
        let name = format!("decode, batch {}", d.batch);
        d.movement.as_ref().map(|m| (name, m))
    });
    let runs = prefill.into_iter().chain(decode).filter_map(|(name, m)| {
        let seconds = m.work.bytes as f64 / m.bytes_per_second;
        Point::new(name, RUN, &m.work, seconds)
    });
    let phases = [
        ("prefill", &report.prefill_operations),
        ("decode", &report.decode_operations),
    ];
    let operations = phases.into_iter().flat_map(|(phase, operations)| {
        operations.iter().filter_map(move |o| {
            let name = format!("{} ({phase})", o.name);
            Point::new(name, OPERATION, &o.work, o.seconds)
        })
    });
    runs.chain(operations).collect()
}

/// The decades that hold all of these, at least one.
fn decades(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(0.0, f64::max);
    let power = |value: f64, round: fn(f64) -> f64| 10f64.powf(round(value.log10()));
    match least <= most {
        true => (power(least, f64::floor), power(most * 1.01, f64::ceil)),
        false => (0.1, 1.0),
    }
}

fn draw(
    svg: &mut String,
    title: &str,
    bytes_per_second: f64,
    points: &[Point],
) -> Result<(), CommandError> {
    let (left, right) = decades(points.iter().map(|p| p.intensity));
    let roof = |intensity: f64| (intensity, intensity * bytes_per_second / 1e9);
    let ends = [left, right].map(roof);
    let heights = points.iter().map(|p| p.speed);
    let (bottom, top) = decades(heights.chain(ends.map(|end| end.1)));
    let root = SVGBackend::with_string(svg, (SIZE.0, 520)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, TITLE)
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d((left..right).log_scale(), (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("operations per byte (a multiply-add is two)")
        .y_desc("GOP/s")
        .label_style(LABEL)
        .light_line_style(TRANSPARENT)
        .draw()?;
    let label = format!("read bandwidth, {:.1} GB/s", bytes_per_second / 1e9);
    chart
        .draw_series(LineSeries::new(ends, ROOF.stroke_width(2)))?
        .label(label)
        .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], ROOF.stroke_width(2)));
    for (color, label) in [(RUN, "whole runs"), (OPERATION, "operations")] {
        let own = points.iter().filter(|p| p.color == color);
        let dots = own.map(|p| Circle::new((p.intensity, p.speed), 4, color.filled()));
        chart
            .draw_series(dots)?
            .label(label)
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, color.filled()));
    }
    let names = points.iter().map(|p| {
        let place = EmptyElement::at((p.intensity, p.speed));
        place + Text::new(p.name.clone(), (7, -6), ("sans-serif", 11))
    });
    chart.draw_series(names)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .label_font(LABEL)
        .background_style(WHITE.mix(0.8))
        .border_style(ROOF)
        .draw()?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::decades;

    #[test]
    fn axes_hold_their_values() {
        assert_eq!(decades([0.25, 30.0].into_iter()), (0.1, 100.0));
        assert_eq!(decades([10.0].into_iter()), (10.0, 100.0));
        assert_eq!(decades(std::iter::empty()), (0.1, 1.0));
    }
}
