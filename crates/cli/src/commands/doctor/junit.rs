//! The report as JUnit's XML, which every CI shows: a suite for each server, a case for each check.
//!
//! Invariants: well-formed XML 1.0, whatever a server has written. Characters that XML does not allow are left out, the rest is escaped.

use std::fmt::Write;

use unhang::doctor::{CHECKS, Check, DoctorReport, Finding, Severity, UncheckedReason};

/// Makes the whole document.
pub(super) fn document(reports: &[DoctorReport]) -> String {
    let mut xml =
        String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"unhang doctor\">\n");
    reports.iter().for_each(|report| suite(&mut xml, report));
    xml.push_str("</testsuites>\n");
    xml
}

fn suite(xml: &mut String, report: &DoctorReport) {
    let server = escaped(&report.server);
    let failures = report.findings.iter().filter(|finding| finding.check.severity != Severity::Note).count();
    let (tests, skipped, seconds) = (CHECKS.len(), report.unchecked.len(), report.took.as_secs_f64());
    let _infallible = writeln!(
        xml,
        "  <testsuite name=\"{server}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"{seconds:.3}\">"
    );
    for check in CHECKS {
        let found = report.findings.iter().find(|finding| finding.check.id == check.id);
        let unchecked = report.unchecked.iter().find(|unchecked| unchecked.check.id == check.id);
        case(xml, &server, check, found, unchecked.map(|unchecked| unchecked.reason));
    }
    xml.push_str("  </testsuite>\n");
}

fn case(
    xml: &mut String,
    server: &str,
    check: &Check,
    found: Option<&Finding>,
    unchecked: Option<UncheckedReason>,
) {
    let _infallible = write!(xml, "    <testcase classname=\"{server}\" name=\"{}\"", check.id);
    let inside = match found {
        Some(finding) if check.severity == Severity::Note => {
            format!("<system-out>{}</system-out>", escaped(&finding.evidence))
        }
        Some(finding) => format!(
            "<failure type=\"{}\" message=\"{}\">{}</failure>",
            check.severity.word(),
            escaped(&finding.evidence),
            escaped(&format!("{}. To do: {}.", check.means, finding.remedy))
        ),
        None => match unchecked {
            Some(reason) => format!("<skipped message=\"{}\"/>", reason.words()),
            None => {
                xml.push_str("/>\n");
                return;
            }
        },
    };
    let _infallible = writeln!(xml, ">{inside}</testcase>");
}

/// Escapes text for XML, in an attribute as well.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // An attribute would lose its line breaks.
            '\n' | '\t' => escaped.push(' '),
            // XML 1.0 does not allow these, not even as a reference.
            '\u{fffe}' | '\u{ffff}' => {}
            character if character.is_control() => {}
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_have_is_left_out_and_the_rest_is_escaped() {
        assert_eq!(
            escaped("a<b> & \"c\" 'd'\u{1b}[1m\0\u{fffe}\nö"),
            "a&lt;b&gt; &amp; &quot;c&quot; &apos;d&apos;[1m ö"
        );
    }

    #[test]
    fn a_server_is_a_suite_and_each_check_a_case() {
        let report = DoctorReport::untried("a \"b\"", "no such file: <x>".to_owned());
        let xml = document(&[report]);
        assert_eq!(xml.matches("<testcase ").count(), CHECKS.len());
        assert!(xml.contains("<testsuite name=\"a &quot;b&quot;\""), "{xml}");
        assert!(xml.contains("<failure type=\"error\" message=\"no such file: &lt;x&gt;\">"), "{xml}");
        assert_eq!(xml.matches("failures=\"1\"").count(), 1, "{xml}");
        let skipped = xml.matches("<skipped message=\"not checked: the server could not be started").count();
        assert_eq!(
            skipped,
            CHECKS.len() - 2,
            "only that it cannot start was found out, and that in time: {xml}"
        );
        assert!(xml.contains(&format!("skipped=\"{skipped}\"")), "{xml}");
    }
}
