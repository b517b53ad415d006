//! Checks `docs/reference/contract.md` and `docs/reference/guards.md` against the tests that they name.
//!
//! Invariants: every test that a page names is a test in the file that it names; every test that is called by an id is in the row
//! of that id; each id is either held or said not to be; each promise has protections with tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

const PAGE: &str = include_str!("../../../../docs/reference/contract.md");
const PROTECTIONS: &str = include_str!("../../../../docs/reference/guards.md");

/// The tests of the workspace by their files, as the page names both.
fn tests() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeMap::new();
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        let entries: Vec<PathBuf> =
            fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).expect("below the root").display().to_string();
                let names = named(&fs::read_to_string(&path).expect("text"));
                found.insert(name, names);
            }
        }
    }
    found
}

/// The functions of a source that are tests. A row of `each_program!` is one too, and a function that `store_suite!` makes a test.
fn named(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let (mut is_test, mut is_table) = (false, false);
    for line in source.lines().map(str::trim) {
        is_table = line == "each_program! {" || is_table && line != "}";
        if is_table && let Some((name, _)) = line.split_once(": ") {
            names.insert(name.to_owned());
        }
        let of_suite = line.strip_prefix("pub fn ").and_then(|rest| rest.split_once("<F: StoreFixture>()"));
        let is_listed = |name: &String| source.lines().any(|line| line.trim() == name);
        names.extend(of_suite.map(|(name, _)| name.to_owned()).filter(is_listed));
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        if let (true, Some(rest)) = (is_test, function) {
            names.extend(rest.split('(').next().map(str::to_owned));
            is_test = false;
        }
    }
    names
}

/// The id that a test is called by: `c_62_...` is C-62.
fn id_of(test: &str) -> Option<String> {
    let (letter, rest) = test.split_once('_')?;
    let (number, _) = rest.split_once('_')?;
    let is_id =
        matches!(letter, "g" | "c" | "j" | "l" | "x") && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_id && !number.is_empty()).then(|| format!("{}-{number}", letter.to_uppercase()))
}

/// The rows of the page: the id, and the tests that hold it, each with its file.
fn rows() -> Vec<(String, Vec<(String, String)>)> {
    let is_row = |line: &&str| line.starts_with("| ") && line.as_bytes().get(3) == Some(&b'-');
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let tests = cells.get(2).map_or("", |cell| *cell).split(", ").filter(|test| !test.is_empty());
        let test = |test: &str| {
            let (path, name) =
                test.trim_matches('`').split_once("::").unwrap_or_else(|| panic!("no test: {test}"));
            (format!("crates/{path}"), name.to_owned())
        };
        (cells[0].to_owned(), tests.map(test).collect())
    };
    PAGE.lines().filter(is_row).map(row).collect()
}

#[test]
fn r_40_every_test_that_the_contract_names_is_there() {
    let known = tests();
    for (id, tests) in rows() {
        for (path, name) in tests {
            let is_there = known.get(&path).is_some_and(|names| names.contains(&name));
            assert!(
                is_there,
                "{id} of docs/reference/contract.md names `{name}`, which is no test in {path}"
            );
        }
    }
}

#[test]
fn r_40_every_protection_has_a_test_that_is_there_and_every_promise_has_protections() {
    let known = tests();
    let mut promises = BTreeSet::new();
    let mut names = BTreeSet::new();
    for line in PROTECTIONS.lines().filter(|line| line.starts_with("| ") && line.ends_with("` |")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, kept, .., test] = &cells[..] else {
            panic!("a row has a name, promises and a test: {line}")
        };
        assert!(names.insert(*name), "two protections are called `{name}`");
        promises
            .extend(kept.split(", ").map(|number| number.parse::<u8>().expect("the number of a promise")));
        let (path, test) = test.trim_matches('`').split_once("::").expect("a path and a test");
        let is_there = known.get(&format!("crates/{path}")).is_some_and(|tests| tests.contains(test));
        assert!(is_there, "`{name}` of docs/reference/guards.md names `{test}`, which is no test in {path}");
    }
    assert_eq!((promises, names.len()), ((1..=8).collect(), 824));
}

#[test]
fn r_40_every_test_that_is_called_by_an_id_is_in_its_row() {
    let rows = rows();
    for (path, names) in tests() {
        for (id, name) in names.iter().filter_map(|name| Some((id_of(name)?, name))) {
            let row = rows.iter().find(|(known, _)| *known == id);
            let holds =
                row.is_some_and(|(_, tests)| tests.iter().any(|held| *held == (path.clone(), name.clone())));
            assert!(holds, "docs/reference/contract.md lacks `{path}::{name}` in its row {id}");
        }
    }
}

#[test]
fn r_40_each_id_has_one_row_and_is_held_or_said_not_to_be() {
    let (held, open) = PAGE.split_once("\n## Not yet held\n").expect("the page has both parts");
    let mut known = BTreeSet::new();
    for (id, tests) in rows() {
        assert!(known.insert(id.clone()), "{id} has two rows");
        let is_open = open.contains(&format!("\n| {id} |"));
        assert_eq!(tests.is_empty(), is_open, "{id} is either held or under `Not yet held`");
    }
    // None is dropped in silence: those that ask for something, how contradictions are settled, and one fact that has a test.
    assert_eq!((known.len(), held.contains("\n| L-51 |")), (330, true));
}

#[test]
fn names_of_tests_are_read_as_they_are() {
    let source = "#[test]\nfn one() {}\nfn none() {}\n#[tokio::test(start_paused = true)]\n// Why.\nasync fn two(a: u8) {}\npub fn three<F: StoreFixture>() {}\npub fn four<F: StoreFixture>() {}\n  three\n";
    assert_eq!(named(source), BTreeSet::from(["one", "three", "two"].map(str::to_owned)));
    let table = "each_program! {\n    a_row: NONE, [];\n}\nlet other: u8 = 1;";
    assert_eq!(named(table), BTreeSet::from(["a_row".to_owned()]));
    for (name, id) in [("c_62_it_ends", Some("C-62")), ("l_never", None), ("r_40_it_is", None), ("x_5", None)]
    {
        assert_eq!(id_of(name).as_deref(), id, "{name}");
    }
}
