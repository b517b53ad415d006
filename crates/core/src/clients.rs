//! The known patience of clients, by `clientInfo` (peers.md 3.1 A, K and L, and 3.3; G-06).
//!
//! Invariants
//!
//! - Pure. Nothing is guessed: an unknown client has no clock here, and the first limit to apply is `config::PROMOTE_AFTER`.
//! - If builds of a client differ and cannot be told apart, the shortest reported clock counts: ours then fires too soon, and not too late.
//! - `docs/concepts/slow-calls.md` has the same table.
//! - The configuration's entries for a client go before the table.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc, time::Duration};

use crate::{config::CLOCK_PERCENT, units::in_words};

/// How long a client waits for the answer to a `tools/call` before it gives up, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The client's name for people.
    pub client: &'static str,
    /// The whole or the beginning of its `clientInfo.name`, in lower case.
    pub name: &'static str,
    /// The first version with this clock. `None`: all versions that no entry before this one covers.
    pub since: Option<&'static str>,
    /// The clock. `None`: the client waits for longer than anybody cares, or its clock is not known.
    pub call: Option<Duration>,
    /// Whether progress of a call, sent under its token, keeps the client waiting for longer.
    pub progress_resets: bool,
    /// The source of the entry, and other known facts.
    pub source: &'static str,
}

/// Makes an entry for all versions, with a clock that progress does not reset.
const fn clock(client: &'static str, name: &'static str, seconds: u64, source: &'static str) -> Clock {
    let call = Some(Duration::from_secs(seconds));
    Clock { client, name, since: None, call, progress_resets: false, source }
}

/// Makes an entry for all versions, without a clock that would count.
const fn patient(client: &'static str, name: &'static str, source: &'static str) -> Clock {
    Clock { client, name, since: None, call: None, progress_resets: false, source }
}

/// The known clients. The first entry that fits counts, so newer versions stand before older ones.
pub const CLOCKS: &[Clock] = &[
    clock(
        "Claude Desktop",
        "claude-ai",
        60,
        "anthropics/claude-code#22542: 60 s; #65643: 4 min in some builds, all with the same `clientInfo`; cannot be set",
    ),
    // Claude Code waits for 28 h. With that as its clock a call would become a job as late as that can be, after 4 min. But users set
    // MCP_TOOL_TIMEOUT and `timeout` to a minute or a few. The Code tab of the desktop app gives up after 60 s, whatever they set. Over
    // HTTP 5 min without a word are the end, and after 2 min the client puts a call into the background itself. All of that is later than
    // the 45 s of a client without a clock. With 2 min as its clock, a call that is not to become a job would be cut off there, for
    // nothing.
    Clock {
        progress_resets: true,
        ..patient(
            "Claude Code",
            "claude-code",
            "anomalyco/opencode#35204: about 28 h unless set; anthropics/claude-code#43791: 60 s in the Code tab of the desktop app; \
             alp82/curia#104: over HTTP 5 min without progress; after 2 min it goes on in the background",
        )
    },
    // The change is of June 2026, and 0.144 of July is the first version that has it for sure. 0.137 is the first version with reports of 2
    // min, and 0.92 the last with reports of 1 min. A client that states no version, or that somebody built (0.0.0), has the shortest
    // clock.
    Clock {
        since: Some("0.144"),
        ..clock("Codex", "codex", 300, "openai/codex#28234: 5 min, `tool_timeout_sec`")
    },
    Clock { since: Some("0.137"), ..clock("Codex", "codex", 120, "openai/codex#28234: 2 min until then") },
    clock("Codex", "codex", 60, "orbiqd/orbiqd-briefkit#13, kky42/codex-as-mcp#5: 60 s at first"),
    clock(
        "opencode",
        "opencode",
        60,
        "anomalyco/opencode#8701: 60 s; #39584: can be set, up to 5 min; #28186: resets its clock on progress, but sends no progress token",
    ),
    clock("Cline", "cline", 60, "docs.cline.bot: 60 s, can be set from 30 s to 1 h"),
    clock("Hermes", "hermes", 120, "NousResearch/hermes-agent#47506: 5 min; 2 min before June 2026"),
    clock(
        "Gemini CLI",
        "gemini-cli",
        600,
        "google-gemini/gemini-cli, packages/core/src/tools/mcp-client.ts: 10 min, can be set",
    ),
    // All builds state the version 0.0.1. 45 s come before the 60 s of older ones, and 10 min after every end that a call has here.
    patient(
        "Qwen Code",
        "qwen-code",
        "QwenLM/qwen-code#574: 10 min, can be set; 60 s in older builds, all with the same `clientInfo`",
    ),
    clock("Langflow", "langflow", 30, "langflow-ai/langflow#11755"),
    clock("nanobot", "nanobot", 30, "HKUDS/nanobot#950"),
    clock("CAI", "cai", 30, "aliasrobotics/cai#291"),
    patient("VS Code", "visual studio code", "microsoft/vscode#274094: waits without end"),
    patient(
        "Cursor",
        "cursor",
        "ScriptedAlchemy/agent-bundle#550: sends tokens for progress; a clock was found nowhere",
    ),
];

/// A client that fetches the list of tools again when it is told that the list has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListFollower {
    /// The client's name for people.
    pub client: &'static str,
    /// The whole or the beginning of its `clientInfo.name`, in lower case.
    pub name: &'static str,
    /// The first version that does so. A client that states no version then does not count.
    pub since: Option<&'static str>,
    /// The source of the entry.
    pub source: &'static str,
}

/// The known clients of that kind. A client with contradicting reports is not among them: a tool that it never sees helps nobody, and one
/// that it sees too early costs a few hundred bytes. So Claude Code and Cursor are not in the list. By its own account Claude Code 2.1 does
/// it; anthropics/claude-code#62058 and #65698 found it missing in May and June 2026. Codex (openai/codex#10105, #35583) does not do it.
pub const LIST_FOLLOWERS: &[ListFollower] = &[
    ListFollower {
        client: "VS Code",
        name: "visual studio code",
        since: None,
        source: "microsoft/vscode#243944: it reads the list anew",
    },
    ListFollower {
        client: "opencode",
        name: "opencode",
        since: Some("1.1"),
        source: "anomalyco/opencode#5913: handled since December 2025",
    },
    ListFollower {
        client: "Gemini CLI",
        name: "gemini-cli",
        since: Some("0.34"),
        source: "google-gemini/gemini-cli#14375: since December 2025; #21050: reliable since March 2026",
    },
];

/// Returns whether the client of this name and version fetches the list of tools again when it is told that the list has changed.
#[must_use]
pub fn follows_lists(name: &str, version: Option<&str>) -> bool {
    let name = plain(name);
    let is_that_new = |since| version.is_some_and(|version| compared(version, since) != Ordering::Less);
    LIST_FOLLOWERS.iter().any(|client| is_called(&name, client.name) && client.since.is_none_or(is_that_new))
}

/// How long clients wait for a start before they give up, if that is known (peers.md 3.3). The shortest comes first.
pub const START_CLOCKS: [(&str, Duration); 3] = [
    ("Codex", Duration::from_secs(10)),
    ("Claude Code", Duration::from_secs(30)),
    ("the TypeScript SDK", Duration::from_secs(60)),
];

/// How long clients wait for a list of tools, which they ask for right after the start.
pub const LIST_CLOCKS: [(&str, Duration); 2] =
    [("opencode", Duration::from_secs(5)), ("the TypeScript SDK", Duration::from_secs(60))];

/// Lists the clocks of clients for a `tools/call`, by the beginning of their names, in their newest versions.
pub fn call_clocks() -> impl Iterator<Item = (&'static str, Duration)> {
    let is_newest = |index: usize| CLOCKS[..index].iter().all(|newer| newer.name != CLOCKS[index].name);
    let newest = CLOCKS.iter().enumerate().filter(move |(index, _)| is_newest(*index));
    newest.filter_map(|(_, clock)| Some((clock.name, clock.call?)))
}

/// Finds the clock of the client of this name and version for a `tools/call`, by the table alone; `None` if it has none there.
#[must_use]
pub fn call_clock(name: &str, version: Option<&str>) -> Option<Duration> {
    let name = plain(name);
    let is_that_new = |since| version.is_some_and(|version| compared(version, since) != Ordering::Less);
    let known =
        CLOCKS.iter().find(|clock| is_called(&name, clock.name) && clock.since.is_none_or(is_that_new));
    known?.call
}

/// The clocks of clients: the configured ones, and after them the table. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// By the beginnings of names, in lower case; `None` for a client that is to have no clock.
    said: Arc<BTreeMap<String, Option<Duration>>>,
}

impl Clocks {
    /// Puts these entries before the table: a client's name or the beginning of it, and its clock. `None` stands for a client without a
    /// clock. If several entries fit, the one with the longest name counts.
    #[must_use]
    pub fn with(said: impl IntoIterator<Item = (String, Option<Duration>)>) -> Self {
        Self { said: Arc::new(said.into_iter().map(|(name, clock)| (plain(&name), clock)).collect()) }
    }

    /// Finds the clock of the client of this name and version for a `tools/call`; `None` if it has none that is known.
    #[must_use]
    pub fn call(&self, name: &str, version: Option<&str>) -> Option<Duration> {
        let plain = plain(name);
        let fitting = self.said.iter().filter(|(said, _)| is_called(&plain, said));
        let said = fitting.max_by_key(|(said, _)| said.len());
        said.map_or_else(|| call_clock(name, version), |(_, clock)| *clock)
    }
}

/// Returns a name in the form in which names are compared.
pub fn plain(name: &str) -> String {
    name.trim().to_lowercase()
}

/// Returns whether a client's name is that name, or goes on after it with something that is neither letter nor digit.
fn is_called(name: &str, that: &str) -> bool {
    name.strip_prefix(that).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
}

/// Compares two versions by their numbers. A version without a number comes before all that have some.
fn compared(one: &str, other: &str) -> Ordering {
    fn numbers(version: &str) -> impl Iterator<Item = u64> {
        version.trim_start_matches('v').split('.').map_while(|part| {
            let digits = part.len() - part.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
            part[..digits].parse().ok()
        })
    }
    numbers(one).cmp(numbers(other))
}

/// Returns how long a `tools/call` may take for a client with this clock: ours is to fire before its own (G-06).
pub fn call_limit(clock: Option<Duration>, call_timeout: Duration) -> Duration {
    // The clock is divided first, because a configured clock may be as long as one can write.
    clock.map_or(Duration::MAX, |clock| clock / 100 * CLOCK_PERCENT).min(call_timeout)
}

/// Words the report of a call that was cut because of a client's clock.
pub fn cut_short(client: Option<&str>, clock: Duration) -> String {
    let client = client.unwrap_or("the client");
    format!("unhang cancelled the call just before the timeout of {client} ({})", in_words(clock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::in_words;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn clocks_are_found_by_whole_name() {
        for (name, expect) in [
            ("claude-ai", Some(60)),
            ("Cline", Some(60)),
            ("codex-mcp-client", Some(60)),
            ("claude-code", None),
            ("gemini-cli-mcp-client-files", Some(600)),
            ("Visual Studio Code - Insiders", None),
            ("cursor-vscode", None),
            ("caiman", None),
            ("", None),
        ] {
            assert_eq!(call_clock(name, None), expect.map(seconds), "{name}");
            assert_eq!(Clocks::default().call(name, None), expect.map(seconds), "{name}");
        }
    }

    #[test]
    fn a_clock_may_be_that_of_some_versions() {
        for (version, expect) in [
            ("0.152.1", 300),
            ("0.144.0-alpha.3", 300),
            ("v0.144.0", 300),
            ("0.144", 300),
            ("1.0.0", 300),
            ("0.143.9", 120),
            ("0.137.0", 120),
            ("0.92.0", 60),
            ("0.0.0", 60),
            ("99999999999999999999.1", 60),
            ("unknown", 60),
            ("", 60),
        ] {
            assert_eq!(call_clock("codex-mcp-client", Some(version)), Some(seconds(expect)), "{version}");
        }
        let codex: Vec<_> = call_clocks().filter(|(name, _)| *name == "codex").collect();
        assert_eq!(codex, [("codex", seconds(300))], "the newest is told");
    }

    #[test]
    fn every_entry_of_the_table_can_be_found() {
        for (index, clock) in CLOCKS.iter().enumerate() {
            assert_eq!(plain(clock.name), clock.name);
            let earlier = CLOCKS[..index].iter().find(|earlier| is_called(clock.name, earlier.name));
            assert!(
                earlier.is_none_or(|earlier| earlier.since.is_some()),
                "{} comes before {clock:?}",
                earlier.unwrap().name
            );
            assert_eq!(call_clock(clock.name, clock.since), clock.call, "{clock:?}");
        }
    }

    #[test]
    fn what_is_said_goes_before_the_table() {
        let clocks = Clocks::with(
            [("Claude", None), ("claude-code", Some(90)), ("codex", Some(600)), ("My Agent", Some(20))]
                .map(|(name, clock)| (name.to_owned(), clock.map(seconds))),
        );
        for (name, expect) in [
            ("claude-ai", None),
            ("Claude-Code", Some(90)),
            ("codex-mcp-client", Some(600)),
            ("my agent/2", Some(20)),
            ("my agents", None),
            ("cline", Some(60)),
        ] {
            assert_eq!(clocks.call(name, Some("0.152")), expect.map(seconds), "{name}");
        }
    }

    #[test]
    fn f_73_clients_that_follow_their_lists_are_known_by_name_and_version() {
        for (name, version, expect) in [
            ("Visual Studio Code", None, true),
            ("Visual Studio Code - Insiders", Some("1.99"), true),
            ("gemini-cli-mcp-client-files", Some("0.34.0"), true),
            ("gemini-cli-mcp-client-files", Some("0.0.1"), false),
            ("opencode", Some("1.1.3"), true),
            ("opencode", None, false),
            ("claude-code", Some("2.1.0"), false),
            ("codex-mcp-client", Some("0.152.0"), false),
            ("somebody", Some("9"), false),
            ("", None, false),
        ] {
            assert_eq!(follows_lists(name, version), expect, "{name} {version:?}");
        }
        assert!(LIST_FOLLOWERS.iter().all(|client| plain(client.name) == client.name));
    }

    #[test]
    fn the_page_about_slow_calls_names_the_clients_that_follow_their_lists() {
        let page = include_str!("../../../docs/concepts/slow-calls.md");
        let row = |client: &ListFollower| {
            let since = client.since.map(|since| format!(" from {since} on")).unwrap_or_default();
            format!("| {}{since} | `{}` | {} |", client.client, client.name, client.source)
        };
        let table: Vec<String> = LIST_FOLLOWERS.iter().map(row).collect();
        let section = page.lines().skip_while(|line| *line != "## Clients that follow their lists").skip(1);
        let section = section.take_while(|line| !line.starts_with("## "));
        let written: Vec<&str> = section.filter(|line| line.starts_with("| ")).skip(1).collect();
        assert_eq!(written, table, "the table of that section is to be:\n{}", table.join("\n"));
    }

    #[test]
    fn the_page_about_slow_calls_has_the_same_table() {
        let page = include_str!("../../../docs/concepts/slow-calls.md");
        let row = |clock: &Clock| {
            let Clock { client, name, since, call, progress_resets, source } = clock;
            let since = since.map(|since| format!(" from {since} on")).unwrap_or_default();
            let call = call.map_or_else(|| "none".to_owned(), in_words);
            let resets = if *progress_resets { "yes" } else { "no" };
            format!("| {client}{since} | `{name}` | {call} | {resets} | {source} |")
        };
        let table: Vec<String> = CLOCKS.iter().map(row).collect();
        let section = page.lines().skip_while(|line| *line != "## Clocks").skip(1);
        let section = section.take_while(|line| !line.starts_with("## "));
        let written: Vec<&str> = section.filter(|line| line.starts_with("| ")).skip(1).collect();
        assert_eq!(
            written,
            table,
            "the table of docs/concepts/slow-calls.md is to be:\n{}",
            table.join("\n")
        );
    }
}
