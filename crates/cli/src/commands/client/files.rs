//! The configured servers and their files: unhang's own file, and the files of MCP clients as they are (peers.md 5).
//!
//! Invariants
//!
//! - The first server of a name counts. The later ones are listed as well, so that nobody looks for them in vain.
//! - A client's file that cannot be read spoils no other; a warning names it. unhang's own file, and a named file, must be right.
//! - A file of a project counts after consent to the bytes that were parsed. A file of the user and a named file need none.
//! - unhang writes no file, and reads none beyond [`MAX_FILE`]. It reads only plain files: to open a pipe would wait for its writer.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env, fs, io,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use unhang::settings::{
    Complaint, ForeignFile, ForeignServer, JobSettings, Loaded, ServerSettings, Settings, declared,
    read_foreign, sha256, speaks_of_jobs,
};
use unhang_adopt::clients::{OF_PROJECT, UserFolders, readable_files};
use unhang_terminal::{failure::CommandFailure, output};

use crate::{
    arguments::files::FileChoice,
    consent::{ProjectFile, demand},
};

/// The name of unhang's own file.
pub(crate) const FILE: &str = "unhang.toml";

/// The size in bytes of the largest file that is read. Claude Code keeps its history in its own file, which can have many megabytes.
const MAX_FILE: u64 = 64 << 20;

/// A server that was found.
#[derive(Debug)]
pub(crate) struct FoundServer {
    pub(crate) name: String,
    pub(crate) settings: Result<ServerSettings, Complaint>,
    /// The file, as messages name it.
    pub(crate) source: String,
    /// Whether the file switches the server off.
    pub(crate) is_disabled: bool,
    /// Whether an earlier file has a server of this name.
    pub(crate) is_shadowed: bool,
}

/// All servers that were found, and the problems on the way.
#[derive(Debug, Default)]
pub(crate) struct ConfiguredServers {
    pub(crate) servers: Vec<FoundServer>,
    warnings: Vec<String>,
    /// The files that unhang could not read, each with the reason. Their servers are unknown.
    unread: Vec<String>,
}

/// Demands consent to these files, unless this run needs none.
fn demand_unless_trusted(choice: &FileChoice, files: &[ProjectFile]) -> Result<(), CommandFailure> {
    if choice.trusts_project { Ok(()) } else { demand(files) }
}

impl ConfiguredServers {
    /// Reads the named file alone, or all known files. It may ask a person, and waits for the answer.
    pub(crate) fn find(choice: &FileChoice) -> Result<ConfiguredServers, CommandFailure> {
        let mut known = ConfiguredServers::default();
        if let Some(path) = &choice.config {
            known.read_ours(&ConfigLocation::of_user(path.clone()))?;
            return Ok(known);
        }
        let here = WorkingFolder::find()?;
        let mut of_project = Vec::new();
        if let Some(location) = here.own_file() {
            of_project.extend(known.read_ours(&location)?);
        }
        for location in here.files_of_clients() {
            match ConfigFile::read(&location.path) {
                Ok(document) => match known.read_foreign(&document, &location) {
                    Ok(project) => of_project.extend(project),
                    // Files such as Gemini's settings exist without any server as well.
                    Err(complaint)
                        if complaint.key.is_empty() && complaint.text.starts_with("has none of the keys") => {
                    }
                    Err(complaint) => known.unread.push(complaint.to_string()),
                },
                Err(error) if is_absent(&error) => {}
                Err(error) => {
                    known.unread.push(format!("{} cannot be read: {error}", location.path.display()));
                }
            }
        }
        demand_unless_trusted(choice, &of_project)?;
        Ok(known)
    }

    /// Reads a file that must be right. Returns it if it needs consent.
    fn read_ours(&mut self, location: &ConfigLocation) -> Result<Option<ProjectFile>, CommandFailure> {
        let usage = |why| CommandFailure::usage(why, None);
        let told = location.path.display().to_string();
        let document = ConfigFile::read(&location.path)
            .map_err(|error| usage(format!("{told} cannot be read: {error}")))?;
        match document.named(&location.path, &|name| env::var(name).ok()).map_err(usage)? {
            NamedFile::Ours(loaded) => {
                let Loaded { settings, warnings } = *loaded;
                self.warnings.extend(warnings.iter().map(ToString::to_string));
                let servers = settings.servers.into_iter();
                servers.for_each(|server| self.add(server.name.clone(), Ok(server), &told, false));
            }
            NamedFile::Clients(servers) => self.add_foreign(servers, &told),
        }
        document.of_project(location).map_err(|complaint| usage(complaint.to_string()))
    }

    /// Reads a client's file. Returns it if it needs consent, that is, if it has servers and belongs to the project.
    fn read_foreign(
        &mut self,
        document: &ConfigFile,
        location: &ConfigLocation,
    ) -> Result<Option<ProjectFile>, Complaint> {
        let told = location.path.display().to_string();
        let servers = document.servers(&told, &location.project, &|name| env::var(name).ok())?;
        let project = if servers.is_empty() { None } else { document.of_project(location)? };
        self.add_foreign(servers, &told);
        Ok(project)
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
        self.servers.push(FoundServer {
            name,
            settings,
            source: source.to_owned(),
            is_disabled,
            is_shadowed,
        });
    }

    /// Returns the files that could not be read, if no server was found: one of them may hold the server that somebody looks for.
    pub(crate) fn unread_alone(&self) -> Option<String> {
        (self.servers.is_empty() && !self.unread.is_empty()).then(|| self.unread.join("; "))
    }

    /// Prints the warnings. If no server was found, the error that follows names the files that could not be read.
    pub(crate) fn tell_warnings(&self) {
        let unread = self.unread.iter().filter(|_| self.unread_alone().is_none());
        self.warnings.iter().chain(unread).for_each(|warning| output::error(warning, None));
    }

    /// Returns the server of this name, or `None`.
    pub(crate) fn named(&self, name: &str) -> Option<&FoundServer> {
        let mut named = self.servers.iter().filter(|found| found.name == name);
        // Somebody asks for the server by its name, so a disabled one is better than none.
        named.clone().find(|found| !found.is_disabled).or_else(|| named.next())
    }

    /// Returns the servers that count: those that are neither disabled nor shadowed.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &FoundServer> {
        self.servers.iter().filter(|found| !found.is_disabled && !found.is_shadowed)
    }
}

/// The content of a named file.
pub(crate) enum NamedFile {
    /// unhang's own file.
    Ours(Box<Loaded>),
    /// A client's file, which has only servers.
    Clients(Vec<ForeignServer>),
}

/// A function that returns the value of a variable.
pub(crate) type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Reads a named file: unhang's own, or any client's as it is. `lookup` gives the values of variables.
pub(crate) fn read_named_with(path: &Path, lookup: &Lookup<'_>) -> Result<NamedFile, String> {
    let document =
        ConfigFile::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    document.named(path, lookup)
}

/// Reads the settings of jobs from unhang's own file, with complaints about suspicious entries. The file is the named one, else that of the
/// project or of the user; without a file the settings are the defaults. It may ask a person, and waits for the answer.
pub(crate) fn job_settings(choice: &FileChoice) -> Result<(JobSettings, Vec<Complaint>), CommandFailure> {
    let usage = |why| CommandFailure::usage(why, None);
    let location = match &choice.config {
        Some(path) => Some(ConfigLocation::of_user(path.clone())),
        None => WorkingFolder::find()?.own_file(),
    };
    let Some(location) = location else { return Ok((JobSettings::default(), Vec::new())) };
    let told = location.path.display().to_string();
    let document =
        ConfigFile::read(&location.path).map_err(|error| usage(format!("{told} cannot be read: {error}")))?;
    if document.is_of_client(&location.path) {
        // A client's file has no settings of jobs. The command still checks that it can be read.
        let servers = document.named(&location.path, &|name| env::var(name).ok());
        return servers.map(|_| (JobSettings::default(), Vec::new())).map_err(usage);
    }
    let read = JobSettings::read(&document.text, &told).map_err(|complaint| usage(complaint.to_string()))?;
    if location.is_of_project && !speaks_of_jobs(&document.text) {
        // Nothing in the file counts for jobs.
        return Ok(read);
    }
    let project = document.of_project(&location).map_err(|complaint| usage(complaint.to_string()))?;
    demand_unless_trusted(choice, project.as_slice())?;
    Ok(read)
}

/// A file that was read once, so that every question to it is about the same bytes.
struct ConfigFile {
    text: String,
    /// The files of variables that were read for it, each with the SHA-256 of its bytes. The digest is empty if the file could not be read.
    env_files: RefCell<BTreeMap<String, String>>,
}

impl ConfigFile {
    fn read(path: &Path) -> io::Result<ConfigFile> {
        Ok(ConfigFile { text: read_at_most(path)?, env_files: RefCell::default() })
    }

    /// Returns whether a client wrote the file, and not a person for unhang.
    fn is_of_client(&self, path: &Path) -> bool {
        let is_codex = || self.text.lines().any(|line| line.trim_start().starts_with("[mcp_servers"));
        let is_json = match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => false,
            Some("json" | "jsonc") => true,
            // A file with another name is known by its beginning: an object, or a comment in front of one.
            _ => self.text.trim_start().starts_with(['{', '/']),
        };
        is_json || is_codex()
    }

    /// Reads the content as that of a named file.
    fn named(&self, path: &Path, lookup: &Lookup<'_>) -> Result<NamedFile, String> {
        let told = path.display().to_string();
        let folder =
            folder_of(path).map_err(|error| format!("the folder of {told} cannot be found: {error}"))?;
        let named = if self.is_of_client(path) {
            self.servers(&told, &project_of(&folder), lookup).map(NamedFile::Clients)
        } else {
            Settings::read(&self.text, &told, &folder, lookup).map(|loaded| NamedFile::Ours(Box::new(loaded)))
        };
        named.map_err(|complaint| complaint.to_string())
    }

    /// Returns the servers of a client's file.
    fn servers(
        &self,
        told: &str,
        project: &Path,
        lookup: &Lookup<'_>,
    ) -> Result<Vec<ForeignServer>, Complaint> {
        let env_file = |path: &Path| {
            let read = read_at_most(path);
            let digest = read.as_ref().map(|text| sha256(text.as_bytes())).unwrap_or_default();
            self.env_files.borrow_mut().insert(path.to_string_lossy().into_owned(), digest);
            read.map_err(|error| error.to_string())
        };
        read_foreign(&self.text, ForeignFile { file: told, project, env_file: &env_file }, lookup)
    }

    /// Returns the file as one that needs consent, or `None` if it is the user's own.
    fn of_project(&self, location: &ConfigLocation) -> Result<Option<ProjectFile>, Complaint> {
        if !location.is_of_project {
            return Ok(None);
        }
        let path = location.path.canonicalize().unwrap_or_else(|_| location.path.clone());
        let folder = location.project.canonicalize().unwrap_or_else(|_| location.project.clone());
        // The path is the folder without links, and below it the name as it was given. So a link is found again, and its project with it.
        let named = std::path::absolute(&location.path).unwrap_or_else(|_| location.path.clone());
        let named = match named.strip_prefix(&location.project) {
            Ok(below) => folder.join(below),
            Err(_) => path.clone(),
        };
        let declarations = declared(&self.text, &location.path.display().to_string())?;
        let (sha256, env_files) = (sha256(self.text.as_bytes()), self.env_files.borrow().clone());
        Ok(Some(ProjectFile { path, named, folder, sha256, env_files, declarations }))
    }
}

/// The place of a file, and whether it belongs to a project.
#[derive(Clone, Debug)]
struct ConfigLocation {
    path: PathBuf,
    /// The folder in which its relative paths begin.
    project: PathBuf,
    /// Whether somebody else may have put the file there, so that it needs consent.
    is_of_project: bool,
}

impl ConfigLocation {
    fn of_user(path: PathBuf) -> ConfigLocation {
        let project = folder_of(&path).map_or_else(|_| path.clone(), |folder| project_of(&folder));
        ConfigLocation { path, project, is_of_project: false }
    }
}

/// The folder in which the command works, which may be somebody's project.
struct WorkingFolder {
    folder: PathBuf,
    home: Option<PathBuf>,
    /// Whether it is the home folder, whose files are the user's own.
    is_home: bool,
}

impl WorkingFolder {
    fn find() -> Result<WorkingFolder, CommandFailure> {
        let folder = env::current_dir().map_err(|error| {
            CommandFailure::usage(format!("the current folder cannot be used: {error}"), None)
        })?;
        let home = variable("HOME");
        let same = |one: &Path, other: &Path| matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other);
        let is_home = home.as_deref().is_some_and(|home| same(home, &folder));
        Ok(WorkingFolder { folder, home, is_home })
    }

    /// Returns unhang's own file in this folder, else that of the user, else `None`.
    fn own_file(&self) -> Option<ConfigLocation> {
        let here =
            ConfigLocation { path: FILE.into(), project: self.folder.clone(), is_of_project: !self.is_home };
        Some(here)
            .filter(|here| is_there(&here.path))
            .or_else(|| own_file_of_user().map(ConfigLocation::of_user))
    }

    /// Lists the files in which clients keep their servers: first those of the project, then those of the user.
    fn files_of_clients(&self) -> Vec<ConfigLocation> {
        let of_project = OF_PROJECT.iter().map(|name| self.folder.join(name));
        let of_project = of_project.map(|path| (path, !self.is_home));
        let of_user = files_of_user(self.home.as_deref()).into_iter().map(|path| (path, false));
        // If the project is the home folder, the same file would be there twice.
        let mut seen = std::collections::HashSet::new();
        let files = of_project.chain(of_user).filter(|(path, _)| seen.insert(path.clone()));
        files
            .map(|(path, is_of_project)| ConfigLocation { path, project: self.folder.clone(), is_of_project })
            .collect()
    }
}

/// Reads the files of a project in this folder, or this one file, as files that need consent. It looks at their content, but does nothing
/// with it.
pub(crate) fn project_files(path: &Path) -> Result<Vec<ProjectFile>, CommandFailure> {
    let usage = |why: String| CommandFailure::usage(why, None);
    let cannot = |error: io::Error| usage(format!("{} cannot be read: {error}", path.display()));
    let whole = path.canonicalize().map_err(cannot)?;
    let names = || OF_PROJECT.iter().chain(std::iter::once(&FILE));
    let locations: Vec<ConfigLocation> = if whole.is_dir() {
        let locations = names().map(|name| ConfigLocation {
            path: whole.join(name),
            project: whole.clone(),
            is_of_project: true,
        });
        locations.filter(|location| is_there(&location.path)).collect()
    } else {
        // A link keeps the path that was given: unhang finds it where it lies, and so its project.
        let named = std::path::absolute(path).map_err(cannot)?;
        let folder = folder_of(&named).map_err(cannot)?;
        let above = |name: &&&str| {
            named
                .ends_with(name)
                .then(|| named.ancestors().nth(Path::new(name).components().count()))
                .flatten()
        };
        let project =
            names().find_map(|name| above(&name)).map_or_else(|| project_of(&folder), Path::to_owned);
        vec![ConfigLocation { path: named, project, is_of_project: true }]
    };
    let mut found = Vec::new();
    for location in locations {
        let told = location.path.display().to_string();
        let document = ConfigFile::read(&location.path)
            .map_err(|error| usage(format!("{told} cannot be read: {error}")))?;
        if document.is_of_client(&location.path) {
            match document.servers(&told, &location.project, &|name| env::var(name).ok()) {
                Ok(servers) if servers.is_empty() => continue,
                Ok(_) => {}
                Err(complaint) if complaint.text.starts_with("has none of the keys") && whole.is_dir() => {
                    continue;
                }
                Err(complaint) => return Err(usage(complaint.to_string())),
            }
        }
        found.extend(document.of_project(&location).map_err(|complaint| usage(complaint.to_string()))?);
    }
    Ok(found)
}

/// Returns the user's own unhang.toml: in the folder of settings, else directly in the home folder. Only the user writes there.
pub(crate) fn own_file_of_user() -> Option<PathBuf> {
    let home = variable("HOME");
    let settings = variable("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
    let in_settings = settings.map(|folder| folder.join("unhang").join(FILE));
    let found =
        [in_settings, home.map(|home| home.join(FILE))].into_iter().flatten().find(|path| path.is_file())?;
    // A path in the current folder is shown relative to that.
    let here = env::current_dir().ok();
    Some(here.and_then(|here| Some(found.strip_prefix(here).ok()?.to_owned())).unwrap_or(found))
}

/// Lists the files of the user's clients that exist.
pub(crate) fn clients_of_user() -> Vec<PathBuf> {
    files_of_user(variable("HOME").as_deref()).into_iter().filter(|path| path.is_file()).collect()
}

/// Returns the folder of a file as an absolute path.
pub(crate) fn folder_of(file: &Path) -> io::Result<PathBuf> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::path::absolute(folder)
}

/// Returns the project of a folder. Clients keep the files of a project in a hidden folder, whose parent is the project.
fn project_of(folder: &Path) -> PathBuf {
    let is_hidden = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    folder.parent().filter(|_| is_hidden).unwrap_or(folder).to_owned()
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Lists the files in which clients keep the servers of the user.
fn files_of_user(home: Option<&Path>) -> Vec<PathBuf> {
    let Some(home) = home else { return Vec::new() };
    readable_files(&UserFolders { home, variable: &variable, is_mac: cfg!(target_os = "macos") })
}

/// Returns whether anything lies at this path. Reading it reports a pipe, a folder or a dangling link.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn read_at_most(path: &Path) -> io::Result<String> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it has more than {MAX_FILE} bytes")));
    }
    Ok(text)
}
