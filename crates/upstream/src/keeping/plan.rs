//! The plan of a call holder, written as words of a command line: the facts about a server and about its calls that are jobs.
//!
//! ```text
//! --format=N  --data=FOLDER  --server=JSON  --call=JSON ...
//! ```
//!
//! Invariants
//!
//! - A plan is read back as it was written, or refused with the reason. The format comes first, so that a plan of another version is never
//!   half read.
//! - A plan holds no argument and no result of a call: other users of the machine can see command lines.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use unhang_core::{limits::Limits, revision::Revision};
use unhang_jobs::id::JobId;
use unhang_wire::Id;

use crate::question::{OfSession, SessionKey};

/// The format of a plan. It changes with the meaning of its words.
pub const PLAN_FORMAT: u32 = 5;

/// The longest JSON of one call: the kernel takes no longer word than 128 KiB.
const LONGEST_WORD: usize = 100 << 10;

/// The longest answers to `roots/list` that a plan has, in bytes.
pub const LONGEST_ROOTS: usize = 64 << 10;

/// The reason why a plan cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Another version of unhang has written the plan.
    #[error(
        "its plan has format {given}, and this program reads format {PLAN_FORMAT}: they are different versions of unhang"
    )]
    Format {
        /// The format of the plan.
        given: String,
    },
    /// A word of the plan is missing or makes no sense.
    #[error("`{word}` of its plan is missing or wrong; only a lifeline starts a call holder")]
    Word {
        /// The word.
        word: &'static str,
    },
}

/// The party that gets the server's questions once the call is a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhoIsAsked {
    /// Nobody: the client does something else.
    Nobody,
    /// The clients that follow the task, as far as the client of the call has said that it can be asked: its capabilities, as JSON.
    Followers(Box<str>),
}

/// The facts by which a call holder goes on with a server.
#[derive(Clone, Debug, PartialEq)]
pub struct HolderPlan {
    /// The data folder of the jobs.
    pub data_folder: PathBuf,
    /// The facts about the server.
    pub server: KeptServer,
    /// The calls that are jobs.
    pub calls: Vec<KeptCall>,
}

/// The facts about a server that outlives its guard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptServer {
    /// The server's name, as the configuration calls it.
    pub name: String,
    /// The revision that is spoken with it.
    revision: String,
    /// The longest message, in bytes.
    max_message: usize,
    /// The most bytes that wait for the server.
    queue_bytes: usize,
    /// The time for a reply to a question, in milliseconds.
    call_timeout_ms: u64,
    /// The time that a call may take as a job, in milliseconds.
    job_timeout_ms: u64,
    /// The time between the steps of the server's stop, in milliseconds.
    stop_grace_ms: u64,
    /// The last known answers of its clients to `roots/list`.
    #[serde(default)]
    pub roots: KeptRoots,
}

/// The last known answers of a server's clients to `roots/list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptRoots {
    /// The answer of the only client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<Value>,
    /// The answers of sessions, by their numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of_sessions: BTreeMap<u64, Value>,
}

impl KeptRoots {
    /// Returns the roots for a call of the session with this number, if it has one; `None` if they are not known.
    #[must_use]
    pub fn of(&self, session: Option<u64>) -> Option<&Value> {
        session.and_then(|session| self.of_sessions.get(&session)).or(self.all.as_ref())
    }
}

impl KeptServer {
    /// Notes the facts about a server with these limits.
    #[must_use]
    pub fn new(name: String, revision: Revision, limits: &Limits) -> Self {
        Self {
            name,
            revision: revision.name().to_owned(),
            max_message: limits.max_message,
            queue_bytes: limits.queue_bytes,
            call_timeout_ms: millis(limits.call_timeout),
            job_timeout_ms: millis(limits.job_timeout),
            stop_grace_ms: millis(limits.stop_grace),
            roots: KeptRoots::default(),
        }
    }

    /// Returns the revision; `None` if this version does not know it.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        Revision::named(&self.revision)
    }

    /// Returns the limits of the server; those that a plan does not name have their defaults.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            max_message: self.max_message,
            queue_bytes: self.queue_bytes,
            call_timeout: Duration::from_millis(self.call_timeout_ms),
            job_timeout: Duration::from_millis(self.job_timeout_ms),
            stop_grace: Duration::from_millis(self.stop_grace_ms),
            ..Limits::default()
        }
    }
}

/// The facts about a call that is a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCall {
    /// The job.
    pub job: JobId,
    /// The id under which the server answers.
    pub id: Id,
    /// The progress token of the request, if it has one.
    pub token: Option<Id>,
    /// The party that gets questions about the call.
    pub who: WhoIsAsked,
    /// Tells the session of the call from those of the other calls; `None` if the calls may be of several clients.
    pub client: Option<u64>,
    /// Whether the server has got the request. Without, a call holder has nothing to wait for.
    pub is_sent: bool,
    /// The request that takes the place of this one once the server has got it.
    pub next: Option<NextRequest>,
}

/// A request with which a job asks its server once more, because the server wanted input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextRequest {
    /// The id under which the server answers.
    pub id: Id,
    /// The bytes that the journal of the server's input accepts before the request.
    pub after: u64,
}

/// A call as it is written down. Ids are JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCall {
    job: String,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The capabilities of the clients that follow the job as a task; `None` if nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    followers: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<u64>,
    is_sent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<WrittenNext>,
}

/// A [`NextRequest`] as it is written down.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNext {
    id: String,
    after: u64,
}

impl KeptCall {
    /// Puts the next request in the place of this one if the server has got it: the journal of its input has `accepted` so many bytes.
    /// Returns the id of the request before in that case.
    pub fn go_on(&mut self, accepted: u64) -> Option<Id> {
        // The journal accepts a line as a whole.
        let next = self.next.take_if(|next| accepted > next.after)?;
        Some(std::mem::replace(&mut self.id, next.id))
    }

    /// Returns the session of the call, as it is for a process that cannot ask its client any more.
    #[must_use]
    pub fn session(&self) -> Option<OfSession> {
        let key = SessionKey::of_number(self.client?);
        Some(OfSession { key, is_asked_beside: true, is_one_client: true })
    }

    fn write(&self) -> String {
        let followers = match &self.who {
            WhoIsAsked::Followers(capabilities) if capabilities.len() < LONGEST_WORD / 2 => {
                Some(capabilities.to_string())
            }
            // Without room for the capabilities, the job asks no client.
            WhoIsAsked::Followers(_) | WhoIsAsked::Nobody => None,
        };
        let written = WrittenCall {
            job: self.job.as_str().to_owned(),
            id: self.id.to_json(),
            token: self.token.as_ref().map(Id::to_json),
            followers,
            client: self.client,
            is_sent: self.is_sent,
            next: self.next.as_ref().map(|next| WrittenNext { id: next.id.to_json(), after: next.after }),
        };
        serde_json::to_string(&written).unwrap_or_default()
    }

    fn read(text: &str) -> Option<Self> {
        let WrittenCall { job, id, token, followers, client, is_sent, next } =
            serde_json::from_str(text).ok()?;
        let token = match token {
            Some(token) => Some(Id::from_json(&token)?),
            None => None,
        };
        let next = match next {
            Some(WrittenNext { id, after }) => Some(NextRequest { id: Id::from_json(&id)?, after }),
            None => None,
        };
        let who = followers.map_or(WhoIsAsked::Nobody, |text| WhoIsAsked::Followers(text.into()));
        Some(Self { job: job.parse().ok()?, id: Id::from_json(&id)?, token, who, client, is_sent, next })
    }
}

impl HolderPlan {
    /// Writes the plan as words.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let server = serde_json::to_string(&self.server).unwrap_or_default();
        let mut data = OsString::from("--data=");
        data.push(&self.data_folder);
        let mut words =
            vec![format!("--format={PLAN_FORMAT}").into(), data, format!("--server={server}").into()];
        words.extend(self.calls.iter().map(|call| format!("--call={}", call.write()).into()));
        words
    }

    /// Reads a plan, and takes no word behind it.
    ///
    /// # Errors
    /// Fails with the word that is missing or wrong, or with the format of another version.
    pub fn parse(words: &mut std::iter::Peekable<impl Iterator<Item = OsString>>) -> Result<Self, PlanError> {
        let wrong = |word| PlanError::Word { word };
        let format = value(words, "--format=").ok_or(wrong("--format"))?;
        if format != *PLAN_FORMAT.to_string() {
            return Err(PlanError::Format { given: format.to_string_lossy().into_owned() });
        }
        let data_folder = value(words, "--data=").ok_or(wrong("--data"))?.into();
        let server = value(words, "--server=").and_then(|text| text.into_string().ok());
        let server = server.and_then(|text| serde_json::from_str(&text).ok()).ok_or(wrong("--server"))?;
        let mut calls = Vec::new();
        while let Some(text) = value(words, "--call=") {
            let call = text.to_str().and_then(KeptCall::read).ok_or(wrong("--call"))?;
            calls.push(call);
        }
        Ok(Self { data_folder, server, calls })
    }
}

/// Takes the next word if it begins like this, and returns the rest of it.
fn value(
    words: &mut std::iter::Peekable<impl Iterator<Item = OsString>>,
    beginning: &str,
) -> Option<OsString> {
    let word = words.next_if(|word| word.as_bytes().starts_with(beginning.as_bytes()))?;
    Some(OsString::from_vec(word.as_bytes().get(beginning.len()..)?.to_vec()))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan() -> HolderPlan {
        let limits = Limits { max_message: 7 << 20, ..Limits::default() };
        let server = KeptServer::new("my server".to_owned(), Revision::V2025November, &limits);
        let job = JobId::random().expect("an id");
        let followers = WhoIsAsked::Followers(r#"{"elicitation":{}}"#.into());
        HolderPlan {
            data_folder: OsString::from_vec(b"/data \xff".to_vec()).into(),
            server: KeptServer {
                roots: KeptRoots {
                    all: Some(json!({ "roots": [] })),
                    of_sessions: [(u64::MAX, json!({ "roots": [1] }))].into(),
                },
                ..server
            },
            calls: vec![
                KeptCall {
                    job,
                    id: Id::Text("1".into()),
                    token: None,
                    who: WhoIsAsked::Nobody,
                    client: None,
                    is_sent: false,
                    next: None,
                },
                KeptCall {
                    job,
                    id: Id::Integer(1),
                    token: Some(Id::Text("t".into())),
                    who: followers,
                    client: Some(7),
                    is_sent: true,
                    next: Some(NextRequest { id: Id::Text("2".into()), after: 1 << 40 }),
                },
            ],
        }
    }

    fn parse(words: Vec<OsString>) -> Result<HolderPlan, PlanError> {
        HolderPlan::parse(&mut words.into_iter().peekable())
    }

    #[test]
    fn a_plan_is_read_back_as_it_was_written() {
        let words = plan().words();
        let mut both = words.clone().into_iter().chain(["--hand-over=2".into()]).peekable();
        let read = HolderPlan::parse(&mut both).expect("a plan");
        assert_eq!((read.words(), &read.server), (words, &plan().server));
        assert_eq!(both.next(), Some("--hand-over=2".into()), "the words behind it are not taken");
        assert_eq!(read.server.limits().max_message, 7 << 20);
        assert_eq!(read.server.revision(), Some(Revision::V2025November));
        assert_eq!(HolderPlan { calls: Vec::new(), ..read }.words().len(), 3);
    }

    #[test]
    fn a_plan_that_makes_no_sense_is_refused_with_the_reason() {
        for (index, word, expect) in [
            (0, "--format=1", "format 1"),
            (0, "--data=/", "`--format`"),
            (1, "--server={}", "`--data`"),
            (2, "--server={}", "`--server`"),
            (3, r#"--call={"job":"x","id":"1"}"#, "`--call`"),
        ] {
            let mut words = plan().words();
            words[index] = word.into();
            let error = parse(words).expect_err(word).to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
