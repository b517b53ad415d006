//! The extensions that servers declare, for a client that sees all servers as one.

use serde_json::{Map, Value};
use unhang_bridge::tasks;

use super::apps::UI;
use unhang_core::{insertion::InsertEach, list::SKILLS};

/// The declared extensions of a server or a client: the settings of each, by its name.
pub type Extensions = Map<String, Value>;

/// Reads the extensions from capabilities. What is not an object declares nothing.
#[must_use]
pub fn of_capabilities(capabilities: &Map<String, Value>) -> Extensions {
    match capabilities.get("extensions") {
        Some(Value::Object(declared)) => {
            let named = declared.iter().filter(|(_, settings)| settings.is_object());
            named.map(|(name, settings)| (name.clone(), settings.clone())).insert_each()
        }
        _ => Map::new(),
    }
}

/// The extensions whose methods the gateway routes. It declares no others to clients, since nobody could use them.
const ROUTED: [&str; 3] = [tasks::EXTENSION, UI, SKILLS];

/// Returns the extensions of all servers together, as far as they are routed. A setting that is true for one server is true for all, and otherwise the first server
/// counts.
pub(super) fn merged<'a>(servers: impl Iterator<Item = &'a Extensions>) -> Extensions {
    let mut all = Map::new();
    for (name, settings) in servers.flatten().filter(|(name, _)| ROUTED.contains(&name.as_str())) {
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
        let one =
            declared(json!({ SKILLS: {}, UI: { "a": 1, "b": false }, "broken": 5, "com.example/x": {} }));
        let other = declared(json!({ SKILLS: { "directoryRead": true }, UI: { "a": 2, "b": true } }));
        let expect = json!({ SKILLS: { "directoryRead": true }, UI: { "a": 1, "b": true } });
        assert_eq!(Value::Object(merged([&one, &other].into_iter())), expect);
        for nothing in [json!(null), json!([1]), json!("x")] {
            assert!(declared(nothing).is_empty());
        }
        assert!(have_tasks(&declared(json!({ tasks::EXTENSION: {} }))) && !have_tasks(&one));
    }
}
