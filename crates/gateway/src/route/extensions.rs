//! The extensions that servers declare, for a client that sees all servers as one.

use serde_json::{Map, Value};
use unhang_bridge::tasks;

/// The declared extensions of a server or a client: the settings of each, by its name.
pub type Extensions = Map<String, Value>;

/// Reads the extensions from capabilities. What is not an object declares nothing.
#[must_use]
pub fn of_capabilities(capabilities: &Map<String, Value>) -> Extensions {
    match capabilities.get("extensions") {
        Some(Value::Object(declared)) => {
            let named = declared.iter().filter(|(_, settings)| settings.is_object());
            named.map(|(name, settings)| (name.clone(), settings.clone())).collect()
        }
        _ => Map::new(),
    }
}

/// Returns the extensions of all servers together. A setting that is true for one server is true for all, and otherwise the first server
/// counts.
pub(super) fn merged<'a>(servers: impl Iterator<Item = &'a Extensions>) -> Extensions {
    let mut all = Map::new();
    for (name, settings) in servers.flatten() {
        let known = all.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
        let (Some(known), Some(settings)) = (known.as_object_mut(), settings.as_object()) else { continue };
        for (setting, value) in settings {
            if *value == Value::Bool(true) || !known.contains_key(setting) {
                known.insert(setting.clone(), value.clone());
            }
        }
    }
    all
}

/// Returns whether these extensions have tasks.
#[must_use]
pub fn have_tasks(declared: &Extensions) -> bool {
    declared.contains_key(tasks::EXTENSION)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared(extensions: Value) -> Extensions {
        of_capabilities(&Map::from_iter([("extensions".to_owned(), extensions)]))
    }

    #[test]
    fn servers_declare_together_what_one_of_them_can_do() {
        let one = declared(json!({ "skills": {}, "x": { "a": 1, "b": false }, "broken": 5 }));
        let other = declared(json!({ "skills": { "directoryRead": true }, "x": { "a": 2, "b": true } }));
        let expect = json!({ "skills": { "directoryRead": true }, "x": { "a": 1, "b": true } });
        assert_eq!(Value::Object(merged([&one, &other].into_iter())), expect);
        for nothing in [json!(null), json!([1]), json!("x")] {
            assert!(declared(nothing).is_empty());
        }
        assert!(have_tasks(&declared(json!({ tasks::EXTENSION: {} }))) && !have_tasks(&one));
    }
}
