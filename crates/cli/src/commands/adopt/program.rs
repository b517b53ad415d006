//! The binary that adopted entries start: at a place where it stays.
//!
//! # Theory of operation
//!
//! Clients start the guard for months, so the path must outlive the installation that ran `adopt`. A link on PATH that leads to this binary
//! is better than the binary: package managers keep the link, and not the folder of one version. The caches of npx and uvx, temporary folders
//! and the folder of a build do not stay. From there, the binary is copied to `~/.local/bin/unhang` first.
//!
//! Invariant: a program that is not unhang, or a newer unhang, is never written over.

use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Access, access},
};
use unhang::process::spawn::{Launch, Stream, spawn};
use unhang_terminal::{failure::CommandFailure, text::escaped};

/// The name of the binary. Entries are known by it.
const NAME: &str = "unhang";
/// The folder of the user's own programs, below the home folder.
const OWN_PROGRAMS: &str = ".local/bin";
/// The time that a program may take to tell its version.
const VERSION_LIMIT: Duration = Duration::from_secs(5);
/// The most bytes of a version.
const VERSION_BYTES: usize = 200;
/// The version of this binary.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The program for entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChosenProgram {
    /// Its absolute path.
    pub(super) path: String,
    /// The binary that has to be copied there first.
    pub(super) copied_from: Option<PathBuf>,
    /// A sentence about another unhang at that place.
    pub(super) note: Option<String>,
    /// Whether an unhang that lies there is to be replaced, also if no file changes: entries start it.
    pub(super) replaces: bool,
    /// Whether the bare name starts an unhang: PATH leads to one.
    pub(super) is_on_path: bool,
}

impl ChosenProgram {
    /// Copies the binary to its place, if it has to be.
    pub(super) fn install(&self) -> Result<(), CommandFailure> {
        let Some(from) = &self.copied_from else { return Ok(()) };
        copy(from, Path::new(&self.path)).map_err(|error| {
            CommandFailure::system(&format!("unhang cannot be copied to {}", escaped(&self.path)), &error)
        })
    }
}

/// Chooses the program. Changes nothing.
pub(super) fn choose() -> Result<ChosenProgram, CommandFailure> {
    let usage = |message: String| CommandFailure::usage(message, None);
    let own = env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(|error| usage(format!("the file of this program is gone: {error}; install unhang again")))?;
    let on_path: Vec<PathBuf> = folders_of_path().into_iter().map(|folder| folder.join(NAME)).collect();
    let is_on_path = on_path.iter().any(|path| path.is_file());
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let place = home.map(|home| home.join(OWN_PROGRAMS).join(NAME));
    let leads_here = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| path == own);
    let stays = |path: &&PathBuf| !is_temporary(path);
    let is_named = |path: &&PathBuf| path.file_name().is_some_and(|name| name == NAME);
    let found = on_path.iter().filter(stays).find(leads_here);
    let found = found.or_else(|| place.as_ref().filter(leads_here));
    let found = found.or_else(|| Some(&own).filter(stays).filter(is_named));
    if let Some(path) = found {
        let path = text(path)?;
        return Ok(ChosenProgram { path, copied_from: None, note: None, replaces: false, is_on_path });
    }
    let place = place.ok_or_else(|| {
        usage("HOME is not set, so unhang cannot be copied to a place where it stays".to_owned())
    })?;
    let path = text(&place)?;
    let shown = escaped(&path);
    let place = at_place(&own, &place)?;
    let replaces = matches!(place, AtPlace::Older(_) | AtPlace::NotExecutable);
    let (copied_from, note) = match place {
        AtPlace::Nothing => (Some(own), None),
        AtPlace::Same => (None, None),
        AtPlace::NotExecutable => {
            (Some(own), Some(format!("nobody may execute {shown}, and this unhang replaces it")))
        }
        AtPlace::Older(version) => {
            let note = format!("{shown} is unhang {version}, which {VERSION} replaces");
            (Some(own), Some(note))
        }
        AtPlace::Other(version) => {
            let note = format!(
                "{shown} is another unhang, {version}, which the entries start; remove it to have this one ({VERSION}) copied there"
            );
            (None, Some(note))
        }
    };
    Ok(ChosenProgram { path, copied_from, note, replaces, is_on_path })
}

fn text(path: &Path) -> Result<String, CommandFailure> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        CommandFailure::usage(
            format!("the path {} is not UTF-8, as files of clients are", path.display()),
            None,
        )
    })
}

fn folders_of_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).filter(|folder| folder.is_absolute()).collect()
}

/// What lies at the place for the copy.
enum AtPlace {
    Nothing,
    Same,
    NotExecutable,
    Older(String),
    Other(String),
}

fn at_place(own: &Path, place: &Path) -> Result<AtPlace, CommandFailure> {
    let shown = escaped(&place.display().to_string());
    if fs::symlink_metadata(place).is_err() {
        return Ok(AtPlace::Nothing);
    }
    if is_same_content(own, place) {
        let is_executable = access(place, Access::EXEC_OK).is_ok();
        return Ok(if is_executable { AtPlace::Same } else { AtPlace::NotExecutable });
    }
    match version_of(place) {
        Some(version) if is_older(&version, VERSION) => Ok(AtPlace::Older(version)),
        Some(version) => Ok(AtPlace::Other(version)),
        None => Err(CommandFailure::usage(
            format!("unhang cannot be copied to {shown}, because something else lies there"),
            Some("move it away, or install unhang at a place where it stays"),
        )),
    }
}

fn is_same_content(one: &Path, other: &Path) -> bool {
    let length = |path: &Path| fs::metadata(path).map(|found| found.len()).ok();
    length(one) == length(other)
        && matches!((fs::read(one), fs::read(other)), (Ok(one), Ok(other)) if one == other)
}

/// Returns whether the first version is older. Versions without numbers are not.
fn is_older(one: &str, other: &str) -> bool {
    let numbers = |version: &str| -> Option<Vec<u64>> {
        version.split(['-', '+']).next()?.split('.').map(|part| part.parse().ok()).collect()
    };
    matches!((numbers(one), numbers(other)), (Some(one), Some(other)) if one < other)
}

/// Asks a program for its version. Returns `None` if it is not unhang, or does not answer in time.
pub(super) fn version_of(program: &Path) -> Option<String> {
    let (output, input) = io::pipe().ok()?;
    let arguments = ["--version".into()];
    let launch = Launch { output: Stream::Descriptor(input.into()), ..Launch::new(program, &arguments) };
    let process = spawn(launch).ok()?;
    let mut text = String::new();
    let limit = Timespec { tv_sec: VERSION_LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
    let answered = {
        let mut polled = [PollFd::new(&output, PollFlags::IN)];
        poll(&mut polled, Some(&limit)).is_ok_and(|ready| ready > 0)
    };
    if answered {
        // What it writes is one line, and the pipe holds more than that.
        let mut bytes = [0; VERSION_BYTES];
        let read = rustix::io::read(&output, &mut bytes).unwrap_or_default();
        text = String::from_utf8_lossy(&bytes[..read]).into_owned();
    }
    process.signal(rustix::process::Signal::KILL);
    let version = text.trim_end().strip_prefix("unhang ")?;
    let is_version = |text: &str| {
        !text.is_empty()
            && text.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-+".contains(letter))
    };
    is_version(version).then(|| version.to_owned())
}

/// Puts a copy of the binary in its place in one step, so that guards that run keep theirs.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let folder = to.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    let temporary = folder.join(format!(".{NAME}.{}", std::process::id()));
    // A process of this number that was killed may have left one.
    let _ = fs::remove_file(&temporary);
    let copied = (|| {
        let mut new = fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(&temporary)?;
        io::copy(&mut fs::File::open(from)?, &mut new)?;
        new.set_permissions(fs::Permissions::from_mode(0o755))?;
        new.sync_all()?;
        fs::rename(&temporary, to)
    })();
    if copied.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    copied
}

/// Returns whether a path lies where nothing stays: in a cache of npx, uvx, pipx, bunx or pnpm, in a temporary folder, or in a build.
fn is_temporary(path: &Path) -> bool {
    let temporary =
        [env::temp_dir().as_path(), Path::new("/tmp"), Path::new("/var/tmp"), Path::new("/dev/shm")]
            .iter()
            .chain(&[Path::new("/private/tmp"), Path::new("/var/folders"), Path::new("/private/var/folders")])
            .any(|folder| path.starts_with(folder));
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let has = |name: &str| parts.iter().any(|part| part == name);
    let is_build = parts.windows(3).any(|three| {
        three[0] == "target"
            && ["debug", "release", "dist"]
                .iter()
                .any(|profile| three[1..].iter().any(|part| part == profile))
    });
    let is_cache = has("_npx")
        || has("archive-v0")
        || has("dlx")
        || has(".cache") && (has("pipx") || has("node_modules"));
    temporary
        || is_build
        || is_cache
        || parts.iter().any(|part| part.starts_with("bunx-") || part.starts_with("dlx-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays_in_caches_builds_and_temporary_folders() {
        for path in [
            "/home/a/.npm/_npx/0a1b/node_modules/unhang-linux-x64/bin/unhang",
            "/home/a/.cache/uv/archive-v0/Xy/bin/unhang",
            "/home/a/.local/pipx/.cache/1234/bin/unhang",
            "/home/a/.cache/pnpm/dlx/0a/node_modules/.bin/unhang",
            "/tmp/bunx-1000-unhang/node_modules/.bin/unhang",
            "/home/a/src/unhang/target/release/unhang",
            "/home/a/src/unhang/target/x86_64-unknown-linux-musl/dist/unhang",
            "/var/folders/zz/x/T/unhang",
        ] {
            assert!(is_temporary(Path::new(path)), "{path}");
        }
        for path in [
            "/usr/bin/unhang",
            "/home/a/.local/bin/unhang",
            "/home/a/.cargo/bin/unhang",
            "/opt/homebrew/bin/unhang",
            "/home/a/.nvm/versions/node/v24.1.0/lib/node_modules/unhang/bin/unhang",
            "/home/a/.local/share/uv/tools/unhang/bin/unhang",
            "/srv/target/bin/unhang",
        ] {
            assert!(!is_temporary(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(is_older("0.9.1", "0.10.0") && !is_older("0.10.0", "0.9.1") && !is_older("1.0.0", "1.0.0"));
        assert!(!is_older("unknown", "1.0.0"));
    }

    #[test]
    fn what_is_not_unhang_has_no_version() {
        for program in ["/bin/true", "/bin/echo", "/nowhere/unhang"] {
            assert_eq!(version_of(Path::new(program)), None, "{program}");
        }
    }
}
