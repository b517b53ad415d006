//! `unhang demo`: the eight promises, live, on bundled servers that misbehave.
//!
//! Each row is run twice at the same time, over a bare connection and through unhang, with the same client and the same patience. The table
//! says what happened, never what should have happened.
//!
//! Invariants: each server in a row runs under a lifeline of its own, bare connections included, so the demonstration leaves nothing
//! behind. Every process carries the demonstration's mark, so that a signal which ends the command finds them and their folders.

mod durable;
mod home;
mod peer;
mod promises;
mod slow;

use std::{process::ExitCode, time::Duration};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;
use tokio::runtime;
use unhang::{exit, units::in_words};
use unhang_terminal::{failure::CommandFailure, output};

use crate::{arguments::Demo, signals::signals};

/// The time that the demonstration's client waits for anything before it calls it a hang.
const PATIENCE: Duration = Duration::from_secs(3);

/// The outcome of one half of a row.
#[derive(Debug, Serialize)]
struct HalfResult {
    text: String,
    /// Whether the promise held.
    held: bool,
}

impl HalfResult {
    fn held(text: impl Into<String>) -> HalfResult {
        HalfResult { text: text.into(), held: true }
    }

    fn broken(text: impl Into<String>) -> HalfResult {
        HalfResult { text: text.into(), held: false }
    }
}

/// One row of the table.
#[derive(Debug, Serialize)]
struct DemoRow {
    promise: &'static str,
    server: &'static str,
    bare: HalfResult,
    unhang: HalfResult,
}

/// Runs every act and prints the table. Exit 0 if every promise was kept behind unhang.
pub(crate) fn run(demo: &Demo) -> ExitCode {
    if !cfg!(target_os = "linux") {
        output::error(
            "`unhang demo` reads the processes in /proc, which only Linux has; try `unhang doctor`",
            None,
        );
        return ExitCode::from(exit::USAGE);
    }
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(&format!("no runtime: {error}"), None);
            return ExitCode::from(exit::BUG);
        }
    };
    let start = tokio::time::Instant::now();
    let acted = runtime.block_on(async {
        let mut stops = match signals() {
            Ok(stops) => stops,
            Err(error) => {
                return Err(CommandFailure::system("signals cannot be waited for", &error).print(None));
            }
        };
        let stop = tokio::select! {
            rows = promises::all() => return Ok(rows),
            Some(stop) = stops.recv() => stop,
        };
        // The acts are dropped, with their ends of all connections.
        home::clear().await;
        Err(ExitCode::from(stop.exit_code()))
    });
    let rows = match acted {
        Ok(rows) => rows,
        Err(code) => return code,
    };
    let kept = rows.iter().all(|row| row.unhang.held);
    let text = if demo.output == "json" {
        serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n"
    } else {
        let verdict =
            if kept { "Every promise was kept." } else { "A promise was BROKEN; please report this." };
        format!("{}\n\n{verdict} ({} in all)\n", table(&rows), in_words(start.elapsed()))
    };
    let printed = output::data(&text);
    if kept { printed } else { ExitCode::from(exit::FAILED) }
}

/// The widths of the columns, which add up to 80 with their borders.
const WIDTHS: [u16; 4] = [14, 19, 21, 21];

fn table(rows: &[DemoRow]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(80)
        .set_header(["promise", "the server", "a bare connection", "behind unhang"]);
    for row in rows {
        table.add_row([row.promise, row.server, &row.bare.text, &row.unhang.text]);
    }
    for (column, width) in table.column_iter_mut().zip(WIDTHS) {
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
    }
    table
}
