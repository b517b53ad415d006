//! Measures how the crates are built: import cycles, sizes, and names that are not unique.
//!
//! Invariants
//!
//! - What is printed follows from the sources alone, so that anybody sees the same.
//! - A cycle counts only where it leaves its outermost folder. Files of one folder may import each other.
//! - Tests count nowhere: neither their lines nor their types.

mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use self::source::{CrateSource, ModulePath};
use crate::{failure::ChoreFailure, options::Options, project::Project, report};

/// Lines of a file that a reader should not have to scroll past.
const MOST_LINES: usize = 600;

/// Files that may have `impl` blocks of one type.
const MOST_FILES: usize = 3;

/// Types that each have a name per platform: only one of their files is compiled.
const PLATFORM_TYPES: &[&str] = &["ControlGroup", "FileEvents", "FileLock", "FileWatch", "WakeEvent"];

/// What is printed of all crates, and what is wrong with them.
#[derive(Default)]
struct Survey {
    lines: String,
    cycles: usize,
    long_files: usize,
    scattered_types: usize,
    /// Files of each name of a type. Examples are programs of their own, and may name theirs as a user would.
    types: BTreeMap<String, BTreeSet<String>>,
}

/// Prints what the rooms look like. Fails where files of different folders import each other in a circle, a file is too long, a type
/// is implemented in too many files, or a name stands for two types.
pub(crate) fn rooms(project: &Project, options: &Options) -> Result<(), ChoreFailure> {
    let is_chosen = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let mut survey = Survey::default();
    for (name, root) in project.roots().filter(|(name, _)| is_chosen(name)) {
        let shown = |file: &Path| file.strip_prefix(project.root()).unwrap_or(file).display().to_string();
        survey.take(name, &CrateSource::read(root)?, shown, options.list);
    }
    let repeated = survey.repeated_names();
    report::text(&survey.lines);
    let Survey { cycles, long_files, scattered_types, .. } = survey;
    let wrong = [
        (cycles, "import cycles are wider than one folder: turn one import of each"),
        (long_files, "files have more than 600 lines: move out what belongs together"),
        (
            scattered_types,
            "types are implemented in more than three files: give parts of them their own state",
        ),
        (repeated, "names stand for more than one type: rename all but one"),
    ];
    let wrong: Vec<_> = wrong.iter().filter(|(count, _)| *count > 0).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let wrong: Vec<_> = wrong.iter().map(|(count, what)| format!("{count} {what}")).collect();
    Err(ChoreFailure::new(format!("{} (`cargo xtask rooms --list` shows all)", wrong.join("; "))))
}

impl Survey {
    /// Takes a look at one crate.
    fn take(&mut self, name: &str, source: &CrateSource, shown: impl Fn(&Path) -> String, lists: bool) {
        let total: usize = source.modules.values().map(|module| module.lines).sum();
        let _ = writeln!(self.lines, "{name}: {total} lines in {} files without tests", source.modules.len());
        for cycle in wide_cycles(source) {
            self.cycles += 1;
            let folders: BTreeSet<_> = cycle.iter().map(|module| source.folder(module).join("/")).collect();
            let folders: Vec<_> = folders.iter().map(|folder| format!("{name}/{folder}")).collect();
            let _ = writeln!(self.lines, "  cycle of {} files in {}", cycle.len(), folders.join(", "));
            for (from, to) in ties(source, &cycle).into_iter().filter(|_| lists) {
                let _ = writeln!(self.lines, "    {} -> {}", from.join("::"), to.join("::"));
            }
        }
        let mut implemented: BTreeMap<&str, usize> = BTreeMap::new();
        for module in source.modules.values() {
            if module.lines > MOST_LINES {
                self.long_files += 1;
                let _ = writeln!(self.lines, "  {} has {} lines", shown(&module.file), module.lines);
            }
            module.implemented.iter().for_each(|one| *implemented.entry(one).or_default() += 1);
            for one in module.types.iter().filter(|_| !shown(&module.file).starts_with("examples")) {
                self.types.entry(one.clone()).or_default().insert(shown(&module.file));
            }
        }
        for (one, files) in implemented.into_iter().filter(|(_, files)| *files > MOST_FILES) {
            self.scattered_types += 1;
            let _ = writeln!(self.lines, "  {one} is implemented in {files} files");
        }
    }

    /// Notes the names that stand for more than one type, and counts them.
    fn repeated_names(&mut self) -> usize {
        let is_repeated =
            |name: &str, files: &BTreeSet<String>| files.len() > 1 && !PLATFORM_TYPES.contains(&name);
        let mut count = 0;
        for (name, files) in self.types.iter().filter(|(name, files)| is_repeated(name, files)) {
            count += 1;
            let files: Vec<_> = files.iter().map(String::as_str).collect();
            let _ = writeln!(self.lines, "{name} is a type in {}", files.join(" and in "));
        }
        count
    }
}

/// Groups of files that import each other in circles wider than one folder, the largest first.
fn wide_cycles(source: &CrateSource) -> Vec<BTreeSet<&ModulePath>> {
    let reached: BTreeMap<_, _> =
        source.modules.keys().map(|module| (module, reached(source, module))).collect();
    let cycle =
        |module| reached[module].iter().copied().filter(|other| reached[other].contains(module)).collect();
    let cycles: BTreeSet<BTreeSet<&ModulePath>> = reached.keys().copied().map(cycle).collect();
    let mut wide: Vec<_> = cycles.into_iter().filter(|cycle| is_wide(source, cycle)).collect();
    wide.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
    wide
}

/// Whether the cycle leaves the folder of the crate's root, or the outermost folder that it begins in.
fn is_wide(source: &CrateSource, cycle: &BTreeSet<&ModulePath>) -> bool {
    let outermost = |module: &&ModulePath| source.folder(module).into_iter().next();
    cycle.iter().map(outermost).collect::<BTreeSet<_>>().len() > 1
}

/// The modules that are imported from here, directly or by way of others.
fn reached<'a>(source: &'a CrateSource, from: &'a ModulePath) -> BTreeSet<&'a ModulePath> {
    let (mut reached, mut ahead) = (BTreeSet::new(), vec![from]);
    while let Some(module) = ahead.pop() {
        ahead.extend(source.modules[module].imports.iter().filter(|import| reached.insert(*import)));
    }
    reached
}

/// The imports between different folders of a cycle.
fn ties<'a>(
    source: &'a CrateSource,
    cycle: &BTreeSet<&'a ModulePath>,
) -> Vec<(&'a ModulePath, &'a ModulePath)> {
    let mut ties = Vec::new();
    for module in cycle {
        for import in &source.modules[*module].imports {
            if cycle.contains(import) && source.folder(module) != source.folder(import) {
                ties.push((*module, import));
            }
        }
    }
    ties
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(files: &[(&str, &str)]) -> CrateSource {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        }
        CrateSource::read(&root.path().join("lib.rs")).expect("it is Rust")
    }

    #[test]
    fn imports_are_found_however_they_are_written() {
        let source = read(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; use b as renamed;"),
            ("a.rs", "use super::{b::One, c};"),
            ("b.rs", "struct One; fn one() { crate::d::two(); }"),
            ("c.rs", "mod inner { fn three() { log!(\"{}\", crate::renamed::One); } }"),
            ("d/mod.rs", "mod e; use e::Five; #[cfg(test)] mod tests { use crate::a; }"),
            ("d/e.rs", "use super::super::a as other;"),
        ]);
        let imports = |path: &str| {
            let path: ModulePath = path.split('/').map(str::to_owned).collect();
            source.modules[&path].imports.iter().map(|import| import.join("/")).collect::<Vec<_>>()
        };
        assert_eq!(imports("a"), ["b", "c"]);
        assert_eq!(imports("b"), ["d"]);
        assert_eq!(imports("c"), ["b"]);
        assert_eq!(imports("d"), ["d/e"]);
        assert_eq!(imports("d/e"), ["a"]);
        let cycles = wide_cycles(&source);
        assert_eq!(cycles.len(), 1, "{cycles:?}");
        assert_eq!(cycles[0].len(), 5, "{cycles:?}");
    }

    #[test]
    fn files_of_one_folder_may_know_each_other() {
        let source = read(&[
            ("lib.rs", "mod a; mod b; mod d;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A; impl B { } struct B;"),
            ("d/mod.rs", "mod e; use e::Five;"),
            ("d/e.rs", "use super::Four;"),
        ]);
        assert!(wide_cycles(&source).is_empty());
        let b = &source.modules[&vec!["b".to_owned()]];
        assert_eq!((b.lines, b.types.len(), b.implemented.len()), (1, 1, 1));
    }

    #[test]
    fn what_a_reader_would_stumble_over_is_counted() {
        let long = "struct Long;\n".repeat(MOST_LINES + 1);
        let source = read(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; struct Many; impl Many { }"),
            ("a.rs", "use super::Many; struct Twice; impl Many { }"),
            ("b.rs", "use super::Many; struct Twice; impl Many { }"),
            ("c.rs", "use super::Many; impl Many { }"),
            ("d.rs", &long),
        ]);
        let mut survey = Survey::default();
        let shown = |file: &Path| file.file_name().expect("a name").display().to_string();
        survey.take("it", &source, shown, false);
        assert_eq!((survey.cycles, survey.long_files, survey.scattered_types), (0, 1, 1), "{}", survey.lines);
        assert_eq!(survey.repeated_names(), 1, "{}", survey.lines);
        assert!(survey.lines.contains("Twice is a type in a.rs and in b.rs"), "{}", survey.lines);
    }
}
