//! Command lines that start unhang itself, which clients have in place of a server's own.
//!
//! Invariant: the words are only looked at. Whoever reads a client's file can so leave out the guard, and never has two of them.

/// The part of unhang that a command line starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnCommand {
    /// `unhang wrap`.
    Guard {
        /// The index of the word that names unhang. It is 0, unless another program starts unhang.
        at: usize,
        /// The index of the server's own command. `None` if there is no `--` in front of it.
        server: Option<usize>,
    },
    /// `unhang serve`, or `unhang bridge`, which is the gateway with one server.
    Gateway,
}

/// Finds unhang in a command line: as the program, or as a word of another program that starts it, such as `npx`.
#[must_use]
pub fn own_command(words: &[impl AsRef<str>]) -> Option<OwnCommand> {
    let next = |at: usize| words.get(at + 1).map(AsRef::as_ref).unwrap_or_default();
    let is_own =
        |at: &usize| is_unhang(words[*at].as_ref()) && ["wrap", "serve", "bridge"].contains(&next(*at));
    let at = (0..words.len()).find(is_own)?;
    if next(at) != "wrap" {
        return Some(OwnCommand::Gateway);
    }
    let end = words.iter().skip(at + 2).position(|word| word.as_ref() == "--").map(|end| at + 3 + end);
    Some(OwnCommand::Guard { at, server: end.filter(|server| *server < words.len()) })
}

/// Returns whether the word names our binary, or a package of it, with or without a version.
fn is_unhang(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    name == "unhang" || ["unhang@", "unhang=="].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unhang_is_found_wherever_it_stands_in_a_command_line() {
        let guard = |at, server| Some(OwnCommand::Guard { at, server });
        for (line, expect) in [
            ("/home/a/.local/bin/unhang wrap --name time -- uvx time -- x", guard(0, Some(5))),
            ("unhang wrap -- npx", guard(0, Some(3))),
            ("unhang wrap npx -y x", guard(0, None)),
            ("unhang wrap --", guard(0, None)),
            ("npx -y unhang@0.1.0 wrap -- npx", guard(2, Some(5))),
            ("npx --package unhang unhang wrap -- npx", guard(3, Some(6))),
            ("uvx unhang==0.1.0 wrap -- npx", guard(1, Some(4))),
            ("policy --strict -- /usr/bin/unhang wrap -- npx", guard(3, Some(6))),
            ("unhang serve --config x", Some(OwnCommand::Gateway)),
            ("unhang bridge https://example.org/mcp", Some(OwnCommand::Gateway)),
            ("unhang tools", None),
            ("npx -y unhangable wrap", None),
            ("npx", None),
        ] {
            assert_eq!(own_command(&line.split(' ').collect::<Vec<_>>()), expect, "{line}");
        }
        assert_eq!(own_command(&[""; 0]), None);
    }
}
