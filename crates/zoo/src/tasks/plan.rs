//! What the tools do that the conformance suite wants of a server with tasks, and one more: work, questions, work, an end.
//!
//! # Invariants
//!
//! - Names, arguments and answers are those that the sources of the suite's scenarios ask for (protocol.md 4.2).
//! - The plan of a tool does not depend on whether it runs as a task: a server without tasks goes through the same.

use serde_json::{Value, json};
use unhang_demo_servers::pipe;

/// Whether a tool runs as a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskChoice {
    Forbidden,
    Optional,
    Required,
}

impl TaskChoice {
    /// The word for it of 2025-11-25.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

/// A question to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserQuestion {
    pub(crate) key: &'static str,
    message: &'static str,
    /// Name and JSON type of what is to be filled in.
    field: (&'static str, &'static str),
}

impl UserQuestion {
    /// The parameters of its `elicitation/create`.
    pub(crate) fn params(&self) -> Value {
        let (name, kind) = self.field;
        let schema = json!({"type": "object", "properties": {name: {"type": kind}}, "required": [name]});
        json!({"mode": "form", "message": self.message, "requestedSchema": schema})
    }

    /// The whole request, as it stands among `inputRequests`.
    pub(crate) fn request(&self) -> Value {
        json!({"method": "elicitation/create", "params": self.params()})
    }
}

/// A tool, and what comes of its work.
pub(crate) struct TaskTool {
    pub(crate) tool: &'static str,
    description: &'static str,
    /// Name and JSON type of each argument beside `seconds`; all are optional.
    arguments: &'static [(&'static str, &'static str)],
    pub(crate) support: TaskChoice,
    /// What it asks before it begins to work.
    pub(crate) before: &'static [UserQuestion],
    /// What it asks in the middle of its work, all at once.
    pub(crate) during: &'static [UserQuestion],
    /// For how long it works before it asks or ends, unless it is told.
    seconds: f64,
    end: fn(&Value, &Value) -> Result<Value, FailingTool>,
}

/// A tool that answers with an error of JSON-RPC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailingTool {
    pub(crate) code: i64,
    pub(crate) message: &'static str,
}

/// How long a tool works when its questions have been answered, in milliseconds.
const AFTERWARDS: u64 = 200;

/// Longer than any test waits, and short enough that times stay numbers.
const LONGEST: f64 = 1e9;

/// Every one of them, sorted by name.
pub(crate) const PLANS: &[TaskTool] = &[
    TaskTool {
        tool: "batch_compute",
        description: "Takes so many seconds, and is too slow for anything but a task",
        arguments: &[("label", "string")],
        support: TaskChoice::Required,
        before: &[],
        during: &[],
        seconds: 1.0,
        end: computed,
    },
    TaskTool {
        tool: "confirm_delete",
        description: "Asks before it deletes a file that there is not",
        arguments: &[("filename", "string")],
        support: TaskChoice::Required,
        before: &[],
        during: &[UserQuestion { key: "confirm", message: "Delete it?", field: ("confirm", "boolean") }],
        seconds: 1.0,
        end: |arguments, answers| {
            let answer = &answers["confirm"];
            let is_wanted = answer["action"] == "accept" && answer["content"]["confirm"] == true;
            let did = if is_wanted { "deleted" } else { "kept" };
            Ok(pipe::text(&format!("{did} {}", word(&arguments["filename"]))))
        },
    },
    TaskTool {
        tool: "failing_job",
        description: "Returns a result that is an error, after a second",
        arguments: &[],
        support: TaskChoice::Required,
        before: &[],
        during: &[],
        seconds: 1.0,
        end: |_, _| {
            Ok(
                json!({"content": [{"type": "text", "text": "The job failed, as it always does"}], "isError": true}),
            )
        },
    },
    TaskTool {
        tool: "greet",
        description: "Greets somebody at once",
        arguments: &[("name", "string")],
        support: TaskChoice::Forbidden,
        before: &[],
        during: &[],
        seconds: 0.0,
        end: |arguments, _| Ok(pipe::text(&format!("Hello, {}!", word(&arguments["name"])))),
    },
    TaskTool {
        tool: "multi_input",
        description: "Asks two things at once",
        arguments: &[],
        support: TaskChoice::Required,
        before: &[],
        during: &[
            UserQuestion { key: "first", message: "Who is first?", field: ("name", "string") },
            UserQuestion { key: "second", message: "Who is second?", field: ("name", "string") },
        ],
        seconds: 1.0,
        end: |_, answers| {
            let name = |key: &str| word(&answers[key]["content"]["name"]).to_owned();
            Ok(pipe::text(&format!("First {}, then {}", name("first"), name("second"))))
        },
    },
    TaskTool {
        tool: "protocol_error_job",
        description: "Answers with an error of the protocol, after a second",
        arguments: &[],
        support: TaskChoice::Required,
        before: &[],
        during: &[],
        seconds: 1.0,
        end: |_, _| Err(FailingTool { code: -32603, message: "The job broke, as it always does" }),
    },
    TaskTool {
        tool: "slow_compute",
        description: "Takes so many seconds",
        arguments: &[("label", "string")],
        support: TaskChoice::Optional,
        before: &[],
        during: &[],
        seconds: 1.0,
        end: computed,
    },
    TaskTool {
        tool: "test_tool_with_task",
        description: "Asks for a name, and then takes its time",
        arguments: &[],
        support: TaskChoice::Required,
        before: &[UserQuestion {
            key: "user_name",
            message: "What is your name?",
            field: ("name", "string"),
        }],
        during: &[],
        seconds: 1.0,
        end: |_, answers| {
            Ok(pipe::text(&format!("A task for {}", word(&answers["user_name"]["content"]["name"]))))
        },
    },
];

fn computed(arguments: &Value, _: &Value) -> Result<Value, FailingTool> {
    Ok(pipe::text(&format!("computed {}", word(&arguments["label"]))))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("nothing")
}

/// Returns the plan of a tool.
pub(crate) fn find(tool: &str) -> Option<&'static TaskTool> {
    PLANS.iter().find(|plan| plan.tool == tool)
}

impl TaskTool {
    /// Returns the tool as `tools/list` shows it.
    pub(crate) fn description(&self) -> Value {
        let seconds = [("seconds", "number")];
        let timed = if self.support == TaskChoice::Forbidden { &[][..] } else { &seconds[..] };
        let properties: serde_json::Map<_, _> = timed
            .iter()
            .chain(self.arguments)
            .map(|(name, kind)| ((*name).to_owned(), json!({"type": kind})))
            .collect();
        json!({
            "name": self.tool,
            "description": self.description,
            "inputSchema": {"type": "object", "properties": properties},
            "annotations": {"readOnlyHint": false},
        })
    }

    /// Returns for how many milliseconds it works before it asks or ends.
    pub(crate) fn work(&self, arguments: &Value) -> u64 {
        let seconds = arguments["seconds"].as_f64().unwrap_or(self.seconds).clamp(0.0, LONGEST);
        u64::try_from(std::time::Duration::from_secs_f64(seconds).as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns for how many milliseconds it works when it has been answered.
    pub(crate) fn afterwards(&self) -> u64 {
        if self.before.is_empty() && self.during.is_empty() { 0 } else { AFTERWARDS }
    }

    /// Returns what a task of it still has to ask: what was not asked before it began belongs to it too.
    pub(crate) fn open(&self, answers: &Value) -> Vec<&'static UserQuestion> {
        let mut open = unanswered(self.before, answers);
        open.extend(unanswered(self.during, answers));
        open
    }

    /// Returns what comes of it.
    pub(crate) fn end(&self, arguments: &Value, answers: &Value) -> Result<Value, FailingTool> {
        (self.end)(arguments, answers)
    }
}

/// Returns those questions to which there is no answer yet.
pub(crate) fn unanswered<'a>(questions: &'a [UserQuestion], answers: &Value) -> Vec<&'a UserQuestion> {
    questions.iter().filter(|question| !answers[question.key].is_object()).collect()
}

/// Returns questions as `inputRequests` has them.
pub(crate) fn input_requests(questions: &[&UserQuestion]) -> Value {
    questions.iter().map(|question| (question.key.to_owned(), question.request())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_sorted_and_no_key_is_used_twice() {
        assert!(PLANS.is_sorted_by(|one, next| one.tool < next.tool));
        for plan in PLANS {
            let mut keys: Vec<_> =
                plan.before.iter().chain(plan.during).map(|question| question.key).collect();
            keys.sort_unstable();
            assert!(keys.is_sorted_by(|one, next| one < next), "{}: {keys:?}", plan.tool);
        }
    }

    #[test]
    fn times_are_those_that_are_asked_for() {
        let plan = find("slow_compute").expect("it is there");
        for (seconds, milliseconds) in
            [(json!(0), 0), (json!(0.25), 250), (json!(-1), 0), (json!("x"), 1000), (Value::Null, 1000)]
        {
            assert_eq!(plan.work(&json!({"seconds": seconds})), milliseconds, "{seconds}");
        }
    }
}
