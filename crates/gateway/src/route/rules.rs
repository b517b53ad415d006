//! Rules of the configuration about the tools of a server: which are offered, and what replaces the server's own words about single ones.
//!
//! Invariants
//!
//! - Pure. A rule knows a tool by the name that its server gave it, whatever clients call it.
//! - A tool that is not offered is not in any list, and so cannot be asked for.
//! - An item stays as the server wrote it, byte for byte, but for a description that is replaced.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use glob::Pattern;
use serde_json::{Value, value::RawValue};
use unhang_bridge::Splice;
use unhang_wire::Json;

use unhang_core::{promotion::Promotion, wording::did_you_mean};

/// A pattern for whole names: `*` stands for any letters, `?` for one, `[a-z]` for one of these and `[!a-z]` for any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Pattern);

/// Why a text is not a [`Glob`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a pattern: {reason} at its character {character}")]
pub struct NoGlob {
    /// The text.
    pub pattern: String,
    /// What is wrong.
    pub reason: &'static str,
    /// The character at which it is wrong, counted from 1.
    pub character: usize,
}

/// The rules for the tools of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// The tools that are offered; all if this is `None`.
    pub allow: Option<Vec<Glob>>,
    /// The tools that are not offered, whatever `allow` says.
    pub deny: Vec<Glob>,
    /// The rules for single tools.
    pub tools: BTreeMap<String, ToolRule>,
}

/// The rule for one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRule {
    /// The tool's description for clients.
    pub description: Option<String>,
    /// The timeout of a call.
    pub call_timeout: Option<Duration>,
    /// The time at which a call becomes a job.
    pub promote_after: Option<Promotion>,
    /// The timeout of a call that has become a job.
    pub job_timeout: Option<Duration>,
    /// Whether a call joins the job that the same call has become.
    pub join_same_call: Option<bool>,
    /// The most calls at the same time, of all clients together.
    pub max_in_flight: Option<usize>,
}

impl Glob {
    /// Returns whether the pattern stands for this name.
    #[must_use]
    pub fn fits(&self, name: &str) -> bool {
        self.0.matches(name)
    }
}

impl FromStr for Glob {
    type Err = NoGlob;

    fn from_str(pattern: &str) -> Result<Self, NoGlob> {
        Pattern::new(pattern).map(Glob).map_err(|error| NoGlob {
            pattern: pattern.to_owned(),
            reason: error.msg,
            character: error.pos + 1,
        })
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_str())
    }
}

impl ToolRules {
    /// Returns whether the tool of this name is offered.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        let fits = |globs: &[Glob]| globs.iter().any(|glob| glob.fits(name));
        self.allow.as_deref().is_none_or(fits) && !fits(&self.deny)
    }

    /// Returns the items that clients are offered, out of those that the server lists.
    #[must_use]
    pub fn offered(&self, listed: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
        listed.into_iter().filter_map(|item| self.offered_item(item)).collect()
    }

    fn offered_item(&self, item: Box<RawValue>) -> Option<Box<RawValue>> {
        // An item without a name cannot be asked for, and is for others to judge.
        let Some(name) = name(&item) else { return Some(item) };
        if !self.allows(&name) {
            return None;
        }
        let Some(description) = self.tools.get(&name).and_then(|rule| rule.description.as_deref()) else {
            return Some(item);
        };
        let description = Value::from(description).to_string();
        let changed = Json::new(item.get().as_bytes())
            .and_then(|item| Some(Splice::new(item).set("description", description).apply()?.into_owned()));
        // An item with a name is an object, and stays JSON.
        Some(changed.and_then(|text| RawValue::from_string(text).ok()).unwrap_or(item))
    }

    /// Returns the rules for tools that the server does not list, mostly slips of the pen: where each rule stands, and why it has no
    /// effect.
    #[must_use]
    pub fn without_effect(&self, listed: &[Box<RawValue>]) -> Vec<(String, String)> {
        let names: Vec<String> = listed.iter().filter_map(|item| name(item)).collect();
        let globs = |key, globs: &[Glob]| {
            let idle = globs.iter().filter(|glob| !names.iter().any(|name| glob.fits(name)));
            let told = idle
                .map(|glob| (format!("`{glob}` in `{key}`"), "it matches no tool of the server".to_owned()));
            told.collect::<Vec<_>>()
        };
        let mut told = globs("allow", self.allow.as_deref().unwrap_or_default());
        told.extend(globs("deny", &self.deny));
        told.extend(self.tools.keys().filter(|tool| !names.contains(tool)).map(|tool| {
            let meant = did_you_mean(tool, names.iter().map(String::as_str));
            (format!("`{tool}` in `tools`"), format!("the server has no such tool{meant}"))
        }));
        told
    }
}

/// Returns the server's name for a tool, or `None` if the item has none.
fn name(item: &RawValue) -> Option<String> {
    Some(Json::new(item.get().as_bytes())?.member("name")?.text()?.into_owned())
}

#[cfg(test)]
mod tests {
    use unhang_bridge::Era;

    use super::*;
    use crate::route::{
        catalog::{Catalog, CatalogSource, ListedItems},
        names::Style,
    };
    use unhang_upstream::client::ServerList;

    fn globs(texts: &[&str]) -> Vec<Glob> {
        texts.iter().map(|text| text.parse().expect("a pattern")).collect()
    }

    fn raw(items: &[&str]) -> Vec<Box<RawValue>> {
        items.iter().map(|item| RawValue::from_string((*item).to_owned()).expect("JSON")).collect()
    }

    fn texts(items: &[Box<RawValue>]) -> Vec<&str> {
        items.iter().map(|item| item.get()).collect()
    }

    #[test]
    fn deny_wins_and_without_allow_all_are_allowed() {
        let rules = |allow: Option<&[&str]>, deny: &[&str]| ToolRules {
            allow: allow.map(globs),
            deny: globs(deny),
            ..ToolRules::default()
        };
        for (allow, deny, allowed, denied) in [
            (None, &[][..], &["a", "", "a/b c"][..], &[][..]),
            (Some(&["read_*"][..]), &[], &["read_", "read_a/b"], &["read", "Read_a", "xread_a"]),
            (Some(&["read_*", "list"]), &["*_secret"], &["read_a", "list"], &["read_secret", "write"]),
            (None, &["delete_?", "[a-c]*"], &["delete_ab", "d", "Ab"], &["delete_a", "b", "cx"]),
            (None, &["[!a]"], &["a", "ab"], &["b"]),
            (Some(&[]), &[], &[], &["a", ""]),
            (Some(&["**"]), &[], &["a", "a/b"], &[]),
            (Some(&["a[*]"]), &[], &["a*"], &["ab", "a"]),
        ] {
            let rules = rules(allow, deny);
            for (names, expect) in [(allowed, true), (denied, false)] {
                for name in names {
                    assert_eq!(rules.allows(name), expect, "{name}: {allow:?} {deny:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_pattern_is_told_with_its_place() {
        for (text, character) in [("a[", 2), ("x***", 4), ("a**b", 1)] {
            let error = text.parse::<Glob>().expect_err(text);
            let told = error.to_string();
            assert!(told.starts_with(&format!("`{text}` is not a pattern: ")), "{told}");
            assert_eq!(error.character, character, "{told}");
        }
    }

    #[test]
    fn a_tool_that_is_not_allowed_is_not_there_and_the_others_are_as_they_were() {
        let rule = ToolRule { description: Some("Ours, \"quoted\"".to_owned()), ..ToolRule::default() };
        let rules = ToolRules {
            deny: globs(&["delete_*"]),
            tools: ["a", "b", "delete_a"].map(|name| (name.to_owned(), rule.clone())).into(),
            ..ToolRules::default()
        };
        let listed = raw(&[
            "{ \"name\" : \"a\",  \"description\":\"theirs\" , \"x\" : 1.0e0 }",
            r#"{"name":"delete_a","description":"theirs"}"#,
            r#"{"name":"\u0064elete_b"}"#,
            r#"{"name":"b"}"#,
            "{ \"name\":\"c\" }",
            "5",
        ]);
        let tools = rules.offered(listed);
        let expect = [
            "{ \"name\" : \"a\",  \"description\":\"Ours, \\\"quoted\\\"\" , \"x\" : 1.0e0 }",
            r#"{"name":"b","description":"Ours, \"quoted\""}"#,
            "{ \"name\":\"c\" }",
            "5",
        ];
        assert_eq!(texts(&tools), expect);
        let offered = ListedItems { tools, ..ListedItems::default() };
        let source =
            CatalogSource { server_index: 0, name: "s", prefix: "", offered: &offered, is_awaited: false };
        let catalog = Catalog::new(&Style::default(), &[], &[source]);
        assert_eq!(catalog.list(ServerList::Tools, Era::Modern), format!("[{}]", expect[..3].join(",")));
        assert_eq!((catalog.tool("delete_a"), catalog.tool("delete_b")), (None, None));
    }

    #[test]
    fn what_fits_no_tool_is_told() {
        let rules = ToolRules {
            allow: Some(globs(&["read_*", "raed_*"])),
            deny: globs(&["read_secret", "write_*"]),
            tools: ["read_a", "read_secret", "raed_b"]
                .map(|name| (name.to_owned(), ToolRule::default()))
                .into(),
        };
        let listed = raw(&[r#"{"name":"read_a"}"#, r#"{"name":"read_b"}"#, r#"{"name":"read_secret"}"#, "5"]);
        let told: Vec<String> =
            rules.without_effect(&listed).into_iter().map(|(rule, why)| format!("{rule}: {why}")).collect();
        assert_eq!(
            told,
            [
                "`raed_*` in `allow`: it matches no tool of the server",
                "`write_*` in `deny`: it matches no tool of the server",
                "`raed_b` in `tools`: the server has no such tool; did you mean `read_b`?",
            ]
        );
        assert_eq!(ToolRules::default().without_effect(&[]), []);
    }
}
