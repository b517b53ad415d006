//! Why a request failed, as a value: the server's own error, or our verdict on the server.
//!
//! Invariants: a caller can tell the two apart, and each of our verdicts from the others, without reading a sentence (L-74). Each has the
//! exit code of a program that ends because of it (design 4).

use std::{fmt, mem, time::Duration};

use serde_json::{Value, value::RawValue};

use crate::{
    exit,
    fault::{BAD_RESPONSE_HINT, Evidence, Fault, FaultKind, STDERR_AT_STATUS},
    units::in_words,
};

/// The reason why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered with an error.
    #[error(transparent)]
    Server(Box<ServerError>),
    /// There is no usable answer.
    #[error(transparent)]
    Failure(Box<Failure>),
    /// The server goes on with the request in the background, and had not finished in time.
    #[error(transparent)]
    Unfinished(Box<UnfinishedCall>),
    /// There is no server of this name; the text suggests the name that may be meant.
    #[error("there is no server `{name}`{hint}")]
    NoSuchServer {
        /// The name that was asked for.
        name: String,
        /// The end of the sentence.
        hint: String,
    },
    /// The arguments do not have the required form, which is the caller's fault and not the tool's (C-26).
    #[error("the arguments of `{tool}` are not a JSON object: {reason}")]
    InvalidArguments {
        /// The tool that the arguments are for.
        tool: String,
        /// The fault in the arguments.
        reason: String,
    },
    /// All servers were disposed of (C-25).
    #[error("the MCP service is not available: it was disposed of")]
    Disposed,
}

impl Error {
    /// Returns the error for a reader who may not see the server's output.
    pub fn unquoted(self) -> Self {
        match self {
            Error::Failure(failure) => Error::Failure(Box::new(failure.unquoted())),
            error => error,
        }
    }

    /// Returns the exit code of a program that ends because of the error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Server(_) => exit::FAILED,
            Error::Failure(failure) => failure.exit_code(),
            Error::Unfinished(_) => exit::DEADLINE,
            Error::NoSuchServer { .. } => exit::NOT_FOUND,
            Error::InvalidArguments { .. } => exit::USAGE,
            Error::Disposed => exit::FAILED,
        }
    }

    /// Returns the word for programs that tells the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Server(_) => "server_error",
            Error::Failure(failure) => failure.kind.word(),
            Error::Unfinished(_) => FaultKind::Deadline.word(),
            Error::NoSuchServer { .. } => "no_such_server",
            Error::InvalidArguments { .. } => "invalid_arguments",
            Error::Disposed => "disposed",
        }
    }

    /// Returns everything that is known about the error, for programs.
    #[must_use]
    pub fn data(&self) -> Value {
        match self {
            Error::Server(error) => error.data(),
            Error::Failure(failure) => failure.fault().data(),
            Error::Unfinished(unfinished) => {
                let UnfinishedCall { server, tool, job, limit, .. } = &**unfinished;
                let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                serde_json::json!({ "origin": "unhang", "kind": FaultKind::Deadline.word(), "server": server, "tool": tool,
                    "job_id": job, "limitMs": limit })
            }
            _ => serde_json::json!({}),
        }
    }
}

/// A JSON-RPC error, as the server gave it.
#[derive(Clone, Debug)]
pub struct ServerError {
    /// The server's name.
    pub server: String,
    /// The method of the request.
    pub method: String,
    /// The error's code.
    pub code: i64,
    /// The error's message.
    pub message: String,
    /// The error's data, as received.
    pub data: Option<Box<RawValue>>,
}

impl ServerError {
    /// Reads the `error` member of a response, which has a code and a message. If it cannot be read, the code is 0 and the message is the
    /// whole text.
    pub fn read(server: &str, method: &str, error: &str) -> Self {
        #[derive(serde::Deserialize)]
        struct ErrorObject {
            code: serde_json::Number,
            message: String,
            data: Option<Box<RawValue>>,
        }
        let read: Option<ErrorObject> = serde_json::from_str(error).ok();
        let (code, message, data) = match read {
            // A code beyond 64 bits cannot be interpreted here.
            Some(ErrorObject { code, message, data }) => (code.as_i64().unwrap_or_default(), message, data),
            None => (0, error.to_owned(), None),
        };
        Self { server: server.to_owned(), method: method.to_owned(), code, message, data }
    }

    /// Returns the error as the server wrote it.
    pub fn to_json(&self) -> String {
        let data = self.data.as_ref().map_or_else(String::new, |data| format!(r#","data":{}"#, data.get()));
        format!(r#"{{"code":{},"message":{}{data}}}"#, self.code, Value::from(self.message.as_str()))
    }

    fn data(&self) -> Value {
        let mut data = serde_json::json!({
            "origin": "server", "server": self.server, "method": self.method, "code": self.code,
        });
        if let Some(raw) = &self.data {
            // The data came as valid JSON. If it is nested too deeply to be rebuilt, it stays text.
            data["data"] = serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().into());
        }
        data
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, method, code, message, .. } = self;
        write!(formatter, "`{server}` refused `{method}`: {message} (error {code})")
    }
}

impl std::error::Error for ServerError {}

/// Our verdict on a server that did not answer as it should.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The server's name.
    pub server: String,
    /// The method of the request, if there was one.
    pub method: Option<String>,
    /// The event, as the beginning of a sentence.
    pub happened: String,
    /// The advice, as the end of the sentence.
    pub hint: String,
    /// The time since the request was sent.
    pub elapsed: Duration,
    /// The limit that passed, if one did.
    pub limit: Option<Duration>,
    /// The time after which another try makes sense, if that can be said.
    pub retry_after: Option<Duration>,
    /// How the server's process ended, if it did.
    pub exit: Option<String>,
    /// Output of the server that may explain the failure.
    pub evidence: Evidence,
    /// The event in words for a reader who may not see the server's output, if `happened` quotes that output.
    pub unquoted: Option<String>,
}

impl Failure {
    /// Makes the failure of a request whose server's actor has ended and can say no more.
    pub fn ended() -> Self {
        Failure {
            kind: FaultKind::ShuttingDown,
            server: String::new(),
            method: None,
            happened: "the connection has ended".to_owned(),
            hint: "connect again".to_owned(),
            elapsed: Duration::ZERO,
            limit: None,
            retry_after: None,
            exit: None,
            evidence: Evidence::default(),
            unquoted: None,
        }
    }

    /// Returns the failure for a reader who may not see the server's output, because that may be about other callers.
    pub fn unquoted(mut self) -> Self {
        let Evidence { stderr_tail, junk, .. } = mem::take(&mut self.evidence);
        match self.unquoted.take() {
            Some(happened) => self.happened = happened,
            None if !stderr_tail.is_empty() => self.happened.push_str(&format!(" ({STDERR_AT_STATUS})")),
            None => {}
        }
        if !junk.is_empty() && self.hint == BAD_RESPONSE_HINT {
            "this is a fault of the server; the gateway's log has its output".clone_into(&mut self.hint);
        }
        self
    }

    /// Returns the exit code of a program that ends because of the failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            FaultKind::Deadline => exit::DEADLINE,
            FaultKind::ServerExited
            | FaultKind::StartFailed
            | FaultKind::BreakerOpen
            | FaultKind::Overloaded => exit::UNREACHABLE,
            FaultKind::TooLarge | FaultKind::BadResponse => exit::PROTOCOL,
            _ => exit::FAILED,
        }
    }

    /// Makes the fault that a client is told.
    pub fn fault(&self) -> Fault<'_> {
        Fault {
            kind: self.kind,
            server: &self.server,
            method: self.method.as_deref(),
            happened: self.happened.clone(),
            hint: &self.hint,
            elapsed: self.elapsed,
            limit: self.limit,
            retry_after: self.retry_after,
            exit: self.exit.clone(),
            evidence: self.evidence.clone(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.fault().message())
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Error::Failure(Box::new(failure))
    }
}

/// A call that goes on in the background and had not ended in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedCall {
    /// The server that goes on with it.
    pub server: String,
    /// The tool that was called.
    pub tool: String,
    /// The id of the job, or the server's name for the task.
    pub job: String,
    /// The kind of background work.
    pub what: Background,
    /// The time for which the caller waited.
    pub limit: Duration,
    /// The current work of the call, in its own words.
    pub doing: Option<String>,
}

/// The kind of work that goes on in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Background {
    /// A command that is a job of ours: it outlives the server. This tool returns its result.
    Command(String),
    /// A call that is a job of ours: it lives as long as the server does. This tool returns its result.
    Call(String),
    /// A task that is a job of ours; a client reads it as the resource `job://` with its id.
    OurTask,
    /// Another server's task, which was cancelled: nothing could fetch its result.
    CancelledTask,
}

impl fmt::Display for UnfinishedCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} and had not ended within {}", self.running(), in_words(self.limit))
    }
}

impl UnfinishedCall {
    /// Describes the running work, as the beginning of a sentence.
    #[must_use]
    pub fn running(&self) -> String {
        let Self { server, tool, job, what, doing, limit: _ } = self;
        let word = if matches!(what, Background::CancelledTask) { "task" } else { "job" };
        let doing = doing.as_ref().map_or_else(String::new, |doing| format!(" ({doing})"));
        format!("`{tool}` of `{server}` runs as {word} {job}{doing}")
    }
}

impl std::error::Error for UnfinishedCall {}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: FaultKind, hint: &str) -> Failure {
        let words = || vec!["the account of alice".to_owned()];
        let evidence = Evidence { stderr_tail: words(), stderr_age: None, junk: words() };
        let (happened, hint) = ("`s` ended".to_owned(), hint.to_owned());
        Failure { kind, happened, hint, evidence, ..Failure::ended() }
    }

    #[test]
    fn what_a_server_wrote_is_not_in_what_others_are_told() {
        let quoted = Some("left alone".to_owned());
        for (failure, expect) in [
            (
                failed(FaultKind::ServerExited, "wait"),
                "`s` ended (an operator sees its stderr at /status); wait",
            ),
            (failed(FaultKind::Deadline, "wait"), "`s` ended (an operator sees its stderr at /status); wait"),
            (
                failed(FaultKind::BadResponse, BAD_RESPONSE_HINT),
                "`s` ended (an operator sees its stderr at /status); this is a fault of the server; the \
                 gateway's log has its output",
            ),
            (Failure { unquoted: quoted, ..failed(FaultKind::BreakerOpen, "wait") }, "left alone; wait"),
            (
                Failure { evidence: Evidence::default(), ..failed(FaultKind::Deadline, "wait") },
                "`s` ended; wait",
            ),
        ] {
            let told = failure.unquoted();
            assert_eq!(told.to_string(), expect);
            assert_eq!(told.evidence, Evidence::default());
            assert!(!told.fault().data().to_string().contains("alice"));
        }
    }
}
