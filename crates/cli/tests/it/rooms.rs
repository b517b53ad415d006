//! Which room may use which (design 2, R-8): a new edge fails here until `ARCHITECTURE.md` and this table say why.

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Room, what it may use, and what its tests may use besides.
const TABLE: &[(&str, &[&str], &[&str])] = &[
    ("unhang-wire", &[], &[]),
    ("unhang-bridge", &["unhang-wire"], &[]),
    ("unhang-proc", &[], &["unhang-zoo"]),
    ("unhang-jobs", &["unhang-proc"], &["unhang-zoo"]),
    ("unhang-artifacts", &["unhang-jobs", "unhang-net"], &["unhang-zoo"]),
    ("unhang-postgres", &["unhang-artifacts", "unhang-jobs"], &["unhang-zoo"]),
    ("unhang-worker", &["unhang-jobs", "unhang-postgres", "unhang-proc"], &["unhang-zoo"]),
    ("unhang-net", &["unhang-wire"], &[]),
    ("unhang-demo-servers", &[], &[]),
    ("unhang-zoo", &["unhang-demo-servers"], &[]),
    ("unhang-core", &["unhang-bridge", "unhang-net", "unhang-proc", "unhang-wire"], &[]),
    (
        "unhang-upstream",
        &["unhang-bridge", "unhang-core", "unhang-jobs", "unhang-net", "unhang-proc", "unhang-wire"],
        &[],
    ),
    ("unhang-tools", &["unhang-core", "unhang-jobs", "unhang-proc"], &[]),
    (
        "unhang-gateway",
        &[
            "unhang-bridge",
            "unhang-core",
            "unhang-jobs",
            "unhang-proc",
            "unhang-tools",
            "unhang-upstream",
            "unhang-wire",
        ],
        &[],
    ),
    (
        "unhang-background",
        &[
            "unhang-bridge",
            "unhang-core",
            "unhang-gateway",
            "unhang-jobs",
            "unhang-proc",
            "unhang-tools",
            "unhang-upstream",
            "unhang-wire",
        ],
        &[],
    ),
    (
        "unhang-front",
        &[
            "unhang-background",
            "unhang-bridge",
            "unhang-core",
            "unhang-gateway",
            "unhang-jobs",
            "unhang-net",
            "unhang-proc",
            "unhang-tools",
            "unhang-upstream",
            "unhang-wire",
        ],
        &[],
    ),
    (
        "unhang-guard",
        &[
            "unhang-background",
            "unhang-bridge",
            "unhang-core",
            "unhang-front",
            "unhang-gateway",
            "unhang-jobs",
            "unhang-proc",
            "unhang-tools",
            "unhang-upstream",
            "unhang-wire",
        ],
        &[],
    ),
    ("unhang-doctor", &["unhang-core", "unhang-proc", "unhang-upstream", "unhang-wire"], &[]),
    (
        "unhang",
        &[
            "unhang-background",
            "unhang-core",
            "unhang-doctor",
            "unhang-front",
            "unhang-gateway",
            "unhang-guard",
            "unhang-jobs",
            "unhang-net",
            "unhang-postgres",
            "unhang-proc",
            "unhang-tools",
            "unhang-upstream",
            "unhang-worker",
        ],
        &[],
    ),
    ("unhang-terminal", &["unhang"], &[]),
    ("unhang-adopt", &["unhang"], &[]),
    ("unhang-cli", &["unhang", "unhang-adopt", "unhang-demo-servers", "unhang-terminal"], &["unhang-zoo"]),
    ("unhang-lab", &["unhang", "unhang-terminal", "unhang-zoo"], &[]),
    // Judges rooms from outside; nothing uses it.
    ("unhang-fuzz", &["unhang", "unhang-wire"], &[]),
    ("xtask", &["unhang-zoo"], &[]),
    // What a program does that embeds the library; nothing uses it.
    ("rmcp-server-example", &["unhang"], &[]),
];

#[test]
fn r_8_rooms_use_only_the_rooms_that_they_may() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let ours: Vec<_> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let mut rooms: Vec<_> = TABLE.iter().map(|(room, ..)| (*room).to_owned()).collect();
    let mut found = ours.clone();
    rooms.sort();
    found.sort();
    assert_eq!(rooms, found, "every room is in the table");
    for package in &metadata.packages {
        let (_, may, tests_may) = TABLE
            .iter()
            .find(|(room, ..)| *room == package.name.as_str())
            .expect("every room is in the table");
        for dependency in package.dependencies.iter().filter(|dependency| ours.contains(&dependency.name)) {
            let name = dependency.name.as_str();
            let allowed = may.contains(&name)
                || dependency.kind == DependencyKind::Development && tests_may.contains(&name);
            assert!(allowed, "{} may not use {name}", package.name);
        }
    }
}

#[test]
fn r_4_main_is_short() {
    let main = include_str!("../../src/main.rs");
    assert!(main.lines().count() <= 30, "{} lines", main.lines().count());
}
