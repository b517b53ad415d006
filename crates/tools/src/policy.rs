//! Decides whether a tool is answered with a job or with its outcome: by the file and, above it, by a text such as
//! `simulate=child,*=job` from the environment.
//!
//! Invariants: pure. A name goes before `*`, wherever it stands in the text. A text that cannot be read is an error and not ignored,
//! because a heavy tool would hold the client up unnoticed.

use std::collections::BTreeMap;

use super::Mode;
use unhang_core::wording::did_you_mean;

/// Modes that go before those of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModeOverrides {
    by_name: BTreeMap<String, Mode>,
    rest: Option<Mode>,
}

impl ModeOverrides {
    /// Reads `name=mode` pairs with commas between; an empty text has none.
    ///
    /// # Errors
    /// Fails with a sentence about the pair if one cannot be read, or if a name has two modes.
    pub fn parse(text: &str) -> Result<ModeOverrides, String> {
        let mut overrides = ModeOverrides::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let form = "write `tool=job` or `tool=child`, with `*` for all other tools and commas between the \
                pairs";
            let Some((name, mode)) = pair.split_once('=') else {
                return Err(format!("`{pair}` has no mode; {form}"));
            };
            let mode = match mode.trim() {
                "job" => Mode::Job,
                "child" => Mode::Child,
                other => return Err(format!("`{other}` is not a mode for a command; {form}")),
            };
            let before = match name.trim() {
                "" => return Err(format!("`{pair}` names no tool; {form}")),
                "*" => overrides.rest.replace(mode),
                name => overrides.by_name.insert(name.to_owned(), mode),
            };
            if before.is_some_and(|before| before != mode) {
                return Err(format!("`{}` has two modes", name.trim()));
            }
        }
        Ok(overrides)
    }

    /// Returns the mode of a tool for which the file says `configured`.
    pub fn mode(&self, name: &str, configured: Mode) -> Mode {
        self.by_name.get(name).copied().or(self.rest).unwrap_or(configured)
    }

    /// Returns a sentence about each name that none of these tools has.
    pub fn unknown(&self, tools: &[&str]) -> Vec<String> {
        let unknown = self.by_name.keys().filter(|name| !tools.contains(&name.as_str()));
        unknown
            .map(|name| {
                format!(
                    "there is no tool `{name}` for this mode{}",
                    did_you_mean(name, tools.iter().copied())
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_03_a_name_goes_before_the_star_and_both_before_the_file() {
        let overrides = ModeOverrides::parse(" *=job, simulate = child,").expect("it can be read");
        assert_eq!(overrides.mode("simulate", Mode::Job), Mode::Child);
        assert_eq!(overrides.mode("other", Mode::Child), Mode::Job);
        assert_eq!(ModeOverrides::parse("").expect("nothing").mode("other", Mode::Child), Mode::Child);
        assert_eq!(
            overrides.unknown(&["simulat"]),
            ["there is no tool `simulate` for this mode; did you mean `simulat`?"]
        );
        assert!(overrides.unknown(&["simulate"]).is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for (text, expect) in [
            ("simulate", "has no mode"),
            ("simulate=direct", "`direct` is not a mode"),
            ("=job", "names no tool"),
            ("a=job,a=child", "`a` has two modes"),
        ] {
            let told = ModeOverrides::parse(text).expect_err(text);
            assert!(told.contains(expect), "{told}");
        }
    }
}
