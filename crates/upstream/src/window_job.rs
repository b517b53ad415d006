//! The order by which a window has the leading window make a job of its call, and the answer to a call that has become such a job.
//!
//! ```text
//! window ─ tools/call, with a name in CALL ─► leader ─────────────────────────────────────► server
//! window ─ MAKE_JOB, for the call of this name ─► leader: the job is on the disk, and the server's lifeline has the plan of a call holder
//! window ◄─ the answers to both: this job ─ leader, which follows the job from now on
//!
//! window ─ tools/call, with the whole order in ORDER ─► leader: the job is on the disk ──────► server
//! window ◄─ the answer: this job, or why there is none ─ leader, once the server's lifeline has the plan
//! ```
//!
//! A call for which its client has asked for a task (2025-11-25) brings its order, because the task exists before the server gets the call.
//!
//! Invariants
//!
//! - The window and the leader are the same version, and the order has the same format. Any other order is refused, and nothing is guessed.
//! - A call has one answer: that of its server, or the job. So a window that hears nothing of its order hears of the job all the same.
//! - A window that stops waiting closes the connection of its order. The leader makes no job for an order whose connection is closed.
//! - An order that a call has brought is refused before the server gets the call.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use unhang_core::fault::FaultKind;
use unhang_jobs::id::JobId;
use unhang_wire::{Json, text_member};

use crate::{
    client::Error,
    http::headers::{decoded, encoded},
    keeping::{KEEP_LIMIT, WhoIsAsked},
    question::drawn,
};

/// The header that names a call of a window, for the window that leads.
pub const CALL: &str = "unhang-call";

/// The header with which a call brings the order to make a job of it before its server gets it.
pub const ORDER: &str = "unhang-job-order";

/// The longest value of that header. The head of a request has 64 KiB at most.
const LONGEST_ORDER: usize = 32 << 10;

/// The method of the order to make a job of a call.
pub const MAKE_JOB: &str = "unhang/makeJob";

/// How long an order waits for its call, which it may overtake.
pub const COMING: Duration = Duration::from_secs(4);

/// How long a window waits for the answer to an order. The leader waits for the call, and then for the server's lifeline.
pub const ORDER_LIMIT: Duration = COMING.saturating_add(KEEP_LIMIT);

/// The format of an order and of its answer. It changes with their meaning.
const ORDER_FORMAT: u32 = 2;

/// The version of this unhang.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The member of an answer that names the job.
const JOB: &str = "io.github.unhang/job";

/// The member of the data of an error that names the call. The server does not know that name, so it cannot give such an answer.
const NAMED_CALL: &str = "io.github.unhang/call";

/// The member of the data of an error that says why no job is made of the call, whose server has not got it.
const NO_JOB: &str = "io.github.unhang/noJob";

/// The name of a window's call, which tells it from every other, even of other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowCallName(u64);

impl WindowCallName {
    /// Draws the name of a call that begins now.
    #[must_use]
    pub fn drawn() -> Self {
        Self(drawn())
    }

    /// Writes the name, as its window tells it to the window that leads.
    #[must_use]
    pub fn told(self) -> String {
        format!("{:016x}", self.0)
    }

    /// Reads a name that a window has told; `None` if it is malformed.
    #[must_use]
    pub fn read(told: &str) -> Option<Self> {
        u64::from_str_radix(told, 16).ok().map(Self)
    }
}

/// The order to make a job of a call that the leader has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowJobOrder {
    /// The call.
    pub call: WindowCallName,
    /// The name by which the client knows the tool.
    pub tool: String,
    /// The time for which the call has taken.
    pub elapsed: Duration,
    /// The time that the call may take in all.
    pub limit: Duration,
    /// The party that gets the server's questions about the job.
    pub who: WhoIsAsked,
}

/// An order as it is written down.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenOrder {
    format: u32,
    version: String,
    call: String,
    tool: String,
    elapsed_ms: u64,
    limit_ms: u64,
    /// The capabilities of the clients that follow the job as a task; `None` if nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    followers: Option<String>,
    /// Members that every request of 2026-07-28 has.
    #[serde(default, rename = "_meta", skip_serializing)]
    _meta: Option<serde::de::IgnoredAny>,
}

impl WindowJobOrder {
    /// Writes the params of the order.
    #[must_use]
    pub fn params(&self) -> String {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let followers = match &self.who {
            WhoIsAsked::Followers(capabilities) => Some(capabilities.to_string()),
            WhoIsAsked::Nobody => None,
        };
        let written = WrittenOrder {
            format: ORDER_FORMAT,
            version: VERSION.to_owned(),
            call: self.call.told(),
            tool: self.tool.clone(),
            elapsed_ms: millis(self.elapsed),
            limit_ms: millis(self.limit),
            followers,
            _meta: None,
        };
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Writes the order as the value of a header; `None` if it is too long for one.
    #[must_use]
    pub fn header(&self) -> Option<String> {
        Some(encoded(&self.params())).filter(|value| value.len() <= LONGEST_ORDER)
    }

    /// Reads an order from the value of a header.
    ///
    /// # Errors
    /// Fails as [`Self::read`] does.
    pub fn read_header(value: &str) -> Result<Self, String> {
        let text = decoded(value);
        let params = text.as_ref().and_then(|text| Json::new(text.as_bytes()));
        Self::read(params.unwrap_or(Json::EMPTY))
    }

    /// Reads the params of an order.
    ///
    /// # Errors
    /// Fails with the reason why the order is refused: another version has written it, or it makes no sense.
    pub fn read(params: Json<'_>) -> Result<Self, String> {
        let given = text_member(params, "version").unwrap_or_default();
        let format = params.member("format").map_or("", Json::get);
        if given != VERSION || format != ORDER_FORMAT.to_string() {
            return Err(format!(
                "the window is unhang {given} with format {format}, and the window that runs the servers is \
                 unhang {VERSION} with format {ORDER_FORMAT}"
            ));
        }
        let wrong = || "the order to make a job is malformed".to_owned();
        let written: WrittenOrder = serde_json::from_str(params.get()).map_err(|_| wrong())?;
        let who = written.followers.map_or(WhoIsAsked::Nobody, |text| WhoIsAsked::Followers(text.into()));
        Ok(Self {
            call: WindowCallName::read(&written.call).ok_or_else(wrong)?,
            tool: written.tool,
            elapsed: Duration::from_millis(written.elapsed_ms),
            limit: Duration::from_millis(written.limit_ms),
            who,
        })
    }
}

/// Writes the result with which a leader answers an order that it has carried out.
#[must_use]
pub fn made_job(job: JobId) -> String {
    json!({ "resultType": "complete", JOB: job.as_str() }).to_string()
}

/// Returns the job that the answer to an order names.
#[must_use]
pub fn read_made_job(result: &RawValue) -> Option<JobId> {
    text_member(Json::new(result.get().as_bytes())?, JOB)?.parse().ok()
}

/// Writes the error with which a leader answers a call that is its job now.
#[must_use]
pub fn became_job(job: JobId, call: WindowCallName) -> String {
    let message =
        format!("the window that runs the servers goes on with the call as job {job}: ask for that job");
    let data = json!({ JOB: job.as_str(), NAMED_CALL: call.told() });
    json!({ "code": FaultKind::ServerExited.code(), "message": message, "data": data }).to_string()
}

/// Writes the error with which a leader answers a call of which it makes no job, though the call has brought the order. `why` is the reason.
#[must_use]
pub fn no_job(why: &str, call: WindowCallName) -> String {
    let message = format!("the window that runs the servers makes no job of the call: {why}");
    let data = json!({ NO_JOB: why, NAMED_CALL: call.told() });
    json!({ "code": FaultKind::Overloaded.code(), "message": message, "data": data }).to_string()
}

/// Returns the job of the leader that the call of this name has become; `None` if this is any other answer.
#[must_use]
pub fn read_became_job(outcome: &Result<Box<RawValue>, Error>, call: WindowCallName) -> Option<JobId> {
    told_of(outcome, call, JOB)?.parse().ok()
}

/// Returns why the leader makes no job of the call of this name, whose server has not got it; `None` if this is any other answer.
#[must_use]
pub fn read_no_job(outcome: &Result<Box<RawValue>, Error>, call: WindowCallName) -> Option<String> {
    told_of(outcome, call, NO_JOB)
}

/// Returns a member of the data of a leader's error about the call of this name.
fn told_of(outcome: &Result<Box<RawValue>, Error>, call: WindowCallName, member: &str) -> Option<String> {
    let Err(Error::Server(error)) = outcome else { return None };
    let data = Json::new(error.data.as_ref()?.get().as_bytes())?;
    text_member(data, NAMED_CALL).filter(|named| *named == call.told())?;
    text_member(data, member)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::client::ServerError;

    fn order() -> WindowJobOrder {
        WindowJobOrder {
            call: WindowCallName::drawn(),
            tool: "srv__slow".to_owned(),
            elapsed: Duration::from_millis(300),
            limit: Duration::from_secs(7200),
            who: WhoIsAsked::Followers(r#"{"elicitation":{}}"#.into()),
        }
    }

    fn read(text: &str) -> Result<WindowJobOrder, String> {
        WindowJobOrder::read(Json::new(text.as_bytes()).expect("JSON"))
    }

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for order in [order(), WindowJobOrder { who: WhoIsAsked::Nobody, ..order() }] {
            let mut written: Value = serde_json::from_str(&order.params()).expect("JSON");
            assert_eq!(read(&written.to_string()), Ok(order.clone()));
            written["_meta"] = json!({ "x": 1 });
            assert_eq!(read(&written.to_string()), Ok(order.clone()));
            let header = order.header().expect("it is short");
            assert_eq!(WindowJobOrder::read_header(&header), Ok(order));
        }
    }

    #[test]
    fn an_order_that_a_call_brings_fits_into_a_header_or_stays_out() {
        let foreign = WindowJobOrder { tool: "srv__größe".to_owned(), ..order() };
        let header = foreign.header().expect("it is short");
        assert!(header.is_ascii());
        assert_eq!(WindowJobOrder::read_header(&header), Ok(foreign));
        let who = WhoIsAsked::Followers(format!(r#"{{"x":"{}"}}"#, "x".repeat(LONGEST_ORDER)).into());
        assert_eq!(WindowJobOrder { who, ..order() }.header(), None);
        for malformed in ["", "no JSON", "=?base64?!?=", "{}"] {
            assert!(WindowJobOrder::read_header(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn an_order_of_another_version_is_refused_whatever_it_says() {
        let written: Value = serde_json::from_str(&order().params()).expect("JSON");
        for (member, other, why) in [
            ("version", json!("0.0.1"), "the window is unhang 0.0.1"),
            ("format", json!(1), "with format 1"),
            ("format", json!(3), "with format 3"),
            ("version", Value::Null, "the window is unhang  with"),
            ("call", json!("no name"), "malformed"),
            ("more", json!(1), "malformed"),
            ("limit_ms", json!("long"), "malformed"),
        ] {
            let mut order = written.clone();
            order[member] = other;
            let refused = read(&order.to_string()).expect_err("it is refused");
            assert!(refused.contains(why), "{refused}");
        }
        assert!(read("{}").is_err());
    }

    #[test]
    fn the_job_of_a_leader_is_told_from_every_other_answer() {
        let job = JobId::random().expect("an id");
        let call = WindowCallName::drawn();
        let error: Value = serde_json::from_str(&became_job(job, call)).expect("JSON");
        let answer = |data: &Value| {
            let data = RawValue::from_string(data.to_string()).ok();
            let (server, method) = ("gateway".to_owned(), "tools/call".to_owned());
            let told = ServerError { server, method, code: -1, message: String::new(), data };
            Err(Error::Server(Box::new(told)))
        };
        let told = |data: &Value| read_became_job(&answer(data), call);
        assert_eq!(told(&error["data"]), Some(job));
        let made = RawValue::from_string(made_job(job)).expect("JSON");
        assert_eq!(read_made_job(&made), Some(job));
        assert!(error["message"].as_str().is_some_and(|message| message.contains(job.as_str())));
        let refusal: Value = serde_json::from_str(&no_job("it ends", call)).expect("JSON");
        let foreign = json!({ JOB: job.as_str(), NAMED_CALL: WindowCallName::drawn().told() });
        let nameless = json!({ NAMED_CALL: call.told(), JOB: "no id" });
        let refused = refusal["data"].clone();
        for other in [json!({}), json!({ JOB: job.as_str() }), foreign, nameless, json!(1), refused] {
            assert_eq!(told(&other), None);
        }
        let refused = |data: &Value| read_no_job(&answer(data), call);
        assert_eq!(refused(&refusal["data"]).as_deref(), Some("it ends"));
        assert_eq!(refused(&error["data"]), None);
        assert_eq!(refused(&json!({ NO_JOB: "it ends" })), None, "no leader knows the call");
        let result = RawValue::from_string(error["data"].to_string()).expect("JSON");
        assert_eq!(read_became_job(&Ok(result), call), None, "a result of a server");
    }
}
