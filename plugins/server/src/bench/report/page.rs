//! The page: what was measured, charts, numbers. One file without scripts.

use super::{charts, roofline, shares};
use crate::bench::Report;
use crate::error::CommandError;
use crate::format;

const STYLE: &str = "\
body{font:16px/1.5 sans-serif;max-width:820px;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
figure{margin:2rem 0}figcaption{color:#555}svg{max-width:100%;height:auto}\
table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #ccc;padding:.2rem .7rem;text-align:right}\
td:first-child,th:first-child{text-align:left}";

/// The whole page.
pub fn page(model: &str, report: &Report) -> Result<String, CommandError> {
    let title = escaped(&format!("layerlet bench: {model}"));
    let body = [
        format!("<h1>{title}</h1>"),
        machine(report),
        speeds(report),
        figures(report)?,
    ];
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{}\n</body>\n</html>\n",
        body.join("\n")
    ))
}

fn machine(report: &Report) -> String {
    let device = &report.device;
    let kernels = match report.fused {
        true => "fused kernels",
        false => "one operation at a time",
    };
    let mut lines = vec![
        format!(
            "Backend {} on {} ({}), {} threads, {kernels}.",
            device.backend,
            device.device,
            device.features.join(" "),
            report.threads
        ),
        format!(
            "Medians of {} repeats, seed {}. Weights {}, state {}.",
            report.settings.repeats,
            report.settings.seed,
            format::bytes(report.memory.weights),
            format::bytes(report.memory.state)
        ),
    ];
    lines.extend(
        report
            .memory
            .peak_resident
            .map(|n| format!("Peak resident memory {}.", format::bytes(n))),
    );
    lines.extend(report.read_bandwidth.as_ref().map(|read| {
        let best = read.bytes_per_second.max / 1e9;
        let buffer = format::bytes(read.buffer_bytes);
        format!("Read bandwidth in the same run: {best:.1} GB/s over {buffer}.")
    }));
    let lines = lines.iter().map(|l| escaped(l));
    format!("<p>{}</p>", lines.collect::<Vec<_>>().join("<br>\n"))
}

fn speeds(report: &Report) -> String {
    let table = crate::bench::tables::speed_rows(report);
    let cells = |tag: &str, row: &[String]| {
        let cells = row.iter().map(|c| format!("<{tag}>{}</{tag}>", escaped(c)));
        format!("<tr>{}</tr>", cells.collect::<String>())
    };
    let header = crate::bench::tables::SPEEDS.map(String::from);
    let rows = table.iter().map(|row| cells("td", row));
    let rows = rows.collect::<Vec<_>>().join("\n");
    format!("<table>\n{}\n{rows}\n</table>", cells("th", &header))
}

fn figures(report: &Report) -> Result<String, CommandError> {
    let first = report.decode.iter().filter(|d| d.batch == 1);
    let contexts = charts::over(first.chain(&report.contexts), |d| d.context);
    let context = report.settings.context;
    let mut figures = vec![figure(
        charts::throughput(
            &format!("Decode over batch, after {context} tokens each"),
            "sequences decoded together",
            &charts::over(&report.decode, |d| d.batch),
        )?,
        "Median of the repeats; the bars reach from the lowest to the highest.",
    )];
    if !contexts.is_empty() {
        figures.push(figure(
            charts::throughput(
                "Decode over context, one sequence",
                "tokens before the first decoded one",
                &contexts,
            )?,
            "Median of the repeats; the bars reach from the lowest to the highest.",
        ));
    }
    let batch = report.settings.batches.first().copied().unwrap_or(1);
    let decode = format!("A decode step by operation, batch {batch}");
    let prefill = format!("Prefill of {} tokens by operation", report.settings.prompt);
    for (title, operations) in [
        (decode, &report.decode_operations),
        (prefill, &report.prefill_operations),
    ] {
        figures.push(figure(
            shares::shares(&title, operations)?,
            "Launches of one name together, each timed on its own.",
        ));
    }
    if let Some(svg) = roofline::roofline("Roofline", report)? {
        figures.push(figure(
            svg,
            "The line is what the memory delivers at best. Only multiply-adds of linear layers count as \
             operations; what lies above the line is served by caches. The peak of the arithmetic units is not \
             measured, so there is no second roof.",
        ));
    }
    Ok(figures.join("\n"))
}

fn figure(svg: String, caption: &str) -> String {
    let caption = escaped(caption);
    format!("<figure>\n{svg}\n<figcaption>{caption}</figcaption>\n</figure>")
}

/// Text that cannot become markup.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '&' => "&amp;".to_string(),
        '<' => "&lt;".to_string(),
        '>' => "&gt;".to_string(),
        '"' => "&quot;".to_string(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn names_cannot_become_markup() {
        assert_eq!(escaped("<b>\"a\" & b"), "&lt;b&gt;&quot;a&quot; &amp; b");
    }
}
