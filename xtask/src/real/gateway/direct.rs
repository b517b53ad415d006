//! server-everything through the gateway is what it is without, where none of its calls becomes a job: the same client walks through the
//! same scenario directly, and through `unhang serve` over stdio and over HTTP. What a server gains otherwise is judged beside.
//!
//! # Invariants
//!
//! - What a step brings is equal but for what is listed here, and for steps whose scenario says why they differ.
//! - A difference that a scenario names is there: a list of differences does not outlive them.

use std::collections::BTreeSet;
use std::ffi::OsString;

use serde_json::Value;

use crate::failure::ChoreFailure;
use crate::run;

use super::super::bench::{CaseContext, CaseFolder};
use super::super::scenario::{self, Scenario};
use super::super::sdk_client::{ClientTransport, Language, SdkEra, Walk};
use super::super::servers::PublicServer;
use super::{Gateway, GatewayEntry, configure, serve};

/// What differs before anything is asked.
const OF_THE_START: [(&str, &str); 3] = [
    ("info", "the gateway says who it is itself"),
    ("instructions", "servers are many, and so would their instructions be"),
    ("capabilities", "they are those of the gateway, which passes no tasks on"),
];

/// What the results of 2026-07-28 have, and those of server-everything, which has a handshake, have not.
const OF_THE_ERA: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// What tools say of tasks up to 2025-11-25, and what the URLs are called that a person is to open. 2026-07-28 has neither.
const OF_THE_ERA_BEFORE: [&str; 2] = ["execution", "elicitationId"];

/// Who answered, in the `_meta` of results of 2026-07-28.
const WHO_ANSWERED: &str = "io.modelcontextprotocol/serverInfo";

/// Tools that the gateway has itself, for jobs and the state that they leave.
const OWN_TOOLS: [&str; 9] = [
    "get_job_status",
    "get_job_results",
    "get_job_logs",
    "list_jobs",
    "terminate_job",
    "get_system_status",
    "get_state",
    "set_state",
    "list_state",
];

/// With this a server's tools are listed as it lists them, and its tasks are no affair of ours.
const UNTOUCHED: &str = "limits = { promote-after = \"off\" }\n";

/// What a client is asked and told of outside the answers, and has to be the same.
const HEARD: [&str; 3] = ["sampling", "elicitation", "update"];

/// What waits until the server has started.
const FIRST_CALL: &str = "echo";

/// How much of a differing outcome is shown.
const SHOWN: usize = 1500;

/// Walks without a gateway and with one, over stdio and over HTTP and in every era, and compares.
pub(crate) fn check(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    language: Language,
) -> Result<(), ChoreFailure> {
    let server = PublicServer::Everything;
    let entry = GatewayEntry {
        prefix: Some(""),
        settings: UNTOUCHED,
        ..GatewayEntry::real(bench, case_folder, server)?
    };
    let scenario = Scenario::read(bench, case_folder, server)?;
    let through = after_a_call(&scenario.through_gateway())?;
    let folder = case_folder.work();
    let walk = |name: &str, era: SdkEra, way: ClientTransport<'_>, steps: &[Value]| {
        let walk = Walk { name, language, era, way, folder: &folder, steps };
        run::start(walk.task(bench, case_folder)?)?.wait()?;
        walk.transcript(case_folder)
    };
    let direct = walk("direct", SdkEra::Legacy, ClientTransport::Command(&entry.command), scenario.steps())?;
    scenario.judge(&direct, SdkEra::Legacy.revision(false), true)?;
    let compare = |name: &str, era: SdkEra, way: ClientTransport<'_>| {
        let name = format!("{name}-{}", era.name());
        let transcript = walk(&name, era, way, through.steps())?;
        through.judge(&transcript, era.revision(true), false)?;
        let differences = differences(scenario.steps(), direct.clone(), without_that_call(transcript));
        if differences.is_empty() {
            return Ok(());
        }
        Err(ChoreFailure::new(format!("{name}:\n{}", differences.join("\n"))))
    };
    let file = configure(case_folder, std::slice::from_ref(&entry))?;
    let own = bench.unhang(&["serve", "--own", "--config"], &[OsString::from(file)]);
    for era in language.eras() {
        compare("stdio", *era, ClientTransport::Command(&own))?;
    }
    serve(bench, case_folder, &[entry], |gateway: &Gateway| {
        language.eras().iter().try_for_each(|era| compare("http", *era, ClientTransport::Url(&gateway.url)))
    })
}

/// The same behind a call, which waits for its server; lists that are asked for while it starts may be without it.
fn after_a_call(scenario: &Scenario) -> Result<Scenario, ChoreFailure> {
    let call = scenario.call_of(FIRST_CALL).cloned();
    let call = call.ok_or_else(|| ChoreFailure::new(format!("the scenario does not call {FIRST_CALL}")))?;
    Ok(Scenario::of(std::iter::once(call).chain(scenario.steps().iter().cloned()).collect()))
}

fn without_that_call(mut transcript: Value) -> Value {
    if let Some(outcomes) = transcript["outcomes"].as_array_mut().filter(|outcomes| !outcomes.is_empty()) {
        outcomes.remove(0);
    }
    transcript
}

/// What is not as it is without a gateway.
fn differences(steps: &[Value], mut direct: Value, mut through: Value) -> Vec<String> {
    if direct["version"] != through["version"] {
        forget_the_era_before(&mut direct);
    }
    [&mut direct, &mut through].into_iter().for_each(settle);
    let (direct, through) = (&direct, &through);
    let mut found = Vec::new();
    for (member, why) in OF_THE_START {
        if direct["server"][member] == through["server"][member] {
            found.push(format!("{member} is the same, though it should not be: {why}"));
        }
    }
    let mut outcomes = through["outcomes"].as_array().into_iter().flatten();
    for (step, direct) in steps.iter().zip(direct["outcomes"].as_array().into_iter().flatten()) {
        if scenario::through_gateway(step).is_some() {
            compare(step, direct, outcomes.next().unwrap_or(&Value::Null), &mut found);
        }
    }
    for what in HEARD {
        let (direct, through) = (received(direct, what), received(through, what));
        if direct.is_empty() || direct != through {
            found.push(format!("{what} directly {direct:?} and through the gateway {through:?}"));
        }
    }
    // What a call logs comes, and some of the rest does not; which messages these are is up to chance.
    let shapes = |transcript| {
        received(transcript, "log").iter().map(|text| shape_of_text(text)).collect::<BTreeSet<_>>()
    };
    let (direct, through) = (shapes(direct), shapes(through));
    if through.is_empty() || !through.is_subset(&direct) {
        found.push(format!("logged directly {direct:?} and through the gateway {through:?}"));
    }
    found
}

/// Takes away what an older server says and no newer client is told.
fn forget_the_era_before(transcript: &mut Value) {
    let outcomes = transcript.get_mut("outcomes").and_then(Value::as_array_mut);
    for outcome in outcomes.into_iter().flatten() {
        forget(outcome.pointer_mut("/result/tools"), OF_THE_ERA_BEFORE[0]);
    }
    forget(transcript.pointer_mut("/heard/elicitation"), OF_THE_ERA_BEFORE[1]);
}

/// Takes a member away from each item of a list.
fn forget(list: Option<&mut Value>, name: &str) {
    for item in list.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(members) = item.as_object_mut() {
            members.remove(name);
        }
    }
}

/// Takes away the progress that says that all is done: it comes together with the answer, and a client that reads both at once may have
/// forgotten by then whom to tell.
fn settle(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(told) = members.get_mut("progress").and_then(Value::as_array_mut) {
                told.retain(|one| one["progress"] != one["total"] && !is_of_the_client(one));
            }
            members.values_mut().for_each(settle);
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        _ => {}
    }
}

/// Whether a client has told itself of progress: that it answers what a server has asked about the call. Which call that is is up to the
/// clock, where a server asks at its start.
fn is_of_the_client(told: &Value) -> bool {
    told["message"].as_str().is_some_and(|message| message.starts_with("Fulfilling input required by"))
}

/// All that is different of what was heard of one kind, as JSON without what the client and the server say of requests.
fn received(transcript: &Value, what: &str) -> BTreeSet<String> {
    let all = transcript["heard"][what].as_array().into_iter().flatten();
    let without_meta = all.cloned().map(|mut params| {
        if let Some(params) = params.as_object_mut() {
            params.remove("_meta");
        }
        params.to_string()
    });
    without_meta.collect()
}

fn shape_of_text(text: &str) -> String {
    shape(&serde_json::from_str(text).unwrap_or_default()).to_string()
}

fn compare(step: &Value, direct: &Value, through: &Value, found: &mut Vec<String>) {
    if let Some(steps) = step["steps"].as_array() {
        for (step_index, step) in steps.iter().enumerate() {
            compare(step, &direct["together"][step_index], &through["together"][step_index], found);
        }
        return;
    }
    // What has come at all is judged; how much had come by then is up to the clock. What the newer revision has not is
    // judged too.
    if step["do"] == "await" || through["skipped"] == true {
        return;
    }
    let (mut direct, through) = (as_without_gateway(direct), &as_without_gateway(through));
    forget_skipped_progress(&mut direct, through);
    let direct = &direct;
    let equal = if step["varies"].is_null() { direct == through } else { shape(direct) == shape(through) };
    let named = scenario::named(step);
    match step["gateway"]["why"].as_str() {
        Some(why) if equal => found.push(format!("{named} is the same, though it should not be: {why}")),
        None if !equal => found.push(format!("{named}: {}", difference(direct, through, ""))),
        _ => {}
    }
}

/// An outcome without what is the gateway's own, and without what the newer era alone has.
fn as_without_gateway(outcome: &Value) -> Value {
    let mut outcome = outcome.clone();
    if let Some(result) = outcome["result"].as_object_mut() {
        if let Some(tools) = result.get_mut("tools").and_then(Value::as_array_mut) {
            tools.retain(|tool| !OWN_TOOLS.contains(&tool["name"].as_str().unwrap_or_default()));
        }
        result.retain(|name, _| !OF_THE_ERA.contains(&name.as_str()));
        if let Some(meta) = result.get_mut("_meta").and_then(Value::as_object_mut) {
            meta.remove(WHO_ANSWERED);
            if meta.is_empty() {
                result.remove("_meta");
            }
        }
    }
    outcome
}

/// Takes away the progress that the gateway has skipped: a newer notification may replace an older one. Some of it has to come.
fn forget_skipped_progress(direct: &mut Value, through: &Value) {
    let told_through = through["progress"].as_array().filter(|told| !told.is_empty());
    let told_directly = direct.get_mut("progress").and_then(Value::as_array_mut);
    if let Some((told_directly, told_through)) = told_directly.zip(told_through) {
        told_directly.retain(|one| told_through.contains(one));
    }
}

/// A value with each text, number and truth replaced by what kind it is.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => "truth".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), shape(member))).collect()
        }
    }
}

/// Where two values differ first.
fn difference(direct: &Value, through: &Value, at: &str) -> String {
    match (direct, through) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys());
            let mut differing = names.filter(|name| one.get(*name) != other.get(*name));
            if let Some(name) = differing.next() {
                let of = |all: &serde_json::Map<_, _>| all.get(name).cloned().unwrap_or_default();
                return difference(&of(one), &of(other), &format!("{at}/{name}"));
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            if let Some(item_index) = one.iter().zip(other).position(|(one, other)| one != other) {
                return difference(&one[item_index], &other[item_index], &format!("{at}/{item_index}"));
            }
        }
        _ => {}
    }
    let shown = |value: &Value| value.to_string().chars().take(SHOWN).collect::<String>();
    format!("at {at:?} directly\n  {}\nand through the gateway\n  {}", shown(direct), shown(through))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::scenario::{HANDSHAKE, STATELESS};
    use super::*;

    fn transcript(version: &str, name: &str, outcomes: &Value) -> Value {
        let log = json!([{ "level": "info", "data": name }]);
        let received = json!({ "sampling": [1], "elicitation": [{ "url": "u" }], "update": [3], "log": log });
        let server = json!({ "info": name, "instructions": name, "capabilities": name });
        json!({ "version": version, "server": server, "outcomes": outcomes, "heard": received })
    }

    fn found(steps: &Value, direct: &Value, version: &str, through: &Value) -> Vec<String> {
        let steps = steps.as_array().cloned().unwrap_or_default();
        differences(&steps, transcript(HANDSHAKE, "s", direct), transcript(version, "unhang", through))
    }

    #[test]
    fn what_the_gateway_and_the_newer_era_add_is_no_difference() {
        let steps = json!([{ "do": "list_tools" }, { "do": "call", "tool": "slow" }]);
        let told =
            |all: &[u32]| all.iter().map(|one| json!({ "progress": one, "total": 2 })).collect::<Value>();
        let tool = json!({ "name": "slow", "execution": {} });
        let direct = json!([
            { "result": { "tools": [tool] } },
            { "result": { "content": [] }, "progress": told(&[1, 2]) },
        ]);
        let through = json!([
            { "result": { "tools": [{ "name": "list_jobs" }, { "name": "slow" }], "ttlMs": 0 } },
            {
                "result": { "content": [], "resultType": "complete", "_meta": { (WHO_ANSWERED): {} } },
                "progress": told(&[1]),
            },
        ]);
        assert_eq!(found(&steps, &direct, STATELESS, &through), Vec::<String>::new());
        assert!(!found(&steps, &direct, HANDSHAKE, &through).is_empty(), "the era is the same");
    }

    #[test]
    fn progress_may_be_skipped_and_neither_invented_nor_all_lost() {
        let steps = json!([{ "do": "call", "tool": "slow" }]);
        let outcomes = |told: &[u32]| {
            let told: Value = told.iter().map(|one| json!({ "progress": one, "total": 5 })).collect();
            json!([{ "result": {}, "progress": told }])
        };
        let differs =
            |told: &[u32]| !found(&steps, &outcomes(&[1, 2, 3, 4, 5]), HANDSHAKE, &outcomes(told)).is_empty();
        for told in [&[1, 2, 3, 4][..], &[2, 4], &[3, 4, 5]] {
            assert!(!differs(told), "{told:?}");
        }
        for told in [&[][..], &[5], &[2, 1], &[1, 1], &[1, 7]] {
            assert!(differs(told), "{told:?}");
        }
    }

    #[test]
    fn what_differs_without_a_reason_is_found_and_so_is_a_reason_without_a_difference() {
        let outcomes = |text: &str| json!([{ "result": { "content": [{ "text": text }] } }]);
        let steps = json!([{ "do": "call", "tool": "echo" }]);
        let differing = found(&steps, &outcomes("a"), HANDSHAKE, &outcomes("b"));
        assert!(differing[0].contains("/result/content/0/text"), "{differing:?}");
        let varies = json!([{ "do": "call", "tool": "echo", "varies": "it has the time" }]);
        assert!(found(&varies, &outcomes("a"), HANDSHAKE, &outcomes("b")).is_empty());
        assert!(!found(&varies, &outcomes("a"), HANDSHAKE, &json!([{ "result": {} }])).is_empty());
        let reason = json!([{ "do": "call", "tool": "echo", "gateway": { "why": "it is said so" } }]);
        assert!(found(&reason, &outcomes("a"), HANDSHAKE, &outcomes("b")).is_empty());
        assert!(found(&reason, &outcomes("a"), HANDSHAKE, &outcomes("a"))[0].contains("it is said so"));
    }
}
