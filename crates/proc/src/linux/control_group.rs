//! A control group (cgroup v2) of our own for one tree: nothing leaves it, and one write kills all of it.
//!
//! The hierarchy is found through mountinfo, because it may sit anywhere (below a v1 tree, for instance). Our place in it is found through
//! /proc/self/cgroup.
//!
//! Invariants: only folders with our prefix are made or removed, and only empty groups are removed. The name of a folder holds number and
//! start time of its maker. So a group that a dead process left is known as such.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read},
    num::NonZeroU32,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{Access, AtFlags, CWD, FsWord, Mode, OFlags, accessat, mkdirat, openat, statfs},
    process::Pid,
};

use crate::identity::Identity;

const PREFIX: &str = "mcp-lifeline-";

/// The file system type of control groups, as `statfs` reports it.
const CGROUP2: FsWord = 0x6367_7270;

/// A group that exists and can be killed.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    path: PathBuf,
    folder: OwnedFd,
}

impl ControlGroup {
    /// Makes a group below the one that we are in ourselves. Returns `None` if that is not possible, for whatever reason: the caller then
    /// does without.
    pub(crate) fn create() -> Option<Self> {
        let name = name(Identity::own()?);
        own_group_folders(&[Hierarchy::Unified])?.into_iter().find_map(|parent| {
            remove_leftovers(&parent);
            Self::create_in(&parent, &name)
        })
    }

    fn create_in(parent: &Path, name: &str) -> Option<Self> {
        let path = parent.join(name);
        mkdirat(CWD, &path, Mode::from_raw_mode(0o755)).ok()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Linux 5.14 has the kill file. A group without it is useless to us.
        let folder = accessat(CWD, path.join("cgroup.kill"), Access::WRITE_OK, AtFlags::empty())
            .and_then(|()| openat(CWD, &path, flags, Mode::empty()));
        match folder {
            Ok(folder) => Some(Self { path, folder }),
            Err(_) => {
                remove(&path);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Kills everything in the group at once, also a process that is forked at this moment.
pub(crate) fn kill(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.kill"), "1")
}

/// Removes the group and those that were made inside it. Returns `false` while a process is alive in it.
pub(crate) fn remove(path: &Path) -> bool {
    if let Ok(entries) = fs::read_dir(path) {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&entry.path());
            }
        }
    }
    match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Returns whether this is a control group, and the one that this process made for its tree. The other contents of a folder prove nothing:
/// anybody can write a path down, or make a folder that looks the same.
pub(crate) fn is_made_by(path: &Path, process: Identity) -> bool {
    let is_group = statfs(path).is_ok_and(|system| system.f_type == CGROUP2);
    has_name_of(path, process) && is_group
}

fn has_name_of(path: &Path, process: Identity) -> bool {
    path.file_name() == Some(OsStr::new(&name(process)))
}

/// Lists every process in the group and in those that were made inside it.
pub(crate) fn members(path: &Path) -> HashSet<Pid> {
    let mut found = HashSet::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let numbers = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        found.extend(numbers.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)));
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let inner = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(inner.map(|entry| entry.path()));
    }
    found
}

/// Returns the processor time that everything in the group has used, ended processes included; `None` if it cannot be read.
pub(crate) fn cpu_time(path: &Path) -> Option<Duration> {
    let text = fs::read_to_string(path.join("cpu.stat")).ok()?;
    let micros = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(Duration::from_micros(micros.trim().parse().ok()?))
}

/// Removes the empty groups of processes that have ended.
fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if maker(&entry.file_name().to_string_lossy())
            .is_some_and(|process| Identity::of(process.pid) != Some(process))
        {
            remove(&entry.path());
        }
    }
}

/// Returns the name of the group that a process makes.
fn name(process: Identity) -> String {
    format!("{PREFIX}{}-{}", process.pid, process.start)
}

/// Parses the name of a group into the process that made it.
fn maker(name: &str) -> Option<Identity> {
    let (pid, start) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let pid: NonZeroU32 = pid.parse().ok()?;
    Some(Identity { pid: pid.get(), start: start.parse().ok()? })
}

/// Returns the folders of the groups that we are in and that may limit memory, in v2 and in v1.
pub(crate) fn memory_folders() -> Vec<PathBuf> {
    own_group_folders(&[Hierarchy::Unified, Hierarchy::Memory]).unwrap_or_default()
}

/// A tree of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hierarchy {
    /// The hierarchy of v2.
    Unified,
    /// The hierarchy of v1 that counts memory.
    Memory,
}

impl Hierarchy {
    /// Parses our own group from a line of /proc/self/cgroup: `0::/path` or `4:name,memory:/path`. Returns `None` if the line is of another
    /// hierarchy.
    fn own_group(self, line: &[u8]) -> Option<&Path> {
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_this = match self {
            Self::Unified => number == b"0" && controllers.is_empty(),
            Self::Memory => has_word(controllers, b"memory"),
        };
        is_this.then(|| Path::new(OsStr::from_bytes(path)))
    }

    /// Returns whether a mount is of this hierarchy, by the kind of the file system and the options at the end of the line.
    fn is_mounted(self, kind: &[u8], options: &[u8]) -> bool {
        match self {
            Self::Unified => kind == b"cgroup2",
            Self::Memory => kind == b"cgroup" && has_word(options, b"memory"),
        }
    }
}

fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|other| other == word)
}

fn own_group_folders(hierarchies: &[Hierarchy]) -> Option<Vec<PathBuf>> {
    let (mounts, own) = (read("/proc/self/mountinfo").ok()?, read("/proc/self/cgroup").ok()?);
    Some(hierarchies.iter().flat_map(|&hierarchy| group_folders(&mounts, &own, hierarchy)).collect())
}

/// Reads a file of the kernel in one go, mostly. The kernel says that the file's length is 0. A reader that relies on it reads the file in
/// ten small bites, and for each of them the kernel may make all of it anew.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(8 << 10);
    fs::File::open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Returns the folders that stand for our own group, one for each mount of the hierarchy.
fn group_folders(mounts: &[u8], own: &[u8], hierarchy: Hierarchy) -> Vec<PathBuf> {
    let mut lines = own.split(|&byte| byte == b'\n');
    let Some(own) = lines.find_map(|line| hierarchy.own_group(line)) else { return Vec::new() };
    mounts.split(|&byte| byte == b'\n').filter_map(|line| group_folder(line, own, hierarchy)).collect()
}

/// Parses a line of mountinfo into the folder of our own group; `None` if the line is of another hierarchy. A line reads
/// `31 23 0:28 /root /mount/point rw,relatime optional... - cgroup2 cgroup2 rw`.
fn group_folder(line: &[u8], own: &Path, hierarchy: Hierarchy) -> Option<PathBuf> {
    let mut fields = line.split(|&byte| byte == b' ');
    let (root, point) = (fields.nth(3)?, fields.next()?);
    fields.by_ref().find(|field| *field == b"-")?;
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    if !hierarchy.is_mounted(kind, options) {
        return None;
    }
    Some(PathBuf::from(unescape(point)).join(own.strip_prefix(PathBuf::from(unescape(root))).ok()?))
}

/// Replaces the three octal digits that stand for a blank or a backslash in mountinfo.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code =
            after.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_wherever_it_is_mounted() {
        let mounts = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 master:1 - cgroup2 cgroup2 rw\n\
            50 31 0:38 /user /my\\040place rw - cgroup2 cgroup2 rw\n";
        let unified = |own: &[u8]| group_folders(mounts, own, Hierarchy::Unified);
        let found = unified(b"9:name=systemd:/\n0::/user/app\n");
        assert_eq!(found, [Path::new("/sys/fs/cgroup/unified/user/app"), Path::new("/my place/app")]);
        assert!(unified(b"9:name=systemd:/\n").is_empty());
        assert_eq!(unified(b"0::/other\n"), [Path::new("/sys/fs/cgroup/unified/other")]);
    }

    /// A container sees its own group as the root of the mount.
    #[test]
    fn the_group_that_counts_memory_is_found_in_the_old_hierarchies() {
        let mounts = b"32 31 0:29 / /cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            33 31 0:30 /box/7 /cgroup/memory rw - cgroup cgroup rw,memory\n\
            41 31 0:38 / /cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let memory = |own: &[u8]| group_folders(mounts, own, Hierarchy::Memory);
        assert_eq!(
            memory(b"5:cpu:/\n4:hugetlb,memory:/box/7/job\n0::/\n"),
            [Path::new("/cgroup/memory/job")]
        );
        assert_eq!(memory(b"4:memory:/box/7\n"), [Path::new("/cgroup/memory/")]);
        assert!(memory(b"5:cpu:/box/7\n0::/\n").is_empty());
    }

    #[test]
    fn only_what_the_dead_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let own = Identity::own().unwrap();
        let living = name(own);
        for name in [&living, &name(Identity { start: own.start + 1, ..own })] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        remove_leftovers(parent.path());
        let left: Vec<_> =
            fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [living.as_str()]);
    }

    #[test]
    fn a_folder_that_only_looks_like_a_group_is_none() {
        let parent = tempfile::tempdir().unwrap();
        let process = Identity { pid: 12, start: 345 };
        let path = parent.path().join(name(process));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("cgroup.procs"), "1\n").unwrap();
        assert!(!is_made_by(&path, process));
    }

    #[test]
    fn a_group_is_known_by_its_maker() {
        let process = Identity { pid: 12, start: 345 };
        assert!(has_name_of(Path::new("/sys/fs/cgroup/mcp-lifeline-12-345"), process));
        for other in
            ["/", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup/mcp-lifeline-12-346", "/mcp-lifeline-12-345/x"]
        {
            assert!(!has_name_of(Path::new(other), process), "{other}");
        }
    }

    #[test]
    fn only_our_own_names_are_taken_for_ours() {
        assert_eq!(maker("mcp-lifeline-12-345"), Some(Identity { pid: 12, start: 345 }));
        for name in [
            "user.slice",
            "12-345",
            "mcp-lifeline-",
            "mcp-lifeline-0-1",
            "mcp-lifeline-a-b",
            "mcp-lifeline-1",
        ] {
            assert!(maker(name).is_none(), "{name}");
        }
    }
}
