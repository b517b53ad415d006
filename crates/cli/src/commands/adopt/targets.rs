//! The files that the command line means: those of clients, or files that are named.
//!
//! Invariant: two names of one file, or two clients that share one, make one target.

use std::{
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use unhang::{exit, wording::did_you_mean};
use unhang_adopt::clients::{CLIENTS, McpClient, UserFolders, is_of_project, named};
use unhang_terminal::{failure::CommandFailure, text::escaped};

/// A file that may change.
#[derive(Clone, Debug)]
pub(super) struct TargetChoice {
    /// The absolute path as it was found or named.
    pub(super) path: PathBuf,
    /// The clients that read it.
    pub(super) clients: Vec<&'static McpClient>,
    /// Whether it belongs to a project, and is committed with it.
    pub(super) is_of_project: bool,
}

/// The files that are meant.
#[derive(Debug, Default)]
pub(super) struct Targets {
    pub(super) files: Vec<TargetChoice>,
    /// YAML files, which unhang does not edit, and the client of each.
    pub(super) by_hand: Vec<(Option<&'static McpClient>, PathBuf)>,
    /// The clients without a file.
    pub(super) absent: Vec<&'static McpClient>,
}

impl Targets {
    /// Finds the files of these clients and these files; without a word, those of all clients.
    pub(super) fn find(words: &[PathBuf]) -> Result<Targets, CommandFailure> {
        let mut targets = Targets::default();
        let of_user = files_of_user()?;
        if words.is_empty() {
            for client in CLIENTS {
                targets.add_client(client, &of_user);
            }
            return Ok(targets);
        }
        for word in words {
            match word.to_str().and_then(named) {
                Some(client) if fs::symlink_metadata(word).is_err() => {
                    if !targets.add_client(client, &of_user) {
                        return Err(no_file(client, &of_user));
                    }
                }
                _ => targets.add_file(word, &of_user)?,
            }
        }
        Ok(targets)
    }

    /// Adds the files of a client. Returns whether there are any.
    fn add_client(&mut self, client: &'static McpClient, of_user: &[UserFile]) -> bool {
        let found: Vec<&UserFile> =
            of_user.iter().filter(|file| file.client == client && is_there(&file.path)).collect();
        if found.is_empty() {
            self.absent.push(client);
        }
        for file in &found {
            self.add(&file.path, vec![client], false);
        }
        !found.is_empty()
    }

    fn add_file(&mut self, word: &Path, of_user: &[UserFile]) -> Result<(), CommandFailure> {
        let path = std::path::absolute(word)
            .map_err(|error| CommandFailure::usage(format!("{}: {error}", word.display()), None))?;
        if !is_there(&path) {
            return Err(no_such(word));
        }
        let clients: Vec<_> =
            of_user.iter().filter(|file| is_same(&file.path, &path)).map(|file| file.client).collect();
        let is_of_project = clients.is_empty() && is_of_project(&path);
        self.add(&path, clients, is_of_project);
        Ok(())
    }

    fn add(&mut self, path: &Path, clients: Vec<&'static McpClient>, is_of_project: bool) {
        let is_yaml = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        if is_yaml {
            self.by_hand.push((clients.first().copied(), path.to_owned()));
            return;
        }
        match self.files.iter_mut().find(|file| is_same(&file.path, path)) {
            Some(file) => {
                let new =
                    clients.into_iter().filter(|client| !file.clients.contains(client)).collect::<Vec<_>>();
                file.clients.extend(new);
            }
            None => self.files.push(TargetChoice { path: path.to_owned(), clients, is_of_project }),
        }
    }
}

/// A place at which a client looks for the user's file.
struct UserFile {
    client: &'static McpClient,
    path: PathBuf,
}

fn files_of_user() -> Result<Vec<UserFile>, CommandFailure> {
    let home = variable("HOME").ok_or_else(|| {
        CommandFailure::usage("HOME is not set, so the files of clients cannot be found".to_owned(), None)
    })?;
    let folders = UserFolders { home: &home, variable: &variable, is_mac: cfg!(target_os = "macos") };
    let of_client = |client: &'static McpClient| {
        client.files(&folders).into_iter().map(move |path| UserFile { client, path })
    };
    Ok(CLIENTS.iter().flat_map(of_client).collect())
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns whether something lies at the path, also a link that leads nowhere. If the system does not say, the attempt to read it tells why.
fn is_there(path: &Path) -> bool {
    let absent = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    fs::symlink_metadata(path).map_or_else(|error| !absent.contains(&error.kind()), |_| true)
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn no_file(client: &McpClient, of_user: &[UserFile]) -> CommandFailure {
    let places: Vec<String> = of_user
        .iter()
        .filter(|file| file.client == client)
        .map(|file| escaped(&file.path.display().to_string()))
        .collect();
    CommandFailure {
        code: exit::NOT_FOUND,
        kind: "no_such_file",
        message: format!("{} has no file at {}", client.name, places.join(" or ")),
        hint: Some("name the file itself if it lies elsewhere".to_owned()),
        data: None,
    }
}

fn no_such(word: &Path) -> CommandFailure {
    let shown = word.display().to_string();
    let ids: Vec<&str> = CLIENTS.iter().map(|client| client.id).collect();
    CommandFailure {
        code: exit::NOT_FOUND,
        kind: "no_such_file",
        message: format!(
            "`{}` is neither a client nor a file{}",
            escaped(&shown),
            did_you_mean(&shown, ids.iter().copied())
        ),
        hint: Some(format!("the clients are {}", ids.join(", "))),
        data: None,
    }
}
