//! Another server of jobs, measured as it is: a description says how its jobs are submitted and polled.
//!
//! # Invariants
//!
//! - A peer runs the same jobs as ours but for the flood, for nobody knows what it does with a log without end.
//! - What an answer has to hold is checked after its time was taken.

use std::io;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use unhang_demo_servers::bounded_waits;

use super::jobs_folder::JobsFolder;
use super::server::{JOB_LIMIT, LOOK, call};
use super::{JobPlan, JobRound, sorted};
use crate::load::answers::PATIENCE;
use crate::load::samples::percentile;
use crate::load::session::LoadSession;
use crate::load::{LoadError, during, per_second};

/// Stands for the job's command as one text for a shell.
const COMMAND: &str = "$COMMAND";
/// Stands for it as a list of words.
const WORDS: &str = "$WORDS";
/// Stands for the job's id.
const JOB: &str = "$JOB";

/// How a job server is used, as its file says (`docs/performance.md`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobPeer {
    /// The command of the server, which speaks MCP over its pipes.
    pub command: Vec<String>,
    submit: PeerCall,
    status: PeerCall,
    /// Where the answer to a submit has the job's id.
    id: String,
    /// What the answer to a poll says of a job that has ended, and of no other.
    ended: String,
}

/// A tool and its arguments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerCall {
    tool: String,
    arguments: Map<String, Value>,
}

impl JobPeer {
    /// Reads a description.
    ///
    /// # Errors
    ///
    /// What is wrong: it is not JSON, a member is missing or unknown, or a call has no placeholder for what it is about.
    pub fn parse(text: &str) -> Result<Self, String> {
        let peer: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if peer.command.is_empty() {
            return Err("its `command` is empty".to_owned());
        }
        for (name, call, placeholders) in
            [("submit", &peer.submit, &[COMMAND, WORDS][..]), ("status", &peer.status, &[JOB])]
        {
            if !placeholders.iter().any(|placeholder| call.has(placeholder)) {
                let placeholders = placeholders.join(" nor ");
                return Err(format!("the arguments of `{name}` have no {placeholders}"));
            }
        }
        Ok(peer)
    }

    /// The id in the answer to a submit.
    fn id(&self, answer: &Value) -> Option<String> {
        if self.id.starts_with('/') {
            let found = documents(answer).find_map(|document| document.pointer(&self.id).cloned())?;
            return match found {
                Value::String(id) => Some(id),
                Value::Number(id) => Some(id.to_string()),
                _ => None,
            };
        }
        let ends = |letter: char| letter.is_whitespace() || "\"'`,;.()".contains(letter);
        texts(answer).find_map(|text| {
            let (_, rest) = text.split_once(&self.id)?;
            let id = rest.trim_start().split(ends).next()?;
            (!id.is_empty()).then(|| id.to_owned())
        })
    }

    /// Whether the answer to a poll says that the job has ended.
    fn has_ended(&self, answer: &Value) -> bool {
        texts(answer).any(|text| text.contains(&self.ended))
            || answer["structuredContent"].to_string().contains(&self.ended)
    }
}

impl PeerCall {
    fn has(&self, placeholder: &str) -> bool {
        let taken = self.filled(&[(placeholder, Value::Null)]);
        taken != Value::Object(self.arguments.clone())
    }

    /// Its arguments, with these for the placeholders.
    fn filled(&self, values: &[(&str, Value)]) -> Value {
        fill(&Value::Object(self.arguments.clone()), values)
    }
}

fn fill(value: &Value, values: &[(&str, Value)]) -> Value {
    match value {
        Value::String(text) => {
            let own = values.iter().find(|(placeholder, _)| placeholder == text);
            own.map_or_else(|| value.clone(), |(_, own)| own.clone())
        }
        Value::Array(items) => items.iter().map(|item| fill(item, values)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), fill(member, values))).collect()
        }
        _ => value.clone(),
    }
}

/// The texts of an answer.
fn texts(answer: &Value) -> impl Iterator<Item = &str> {
    answer["content"].as_array().into_iter().flatten().filter_map(|block| block["text"].as_str())
}

/// What of an answer is structured: itself, or a text that is JSON.
fn documents(answer: &Value) -> impl Iterator<Item = Value> {
    let texts = texts(answer).filter_map(|text| serde_json::from_str(text).ok());
    std::iter::once(answer["structuredContent"].clone()).chain(texts)
}

/// A command as a shell would be told it.
fn for_a_shell(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    quoted.join(" ")
}

/// A peer's server with its session.
struct PeerServer<'a> {
    jobs_folder: &'a JobsFolder,
    peer: &'a JobPeer,
    session: LoadSession,
}

impl Drop for PeerServer<'_> {
    fn drop(&mut self) {
        // Before the session waits for what stands below its server.
        let _the_folder_may_be_full = self.jobs_folder.open_gate();
    }
}

impl<'a> PeerServer<'a> {
    fn start(jobs_folder: &'a JobsFolder, peer: &'a JobPeer) -> io::Result<Self> {
        let home = jobs_folder.sub_folder("peer")?;
        let home = home.to_str().ok_or_else(|| io::Error::other("the path of the folder is no text"))?;
        let session = LoadSession::open_alone(&peer.command, ("UNHANG_HOME", home), PATIENCE)?;
        Ok(Self { jobs_folder, peer, session })
    }

    fn submit(&mut self, words: &[String]) -> io::Result<(String, Duration)> {
        let PeerCall { tool, .. } = &self.peer.submit;
        let arguments =
            self.peer.submit.filled(&[(COMMAND, for_a_shell(words).into()), (WORDS, json!(words))]);
        let (answer, time) = call(&mut self.session, tool, &arguments.to_string())?;
        let id = self.peer.id(&answer).ok_or_else(|| {
            io::Error::other(format!("no id at `{}` in the answer to {tool}: {answer}", self.peer.id))
        })?;
        Ok((id, time))
    }

    /// Whether a job has ended.
    fn poll(&mut self, job: &str) -> io::Result<(bool, Duration)> {
        let arguments = self.peer.status.filled(&[(JOB, job.into())]);
        let (answer, time) = call(&mut self.session, &self.peer.status.tool, &arguments.to_string())?;
        Ok((self.peer.has_ended(&answer), time))
    }

    /// Waits for the end of these.
    fn expect_ended(&mut self, jobs: &[String]) -> io::Result<()> {
        let end = bounded_waits::now() + JOB_LIMIT;
        for job in jobs.iter().rev() {
            while !self.poll(job)?.0 {
                if bounded_waits::now() >= end {
                    let text = format!("job {job} has not said `{}` within {JOB_LIMIT:?}", self.peer.ended);
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                bounded_waits::pause(LOOK);
            }
        }
        Ok(())
    }

    /// Polls jobs that run.
    fn polls(&mut self, plan: &JobPlan) -> io::Result<Vec<Duration>> {
        self.jobs_folder.close_gate()?;
        let waiting = self.jobs_folder.waiting();
        let jobs: io::Result<Vec<String>> =
            (0..plan.running).map(|_| self.submit(&waiting).map(|(job, _)| job)).collect();
        let jobs = jobs?;
        let mut times = Vec::with_capacity(plan.polls);
        for job in jobs.iter().cycle().take(plan.polls) {
            let (has_ended, time) = self.poll(job)?;
            if has_ended {
                let text =
                    format!("the answer about job {job} has `{}` in it while it runs", self.peer.ended);
                return Err(io::Error::other(text));
            }
            times.push(time);
        }
        self.jobs_folder.open_gate()?;
        self.expect_ended(&jobs)?;
        Ok(times)
    }

    /// Submits so many jobs that do nothing, one after the other; returns how long each took, and all of them to the last end.
    fn submits(&mut self, count: usize) -> io::Result<(Vec<Duration>, Duration)> {
        let nothing = ["true".to_owned()];
        let begin = bounded_waits::now();
        let submits: io::Result<Vec<_>> = (0..count).map(|_| self.submit(&nothing)).collect();
        let (jobs, times): (Vec<_>, Vec<_>) = submits?.into_iter().unzip();
        self.expect_ended(&jobs)?;
        Ok((times, begin.elapsed()))
    }
}

/// Measures a peer: what of a round can be told of it.
pub(super) fn measure(
    jobs_folder: &JobsFolder,
    peer: &JobPeer,
    plan: &JobPlan,
) -> Result<JobRound, LoadError> {
    let mut server = PeerServer::start(jobs_folder, peer).map_err(during("the start"))?;
    let polls = sorted(server.polls(plan).map_err(during("polls"))?);
    let (submits, _) = server.submits(plan.submits).map_err(during("submits"))?;
    let submits = sorted(submits);
    let (_, time) = server.submits(plan.jobs).map_err(during("jobs a second"))?;
    Ok(JobRound {
        submit_p50: percentile(&submits, 50),
        submit_p99: percentile(&submits, 99),
        status_p50: percentile(&polls, 50),
        status_p99: percentile(&polls, 99),
        jobs_per_second: per_second(plan.jobs, time),
        ..JobRound::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: &str = r#"{
        "command": ["other"],
        "submit": {"tool": "start", "arguments": {"run": ["sh", "-c", "$COMMAND"], "words": "$WORDS", "n": 1}},
        "status": {"tool": "look", "arguments": {"which": {"id": "$JOB"}}},
        "id": "/job/id",
        "ended": "done"
    }"#;

    fn peer(text: &str) -> JobPeer {
        JobPeer::parse(text).expect("a peer")
    }

    #[test]
    fn what_a_job_is_about_goes_into_its_places() {
        let peer = peer(PEER);
        let filled = peer.submit.filled(&[(COMMAND, "a b".into()), (WORDS, json!(["a", "b"]))]);
        assert_eq!(filled, json!({"run": ["sh", "-c", "a b"], "words": ["a", "b"], "n": 1}));
        assert_eq!(peer.status.filled(&[(JOB, "7".into())]), json!({"which": {"id": "7"}}));
        assert_eq!(for_a_shell(&["it's".into(), "a b".into()]), r"'it'\''s' 'a b'");
    }

    #[test]
    fn an_id_is_found_by_pointer_or_by_what_stands_before_it() {
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        let by_pointer = peer(PEER);
        let structured = json!({"structuredContent": {"job": {"id": "a1"}}});
        assert_eq!(by_pointer.id(&structured).as_deref(), Some("a1"));
        assert_eq!(by_pointer.id(&text(r#"{"job": {"id": 12}}"#)).as_deref(), Some("12"));
        assert_eq!(by_pointer.id(&text("job a1")), None);
        let by_words = peer(&PEER.replace("/job/id", "Job ID:"));
        assert_eq!(by_words.id(&text("Started.")), None);
        assert_eq!(by_words.id(&text("Started. Job ID: a-1_2, look later")).as_deref(), Some("a-1_2"));
    }

    #[test]
    fn the_end_is_told_by_text_or_structure() {
        let peer = peer(PEER);
        assert!(peer.has_ended(&json!({"structuredContent": {"state": "done"}})));
        assert!(peer.has_ended(&json!({"content": [{"type": "text", "text": "it is done"}]})));
        assert!(!peer.has_ended(&json!({"content": [{"type": "text", "text": "running"}]})));
    }

    #[test]
    fn what_is_no_description_is_refused_with_the_reason() {
        for (from, to, reason) in [
            ("\"ended\"", "\"end\"", "unknown field `end`"),
            ("$COMMAND", "true", ""),
            ("[\"other\"]", "[]", "its `command` is empty"),
            ("$JOB", "JOB", "the arguments of `status` have no $JOB"),
        ] {
            let parsed = JobPeer::parse(&PEER.replace(from, to));
            match reason {
                "" => assert!(parsed.is_ok(), "one of two places is enough"),
                reason => assert!(parsed.unwrap_err().contains(reason), "{to}"),
            }
        }
        let without = PEER.replace("$COMMAND", "true").replace("$WORDS", "true");
        assert!(JobPeer::parse(&without).unwrap_err().ends_with("have no $COMMAND nor $WORDS"));
    }
}
