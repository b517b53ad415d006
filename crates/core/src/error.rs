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

    fn of_server(error: &str) -> ServerError {
        ServerError::read("s", "tools/call", error)
    }

    fn unfinished(what: Background, doing: Option<&str>, limit: Duration) -> UnfinishedCall {
        let (server, tool, job) = ("s".to_owned(), "build".to_owned(), "j-1".to_owned());
        UnfinishedCall { server, tool, job, what, limit, doing: doing.map(str::to_owned) }
    }

    #[test]
    fn each_error_has_an_exit_code_a_kind_and_data() {
        let limit = Duration::from_micros(2_500_999);
        let running = |limit| Error::Unfinished(Box::new(unfinished(Background::OurTask, None, limit)));
        let unfinished_data = |limit: u64| {
            serde_json::json!({ "origin": "unhang", "kind": "deadline", "server": "s", "tool": "build",
                "job_id": "j-1", "limitMs": limit })
        };
        let server = |error: &str| Error::Server(Box::new(of_server(error)));
        let failure = Failure { server: "s".to_owned(), ..Failure::ended() };
        let failure_data = failure.fault().data();
        let (name, hint) = ("tmie".to_owned(), "; did you mean `time`?".to_owned());
        let (tool, reason) = ("build".to_owned(), "it is a list".to_owned());
        let nothing = serde_json::json!({});
        for (error, code, kind, data, text) in [
            (
                server(r#"{"code":-5,"message":"no"}"#),
                exit::FAILED,
                "server_error",
                serde_json::json!({ "origin": "server", "server": "s", "method": "tools/call", "code": -5 }),
                "`s` refused `tools/call`: no (error -5)",
            ),
            (
                server(r#"{"code":7,"message":"no","data":{"a":[1.50]}}"#),
                exit::FAILED,
                "server_error",
                serde_json::json!({ "origin": "server", "server": "s", "method": "tools/call", "code": 7,
                    "data": { "a": [1.5] } }),
                "`s` refused `tools/call`: no (error 7)",
            ),
            (
                failure.into(),
                exit::FAILED,
                "shutting_down",
                failure_data,
                "the connection has ended; connect again",
            ),
            (
                running(limit),
                exit::DEADLINE,
                "deadline",
                unfinished_data(2500),
                "`build` of `s` runs as job j-1 and had not ended within 2.5s",
            ),
            (
                Error::NoSuchServer { name, hint },
                exit::NOT_FOUND,
                "no_such_server",
                nothing.clone(),
                "there is no server `tmie`; did you mean `time`?",
            ),
            (
                Error::InvalidArguments { tool, reason },
                exit::USAGE,
                "invalid_arguments",
                nothing.clone(),
                "the arguments of `build` are not a JSON object: it is a list",
            ),
            (
                Error::Disposed,
                exit::FAILED,
                "disposed",
                nothing,
                "the MCP service is not available: it was disposed of",
            ),
        ] {
            assert_eq!((error.exit_code(), error.kind(), error.to_string().as_str()), (code, kind, text));
            assert_eq!(error.data(), data, "{text}");
            let unquoted = error.unquoted();
            assert_eq!((unquoted.kind(), unquoted.to_string().as_str()), (kind, text), "it quotes nothing");
        }
        assert_eq!(running(Duration::MAX).data(), unfinished_data(u64::MAX));
    }

    #[test]
    fn each_kind_of_failure_has_its_exit_code() {
        for (kind, code) in [
            (FaultKind::Deadline, exit::DEADLINE),
            (FaultKind::ServerExited, exit::UNREACHABLE),
            (FaultKind::StartFailed, exit::UNREACHABLE),
            (FaultKind::BreakerOpen, exit::UNREACHABLE),
            (FaultKind::Overloaded, exit::UNREACHABLE),
            (FaultKind::TooLarge, exit::PROTOCOL),
            (FaultKind::BadResponse, exit::PROTOCOL),
            (FaultKind::ShuttingDown, exit::FAILED),
            (FaultKind::Cancelled, exit::FAILED),
            (FaultKind::InvalidParams, exit::FAILED),
        ] {
            let error = Error::from(failed(kind, "wait"));
            assert_eq!((error.exit_code(), error.kind()), (code, kind.word()));
        }
    }

    #[test]
    fn a_server_error_is_told_as_the_server_wrote_it() {
        for (error, code, json) in [
            (r#"{"code":-32602,"message":"no"}"#, -32602, r#"{"code":-32602,"message":"no"}"#),
            (
                r#"{ "message": "a \"b\"", "code": 1, "data": {"x": 1.0}, "more": 2 }"#,
                1,
                r#"{"code":1,"message":"a \"b\"","data":{"x": 1.0}}"#,
            ),
            (r#"{"code":18446744073709551616,"message":"n"}"#, 0, r#"{"code":0,"message":"n"}"#),
            ("[1]", 0, r#"{"code":0,"message":"[1]"}"#),
        ] {
            let read = of_server(error);
            assert_eq!((read.code, read.to_json().as_str()), (code, json), "{error}");
        }
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        let error = of_server(&format!(r#"{{"code":1,"message":"n","data":{deep}}}"#));
        let data = Error::Server(Box::new(error)).data();
        assert_eq!(data["data"], deep, "what is nested too deeply stays text");
    }

    #[test]
    fn work_in_the_background_is_called_a_job_unless_it_is_anothers_task() {
        let limit = Duration::from_secs(60);
        for (what, word) in [
            (Background::Command("job_result".to_owned()), "job"),
            (Background::Call("job_result".to_owned()), "job"),
            (Background::OurTask, "job"),
            (Background::CancelledTask, "task"),
        ] {
            let call = unfinished(what, None, limit);
            assert_eq!(
                call.to_string(),
                format!("`build` of `s` runs as {word} j-1 and had not ended within 1m")
            );
        }
        let call = unfinished(Background::OurTask, Some("3 of 7 files"), limit);
        assert_eq!(call.running(), "`build` of `s` runs as job j-1 (3 of 7 files)");
    }

    #[test]
    fn the_fault_of_a_failure_has_all_that_the_failure_knows() {
        let failure = Failure {
            server: "s".to_owned(),
            method: Some("tools/call".to_owned()),
            elapsed: Duration::from_millis(7),
            limit: Some(Duration::from_millis(5)),
            retry_after: Some(Duration::from_millis(3)),
            exit: Some("exit code 1".to_owned()),
            ..failed(FaultKind::Deadline, "wait")
        };
        let words = ["the account of alice"];
        let expect = serde_json::json!({
            "origin": "unhang", "kind": "deadline", "server": "s", "method": "tools/call", "elapsedMs": 7, "limitMs": 5,
            "retryAfterMs": 3, "exit": "exit code 1", "stderrTail": words, "junk": words, "hint": "wait",
        });
        assert_eq!((failure.fault().data(), failure.to_string().as_str()), (expect, "`s` ended; wait"));
        let error = Error::from(failure).unquoted();
        assert_eq!(error.data()["junk"], serde_json::json!([]), "others are told nothing of it");
    }

    #[test]
    fn advice_of_ours_stays_if_the_server_wrote_no_junk() {
        for (junk, hint, expect) in [
            (false, BAD_RESPONSE_HINT, BAD_RESPONSE_HINT),
            (true, "wait", "wait"),
            (true, BAD_RESPONSE_HINT, "this is a fault of the server; the gateway's log has its output"),
        ] {
            let mut failure = failed(FaultKind::BadResponse, hint);
            if !junk {
                failure.evidence.junk.clear();
            }
            assert_eq!(failure.unquoted().hint, expect, "{junk} {hint}");
        }
    }
}
