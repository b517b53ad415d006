//! The clients that run now. They have read their files already, so a person has to restart them.
//!
//! Invariant: a process is only looked at. Where a system does not show its processes as files, no client is known to run.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::process::geteuid;

use crate::clients::McpClient;

/// The programs that run scripts. For these, the script is the client.
const INTERPRETERS: [&str; 5] = ["node", "bun", "deno", "python", "python3"];

/// Lists the names of this user's processes, in small letters: of the file, and of the program or script as it was started.
#[must_use]
pub fn process_names() -> Vec<String> {
    names_in(Path::new("/proc"))
}

/// Returns whether the client runs, by the names of the processes.
#[must_use]
pub fn runs(client: &McpClient, names: &[String]) -> bool {
    client.processes.iter().any(|process| names.iter().any(|name| name == process))
}

fn names_in(table: &Path) -> Vec<String> {
    let own = geteuid().as_raw();
    let mut names = Vec::new();
    for entry in fs::read_dir(table).into_iter().flatten().flatten() {
        let is_process =
            entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        // A process may end at any moment, and then its files cannot be read.
        if !is_process || entry.metadata().map(|found| found.uid()).ok() != Some(own) {
            continue;
        }
        let program = fs::read_link(entry.path().join("exe")).ok();
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        names.extend(names_of(program.as_deref(), &line));
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the names of one process.
fn names_of(program: Option<&Path>, line: &[u8]) -> Vec<String> {
    let name = |path: &Path| {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        Some(name.trim_end_matches(" (deleted)").trim_end_matches(".js").to_owned())
    };
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .take(3)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let mut names: Vec<String> = program.and_then(name).into_iter().collect();
    names.extend(words.first().and_then(|word| name(Path::new(word))));
    if names.iter().any(|name| INTERPRETERS.contains(&name.as_str())) {
        names.extend(words.get(1).and_then(|word| name(Path::new(word))));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::named;

    #[test]
    fn a_client_is_known_by_its_file_or_its_script() {
        let is = |id: &str, program: &str, line: &str| {
            runs(named(id).expect("a client"), &names_of(Some(Path::new(program)), line.as_bytes()))
        };
        assert!(is("cursor", "/usr/share/cursor/cursor", "/usr/share/cursor/cursor\0--type=renderer\0"));
        assert!(is("claude-code", "/home/a/.local/share/claude/versions/2.1.0", "claude\0--resume\0"));
        assert!(is("gemini", "/usr/bin/node", "node\0/usr/local/bin/gemini\0"));
        assert!(is("vscode", "/usr/share/code/code (deleted)", ""));
        assert!(!is("cursor", "/usr/bin/vim", "vim\0cursor\0"));
        assert!(!is("claude-code", "/usr/bin/claude-desktop", "claude-desktop\0"));
    }

    #[test]
    fn this_process_is_among_the_processes() {
        let own = std::env::current_exe().expect("a path");
        let name = own.file_name().expect("a name").to_string_lossy().to_lowercase();
        assert!(process_names().contains(&name) || !cfg!(target_os = "linux"));
    }
}
