//! The clients, and where their files lie on Linux and macOS.
//!
//! Sources: the clients' own documentation, and the tables in `mcpproxy-go:internal/connect/clients.go`,
//! `mcporter:src/config/imports/paths.ts` and `fastmcp:src/fastmcp/cli/discovery.py`.
//!
//! - Claude Desktop: <https://modelcontextprotocol.io/docs/develop/connect-local-servers>
//! - Claude Code: <https://code.claude.com/docs/en/mcp>
//! - Cursor: <https://cursor.com/docs/context/mcp>
//! - VS Code: <https://code.visualstudio.com/docs/copilot/customization/mcp-servers>
//! - Windsurf: <https://docs.windsurf.com/windsurf/cascade/mcp>
//! - Codex: <https://developers.openai.com/codex/mcp>
//! - Gemini CLI: <https://geminicli.com/docs/tools/mcp-server/>, and Qwen Code, which has the same settings:
//!   <https://qwenlm.github.io/qwen-code-docs/en/users/features/mcp/>
//! - Antigravity: <https://antigravity.google/docs/mcp>
//! - Copilot CLI: <https://docs.github.com/en/copilot/how-tos/use-copilot-agents/use-copilot-cli>
//! - Zed: <https://zed.dev/docs/ai/mcp>
//! - Cline: <https://docs.cline.bot/mcp/adding-and-configuring-servers>, and Roo Code, which began as a copy of it:
//!   <https://docs.roocode.com/features/mcp/using-mcp-in-roo>
//! - opencode: <https://opencode.ai/docs/mcp-servers/>
//! - LM Studio: <https://lmstudio.ai/docs/app/mcp>. Earlier versions kept the file in `~/.cache/lm-studio` (lmstudio-bug-tracker#1371).
//! - Kiro: <https://kiro.dev/docs/mcp/configuration/>
//! - Continue: <https://docs.continue.dev/customize/deep-dives/mcp>
//! - Goose: <https://block.github.io/goose/docs/guides/config-files>

use std::path::{Path, PathBuf};

/// The folder in which a client's file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileRoot {
    /// The home folder.
    Home,
    /// The folder of programs' settings: `$XDG_CONFIG_HOME`, else `~/.config`; on macOS `~/Library/Application Support`.
    Programs,
    /// `$XDG_CONFIG_HOME`, else `~/.config`, on macOS too.
    Settings,
    /// The folder that this variable names, if it is set. If it is, the client reads no other place.
    Variable(&'static str),
}

/// A client.
#[derive(Debug, PartialEq, Eq)]
pub struct McpClient {
    /// The name for the command line.
    pub id: &'static str,
    /// The name for people.
    pub name: &'static str,
    /// The places of the user's file. All of them count.
    files: &'static [(FileRoot, &'static str)],
    /// The names of its processes, in small letters.
    pub(crate) processes: &'static [&'static str],
    /// Whether its file is YAML, which unhang does not edit.
    pub is_yaml: bool,
}

use FileRoot::{Home, Programs, Settings, Variable};

/// All clients. Where several have a server of the same name, the first one counts for the commands that ask servers.
pub const CLIENTS: &[McpClient] = &[
    client(
        "claude-code",
        "Claude Code",
        &[(Variable("CLAUDE_CONFIG_DIR"), ".claude.json"), (Home, ".claude.json")],
        &["claude"],
    ),
    client("cursor", "Cursor", &[(Home, ".cursor/mcp.json")], &["cursor", "cursor-agent"]),
    client("gemini", "Gemini CLI", &[(Home, ".gemini/settings.json")], &["gemini"]),
    client("windsurf", "Windsurf", &[(Home, ".codeium/windsurf/mcp_config.json")], &["windsurf"]),
    client(
        "codex",
        "Codex",
        &[(Variable("CODEX_HOME"), "config.toml"), (Home, ".codex/config.toml")],
        &["codex"],
    ),
    client(
        "copilot",
        "Copilot CLI",
        &[(Variable("COPILOT_HOME"), "mcp-config.json"), (Home, ".copilot/mcp-config.json")],
        &["copilot"],
    ),
    client(
        "claude-desktop",
        "Claude Desktop",
        &[(Programs, "Claude/claude_desktop_config.json")],
        &["claude-desktop"],
    ),
    client(
        "vscode",
        "VS Code",
        &[
            (Programs, "Code/User/mcp.json"),
            (Programs, "Code - Insiders/User/mcp.json"),
            (Programs, "VSCodium/User/mcp.json"),
        ],
        &["code", "code-insiders", "codium", "vscodium"],
    ),
    client(
        "cline",
        "Cline",
        &[
            (Programs, "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
            (Home, ".cline/data/settings/cline_mcp_settings.json"),
        ],
        &["code", "cline"],
    ),
    client(
        "opencode",
        "opencode",
        &[(Settings, "opencode/opencode.json"), (Settings, "opencode/opencode.jsonc")],
        &["opencode"],
    ),
    client("qwen", "Qwen Code", &[(Home, ".qwen/settings.json")], &["qwen"]),
    client("antigravity", "Antigravity", &[(Home, ".gemini/antigravity/mcp_config.json")], &["antigravity"]),
    client(
        "roo",
        "Roo Code",
        &[(Programs, "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json")],
        &["code"],
    ),
    client(
        "lm-studio",
        "LM Studio",
        &[(Home, ".lmstudio/mcp.json"), (Home, ".cache/lm-studio/mcp.json")],
        &["lm studio", "lm-studio", "lmstudio"],
    ),
    client("kiro", "Kiro", &[(Home, ".kiro/settings/mcp.json")], &["kiro", "kiro-cli"]),
    client("zed", "Zed", &[(Settings, "zed/settings.json")], &["zed", "zed-editor", "zeditor"]),
    McpClient {
        is_yaml: true,
        ..client("continue", "Continue", &[(Home, ".continue/config.yaml")], &["code", "cn"])
    },
    McpClient {
        is_yaml: true,
        ..client("goose", "Goose", &[(Settings, "goose/config.yaml")], &["goose", "goosed"])
    },
];

/// The files of projects and workspaces, below the folder of the project, that unhang reads after consent.
pub const OF_PROJECT: [&str; 7] = [
    ".mcp.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    ".gemini/settings.json",
    ".codex/config.toml",
    "opencode.json",
    "opencode.jsonc",
];
/// More files of projects, which only `unhang adopt` knows.
const MORE_OF_PROJECT: [&str; 4] =
    [".qwen/settings.json", ".zed/settings.json", ".kiro/settings/mcp.json", ".roo/mcp.json"];

const fn client(
    id: &'static str,
    name: &'static str,
    files: &'static [(FileRoot, &'static str)],
    processes: &'static [&'static str],
) -> McpClient {
    McpClient { id, name, files, processes, is_yaml: false }
}

/// The folders of a user, as the environment names them.
#[derive(Clone, Copy)]
pub struct UserFolders<'a> {
    /// The home folder.
    pub home: &'a Path,
    /// Returns the absolute path in a variable, if it is set.
    pub variable: &'a dyn Fn(&str) -> Option<PathBuf>,
    /// Whether programs keep their settings as on macOS.
    pub is_mac: bool,
}

impl McpClient {
    /// Lists the places of the user's file, whether or not there is one.
    #[must_use]
    pub fn files(&self, folders: &UserFolders<'_>) -> Vec<PathBuf> {
        let settings =
            || (folders.variable)("XDG_CONFIG_HOME").unwrap_or_else(|| folders.home.join(".config"));
        let mut places = Vec::new();
        for (root, rest) in self.files {
            let root = match root {
                Home => folders.home.to_owned(),
                Programs if folders.is_mac => folders.home.join("Library/Application Support"),
                Programs | Settings => settings(),
                Variable(name) => match (folders.variable)(name) {
                    Some(folder) => return vec![folder.join(rest)],
                    None => continue,
                },
            };
            places.push(root.join(rest));
        }
        places
    }
}

/// Returns the client with this name for the command line or for people.
#[must_use]
pub fn named(word: &str) -> Option<&'static McpClient> {
    let plain = |text: &str| text.to_lowercase().replace([' ', '_'], "-");
    CLIENTS.iter().find(|client| client.id == plain(word) || plain(client.name) == plain(word))
}

/// Lists the places of the files whose servers the commands that ask servers know. Zed's has servers of extensions, which only Zed can start.
#[must_use]
pub fn readable_files(folders: &UserFolders<'_>) -> Vec<PathBuf> {
    let readable = CLIENTS.iter().filter(|client| !client.is_yaml && client.id != "zed");
    readable.flat_map(|client| client.files(folders)).collect()
}

/// Returns whether the path is that of a project's file, which is committed and gets no path of this machine. The files of the user have to
/// be left out before.
#[must_use]
pub fn is_of_project(path: &Path) -> bool {
    OF_PROJECT.iter().chain(&MORE_OF_PROJECT).any(|name| path.ends_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_where_the_environment_says() {
        let none = |_: &str| None;
        let folders = UserFolders { home: Path::new("/h"), variable: &none, is_mac: false };
        let first = |id: &str, folders: &UserFolders<'_>| {
            named(id).expect("a client").files(folders)[0].display().to_string()
        };
        assert_eq!(first("claude-desktop", &folders), "/h/.config/Claude/claude_desktop_config.json");
        assert_eq!(first("Claude Code", &folders), "/h/.claude.json");
        assert_eq!(first("codex", &folders), "/h/.codex/config.toml");
        let mac = UserFolders { is_mac: true, ..folders };
        assert_eq!(first("vscode", &mac), "/h/Library/Application Support/Code/User/mcp.json");
        assert_eq!(first("zed", &mac), "/h/.config/zed/settings.json");
        let elsewhere = |name: &str| match name {
            "CODEX_HOME" => Some(PathBuf::from("/codex")),
            "XDG_CONFIG_HOME" => Some(PathBuf::from("/x")),
            _ => None,
        };
        let set = UserFolders { home: Path::new("/h"), variable: &elsewhere, is_mac: false };
        assert_eq!(named("codex").expect("a client").files(&set), [PathBuf::from("/codex/config.toml")]);
        assert_eq!(first("zed", &set), "/x/zed/settings.json");
    }

    #[test]
    fn every_client_has_a_name_of_its_own() {
        for client in CLIENTS {
            assert_eq!(named(client.id), Some(client));
            assert_eq!(named(client.name), Some(client));
            assert!(
                !client.files.is_empty() && client.processes.iter().all(|name| *name == name.to_lowercase())
            );
        }
        assert_eq!(named("nobody"), None);
        assert!(is_of_project(Path::new("/p/.vscode/mcp.json")) && !is_of_project(Path::new("/p/mcp.json")));
    }
}
