//! What was checked and what came of it: table, JSON, details of mismatches.

use crate::compare::Difference;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fmt;

/// A check that failed.
#[derive(Clone, Debug, Serialize)]
pub struct Mismatch {
    /// Operation, layerlet or `model`.
    pub op: String,
    /// Which of its forms.
    pub variant: String,
    /// Which backend.
    pub backend: String,
    /// Which input.
    pub case: String,
    /// First stage of a fused kernel that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Where the bytes differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// What else went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch {
            op,
            variant,
            backend,
            case,
            ..
        } = self;
        write!(f, "{op} ({variant}) on {backend}, {case}")?;
        if let Some(stage) = &self.stage {
            write!(f, "\n    first stage that differs: {stage}")?;
        }
        if let Some(difference) = &self.difference {
            write!(f, "\n    {difference}")?;
        }
        if let Some(message) = &self.message {
            write!(f, "\n    {}", message.replace('\n', "\n    "))?;
        }
        Ok(())
    }
}

/// One row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Operation, layerlet or `model`.
    pub op: String,
    /// Which of its forms: `kernel`, `fused`, `pinned`, ...
    pub variant: String,
    /// Which backend.
    pub backend: String,
    /// How many inputs.
    pub cases: usize,
    /// How many of them failed.
    pub mismatches: usize,
}

/// Everything that a run of golden has to say.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// In order of checking.
    pub rows: Vec<Row>,
    /// In the same order.
    pub mismatches: Vec<Mismatch>,
    /// Fixtures that had no pin until now.
    pub new_pins: Vec<String>,
    /// Pins whose fixtures are gone; looked for in complete runs only.
    pub stale_pins: Vec<String>,
    /// Settings of the backends that there is code for but no processor here: this run says nothing
    /// of them.
    pub unproved: Vec<String>,
    /// Seconds.
    pub seconds: f64,
}

impl Report {
    /// Counts one input of one variant.
    pub fn count(&mut self, op: &str, variant: &str, backend: &str, found: Option<Mismatch>) {
        let failed = usize::from(found.is_some());
        self.mismatches.extend(found);
        self.add(Row {
            op: op.into(),
            variant: variant.into(),
            backend: backend.into(),
            cases: 1,
            mismatches: failed,
        });
    }

    /// Adds a row's counts to those of the same name.
    pub fn add(&mut self, row: Row) {
        let same =
            |r: &&mut Row| (&r.op, &r.variant, &r.backend) == (&row.op, &row.variant, &row.backend);
        match self.rows.iter_mut().find(same) {
            Some(known) => {
                known.cases += row.cases;
                known.mismatches += row.mismatches;
            }
            None => self.rows.push(row),
        }
    }

    /// Joins another report.
    pub fn merge(&mut self, other: Report) {
        other.rows.into_iter().for_each(|row| self.add(row));
        self.mismatches.extend(other.mismatches);
        self.new_pins.extend(other.new_pins);
        self.stale_pins.extend(other.stale_pins);
        self.unproved.extend(other.unproved);
    }

    /// All inputs of all variants.
    pub fn cases(&self) -> usize {
        self.rows.iter().map(|r| r.cases).sum()
    }

    /// The rows as a table.
    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header([
            "op",
            "variant",
            "backend",
            "cases",
            "mismatches",
        ]);
        for row in &self.rows {
            table.add_row([
                row.op.clone(),
                row.variant.clone(),
                row.backend.clone(),
                row.cases.to_string(),
                row.mismatches.to_string(),
            ]);
        }
        for column in table.column_iter_mut().skip(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}
