//! What is known of clients' patience, by `clientInfo` (peers.md 3.1 A, K and L, and 3.3; G-06).
//!
//! Invariants
//!
//! - Pure. What is not known is not guessed: such a client has no clock here, and the first to speak is `config::PROMOTE_AFTER`.
//! - Where builds of a client differ and cannot be told apart, the shortest that was reported counts: ours fires too soon then, and not
//!   too late.
//! - `docs/concepts/slow-calls.md` has the same table.
//! - What the configuration says of a client goes before the table.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc, time::Duration};

use unhang_switches::stands;

use crate::{config::CLOCK_PERCENT, units::in_words};

/// After how long a client gives a `tools/call` up, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// What people call it.
    pub client: &'static str,
    /// What `clientInfo.name` is or begins with, in lower case.
    pub name: &'static str,
    /// It is so from this version on; as long as nothing is said, for all that no entry before it is for.
    pub since: Option<&'static str>,
    /// The clock. None: it waits for longer than anybody cares, or nobody has found it out.
    pub call: Option<Duration>,
    /// Progress of a call, told under its token, keeps the client waiting for longer.
    pub progress_resets: bool,
    /// Who says so, and what else is known.
    pub source: &'static str,
}

/// A clock that progress does not reset, of all versions.
const fn clock(client: &'static str, name: &'static str, seconds: u64, source: &'static str) -> Clock {
    let call = Some(Duration::from_secs(seconds));
    Clock { client, name, since: None, call, progress_resets: false, source }
}

/// No clock that would count.
const fn patient(client: &'static str, name: &'static str, source: &'static str) -> Clock {
    Clock { client, name, since: None, call: None, progress_resets: false, source }
}

/// What is known. The first entry that fits counts, so newer versions stand before older ones.
pub const CLOCKS: &[Clock] = &[
    clock(
        "Claude Desktop",
        "claude-ai",
        60,
        "anthropics/claude-code#22542: 60 s; #65643: 4 min in some builds, which all say the same of themselves; cannot be set",
    ),
    // It waits for 28 h, and with that as its clock a call would become a job as late as that can be, after 4 min. But users set
    // MCP_TOOL_TIMEOUT and `timeout` to a minute or a few, the Code tab of the desktop app gives up after 60 s whatever they set, over HTTP
    // 5 min without a word are the end, and after 2 min the client puts a call into the background itself: all of that is later than the
    // 45 s of a client without a clock. With 2 min as its clock a call that is not to become a job would be cut off there, for nothing.
    Clock {
        progress_resets: true,
        ..patient(
            "Claude Code",
            "claude-code",
            "anomalyco/opencode#35204: about 28 h unless set; anthropics/claude-code#43791: 60 s in the Code tab of the desktop app; \
             alp82/curia#104: over HTTP 5 min without progress; after 2 min it goes on in the background",
        )
    },
    // The change is of June 2026, and 0.144 of July the first version that has it for sure. 0.137 is the first of which 2 min were
    // reported, 0.92 the last of which 1 min was. One that says no version, or that somebody built (0.0.0), has the shortest.
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
        "anomalyco/opencode#8701: 60 s; #39584: can be set, up to 5 min; #28186: asks for a reset by progress, but sends no token for it",
    ),
    clock("Cline", "cline", 60, "docs.cline.bot: 60 s, can be set from 30 s to 1 h"),
    clock("Hermes", "hermes", 120, "NousResearch/hermes-agent#47506: 5 min; 2 min before June 2026"),
    clock(
        "Gemini CLI",
        "gemini-cli",
        600,
        "google-gemini/gemini-cli, packages/core/src/tools/mcp-client.ts: 10 min, can be set",
    ),
    // All builds say that they are 0.0.1. 45 s come before the 60 s of older ones, and 10 min after every end that a call has here.
    patient(
        "Qwen Code",
        "qwen-code",
        "QwenLM/qwen-code#574: 10 min, can be set; 60 s in older builds, which all say the same of themselves",
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

/// A client that asks for the list of tools anew when it is told that the list has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListFollower {
    /// What people call it.
    pub client: &'static str,
    /// What `clientInfo.name` is or begins with, in lower case.
    pub name: &'static str,
    /// From which version on; one that says no version then does not count.
    pub since: Option<&'static str>,
    /// Who says so.
    pub source: &'static str,
}

/// Those clients. A client about which reports contradict one another is not among them: a tool that it never sees helps nobody, and one
/// that it sees too early costs a few hundred bytes. So Claude Code (2.1 has it by its own account, anthropics/claude-code#62058 and #65698
/// found it missing in May and June 2026) and Cursor are not, and Codex (openai/codex#10105, #35583) does not do it.
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

/// Whether the client of this name and version asks for the list of tools anew when it is told that the list has changed.
#[must_use]
pub fn follows_lists(name: &str, version: Option<&str>) -> bool {
    let name = plain(name);
    let is_that_new = |since| version.is_some_and(|version| compared(version, since) != Ordering::Less);
    LIST_FOLLOWERS.iter().any(|client| is_called(&name, client.name) && client.since.is_none_or(is_that_new))
}

/// After how long clients give a start up, where that is known (peers.md 3.3). The shortest comes first.
pub const START_CLOCKS: [(&str, Duration); 3] = [
    ("Codex", Duration::from_secs(10)),
    ("Claude Code", Duration::from_secs(30)),
    ("the TypeScript SDK", Duration::from_secs(60)),
];

/// The same for a list of tools, which they ask for right after the start.
pub const LIST_CLOCKS: [(&str, Duration); 2] =
    [("opencode", Duration::from_secs(5)), ("the TypeScript SDK", Duration::from_secs(60))];

/// After how long clients give a `tools/call` up, by the beginning of their names, in their newest versions.
pub fn call_clocks() -> impl Iterator<Item = (&'static str, Duration)> {
    let is_newest = |index: usize| CLOCKS[..index].iter().all(|newer| newer.name != CLOCKS[index].name);
    let newest = CLOCKS.iter().enumerate().filter(move |(index, _)| is_newest(*index));
    newest.filter_map(|(_, clock)| Some((clock.name, clock.call?)))
}

/// After how long the client of this name and version gives a `tools/call` up, by the table alone.
#[must_use]
pub fn call_clock(name: &str, version: Option<&str>) -> Option<Duration> {
    let name = plain(name);
    let is_that_new = |since| version.is_some_and(|version| compared(version, since) != Ordering::Less);
    let known =
        CLOCKS.iter().find(|clock| is_called(&name, clock.name) && clock.since.is_none_or(is_that_new));
    known?.call
}

/// The clocks of clients: those of the table, and before them those that a configuration says. Clones share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// By the beginnings of names, in lower case; none where there is to be no clock.
    said: Arc<BTreeMap<String, Option<Duration>>>,
}

impl Clocks {
    /// These before the table: what names are or begin with, and the clock of such clients; none where they have none. Where several fit,
    /// the longest counts.
    #[must_use]
    pub fn with(said: impl IntoIterator<Item = (String, Option<Duration>)>) -> Self {
        Self { said: Arc::new(said.into_iter().map(|(name, clock)| (plain(&name), clock)).collect()) }
    }

    /// After how long the client of this name and version gives a `tools/call` up, where that is known.
    #[must_use]
    pub fn call(&self, name: &str, version: Option<&str>) -> Option<Duration> {
        let plain = plain(name);
        let fitting = self.said.iter().filter(|(said, _)| is_called(&plain, said));
        let said = fitting.max_by_key(|(said, _)| said.len()).filter(|_| stands("said-clock-counts"));
        said.map_or_else(|| call_clock(name, version), |(_, clock)| *clock)
    }
}

/// A name as it is compared.
pub fn plain(name: &str) -> String {
    name.trim().to_lowercase()
}

/// Whether a client calls itself that: the name is that, or goes on with something that is neither letter nor digit.
fn is_called(name: &str, that: &str) -> bool {
    name.strip_prefix(that).is_some_and(|rest| {
        !rest.starts_with(|next: char| next.is_ascii_alphanumeric()) || !stands("clock-by-whole-name")
    })
}

/// Two versions by their numbers; what is no number has none, and comes before all that have some.
fn compared(one: &str, other: &str) -> Ordering {
    fn numbers(version: &str) -> impl Iterator<Item = u64> {
        version.trim_start_matches('v').split('.').map_while(|part| {
            let digits = part.len() - part.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
            part[..digits].parse().ok()
        })
    }
    numbers(one).cmp(numbers(other))
}

/// How long a `tools/call` may take for a client with this clock: ours is to fire before its own (G-06).
pub fn call_limit(clock: Option<Duration>, call_timeout: Duration) -> Duration {
    let percent = if stands("before-the-clients-clock") { CLOCK_PERCENT } else { 100 };
    // Divided first, since a configured clock may be as long as one can write.
    clock.map_or(Duration::MAX, |clock| clock / 100 * percent).min(call_timeout)
}

/// What to say of a call that was cut because of a client's clock.
pub fn cut_short(client: Option<&str>, clock: Duration) -> String {
    let client = client.unwrap_or("the client");
    format!("the call was cancelled just before {client} would have given up (after {})", in_words(clock))
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
