//! What somebody may have meant by a name that does not exist.
//!
//! Invariants: pure; nothing is proposed that has little to do with what was written.

/// The candidate that is nearest to `name`, if one is near enough to be meant.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let least_alike = 0.7;
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(alike, _)| *alike >= least_alike)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, candidate)| candidate)
}

/// The same as the end of a sentence: `; did you mean ...?`, or nothing.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |candidate| format!("; did you mean `{candidate}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_proposed() {
        let names = ["command", "timeout", "log-limit", "inputs"];
        for (written, expect) in [
            ("comand", Some("command")),
            ("time-out", Some("timeout")),
            ("log_limit", Some("log-limit")),
            ("Inputs", Some("inputs")),
            ("xyz", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, names), expect, "{written}");
        }
        assert_eq!(did_you_mean("input", names), "; did you mean `inputs`?");
    }
}
