//! The name of a server of which only the command is known.
//!
//! Invariant: the name is short, printable and safe in a file name.

use std::{ffi::OsString, path::Path};

/// The programs that start the real server, which a later word names.
const LAUNCHERS: &[&str] = &[
    "npx", "bunx", "pnpx", "uvx", "uv", "pipx", "npm", "bun", "deno", "node", "python", "python3", "docker",
    "podman", "env", "sh", "bash",
];

/// The words of launchers that are not the server yet.
const VERBS: &[&str] = &["run", "exec", "tool", "dlx", "x", "-m", "-c"];

/// Returns whether this program starts the real server, which a later word names.
pub(crate) fn is_launcher(program: &str) -> bool {
    LAUNCHERS.contains(&program)
}

/// Returns the program's name, or for a launcher the name of the program that it starts: `npx -y @scope/server-time` is `server-time`.
pub(crate) fn server_name(command: &[OsString]) -> String {
    let mut words = command.iter().map(|word| word.to_string_lossy());
    let program = words.next().unwrap_or_default();
    let stem = last_part(&program);
    let chosen = if is_launcher(&stem) {
        words
            .find(|word| !word.starts_with('-') && !VERBS.contains(&word.as_ref()))
            // The text of a script is not a name.
            .filter(|word| !word.contains(char::is_whitespace))
            .map(|word| last_part(&word))
    } else {
        None
    };
    let name = chosen.filter(|name| !name.is_empty()).unwrap_or(stem);
    let safe: String = name
        .chars()
        .map(
            |character| {
                if character.is_ascii_alphanumeric() || "._-".contains(character) { character } else { '-' }
            },
        )
        .take(64)
        .collect();
    if safe.trim_matches(['.', '-']).is_empty() { "server".to_owned() } else { safe }
}

/// Returns the last part of a path or package name, without a version or a script's extension.
fn last_part(word: &str) -> String {
    let last = Path::new(word)
        .file_name()
        .map_or_else(|| word.to_owned(), |name| name.to_string_lossy().into_owned());
    let without_version = last.split('@').find(|part| !part.is_empty()).unwrap_or(&last);
    let endings = [".py", ".js", ".mjs", ".ts", ".sh"];
    endings
        .iter()
        .find_map(|ending| without_version.strip_suffix(ending))
        .unwrap_or(without_version)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_what_they_are() {
        for (command, expect) in [
            ("npx -y @modelcontextprotocol/server-everything", "server-everything"),
            ("npx -y @scope/thing@1.2.3", "thing"),
            ("uvx mcp-server-time", "mcp-server-time"),
            ("/usr/bin/python3 -m gms_mcp", "gms_mcp"),
            ("node build/index.js", "index"),
            ("/opt/bin/server --flag", "server"),
            ("npx", "npx"),
            ("..", "server"),
            ("we;rd", "we-rd"),
        ] {
            let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
            assert_eq!(server_name(&words), expect, "{command}");
        }
        assert_eq!(server_name(&["sh", "-c", "TOKEN=x exec ./server"].map(OsString::from)), "sh");
    }
}
