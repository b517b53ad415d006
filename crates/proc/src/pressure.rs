//! How much of the machine is in use, for a caller that decides whether one more process may start.
//!
//! Invariants
//! - An unknown value is `None` and never a guess: a system that does not tell holds nothing up.
//! - Memory is that of the narrowest place that we are in: the machine, or a control group around us with a limit (v1 or v2).
//! - Memory that the kernel gives back when it is needed, such as that of files that it has read, is not in use.
//!
//! Each question reads a few small files of the kernel, once. Only [`free_disk`] touches a disk, which may hang.

use std::{cmp::Ordering, fs, io, path::Path};

use rustix::fs::statvfs;

use crate::system::control_group;

/// The memory of the narrowest place that we are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes in use.
    pub used: u64,
    /// Bytes in all.
    pub total: u64,
}

impl MemoryUse {
    /// Returns the part that is in use, from 0 to 100.
    #[must_use]
    pub fn percent(self) -> f64 {
        percent(self.used, self.total)
    }
}

/// Returns how much of the memory that we may have is in use, from 0 to 100; `None` if that is not known.
#[must_use]
pub fn memory_used_percent() -> Option<f64> {
    memory_used().map(MemoryUse::percent)
}

/// Returns how much of the memory that we may have is in use, and how much there is; `None` if that is not known.
#[must_use]
pub fn memory_used() -> Option<MemoryUse> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let total = machine.as_deref().and_then(|text| number_of(text, "MemTotal:")?.checked_mul(1024));
    let machine = machine.and_then(|text| used_of_machine(&text));
    let groups = control_group::memory_folders();
    let groups = groups.iter().filter_map(|folder| used_of_groups(folder, total.unwrap_or(u64::MAX)));
    machine.into_iter().chain(groups).max_by(by_percent)
}

/// Returns how many bytes we may still write to the file system of `path`.
///
/// # Errors
/// Fails with the system's error about the path.
pub fn free_disk(path: &Path) -> io::Result<u64> {
    let system = statvfs(path)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// The time that all processors have spent since the system was started, in the system's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    /// The time in which they worked.
    pub busy: u64,
    /// The whole time.
    pub total: u64,
}

impl CpuTimes {
    /// Reads the times up to now; `None` if the system does not tell.
    #[must_use]
    pub fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses `cpu user nice system idle iowait irq softirq steal guest...`; guests are in the first two already.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> =
            line.split_ascii_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let total: u64 = times.iter().sum();
        let idle = times.get(3)? + times.get(4)?;
        Some(Self { busy: total - idle, total })
    }
}

/// Returns how much of their time the processors worked between two readings, from 0 to 100; `None` if no time has passed.
#[must_use]
pub fn cpu_percent(earlier: CpuTimes, later: CpuTimes) -> Option<f64> {
    let total = later.total.checked_sub(earlier.total).filter(|&total| total > 0)?;
    // The count of the time that was spent waiting for a disk may run backwards a little.
    Some(percent(later.busy.saturating_sub(earlier.busy), total))
}

fn percent(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a percentage needs no 53 bits")]
    let (part, whole) = (part as f64, whole as f64);
    if whole > 0.0 { (100.0 * part / whole).clamp(0.0, 100.0) } else { 100.0 }
}

fn used_of_machine(meminfo: &str) -> Option<MemoryUse> {
    let bytes = |name| number_of(meminfo, name)?.checked_mul(1024);
    let (total, available) = (bytes("MemTotal:")?, bytes("MemAvailable:")?);
    Some(MemoryUse { used: total.saturating_sub(available), total })
}

fn by_percent(one: &MemoryUse, other: &MemoryUse) -> Ordering {
    one.percent().total_cmp(&other.percent())
}

/// Finds the fullest of the groups that we are in: the folder's and those around it. Only groups that may have less than the machine has
/// count.
fn used_of_groups(folder: &Path, machine: u64) -> Option<MemoryUse> {
    folder.ancestors().filter_map(|folder| used_of_group(folder, machine)).max_by(by_percent)
}

/// Reads the memory use of one group; `None` if the folder is not a group with such a limit.
fn used_of_group(folder: &Path, machine: u64) -> Option<MemoryUse> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    // The names of v2 come first, then those of v1. Without a limit there is no number in v2, and an enormous one in v1.
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    if limit >= machine {
        return None;
    }
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = read("memory.stat").unwrap_or_default();
    let cache = number_of(&stat, "total_inactive_file").or_else(|| number_of(&stat, "inactive_file"));
    let cache = cache.unwrap_or(0);
    Some(MemoryUse { used: used.saturating_sub(cache), total: limit })
}

/// Finds the number after a name at the beginning of a line.
fn number_of(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', '\t']))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_had_is_not_in_use() {
        let meminfo = "MemTotal:       1000 kB\nMemFree:          10 kB\nMemAvailable:    250 kB\n";
        let used = used_of_machine(meminfo).unwrap();
        assert_eq!((used.percent(), used.used), (75.0, 750 << 10));
        assert_eq!(used_of_machine("MemTotal:       1000 kB\n"), None);
        assert_eq!(used_of_machine(""), None);
    }

    /// A group inside another, as v1 or v2 would show them: limit, use, and what of that is a cache.
    fn groups(names: [&str; 3], outer: [&str; 3], inner: [&str; 3]) -> Option<f64> {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inner");
        fs::create_dir(&inside).unwrap();
        for (group, [limit, used, cache]) in [(folder.path(), outer), (&inside, inner)] {
            fs::write(group.join(names[0]), format!("{limit}\n")).unwrap();
            fs::write(group.join(names[1]), format!("{used}\n")).unwrap();
            fs::write(group.join("memory.stat"), format!("anon 5\n{} {cache}\nfile 6\n", names[2])).unwrap();
        }
        used_of_groups(&inside, 1001).map(MemoryUse::percent)
    }

    const V2: [&str; 3] = ["memory.max", "memory.current", "inactive_file"];
    const V1: [&str; 3] = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];

    #[test]
    fn the_fullest_group_counts() {
        for names in [V2, V1] {
            assert_eq!(groups(names, ["1000", "900", "0"], ["1000", "300", "0"]), Some(90.0));
            assert_eq!(groups(names, ["1000", "900", "0"], ["500", "475", "0"]), Some(95.0));
            assert_eq!(groups(names, ["1000", "2000", "0"], ["0", "0", "0"]), Some(100.0));
        }
        assert_eq!(groups(V2, ["max", "900", "0"], ["1000", "250", "0"]), Some(25.0));
        assert_eq!(groups(V2, ["max", "900", "0"], ["max", "250", "0"]), None);
        assert_eq!(
            groups(V1, ["1001", "900", "0"], ["1000", "250", "0"]),
            Some(25.0),
            "the machine has no more"
        );
    }

    #[test]
    fn the_cache_of_a_group_is_not_in_use() {
        for names in [V2, V1] {
            assert_eq!(groups(names, ["1000", "900", "700"], ["1000", "300", "50"]), Some(25.0));
            assert_eq!(groups(names, ["1000", "900", "950"], ["1000", "0", "50"]), Some(0.0));
        }
    }

    #[test]
    fn the_processors_work_when_they_do_not_wait() {
        let earlier =
            CpuTimes::parse("cpu  10 0 10 70 10 0 0 0 5 5\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5\n").unwrap();
        assert_eq!(earlier, CpuTimes { busy: 20, total: 100 });
        let later = CpuTimes { busy: 80, total: 200 };
        assert_eq!(cpu_percent(earlier, later), Some(60.0));
        assert_eq!(cpu_percent(earlier, earlier), None);
        assert_eq!(cpu_percent(later, earlier), None);
        assert_eq!(CpuTimes::parse("cpu0 1 2 3 4 5\n"), None);
        assert_eq!(CpuTimes::parse("cpu  1 2 3\n"), None);
        assert_eq!(CpuTimes::parse("cpu  1 2 x 4 5\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_is_in_use() {
        assert!(memory_used_percent().is_some_and(|percent| 0.0 < percent && percent <= 100.0));
        let memory = memory_used().unwrap();
        assert!(memory.used > 1 << 20 && memory.used <= memory.total, "{memory:?}");
        assert!(CpuTimes::read().is_some_and(|times| 0 < times.busy && times.busy < times.total));
        let folder = tempfile::tempdir().unwrap();
        assert!(free_disk(folder.path()).is_ok_and(|bytes| bytes > 0));
        assert!(free_disk(&folder.path().join("nothing")).is_err());
    }
}
