//! What a client does with a server, and whether it got what it should have got.
//!
//! A scenario is a list of steps in `real/scenarios/NAME.json`. Each names what to do and, under `expect`, texts that
//! its outcome must contain; `expect_without_roots` takes its place for a client that has no roots. `handshake_only`
//! marks steps that revision 2026-07-28 no longer has. `{folder}` and `{large}` in any text stand for the server's
//! folder and a long text. `varies` says why a step brings something else each time. `gateway` says what is different
//! when a gateway stands in between, and `why`: `expect` and `least` take the place of those of the step, `leave_out`
//! leaves it out.
//!
//! # Invariants
//!
//! - Judging reads only what the client wrote down, never what the client thinks of it.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::failure::ChoreFailure;

use super::bench::{CaseContext, CaseFolder};
use super::servers::{self, PublicServer};

/// The steps, ready to be performed.
#[derive(Debug, Clone)]
pub(crate) struct Scenario(Vec<Value>);

/// How much of an outcome is shown when it is not as expected.
const SHOWN_OUTCOME: usize = 600;

impl Scenario {
    /// Reads the scenario of a server and fills in what belongs to the case.
    pub(crate) fn read(
        bench: &CaseContext,
        case_folder: &CaseFolder,
        server: PublicServer,
    ) -> Result<Self, ChoreFailure> {
        let path = bench.source(&format!("scenarios/{}.json", server.name()));
        let text = fs::read(&path).map_err(|error| ChoreFailure::io(path.display(), &error))?;
        let broken = |error| ChoreFailure::new(format!("{} is not a list of steps: {error}", path.display()));
        let mut steps: Vec<Value> = serde_json::from_slice(&text).map_err(broken)?;
        let folder = case_folder.work().to_string_lossy().into_owned();
        let values = [("{folder}", folder), ("{large}", servers::large_text())];
        steps.iter_mut().for_each(|step| fill_in(step, &values));
        Ok(Self(steps))
    }

    /// Steps that were put together from others.
    pub(crate) fn of(steps: Vec<Value>) -> Self {
        Self(steps)
    }

    pub(crate) fn steps(&self) -> &[Value] {
        &self.0
    }

    /// The texts that are expected of all steps that do this.
    pub(crate) fn expected_of(&self, what: &str) -> Vec<String> {
        let steps = self.0.iter().filter(|step| step["do"] == what);
        let expected = steps.flat_map(|step| step["expect"].as_array().into_iter().flatten());
        expected.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    }

    /// The same with a gateway in between.
    pub(crate) fn through_gateway(&self) -> Self {
        Self(self.0.iter().filter_map(through_gateway).collect())
    }

    /// The same under the names that a gateway gives.
    pub(crate) fn named_by(&self, server: &str) -> Self {
        let mut steps = self.0.clone();
        steps.iter_mut().for_each(|step| name_by(step, server));
        Self(steps)
    }

    /// Returns the step that calls a tool.
    pub(crate) fn call_of(&self, tool: &str) -> Option<&Value> {
        self.0.iter().find(|step| step["do"] == "call" && step["tool"] == tool)
    }

    /// Judges a transcript: the revision, every outcome, and whether every listed tool was called.
    pub(crate) fn judge(
        &self,
        transcript: &Value,
        version: &str,
        completely: bool,
    ) -> Result<(), ChoreFailure> {
        if transcript["version"] != version {
            return Err(ChoreFailure::new(format!("spoke {} instead of {version}", transcript["version"])));
        }
        let outcomes = transcript["outcomes"].as_array().map(Vec::as_slice).unwrap_or_default();
        judge_all(&self.0, outcomes, version)?;
        let (listed, called) = (listed(&self.0, outcomes), called(&self.0));
        let uncalled: Vec<_> = listed.difference(&called).cloned().collect();
        if listed.is_empty() {
            return Err(ChoreFailure::new("no tool was listed"));
        }
        if completely && !uncalled.is_empty() {
            return Err(ChoreFailure::new(format!("the scenario does not call {}", uncalled.join(", "))));
        }
        Ok(())
    }
}

fn fill_in(value: &mut Value, values: &[(&str, String)]) {
    match value {
        Value::String(text) => values.iter().for_each(|(name, by)| *text = text.replace(name, by)),
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, values)),
        Value::Object(members) => members.values_mut().for_each(|member| fill_in(member, values)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What is left of a step with a gateway in between.
pub(crate) fn through_gateway(step: &Value) -> Option<Value> {
    let mut step = step.clone();
    let difference = step["gateway"].take();
    if difference["leave_out"] == true {
        return None;
    }
    for member in ["expect", "least"] {
        if !difference[member].is_null() {
            step[member] = difference[member].clone();
        }
    }
    Some(step)
}

fn name_by(step: &mut Value, server: &str) {
    for member in ["tool", "prompt"] {
        if let Some(name) = step[member].as_str() {
            step[member] = format!("{server}__{name}").into();
        }
    }
    step["steps"].as_array_mut().into_iter().flatten().for_each(|step| name_by(step, server));
}

/// Judges what several steps have brought.
pub(crate) fn judge_all(steps: &[Value], outcomes: &[Value], version: &str) -> Result<(), ChoreFailure> {
    if steps.len() != outcomes.len() {
        return Err(ChoreFailure::new(format!("{} outcomes of {} steps", outcomes.len(), steps.len())));
    }
    steps.iter().zip(outcomes).try_for_each(|(step, outcome)| judge_one(step, outcome, version))
}

fn judge_one(step: &Value, outcome: &Value, version: &str) -> Result<(), ChoreFailure> {
    if outcome["skipped"] == true {
        let may_skip = step["handshake_only"] == true && version == STATELESS;
        return if may_skip { Ok(()) } else { Err(ChoreFailure::new(format!("skipped {}", named(step)))) };
    }
    if let Some(steps) = step["steps"].as_array() {
        let outcomes = outcome["together"].as_array().map(Vec::as_slice).unwrap_or_default();
        return judge_all(steps, outcomes, version);
    }
    expected_in(step, outcome)
}

/// Makes sure that an outcome has what the step expects of it.
pub(crate) fn expected_in(step: &Value, outcome: &Value) -> Result<(), ChoreFailure> {
    if outcome["result"].is_null() && outcome["error"].is_null() {
        return Err(ChoreFailure::new(format!("{} brought neither result nor error", named(step))));
    }
    let mut texts = Vec::new();
    collect_texts(outcome, &mut texts);
    let expected = step["expect"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for wanted in expected {
        if !texts.iter().any(|text| text.contains(wanted)) {
            let shown: String = outcome.to_string().chars().take(SHOWN_OUTCOME).collect();
            return Err(ChoreFailure::new(format!("{} did not bring {wanted:?} but {shown}", named(step))));
        }
    }
    Ok(())
}

/// Collects every text, name and number of a value, without the quoting of JSON.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            texts.push(name.clone());
            collect_texts(member, texts);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => texts.push(value.to_string()),
    }
}

/// What a step does, for a person.
pub(crate) fn named(step: &Value) -> String {
    let text = |member: &str| step[member].as_str().unwrap_or_default();
    format!("{} {}{}{}", text("do"), text("tool"), text("uri"), text("prompt")).trim_end().to_owned()
}

fn listed(steps: &[Value], outcomes: &[Value]) -> BTreeSet<String> {
    let lists = steps.iter().zip(outcomes).filter(|(step, _)| step["do"] == "list_tools");
    lists.flat_map(|(_, outcome)| tool_names(&outcome["result"])).collect()
}

/// The names in the result of `tools/list`.
pub(crate) fn tool_names(result: &Value) -> Vec<String> {
    let tools = result["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
}

fn called(steps: &[Value]) -> BTreeSet<String> {
    steps.iter().filter_map(|step| step["tool"].as_str().map(str::to_owned)).collect()
}

/// The last revision with a handshake, and the first without one.
pub(crate) const HANDSHAKE: &str = "2025-11-25";
pub(crate) const STATELESS: &str = "2026-07-28";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scenario() -> Scenario {
        Scenario(vec![
            json!({"do": "list_tools", "expect": ["echo"]}),
            json!({"do": "call", "tool": "echo", "expect": ["Echo: \"hi\""]}),
            json!({"do": "ping", "handshake_only": true, "expect": []}),
        ])
    }

    fn transcript(echoed: &str, last: &Value) -> Value {
        json!({"version": HANDSHAKE, "outcomes": [
            {"result": {"tools": [{"name": "echo"}]}},
            {"result": {"content": [{"text": echoed}]}},
            last,
        ]})
    }

    #[test]
    fn a_transcript_with_all_expected_texts_passes() {
        let transcript = transcript("Echo: \"hi\"", &json!({"result": {}}));
        scenario().judge(&transcript, HANDSHAKE, true).expect("it has everything");
    }

    #[test]
    fn a_wrong_text_a_missing_outcome_or_another_revision_fails() {
        let result = json!({"result": {}});
        let wrong =
            scenario().judge(&transcript("Echo: ho", &result), HANDSHAKE, true).expect_err("another text");
        assert!(wrong.to_string().contains("call echo"), "{wrong}");
        let nothing = transcript("Echo: \"hi\"", &json!({}));
        scenario().judge(&nothing, HANDSHAKE, true).expect_err("the ping brought nothing");
        let skipped = transcript("Echo: \"hi\"", &json!({"skipped": true}));
        scenario().judge(&skipped, HANDSHAKE, true).expect_err("a ping exists in this revision");
        let other = transcript("Echo: \"hi\"", &result);
        scenario().judge(&other, STATELESS, true).expect_err("the other revision was wanted");
        let empty = json!({"version": HANDSHAKE, "outcomes": []});
        scenario().judge(&empty, HANDSHAKE, true).expect_err("nothing was done");
    }

    #[test]
    fn a_tool_that_the_scenario_forgets_fails_where_it_must_be_complete() {
        let mut transcript = transcript("Echo: \"hi\"", &json!({"result": {}}));
        transcript["outcomes"][0]["result"]["tools"] = json!([{"name": "echo"}, {"name": "new"}]);
        let failure = scenario().judge(&transcript, HANDSHAKE, true).expect_err("new is not called");
        assert!(failure.to_string().contains("new"), "{failure}");
        scenario().judge(&transcript, HANDSHAKE, false).expect("it need not be complete");
    }

    #[test]
    fn names_are_filled_in_at_any_depth() {
        let mut step = json!({"arguments": {"paths": ["{folder}/a", "b"]}});
        fill_in(&mut step, &[("{folder}", "/tmp".to_owned())]);
        assert_eq!(step, json!({"arguments": {"paths": ["/tmp/a", "b"]}}));
    }
}
