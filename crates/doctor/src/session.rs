//! One session with a server, as clients have it: lists, ping, safe calls, a moment of silence, the end of stdin.
//!
//! Invariants: a tool is called only if it says that it only reads, and if it needs no arguments. After the first request without an answer
//! no more requests are made.

use std::time::Duration;

use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;

use super::{
    examined_server::{ExaminedServer, NoAnswer, ServerReply},
    lists::{LISTS, page, tool},
    observations::{
        ListFault, Observations, ObservedCall, ObservedList, ObservedTool, ServerTrouble, SlowestAnswer,
    },
    stdio::{END_PATIENCE, Examination},
};
use unhang_core::config::LIST_PAGES;
use unhang_upstream::client::in_words::{JobInWords, StatusInWords};

/// The most safe tools that are called.
pub(super) const CALLS: usize = 3;
/// A call that takes longer than this is not quick. The doctor then checks whether the server still answers a `ping`.
pub(super) const QUICK: Duration = Duration::from_millis(500);
/// A call that takes longer than this makes a client wait, and wonder whether the server is still there.
pub(super) const LONG: Duration = Duration::from_millis(1500);
/// An answer of more bytes than this takes a while to arrive, so a cancel may cross it.
const LONG_ANSWER: u64 = 1 << 20;
/// When a second call of a slow tool is cancelled, and how long the doctor listens after that.
const CANCEL_AFTER: Duration = Duration::from_millis(200);
const AFTER_CANCEL: Duration = Duration::from_millis(1500);
/// How long the doctor listens after a call that it gave up.
const AFTERMATH: Duration = Duration::from_millis(300);
/// How long the server is left idle.
pub(super) const IDLE: Duration = Duration::from_secs(2);
/// How long one question about a job waits.
const JOB_LOOK: Duration = Duration::from_secs(5);
/// The most pages that are read of a list. A tenth of [`LIST_PAGES`] is enough to show that there is no end.
const PAGES: usize = LIST_PAGES / 10;

/// The way in which requests are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExaminedEra {
    /// After `initialize`.
    Handshake,
    /// Each on its own.
    Stateless,
}

impl ExaminedEra {
    /// Returns a method that every server of the era answers.
    pub(super) fn ping(self) -> &'static str {
        match self {
            ExaminedEra::Handshake => "ping",
            ExaminedEra::Stateless => "server/discover",
        }
    }
}

/// Runs the session with a server that has agreed to it.
pub(super) async fn attend(
    examination: &mut Examination<'_>,
    talk: &mut ExaminedServer,
    era: ExaminedEra,
    capabilities: &Value,
) {
    let baseline = talk.holders().len();
    let mut session = DoctorSession { examination, talk, era, baseline };
    if let Err((what, failed)) = session.work(capabilities).await {
        session.trouble(what, failed);
    }
    session.notice_sharers();
    if !talk.is_over() {
        let ending = talk.end_input(END_PATIENCE).await;
        examination.seen.stdin_end = Some(ending);
    }
}

/// Keeps what a start wrote: its stderr if it has the most bytes so far, its stdout if it has the most answers so far.
pub(super) fn remember(seen: &mut Observations, talk: &mut ExaminedServer) {
    let (bytes, longest, last) = talk.stderr();
    if bytes >= seen.stderr_bytes {
        (seen.stderr_bytes, seen.stderr_last) = (bytes, last);
    }
    seen.stderr_longest = seen.stderr_longest.max(longest);
    let stdout_seen = talk.reader().stdout_seen();
    if stdout_seen.answers >= seen.stdout_seen.answers && !talk.is_excused() {
        seen.stdout_seen = talk.reader().stdout_seen().clone();
    }
}

type TimedReply = Result<(ServerReply, Duration), (String, NoAnswer)>;

struct DoctorSession<'a, 'b> {
    examination: &'a mut Examination<'b>,
    talk: &'a mut ExaminedServer,
    era: ExaminedEra,
    /// The number of processes that held the server's stdin when it was ready. Launchers pass it on.
    baseline: usize,
}

impl DoctorSession<'_, '_> {
    async fn work(&mut self, capabilities: &Value) -> Result<(), (String, NoAnswer)> {
        for (method, member, capability) in LISTS {
            if method == "tools/list" || !capabilities[capability].is_null() {
                self.list(method, member).await?;
            }
        }
        // A refusal is a sign of life as well.
        let _answered = self.ask(self.era.ping(), &json!({})).await?;
        self.notice_sharers();
        let safe = self.examination.seen.tools.iter().filter(|tool| tool.is_safe);
        let safe: Vec<String> = safe.take(CALLS).map(|tool| tool.name.clone()).collect();
        for tool in safe {
            self.call(&tool).await?;
        }
        self.cancel_a_slow_call().await;
        self.idle().await;
        Ok(())
    }

    async fn ask(&mut self, method: &str, params: &Value) -> TimedReply {
        let limit = self.examination.limits.request_timeout;
        let params = self.examination.params(self.era, params);
        let asked = self.talk.ask(method, &params, limit).await;
        let (answer, took) = asked.map_err(|failed| (format!("`{method}`"), failed))?;
        self.notice_slow(format!("`{method}`"), false, took);
        Ok((answer, took))
    }

    async fn list(&mut self, method: &'static str, member: &str) -> Result<(), (String, NoAnswer)> {
        let mut list = ObservedList { method, items: 0, bytes: 0, fault: None };
        let mut cursor: Option<String> = None;
        for number in 0..=PAGES {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let result = match self.ask(method, &params).await? {
                (Ok(result), _) => result,
                // Servers do not declare templates separately, and tools are requested without a declaration.
                (Err(_), _) if method != "resources/list" && method != "prompts/list" => break,
                (Err((code, message)), _) => {
                    list.fault = Some(ListFault::Refused(code, message));
                    break;
                }
            };
            list.bytes += result.len();
            let Some((items, next)) = page(&result, member) else {
                list.fault = Some(ListFault::Invalid);
                break;
            };
            list.items += items.len();
            if member == "tools" {
                let tools: Vec<ObservedTool> = items.iter().map(tool).collect();
                self.examination.seen.tools.extend(tools);
            }
            match next {
                None => break,
                next if next == cursor || number == PAGES => {
                    list.fault = Some(ListFault::Endless);
                    break;
                }
                next => cursor = next,
            }
        }
        self.examination.seen.lists.push(list);
        Ok(())
    }

    fn send_call(&mut self, tool: &str) -> i64 {
        let token = self.talk.next_id();
        let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": token } });
        let params = self.examination.params(self.era, &params);
        self.talk.send("tools/call", &params)
    }

    /// Makes a call of a tool. If the call takes long, it checks whether the server answers a `ping` meanwhile.
    async fn call(&mut self, tool: &str) -> Result<(), (String, NoAnswer)> {
        let what = format!("`tools/call` of `{tool}`");
        let limits = self.examination.limits;
        let since = Instant::now();
        let id = self.send_call(tool);
        let mut answer = self.talk.answer(id, QUICK.min(limits.call_timeout)).await;
        let mut blocked = false;
        let mut pinged = Ok(());
        if matches!(answer, Err(NoAnswer::Silence(_))) {
            self.notice_sharers();
            let ping = self.examination.params(self.era, &json!({}));
            let ping = self.talk.send(self.era.ping(), &ping);
            answer = self.talk.answer(id, limits.call_timeout.saturating_sub(QUICK)).await;
            let is_long = self.talk.reader().stdout_seen().longest > LONG_ANSWER;
            blocked = since.elapsed() > LONG && !is_long && self.talk.reader().book().came_first(id, ping);
            self.notice_sharers();
            if matches!(answer, Err(NoAnswer::Silence(_))) {
                self.talk.cancel(id);
                self.talk.listen(AFTERMATH).await;
            }
            if !self.talk.is_over() {
                let answered = self.talk.answer(ping, limits.request_timeout).await;
                pinged = answered.map(drop).map_err(|failed| (format!("`{}`", self.era.ping()), failed));
            }
        }
        let answer = match answer {
            Ok(answer) => self.at_its_end(tool, answer, since + limits.call_timeout).await,
            silent => silent,
        };
        let took = since.elapsed();
        match answer {
            Ok(answer) => {
                self.notice_slow(what, true, took);
                let refusal = refusal(&answer);
                self.examination.seen.calls.push(ObservedCall {
                    tool: tool.to_owned(),
                    took,
                    refusal,
                    blocked,
                });
            }
            // The rest of the server may be fine.
            Err(failed @ NoAnswer::Silence(_)) if pinged.is_ok() => self.trouble(what, failed),
            Err(NoAnswer::Spoilt) => {}
            Err(failed) => return Err((what, failed)),
        }
        pinged
    }

    /// Follows a call that the server continues as a job of unhang, until this moment, and returns its result. Returns every other answer
    /// as it is.
    async fn at_its_end(
        &mut self,
        tool: &str,
        answer: ServerReply,
        by: Instant,
    ) -> Result<ServerReply, NoAnswer> {
        let raw = |result: &str| RawValue::from_string(result.to_owned()).ok();
        let job = answer.as_ref().ok().and_then(|result| JobInWords::read(&raw(result)?, tool));
        let Some(job) = job else { return Ok(answer) };
        let since = Instant::now();
        loop {
            let remaining = by.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(NoAnswer::Silence(since.elapsed()));
            }
            let wait = remaining.min(JOB_LOOK).as_secs();
            let arguments = json!({ "job_id": job.job, "wait_seconds": wait });
            let told = self.about(&job.status_tool(), &arguments, remaining).await?;
            let Ok(told) = told else { return Ok(answer) };
            let status = raw(&told).and_then(|told| StatusInWords::read(&told, job.job));
            match status {
                Some(status) if status.state.is_final() => break,
                Some(_) => self.talk.listen(QUICK.min(remaining)).await,
                None => return Ok(answer),
            }
        }
        let limit = self.examination.limits.request_timeout;
        self.about(&job.results_tool(), &json!({ "job_id": job.job }), limit).await
    }

    /// Asks a tool about jobs.
    async fn about(
        &mut self,
        tool: &str,
        arguments: &Value,
        limit: Duration,
    ) -> Result<ServerReply, NoAnswer> {
        let params = json!({ "name": tool, "arguments": arguments });
        let params = self.examination.params(self.era, &params);
        self.talk.ask("tools/call", &params, limit).await.map(|(answer, _)| answer)
    }

    /// Cancels a second call of a slow tool.
    async fn cancel_a_slow_call(&mut self) {
        let slow = self.examination.seen.calls.iter().find(|call| call.took > QUICK && !call.blocked);
        let Some(tool) = slow.map(|call| call.tool.clone()) else { return };
        if self.talk.reader().stdout_seen().longest > LONG_ANSWER {
            return;
        }
        let id = self.send_call(&tool);
        if self.talk.answer(id, CANCEL_AFTER).await.is_err() {
            self.talk.cancel(id);
            self.talk.listen(AFTER_CANCEL).await;
        }
    }

    /// Leaves the server idle, and checks whether it still answers.
    async fn idle(&mut self) {
        self.talk.listen(IDLE).await;
        if self.talk.is_over() {
            let exit = self.talk.exit();
            return self.examination.seen.troubles.push(ServerTrouble::EndedIdle(exit));
        }
        match self.ask(self.era.ping(), &json!({})).await {
            Ok(_) => {}
            Err((_, NoAnswer::Silence(waited))) => {
                self.examination.seen.troubles.push(ServerTrouble::SilenceIdle(waited));
            }
            Err((_, NoAnswer::Ended(exit))) => {
                self.examination.seen.troubles.push(ServerTrouble::EndedIdle(exit));
            }
            Err((what, failed)) => self.trouble(what, failed),
        }
    }

    fn trouble(&mut self, what: String, failed: NoAnswer) {
        self.examination.seen.troubles.extend(match failed {
            NoAnswer::Silence(waited) => Some(ServerTrouble::Silence(what, waited)),
            NoAnswer::Ended(exit) => Some(ServerTrouble::Ended(what, exit)),
            NoAnswer::Mute => Some(ServerTrouble::Mute(what)),
            NoAnswer::Deaf => Some(ServerTrouble::Deaf(what)),
            // This was noted by the reader.
            NoAnswer::Spoilt => None,
        });
    }

    fn notice_slow(&mut self, what: String, is_call: bool, took: Duration) {
        let slowest = &mut self.examination.seen.slowest;
        if slowest.as_ref().is_none_or(|slowest| took > slowest.took) {
            *slowest = Some(SlowestAnswer { what, is_call, took });
        }
    }

    fn notice_sharers(&mut self) {
        let more = self.talk.holders().len().saturating_sub(self.baseline);
        self.examination.seen.sharers = self.examination.seen.sharers.max(more);
    }
}

/// Returns why a call was refused: by an error, or by a result that is marked as an error. Returns `None` if it was not refused.
pub(super) fn refusal(answer: &ServerReply) -> Option<String> {
    match answer {
        Err((code, message)) => Some(format!("{message} (error {code})")),
        Ok(result) if !result.contains("\"isError\"") => None,
        Ok(result) => {
            let result: Value = serde_json::from_str(result).unwrap_or_default();
            let text = result["content"][0]["text"].as_str().unwrap_or_default();
            (result["isError"] == true).then(|| text.to_owned())
        }
    }
}
