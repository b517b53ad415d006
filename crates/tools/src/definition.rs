//! Definitions and answers of tools, and how both stand on the wire in each revision.
//!
//! Invariants
//! - A revision is sent no member that it does not know.
//! - An answer is bounded: no text is longer than [`ANSWER_CHARACTERS`], whoever made it.

use serde_json::{Map, Value, json, value::RawValue};

use crate::job_report::JobReport;
use unhang_core::{config::ANSWER_CHARACTERS, revision::Revision, wording::shortened};

/// The effects of a tool on the world, as far as a client may want to know before it asks a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The tool changes nothing.
    pub read_only: bool,
    /// A change that the tool makes may destroy data.
    pub destructive: bool,
    /// Two calls change no more than one.
    pub idempotent: bool,
    /// The tool reaches beyond the data that we keep ourselves.
    pub open_world: bool,
}

/// The place of a tool in the list of a front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolListing {
    /// Before the tools of servers.
    #[default]
    First,
    /// Behind all others.
    Last,
    /// Nowhere; a call of it is answered all the same.
    Nowhere,
}

/// A tool as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The tool's name, unique.
    pub name: String,
    /// The description for clients.
    pub description: Option<String>,
    /// The schema of its arguments.
    pub input_schema: Value,
    /// The schema of the structured part of its answers.
    pub output_schema: Option<Value>,
    /// Its effects on the world.
    pub hints: Hints,
    /// The tool answers at once, with the job that it has begun.
    pub is_job: bool,
    /// Its place in the list.
    pub listing: ToolListing,
}

impl Definition {
    /// Returns the tool as an entry of `tools/list`.
    pub fn to_json(&self, revision: Revision) -> Value {
        let mut tool = json!({ "name": self.name, "inputSchema": self.input_schema });
        if let Some(description) = &self.description {
            tool["description"] = description.as_str().into();
        }
        if revision.has_annotations() {
            let Hints { read_only, destructive, idempotent, open_world } = self.hints;
            tool["annotations"] = json!({
                "readOnlyHint": read_only,
                "destructiveHint": destructive,
                "idempotentHint": idempotent,
                "openWorldHint": open_world,
            });
        }
        if let Some(schema) = self.output_schema.as_ref().filter(|_| revision.has_structured_results()) {
            tool["outputSchema"] = schema.clone();
        }
        tool
    }
}

/// The answer of a tool.
#[derive(Clone, Debug, Default)]
pub struct ToolAnswer {
    /// The text, for the model and for a person.
    pub text: String,
    /// The same for programs, in the form of the tool's output schema.
    pub structured: Option<Map<String, Value>>,
    /// The content that follows the text, as JSON: content as a server gave it.
    pub content: Vec<Box<RawValue>>,
    /// The tool did not do what it was asked for.
    pub is_error: bool,
    /// The job that the tool began, if it answered at once.
    pub job: Option<Box<JobReport>>,
}

impl ToolAnswer {
    /// Makes the answer for a refusal or a failure, with a sentence about it.
    pub fn error(text: impl Into<String>) -> ToolAnswer {
        ToolAnswer { text: text.into(), is_error: true, ..ToolAnswer::default() }
    }

    /// Returns the members of a `tools/call` result. The text has [`ANSWER_CHARACTERS`] at most.
    pub fn to_json(&self, revision: Revision) -> Map<String, Value> {
        self.members(revision, ANSWER_CHARACTERS)
    }

    /// Returns the members of a `tools/call` result with all of the text.
    pub fn whole(&self, revision: Revision) -> Map<String, Value> {
        self.members(revision, usize::MAX)
    }

    /// Returns the members of a `tools/call` result with at most `most` characters of the text.
    fn members(&self, revision: Revision, most: usize) -> Map<String, Value> {
        let text = shortened(&self.text, most);
        let mut result = Map::new();
        let own = json!({ "type": "text", "text": text });
        let given = self.content.iter().filter_map(|block| serde_json::from_str(block.get()).ok());
        result.insert("content".to_owned(), std::iter::once(own).chain(given).collect());
        if let Some(structured) = self.structured.as_ref().filter(|_| revision.has_structured_results()) {
            result.insert("structuredContent".to_owned(), structured.clone().into());
        }
        if self.is_error {
            result.insert("isError".to_owned(), true.into());
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Definition {
        Definition {
            name: "echo".to_owned(),
            description: Some("Echoes".to_owned()),
            input_schema: json!({ "type": "object" }),
            output_schema: Some(json!({ "type": "object" })),
            hints: Hints { read_only: true, ..Hints::default() },
            is_job: false,
            listing: ToolListing::default(),
        }
    }

    #[test]
    fn a_revision_is_sent_what_it_knows() {
        let members = |value: Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let answer =
            ToolAnswer { text: "a".to_owned(), structured: Some(Map::new()), ..ToolAnswer::default() };
        for (revision, listed, answered) in [
            (Revision::V2024November, &["description", "inputSchema", "name"][..], &["content"][..]),
            (Revision::V2025March, &["annotations", "description", "inputSchema", "name"], &["content"]),
            (
                Revision::V2025June,
                &["annotations", "description", "inputSchema", "name", "outputSchema"],
                &["content", "structuredContent"],
            ),
        ] {
            assert_eq!(members(definition().to_json(revision)), listed);
            assert_eq!(members(answer.to_json(revision).into()), answered);
        }
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        let answer = ToolAnswer::error("é".repeat(ANSWER_CHARACTERS + 1)).to_json(Revision::V2025June);
        let text = answer["content"][0]["text"].as_str().unwrap();
        assert_eq!((text.chars().count(), text.ends_with('…')), (ANSWER_CHARACTERS, true));
        assert_eq!(answer["isError"], true);
    }
}
