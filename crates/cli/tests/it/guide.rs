//! The commands and configurations of the README and of every page of `docs`, as they are written.
//!
//! A block of commands (`sh`, `console`) is run in the order of its page, and what a console shows is what is printed. One
//! that needs what a test has not got says so in a comment before it, `<!-- not run: needs npx -->`; of it the command
//! lines are parsed. A configuration (`toml`, `json`, `diff`) is read by `unhang servers`, unless it says that it is none.

mod checked;
mod page;
mod pattern;
mod run;

use self::{
    page::{blocks, every},
    run::Reader,
};
use crate::harness::Sandbox;

/// Checks what a page shows, and runs what it has run.
fn follow(page: &str, mut reader: Reader) {
    check(page);
    blocks(page).iter().for_each(|block| reader.block(block));
    reader.leave();
}

/// Checks what a page shows without running it.
fn check(page: &str) {
    let sandbox = Sandbox::new();
    let blocks = blocks(page);
    assert!(!blocks.is_empty(), "{page} has nothing to test");
    for block in blocks {
        if block.is_commands() {
            checked::command_lines(&sandbox, &block);
        } else {
            checked::configuration(&sandbox, &block);
        }
    }
}

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        $(
            #[test]
            fn $name() {
                follow($page, Reader::new());
            }
        )*
        const PAGES: &[&str] = &[$($page,)*];
    };
}

pages! {
    the_readme: "README.md",
    slow_calls: "docs/concepts/slow-calls.md",
    adopt: "docs/guide/adopt.md",
    command_line: "docs/guide/command-line.md",
    doctor: "docs/guide/doctor.md",
    gateway: "docs/guide/gateway.md",
    jobs: "docs/guide/jobs.md",
    login: "docs/guide/login.md",
    many_machines: "docs/guide/many-machines.md",
    packages: "docs/guide/packages.md",
    python: "docs/guide/python.md",
    typescript: "docs/guide/typescript.md",
    remote_servers: "docs/guide/remote-servers.md",
    wrap: "docs/guide/wrap.md",
    performance: "docs/performance.md",
    cli: "docs/reference/cli.md",
    dependencies: "docs/design/dependencies.md",
    fuzzing: "docs/reference/fuzzing.md",
    mutants: "docs/reference/mutants.md",
    scale: "docs/reference/scale.md",
    score: "docs/reference/score.md",
    rounds: "docs/reference/rounds.md",
    soak: "docs/reference/soak.md",
    zoo: "docs/reference/zoo.md",
}

const NEEDS_PYTHON: &str = "docs/guide/jobs-for-servers.md";

#[test]
fn jobs_for_servers() {
    check(NEEDS_PYTHON);
}

#[test]
#[ignore = "needs python3; cargo xtask ci --only examples"]
fn jobs_for_servers_as_it_is_run() {
    follow(NEEDS_PYTHON, Reader::with_python());
}

#[test]
fn every_page_with_a_block_has_a_test() {
    let tested = |page: &str| PAGES.contains(&page) || page == NEEDS_PYTHON;
    for page in every().iter().filter(|page| !tested(page)) {
        let to_test = |kind: &str| matches!(kind, "sh" | "console" | "toml" | "json" | "jsonc" | "diff");
        let block = blocks(page).into_iter().find(|block| to_test(&block.kind) || block.mark.is_some());
        assert!(block.is_none(), "{} is in a page without a test", block.expect("one").location);
    }
}
