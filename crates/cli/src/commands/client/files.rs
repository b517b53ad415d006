//! Which servers are configured, and where: our own file, and the files of MCP clients as they are (peers.md 5).
//!
//! Invariants
//!
//! - The first of a name counts; what is behind it is known as well, so that nobody looks for it in vain.
//! - A client's file that cannot be read spoils no other; it is told of. Our own file, and one that was named, must be right.
//! - No file is written, and none is read beyond [`MAX_FILE`].

use std::{
    env, fs, io,
    io::Read,
    path::{Path, PathBuf},
};

use unhang::settings::{
    Complaint, ForeignFile, ForeignServer, Loaded, ServerSettings, Settings, read_foreign,
};

/// What our own file is called.
pub(crate) const FILE: &str = "unhang.toml";

/// The largest file that is read. Claude Code keeps its history in its own, which can have many megabytes.
const MAX_FILE: u64 = 64 << 20;

/// A server that was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) settings: Result<ServerSettings, Complaint>,
    /// The file, as it is told.
    pub(crate) source: String,
    /// It is switched off there.
    pub(crate) is_disabled: bool,
    /// Another file comes first with a server of this name.
    pub(crate) is_shadowed: bool,
}

/// All servers that were found, and what was wrong on the way.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) servers: Vec<Found>,
    pub(crate) warnings: Vec<String>,
}

impl Known {
    /// Reads the named file alone, or all that are known.
    pub(crate) fn find(named: Option<&Path>) -> Result<Known, String> {
        let mut known = Known::default();
        if let Some(path) = named {
            known.read_named(path)?;
            return Ok(known);
        }
        if let Some(path) = own_file() {
            known.read_named(&path)?;
        }
        let here =
            env::current_dir().map_err(|error| format!("the current folder cannot be used: {error}"))?;
        for path in files_of_clients(&here) {
            match read_at_most(&path) {
                Ok(text) => match known.read_foreign(&path, &text, &here) {
                    Ok(()) => {}
                    // Files such as Gemini's settings are there without any server as well.
                    Err(complaint)
                        if complaint.key.is_empty() && complaint.text.starts_with("has none of the keys") => {
                    }
                    Err(complaint) => known.warnings.push(complaint.to_string()),
                },
                Err(error) if is_absent(&error) => {}
                Err(error) => known.warnings.push(format!("{} cannot be read: {error}", path.display())),
            }
        }
        Ok(known)
    }

    fn read_named(&mut self, path: &Path) -> Result<(), String> {
        let told = path.display().to_string();
        match read_named(path)? {
            Named::Ours(loaded) => {
                let Loaded { settings, warnings } = *loaded;
                self.warnings.extend(warnings.iter().map(ToString::to_string));
                let servers = settings.servers.into_iter();
                servers.for_each(|server| self.add(server.name.clone(), Ok(server), &told, false));
            }
            Named::Clients(servers) => self.add_foreign(servers, &told),
        }
        Ok(())
    }

    fn read_foreign(&mut self, path: &Path, text: &str, project: &Path) -> Result<(), Complaint> {
        let told = path.display().to_string();
        let at = ForeignFile { file: &told, project };
        self.add_foreign(read_foreign(text, at, &|name| env::var(name).ok())?, &told);
        Ok(())
    }

    fn add_foreign(&mut self, servers: Vec<ForeignServer>, source: &str) {
        for server in servers {
            self.add(server.name, server.settings, source, server.is_disabled);
        }
    }

    fn add(
        &mut self,
        name: String,
        settings: Result<ServerSettings, Complaint>,
        source: &str,
        is_disabled: bool,
    ) {
        let is_shadowed = self.servers.iter().any(|found| found.name == name && !found.is_disabled);
        self.servers.push(Found { name, settings, source: source.to_owned(), is_disabled, is_shadowed });
    }

    /// The one of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Found> {
        let mut named = self.servers.iter().filter(|found| found.name == name);
        // One that is switched off is better than none: somebody asks for it by its name.
        named.clone().find(|found| !found.is_disabled).or_else(|| named.next())
    }

    /// Those that count.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Found> {
        self.servers.iter().filter(|found| !found.is_disabled && !found.is_shadowed)
    }
}

/// What a file that was named says.
pub(crate) enum Named {
    /// It is ours.
    Ours(Box<Loaded>),
    /// It is that of a client, which has servers alone.
    Clients(Vec<ForeignServer>),
}

/// Gives what a variable holds.
pub(crate) type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Reads a file that was named: ours, or any client's as it is.
pub(crate) fn read_named(path: &Path) -> Result<Named, String> {
    read_named_with(path, &|name| env::var(name).ok())
}

/// The same, with variables that hold what this says.
pub(crate) fn read_named_with(path: &Path, lookup: &Lookup<'_>) -> Result<Named, String> {
    let told = path.display().to_string();
    let text = read_at_most(path).map_err(|error| format!("{told} cannot be read: {error}"))?;
    let folder = folder_of(path).map_err(|error| format!("the folder of {told} cannot be found: {error}"))?;
    let is_codex = || text.lines().any(|line| line.trim_start().starts_with("[mcp_servers"));
    let is_json = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => false,
        Some("json" | "jsonc") => true,
        // Called otherwise, it is known by how it begins: with an object, or a comment in front of one.
        _ => text.trim_start().starts_with(['{', '/']),
    };
    let named = if !is_json && !is_codex() {
        Settings::read(&text, &told, &folder, lookup).map(|loaded| Named::Ours(Box::new(loaded)))
    } else {
        let project = project_of(&folder);
        read_foreign(&text, ForeignFile { file: &told, project: &project }, lookup).map(Named::Clients)
    };
    named.map_err(|complaint| complaint.to_string())
}

/// Our own file here, else the one of the user.
pub(crate) fn own_file() -> Option<PathBuf> {
    let of_user = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
    let of_user = of_user.map(|folder| folder.join("unhang").join(FILE));
    [Some(PathBuf::from(FILE)), of_user].into_iter().flatten().find(|path| path.is_file())
}

/// The folder of a file, as a whole path.
pub(crate) fn folder_of(file: &Path) -> io::Result<PathBuf> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::path::absolute(folder)
}

/// Clients keep the files of a project in a hidden folder of it.
fn project_of(folder: &Path) -> PathBuf {
    let is_hidden = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    folder.parent().filter(|_| is_hidden).unwrap_or(folder).to_owned()
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Where clients keep their servers: first those of the project, then those of the user.
fn files_of_clients(here: &Path) -> Vec<PathBuf> {
    const OF_PROJECT: [&str; 7] = [
        ".mcp.json",
        ".cursor/mcp.json",
        ".vscode/mcp.json",
        ".gemini/settings.json",
        ".codex/config.toml",
        "opencode.json",
        "opencode.jsonc",
    ];
    const OF_USER: [&str; 6] = [
        ".claude.json",
        ".cursor/mcp.json",
        ".gemini/settings.json",
        ".codeium/windsurf/mcp_config.json",
        ".codex/config.toml",
        ".copilot/mcp-config.json",
    ];
    /// Below the folder in which programs keep their settings.
    const OF_PROGRAMS: [&str; 5] = [
        "Claude/claude_desktop_config.json",
        "Code/User/mcp.json",
        "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        "opencode/opencode.json",
        "opencode/opencode.jsonc",
    ];
    let mut files: Vec<PathBuf> = OF_PROJECT.iter().map(|name| here.join(name)).collect();
    let home = variable("HOME");
    if let Some(home) = &home {
        files.extend(OF_USER.iter().map(|name| home.join(name)));
    }
    let mac = home
        .as_ref()
        .map(|home| home.join("Library/Application Support"))
        .filter(|_| cfg!(target_os = "macos"));
    let programs = mac.or_else(|| variable("XDG_CONFIG_HOME")).or_else(|| Some(home?.join(".config")));
    files.extend(programs.iter().flat_map(|programs| OF_PROGRAMS.iter().map(|name| programs.join(name))));
    // Where the project is the home folder, the same file would be there twice.
    let mut seen = std::collections::HashSet::new();
    files.retain(|file| seen.insert(file.clone()));
    files
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn read_at_most(path: &Path) -> io::Result<String> {
    let file = fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it has more than {MAX_FILE} bytes")));
    }
    Ok(text)
}
