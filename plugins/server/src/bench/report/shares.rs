//! Where the time goes: one bar an operation, as SVG.

use super::charts::{LABEL, SIZE, TITLE};
use crate::error::CommandError;
use layerlet_engine::bench::OperationTime;
use plotters::prelude::*;

const BAR: RGBColor = RGBColor(0x5b, 0x8d, 0xbf);

/// The longest first, from top to bottom.
pub fn shares(title: &str, operations: &[OperationTime]) -> Result<String, CommandError> {
    let mut svg = String::new();
    draw(&mut svg, title, operations)?;
    Ok(svg)
}

fn draw(svg: &mut String, title: &str, operations: &[OperationTime]) -> Result<(), CommandError> {
    let rows = operations.len();
    let height = SIZE.1.max(120 + 24 * rows as u32);
    let root = SVGBackend::with_string(svg, (SIZE.0, height)).into_drawing_area();
    root.fill(&WHITE)?;
    // Row 0 is the highest: the axis counts from the bottom.
    let operation = |row: usize| rows.checked_sub(row + 1).map(|n| &operations[n]);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, TITLE)
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(170)
        .build_cartesian_2d(0.0..110.0, (0..rows).into_segmented())?;
    let name = |row: &SegmentValue<usize>| match row {
        SegmentValue::CenterOf(row) => operation(*row).map_or(String::new(), |o| o.name.clone()),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("share of the time, %")
        .y_labels(rows + 1)
        .y_label_formatter(&name)
        .label_style(LABEL)
        .draw()?;
    let bars = (0..rows).filter_map(|row| Some((row, operation(row)?)));
    chart.draw_series(bars.clone().map(|(row, operation)| {
        let ends = [
            (0.0, SegmentValue::Exact(row)),
            (operation.share * 100.0, SegmentValue::Exact(row + 1)),
        ];
        let mut bar = Rectangle::new(ends, BAR.filled());
        bar.set_margin(3, 3, 0, 0);
        bar
    }))?;
    chart.draw_series(bars.map(|(row, operation)| {
        let share = operation.share * 100.0;
        let at = (share + 1.0, SegmentValue::CenterOf(row));
        Text::new(format!("{share:.1}"), at, LABEL)
    }))?;
    root.present()?;
    Ok(())
}
