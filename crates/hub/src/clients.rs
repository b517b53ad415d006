//! What is known of each client's patience, by `clientInfo.name` (peers.md 3.3, G-06).
//!
//! Invariants: pure; a client that is not in the table has no known clock, and nothing is guessed for it. A clock that
//! differs between builds of a client is entered with the shortest that was reported.

use std::time::Duration;

use unhang_switches::stands;

use crate::config::CLOCK_PERCENT;

/// One client's clock for a `tools/call`.
struct Clock {
    /// Lower-case beginning of `clientInfo.name`.
    name: &'static str,
    /// After this the client gives a call up.
    call: Duration,
}

const fn clock(name: &'static str, seconds: u64) -> Clock {
    Clock { name, call: Duration::from_secs(seconds) }
}

/// The first entry that fits wins, so longer names stand before shorter ones. Claude Code (28 h), VS Code (endless), Qwen
/// and Gemini (10 min) wait longer than our own default and need no entry; Cursor's clock was not found anywhere.
const CLOCKS: &[Clock] = &[
    clock("claude-ai", 60),
    clock("codex", 300),
    clock("opencode", 60),
    clock("cline", 60),
    clock("hermes", 300),
    clock("langflow", 30),
    clock("nanobot", 30),
    clock("cai", 30),
];

/// After how long clients give a start up, where that is known (peers.md 3.3). The shortest comes first.
pub const START_CLOCKS: [(&str, Duration); 3] = [
    ("Codex", Duration::from_secs(10)),
    ("Claude Code", Duration::from_secs(30)),
    ("the TypeScript SDK", Duration::from_secs(60)),
];

/// The same for a list of tools, which they ask for right after the start.
pub const LIST_CLOCKS: [(&str, Duration); 2] =
    [("opencode", Duration::from_secs(5)), ("the TypeScript SDK", Duration::from_secs(60))];

/// After how long clients give a `tools/call` up, by the beginning of their names.
pub fn call_clocks() -> impl Iterator<Item = (&'static str, Duration)> {
    CLOCKS.iter().map(|clock| (clock.name, clock.call))
}

/// After how long the client of this name gives a `tools/call` up, where that is known.
pub fn call_clock(client_name: &str) -> Option<Duration> {
    let name = client_name.trim().to_ascii_lowercase();
    CLOCKS
        .iter()
        .find(|clock| {
            name.strip_prefix(clock.name).is_some_and(|rest| {
                !rest.starts_with(|next: char| next.is_ascii_alphanumeric()) || !stands("clock-by-whole-name")
            })
        })
        .map(|clock| clock.call)
}

/// How long a `tools/call` may take for a client with this clock: ours is to fire before its own (G-06).
pub(crate) fn call_limit(clock: Option<Duration>, call_timeout: Duration) -> Duration {
    let percent = if stands("before-the-clients-clock") { CLOCK_PERCENT } else { 100 };
    // Divided first, since a configured clock may be as long as one can write.
    clock.map_or(Duration::MAX, |clock| clock / 100 * percent).min(call_timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_found_by_whole_name() {
        for (name, expect) in [
            ("claude-ai", Some(60)),
            ("Cline", Some(60)),
            ("codex-mcp-client", Some(300)),
            ("claude-code", None),
            ("cursor-vscode", None),
            ("caiman", None),
            ("", None),
        ] {
            assert_eq!(call_clock(name), expect.map(Duration::from_secs), "{name}");
        }
    }
}
