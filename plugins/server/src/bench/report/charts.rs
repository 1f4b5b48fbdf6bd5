//! Tokens per second over something, as SVG.

use crate::error::CommandError;
use layerlet_engine::bench::{Decode, Summary};
use plotters::prelude::*;

/// Width and height of every chart.
pub const SIZE: (u32, u32) = (760, 420);

pub const TITLE: (&str, i32) = ("sans-serif", 20);
pub const LABEL: (&str, i32) = ("sans-serif", 14);

const MEDIAN: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);

/// Medians joined by a line, each with a bar from the lowest to the highest repeat.
pub fn throughput(
    title: &str,
    axis: &str,
    points: &[(usize, &Summary)],
) -> Result<String, CommandError> {
    let mut svg = String::new();
    draw(&mut svg, title, axis, points)?;
    Ok(svg)
}

/// Decoded tokens over `x` of each entry.
pub fn over<'a>(
    decode: impl IntoIterator<Item = &'a Decode>,
    x: impl Fn(&Decode) -> usize,
) -> Vec<(usize, &'a Summary)> {
    let points = decode.into_iter().map(|d| (x(d), &d.tokens_per_second));
    let mut points: Vec<_> = points.collect();
    points.sort_by_key(|(x, _)| *x);
    points
}

fn draw(
    svg: &mut String,
    title: &str,
    axis: &str,
    points: &[(usize, &Summary)],
) -> Result<(), CommandError> {
    let right = points.iter().map(|(x, _)| *x).max().unwrap_or(0).max(1) as f64;
    let top = points.iter().map(|(_, s)| s.max).fold(0.0, f64::max);
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, TITLE)
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..right * 1.05, 0.0..top * 1.1)?;
    chart
        .configure_mesh()
        .x_desc(axis)
        .y_desc("tokens/s, all sequences together")
        .label_style(LABEL)
        .light_line_style(TRANSPARENT)
        .draw()?;
    let medians = points.iter().map(|(x, s)| (*x as f64, s.median));
    chart.draw_series(LineSeries::new(medians.clone(), MEDIAN.stroke_width(2)))?;
    chart.draw_series(points.iter().map(|(x, s)| {
        ErrorBar::new_vertical(*x as f64, s.min, s.median, s.max, MEDIAN.filled(), 8)
    }))?;
    chart.draw_series(medians.map(|at| Text::new(format!("{:.1}", at.1), at, LABEL)))?;
    root.present()?;
    Ok(())
}
