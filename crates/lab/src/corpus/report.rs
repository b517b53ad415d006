//! The score of a run of the corpus: the same for a person and as JSON.

use std::{fmt::Write, time::Duration};

use comfy_table::{ContentArrangement, LineStyle, Table, presets};
use serde_json::json;
use unhang::units::in_words;
use unhang_zoo::corpus::{Case, CaseVerdict, Contender, PROMISES};

/// The contenders of a run without a wrapper, whose verdicts are known beforehand.
pub(super) const BARE: &str = "no wrapper";
pub(super) const PUMP: &str = "naive pump";
pub(super) const GUARD: &str = "unhang wrap";

/// A case and its verdicts, one for each contender.
pub(super) struct CaseRow {
    pub(super) promise: u8,
    pub(super) case: &'static Case,
    pub(super) verdicts: Vec<CaseVerdict>,
}

/// The result of a run.
pub(super) struct CorpusReport {
    pub(super) contenders: Vec<Contender>,
    pub(super) rows: Vec<CaseRow>,
    pub(super) timeout: Duration,
}

/// Returns whether this contender ought to keep this case, or `None` if that is not known.
fn ought(contender: &Contender, case: &Case) -> Option<bool> {
    match contender.name.as_str() {
        BARE => Some(case.ought.bare),
        PUMP => Some(case.ought.pump),
        GUARD => Some(true),
        _ => None,
    }
}

fn is_kept(verdict: &CaseVerdict) -> bool {
    *verdict == CaseVerdict::Kept
}

/// Returns the reason why a case was not kept, or `None` if it was.
fn reason(verdict: &CaseVerdict) -> Option<String> {
    match verdict {
        CaseVerdict::Kept => None,
        CaseVerdict::Broken(reason) => Some(reason.clone()),
        CaseVerdict::FailedToRun(reason) => Some(format!("could not be run: {reason}")),
    }
}

impl CorpusReport {
    /// Lists the verdicts that differ from those that are known, each as `contender, case: verdict`.
    pub(super) fn surprises(&self) -> Vec<String> {
        let verdicts = self.rows.iter().flat_map(|row| {
            let verdicts = self.contenders.iter().zip(&row.verdicts);
            verdicts.map(move |(contender, verdict)| (contender, row.case, verdict))
        });
        let differs = |(contender, case, verdict): &(&Contender, &Case, &CaseVerdict)| {
            let failed = matches!(verdict, CaseVerdict::FailedToRun(_));
            failed || ought(contender, case).is_some_and(|ought| ought != is_kept(verdict))
        };
        verdicts
            .filter(differs)
            .map(|(contender, case, verdict)| {
                let what = reason(verdict).unwrap_or_else(|| "kept, but a break was expected".to_owned());
                format!("{}, {}: {what}", contender.name, case.name)
            })
            .collect()
    }

    /// Counts the cases, of one promise or of all, that this contender has kept, and all of these cases.
    fn score(&self, contender: usize, promise: Option<u8>) -> (usize, usize) {
        let rows = self.rows.iter().filter(|row| promise.is_none_or(|promise| row.promise == promise));
        rows.fold((0, 0), |(kept, all), row| (kept + usize::from(is_kept(&row.verdicts[contender])), all + 1))
    }

    /// Returns the report as tables: each case, then the score.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\n{}\n\n", self.cases(), self.scores());
        if let [_] = self.contenders.as_slice() {
            let command = self.contenders[0].command.join(" ");
            let _infallible = writeln!(text, "The wrapper is `{command}`.");
        } else {
            let surprises = self.surprises();
            if !surprises.is_empty() {
                let _infallible = writeln!(text, "Not as expected:\n  {}\n", surprises.join("\n  "));
            }
        }
        let summary: Vec<_> = self
            .contenders
            .iter()
            .enumerate()
            .map(|(index, contender)| {
                let (kept, all) = self.score(index, None);
                format!("{} {kept} of {all}", contender.name)
            })
            .collect();
        let timeout = in_words(self.timeout);
        let _infallible = writeln!(text, "{} (patience {timeout})", summary.join(", "));
        text
    }

    /// Makes a row for each case: with one contender its reason, with several only whether it was kept.
    fn cases(&self) -> Table {
        let mut table = table();
        let is_alone = self.contenders.len() == 1;
        table.set_header(["", "case"].into_iter().chain(self.contenders.iter().map(|one| one.name.as_str())));
        let mut last = None;
        for row in &self.rows {
            let cell = |verdict: &CaseVerdict| match verdict {
                CaseVerdict::Kept => "kept".to_owned(),
                verdict if is_alone => format!("BROKEN: {}", reason(verdict).unwrap_or_default()),
                CaseVerdict::Broken(_) => "broken".to_owned(),
                CaseVerdict::FailedToRun(_) => "?".to_owned(),
            };
            let promise = if last.replace(row.promise) == Some(row.promise) {
                String::new()
            } else {
                row.promise.to_string()
            };
            let start = [promise, row.case.name.to_owned()];
            table.add_row(start.into_iter().chain(row.verdicts.iter().map(cell)));
        }
        table
    }

    fn scores(&self) -> Table {
        let mut table = table();
        table.set_header(["promise"].into_iter().chain(self.contenders.iter().map(|one| one.name.as_str())));
        let mut add = |title: String, promise: Option<u8>| {
            let scores = (0..self.contenders.len()).map(|index| self.score(index, promise));
            let cells = scores.map(|(kept, all)| format!("{kept} of {all}"));
            table.add_row(std::iter::once(title).chain(cells));
        };
        for (promise, name) in PROMISES {
            if self.rows.iter().any(|row| row.promise == promise) {
                add(format!("{promise} {name}"), Some(promise));
            }
        }
        add("all".to_owned(), None);
        table
    }

    /// Returns the report as JSON, with the reason of each verdict.
    pub(super) fn json(&self) -> String {
        let word = |verdict: &CaseVerdict| match verdict {
            CaseVerdict::Kept => "kept",
            CaseVerdict::Broken(_) => "broken",
            CaseVerdict::FailedToRun(_) => "failed_to_run",
        };
        let cases: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                let verdicts: Vec<_> = self
                    .contenders
                    .iter()
                    .zip(&row.verdicts)
                    .map(|(contender, verdict)| {
                        json!({"contender": contender.name, "verdict": word(verdict), "reason": reason(verdict),
                            "ought_to_be_kept": ought(contender, row.case)})
                    })
                    .collect();
                json!({"name": row.case.name, "promise": row.promise, "demands": row.case.demands, "verdicts": verdicts})
            })
            .collect();
        let contenders: Vec<_> = self
            .contenders
            .iter()
            .enumerate()
            .map(|(index, contender)| {
                let (kept, all) = self.score(index, None);
                json!({"name": contender.name, "command": contender.command, "kept": kept, "cases": all})
            })
            .collect();
        let timeout = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        format!("{:#}\n", json!({"patience_ms": timeout, "contenders": contenders, "cases": cases}))
    }
}

/// Makes the table of `--list`: each case with its promise and its demand. It also shows which of the two contenders that do nothing for a
/// case keeps it.
pub(super) fn list(cases: &[(u8, &'static Case)]) -> String {
    let mut table = table();
    table.set_header(["", "case", "demands", "kept by"]);
    for (promise, case) in cases {
        let contenders = match (case.ought.bare, case.ought.pump) {
            (true, true) => "both",
            (true, false) => BARE,
            (false, true) => PUMP,
            (false, false) => "neither",
        };
        table.add_row([&promise.to_string(), case.name, case.demands, contenders]);
    }
    format!("{table}\n\nKept by: which of `{BARE}` and `{PUMP}` keeps it, doing nothing for it.\n")
}

/// Makes an empty table. It has no lines between the rows, because there are many, and each is short.
fn table() -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(80);
    table
}

#[cfg(test)]
mod tests {
    use unhang_zoo::corpus;

    use super::*;

    fn report(name: &str, choose: impl Fn(&Case) -> CaseVerdict) -> CorpusReport {
        let contenders = vec![Contender { name: name.to_owned(), command: vec!["pump".to_owned()] }];
        let rows =
            corpus::cases().map(|(promise, case)| CaseRow { promise, case, verdicts: vec![choose(case)] });
        CorpusReport { contenders, rows: rows.collect(), timeout: corpus::PATIENCE }
    }

    #[test]
    fn a_contender_that_does_as_it_ought_to_is_no_surprise() {
        let as_it_ought =
            |keeps: bool| if keeps { CaseVerdict::Kept } else { CaseVerdict::Broken("x".to_owned()) };
        assert!(report(PUMP, |case| as_it_ought(case.ought.pump)).surprises().is_empty());
        assert!(report(BARE, |case| as_it_ought(case.ought.bare)).surprises().is_empty());
        assert!(report(GUARD, |_| CaseVerdict::Kept).surprises().is_empty());
    }

    #[test]
    fn whatever_differs_from_what_is_known_is_a_surprise() {
        let count = corpus::cases().count();
        let breakable = corpus::cases().filter(|(_, case)| !case.ought.bare).count();
        assert_eq!(report(BARE, |_| CaseVerdict::Kept).surprises().len(), breakable);
        assert_eq!(report(GUARD, |_| CaseVerdict::Broken("x".to_owned())).surprises().len(), count);
        assert_eq!(report(GUARD, |_| CaseVerdict::FailedToRun("x".to_owned())).surprises().len(), count);
        // A case that says nothing is not as it ought to be for anybody.
        let failed = report("the wrapper", |_| CaseVerdict::FailedToRun("x".to_owned()));
        assert_eq!(failed.surprises().len(), count);
        assert!(report("the wrapper", |_| CaseVerdict::Broken("x".to_owned())).surprises().is_empty());
    }

    #[test]
    fn the_score_counts_what_was_kept_of_each_promise_and_of_all() {
        let report = report("the wrapper", |case| match case.name {
            "honest-call" => CaseVerdict::Kept,
            _ => CaseVerdict::Broken("no answer in 5s".to_owned()),
        });
        let first = corpus::cases().filter(|(promise, _)| *promise == 1).count();
        assert_eq!(report.score(0, Some(1)), (1, first));
        assert_eq!(report.score(0, None), (1, corpus::cases().count()));
    }

    #[test]
    fn the_page_has_every_case_as_it_is() {
        let page = include_str!("../../../../docs/reference/score.md");
        for (_, Case { name, demands, .. }) in corpus::cases() {
            assert!(
                page.contains(&format!("| `{name}` | {demands} |")),
                "docs/reference/score.md lacks {name}"
            );
        }
    }

    #[test]
    fn it_fits_into_80_columns() {
        let alone = report("the wrapper", |_| {
            CaseVerdict::Broken("a reason that has rather many words in it".repeat(3))
        });
        for line in alone.cases().lines().chain(alone.scores().lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let all: Vec<_> = corpus::cases().collect();
        assert!(list(&all).lines().all(|line| line.chars().count() <= 80));
    }
}
