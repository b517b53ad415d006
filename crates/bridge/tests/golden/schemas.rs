//! The official schemas and examples, and what judges messages by them.

use std::{fs, path::Path, sync::LazyLock};

use serde_json::{Value, json};
use unhang_wire::Json;

pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The newest of the legacy revisions, and the one that has tasks in its core.
pub(crate) const NEWEST: &str = "2025-11-25";
pub(crate) const MODERN: &str = "2026-07-28";

static SCHEMAS: LazyLock<Vec<(&str, Value)>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schema");
    let read = |revision: &'static str| {
        let text = fs::read_to_string(folder.join(format!("{revision}.json"))).expect("a schema");
        (revision, serde_json::from_str(&text).expect("JSON"))
    };
    LEGACY.into_iter().chain([MODERN]).map(read).collect()
});

/// Demands that a message is valid as this type.
#[track_caller]
pub(crate) fn assert_valid(revision: &str, kind: &str, value: &Value) {
    let (keyword, known) = types(revision);
    assert!(known.get(kind).is_some(), "{revision} has {kind}");
    assert_fits(revision, json!({ "$ref": format!("#/{keyword}/{kind}") }), value);
}

/// Demands that a message fits this schema, which may refer to the types of a revision.
#[track_caller]
pub(crate) fn assert_fits(revision: &str, mut schema: Value, value: &Value) {
    let (keyword, known) = types(revision);
    let name = schema["$ref"].as_str().unwrap_or("what is wanted").to_owned();
    schema["$schema"] = of(revision)["$schema"].clone();
    schema[keyword] = known.clone();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let wrong: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{name} of {revision}: {wrong:?} in {value}");
}

/// The types of a revision, and where its schema has them.
pub(crate) fn types(revision: &str) -> (&'static str, &'static Value) {
    let keyword = if of(revision).get("$defs").is_some() { "$defs" } else { "definitions" };
    (keyword, &of(revision)[keyword])
}

fn of(revision: &str) -> &'static Value {
    &SCHEMAS.iter().find(|(known, _)| *known == revision).expect("a revision").1
}

/// The examples of a type, with their names.
pub(crate) fn examples(kind: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples").join(kind);
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{kind}: {error}"))
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(path).expect("an example").trim().to_owned())
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{kind}");
    found
}

pub(crate) fn raw(text: &str) -> Json<'_> {
    Json::new(text.as_bytes()).expect("JSON")
}

pub(crate) fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
