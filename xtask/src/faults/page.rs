//! `docs/reference/guards.md`, generated from the list.

use std::fmt::Write as _;

use super::guards::{ROOMS, Test, all};

/// Where the page is, below the folder of the workspace.
pub(super) const PATH: &str = "docs/reference/guards.md";

const HEAD: &str = "\
# Guards, and the test that fails without each

A guard is a place in the code that keeps one of the [eight promises](../../README.md). Each can be switched off by its name
in a build that is made for that and nothing else (the feature `faults` of `unhang-switches`, which does not compile with
optimisations). `cargo xtask faults`, a part of `cargo xtask ci`, first sees all the tests below pass, then switches off one
guard after the other and demands that its test fails.

This page is generated from the list in `xtask/src/faults/guards/` by `cargo xtask faults --write`.

To see one for yourself:

<!-- not run: builds everything anew -->
```sh
cargo xtask faults --only NAME
```
";

/// Returns the page.
pub(super) fn page() -> String {
    let mut page = HEAD.to_owned();
    for room in ROOMS {
        let _infallible = write!(
            page,
            "\n## {} ({} guards)\n\n| guard | promise | what it does | the test that fails without it |\n|---|---|---|---|\n",
            room.name,
            room.guards().count()
        );
        for guard in room.guards() {
            let promises: Vec<_> = guard.promises.iter().map(u8::to_string).collect();
            let promises = promises.join(", ");
            let test = shown(guard.test);
            let _infallible = writeln!(page, "| `{}` | {promises} | {} | {test} |", guard.name, guard.about);
        }
    }
    let _infallible = writeln!(page, "\n{} guards in all.", all().count());
    page
}

/// A test's package and path, as cargo takes them.
fn shown(test: Test) -> String {
    let target = if test.target == "lib" { String::new() } else { format!(" {}", test.target) };
    format!("{}{target}: `{}`", test.room, test.path)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    #[test]
    fn the_page_is_what_the_list_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(super::PATH);
        let written = fs::read_to_string(path).unwrap_or_default();
        assert!(written == super::page(), "{} is old: run `cargo xtask faults --write`", super::PATH);
    }
}
