//! A call whose answer is on its way, with everything that the server tells besides.

use std::{future::pending, sync::Arc};

use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use unhang_bridge::{
    Era, Splice,
    question::is_offered,
    result,
    tasks::{self, INPUT_LIMIT},
};
use unhang_jobs::{
    engine::{CallEnd, CallResult, HeldCall},
    id::JobId,
    progress::JobProgress,
    questions::QUESTIONS_LIMIT,
    record::EndReason,
};
use unhang_proc::unnamed_file::FilePart;
use unhang_wire::{Json, text_member};

use super::{
    CallSource, FollowedJob, Inputs, PendingCall, advice,
    call_source::answer_never_comes,
    stream_tickets::{StreamNotes, not_resumed},
    tickets,
};
use unhang_core::{
    config::INPUT_ROUNDS,
    fault::{Fault, FaultKind},
    units::in_words,
    wording::shortened,
};
use unhang_gateway::{KnownTask, OpenServerQuestion, Replied, ServerAnswer, SideMessage, TaskNews};
use unhang_upstream::{
    client::{Error, Failure, ServerError},
    keeping::WhoIsAsked,
    question::{QuestionOver, STATE},
};

/// The most characters that are kept of a progress message.
const MOST_TOLD: usize = 200;

/// The method by which a server asks the client's model.
const SAMPLING: &str = "sampling/createMessage";

/// A call that its server works on.
pub struct RunningCall {
    /// The params of the request. If the server asks for more, the next request has new params with the answers.
    pub params: Arc<str>,
    /// The answer, progress and questions of the request.
    pub way: PendingCall,
    /// The sender of the request. It lives as long as the call does.
    pub source: Box<dyn CallSource>,
}

impl RunningCall {
    /// Follows the call to its end, and notes on the way what the server tells. Dropping `self` withdraws the request. Cancel-safe.
    pub(super) async fn follow(
        &mut self,
        held: &mut HeldCall,
        inputs: &Inputs,
        kept: &FollowedJob,
    ) -> CallEnd {
        let FollowedJob { who, is_repeatable, .. } = kept;
        let (to, is_repeatable) = ((inputs, kept), *is_repeatable);
        let (mut rounds, mut asked, mut asked_at_once) = (0, JoinSet::new(), JoinSet::new());
        // News that were known before are new to the job.
        let (news, mut seen_news) = (self.source.news().cloned(), 0);
        let (mut noted, mut fraction, mut stream_notes) = (None, None, StreamNotes::default());
        // The server may have told progress before the call became a job.
        let newest = self.way.seen.borrow().clone();
        if let Some(params) = newest {
            fraction = note_progress(held, &params);
        }
        loop {
            tokio::select! {
                biased;
                () = held.cancelled() => return CallEnd::Cancelled,
                Ok(()) = self.way.seen.changed() => {
                    let newest = self.way.seen.borrow_and_update().clone();
                    if let Some(params) = newest {
                        fraction = note_progress(held, &params).or(fraction);
                    }
                }
                Some(aside) = self.way.said.recv() => match aside {
                    SideMessage::Logged(params) => held.log(&logged(&params)),
                    SideMessage::Asked(question) => match &kept.session {
                        Some(session) if is_about_task(&question) => {
                            let (id, session) = (held.id(), session.clone());
                            asked_at_once.spawn(ask_at_once(id, session, *question, who.clone()));
                        }
                        _ => {
                            let mut over = ask(held.id(), to, *question);
                            asked.spawn(async move { over.wait().await });
                        }
                    },
                    // The news of the task say more, and no client waits for the call.
                    SideMessage::TaskBegun | SideMessage::ElicitationOver(_) => {}
                },
                Some(Ok(Some(question))) = asked_at_once.join_next(), if !asked_at_once.is_empty() => {
                    // The session has ended, and another client may follow the task.
                    let mut over = ask(held.id(), to, question);
                    asked.spawn(async move { over.wait().await });
                }
                Some(_) = asked.join_next(), if !asked.is_empty() => inputs.forget_withdrawn(held.id()),
                known = next_news(news.as_ref(), &mut seen_news) => {
                    if let Some(step) = note_task(held, known, kept, (&mut noted, &mut stream_notes)) {
                        note_step(held, fraction, Some(step));
                    }
                }
                outlook = stream_notes.next(news.as_ref()), if noted.is_none() => {
                    stream_notes.note(held, outlook, kept);
                }
                answered = &mut self.way.answering => {
                    let Some(next_round) = QuestionRound::of(&answered).filter(|_| rounds < INPUT_ROUNDS) else {
                        let is_resumed = self.source.is_resumed();
                        let loss = is_resumed.then(|| not_resumed(&answered, is_repeatable)).flatten();
                        let long_result = self.source.long_result();
                        let unanswered = inputs.open(held.id()).into_iter().next();
                        let unanswered = unanswered.map(|input| input.method);
                        return loss.unwrap_or_else(|| {
                            end(answered, long_result, (is_repeatable, unanswered.as_deref()))
                        });
                    };
                    rounds += usize::from(!next_round.is_of_unhang());
                    // The answer was taken. If unhang ends while the call waits for input, it must not poll that future again.
                    self.way = answer_never_comes(Failure::ended());
                    // In a box, what few calls need makes the future of all others no larger.
                    match Box::pin(self.input(held, next_round, to)).await {
                        Ok(params) => {
                            self.way = self.source.ask(Arc::clone(&params));
                            self.params = params;
                        }
                        Err(end) => return end,
                    }
                }
            }
        }
    }

    /// Waits for the input that the server wants. Returns the params of the next request, or the end of the call. Meanwhile no request is
    /// under way that would end with the time of the job, or with the server.
    async fn input(
        &mut self,
        held: &mut HeldCall,
        next_round: QuestionRound,
        to: (&Inputs, &FollowedJob),
    ) -> Result<Arc<str>, CallEnd> {
        let (id, is_repeatable, time_is_over) = (held.id(), to.1.is_repeatable, held.time_is_over());
        let server_over = self.source.server_over();
        tokio::select! {
            biased;
            () = held.cancelled() => Err(CallEnd::Cancelled),
            () = time_is_over => Err(no_input_in_time(is_repeatable)),
            why = server_over => Err(end(why, None, (is_repeatable, None))),
            params = next_round.answered(id, to, &self.params) => params.ok_or_else(nobody_answers),
        }
    }
}

/// Waits for the next news of the task with which the server goes on; without `news` this never returns. Cancel-safe.
async fn next_news(news: Option<&TaskNews>, seen: &mut u64) -> KnownTask {
    match news {
        Some(news) => news.next_known(seen).await,
        None => pending().await,
    }
}

/// Keeps the ticket with which another process can go on with the task. Returns what the task is doing, if that is new.
fn note_task(
    held: &mut HeldCall,
    known: KnownTask,
    kept: &FollowedJob,
    (noted, stream_notes): (&mut Option<KnownTask>, &mut StreamNotes),
) -> Option<String> {
    let before = noted.as_ref();
    if before.is_none_or(|before| before.task != known.task)
        && let Some(ticket) = tickets::ticket(&known, &kept.who)
    {
        // The ticket of the task outweighs what is noted of the stream.
        let (id, noting, earlier) = (held.id(), held.note(ticket), stream_notes.written());
        // The write runs beside, so that the disk does not hold up anything else.
        tokio::spawn(async move {
            earlier.await;
            if let Err(error) = noting.await {
                tracing::warn!(
                    job = id.as_str(),
                    "the job will end with unhang: unhang cannot store the id of its task: {error}"
                );
            }
        });
    }
    let has_news = before.is_none_or(|before| before.doing != known.doing);
    let doing = known.doing.as_deref().filter(|_| has_news);
    let step = doing.map(|doing| shortened(doing, MOST_TOLD).into_owned());
    *noted = Some(known);
    step
}

/// Notes the part of the call that is done, if it is known, and the step that it is at.
fn note_step(held: &mut HeldCall, fraction: Option<f64>, message: Option<String>) {
    let line = match fraction {
        // The line has a form that other readers of the log understand as well.
        Some(fraction) => serde_json::json!({ "progress": fraction, "message": message }).to_string(),
        None => message.clone().unwrap_or_default(),
    };
    held.progress(Some(JobProgress { fraction, message }), &line);
}

/// Notes the progress of the call. Returns the part that is done, if the server has told it.
fn note_progress(held: &mut HeldCall, params: &RawValue) -> Option<f64> {
    let params = Json::new(params.get().as_bytes())?;
    let number = |member| params.member(member).and_then(|number| number.get().parse::<f64>().ok());
    let message = text_member(params, "message");
    let message = message.map(|message| shortened(&message, MOST_TOLD).into_owned());
    let fraction = number("progress").zip(number("total").filter(|total| *total > 0.0));
    let fraction = fraction.map(|(progress, total)| (progress / total).clamp(0.0, 1.0));
    match fraction {
        Some(_) => note_step(held, fraction, message),
        None => {
            let so_far = params.member("progress").map_or("", Json::get);
            held.progress(None, &format!("{so_far} {}", message.unwrap_or_default()));
        }
    }
    fraction
}

/// Formats a log message of a server as a line for people.
fn logged(params: &RawValue) -> String {
    let Some(params) = Json::new(params.get().as_bytes()) else { return String::new() };
    let level = text_member(params, "level").unwrap_or_else(|| "info".to_owned());
    let data = params.member("data");
    let text = data.and_then(Json::text).unwrap_or_else(|| data.map_or("", Json::get).into());
    match text_member(params, "logger") {
        Some(logger) => format!("{level} {logger}: {text}"),
        None => format!("{level}: {text}"),
    }
}

/// Asks the clients that follow the task, if they can be asked this; declines the question otherwise. Returns what tells when the question
/// is over.
fn ask(id: JobId, (inputs, kept): (&Inputs, &FollowedJob), question: OpenServerQuestion) -> QuestionOver {
    let OpenServerQuestion { method, params, is_of_several, reply, over, .. } = question;
    if let Some(roots) = kept.roots.as_ref().filter(|_| method == "roots/list") {
        // The server may have gone meanwhile.
        let _gone = reply.send(Ok(roots.to_string()));
        return over;
    }
    let params = params.map(unrelated);
    let WhoIsAsked::Followers(capabilities) = &kept.who else {
        match is_of_several {
            // Another call of the client may carry it.
            true => drop(reply),
            false => decline(&method, reply),
        }
        return over;
    };
    let capabilities = Json::new(capabilities.as_bytes());
    let is_offered =
        capabilities.is_some_and(|capabilities| is_offered(capabilities, (&method, params.as_deref())));
    // The clients of a call holder are those of other processes, which see what fits into the folder of the job. A model is asked only by
    // the process that made the call.
    let length = method.len() + params.as_ref().map_or(0, |params| params.get().len());
    let may_wait = !kept.is_of_call_holder || (method != SAMPLING && length <= QUESTIONS_LIMIT);
    match is_offered && may_wait {
        true => inputs.ask(id, method, params, reply),
        false => decline(&method, reply),
    }
    over
}

/// Returns whether a server asks this about its task by itself, and not because somebody waits for the result of the task.
fn is_about_task(question: &OpenServerQuestion) -> bool {
    let params = question.params.as_ref().and_then(|params| Json::new(params.get().as_bytes()));
    params.and_then(tasks::related_to).is_some()
}

/// Returns the params without the server's name for its task.
fn unrelated(params: Box<RawValue>) -> Box<RawValue> {
    let without = Json::new(params.get().as_bytes()).and_then(tasks::unrelated);
    let without = without.and_then(|without| RawValue::from_string(without.into_owned()).ok());
    without.unwrap_or(params)
}

/// Asks the session of the call at once, and names the task as its client knows it, if it knows one. Returns the question if the session
/// has ended without a reply.
async fn ask_at_once(
    id: JobId,
    session: mpsc::Sender<SideMessage>,
    mut question: OpenServerQuestion,
    who: WhoIsAsked,
) -> Option<OpenServerQuestion> {
    let params = question.params.clone().map(unrelated);
    let params = match who {
        WhoIsAsked::Nobody => params,
        WhoIsAsked::Followers(_) => {
            let params = params.as_ref().and_then(|params| Json::new(params.get().as_bytes()));
            RawValue::from_string(tasks::related(params, id.as_str())).ok()
        }
    };
    let (asked, awaited) = OpenServerQuestion::about_one(question.method.clone(), params);
    if session.try_send(asked.into()).is_err() {
        return Some(question);
    }
    tokio::select! {
        // Dropping `awaited` withdraws the question from the client.
        () = question.over.wait() => None,
        replied = awaited.reply() => match replied {
            Some(replied) => {
                // The server may have gone meanwhile.
                let _gone = question.reply.send(replied);
                None
            }
            None => Some(question),
        }
    }
}

fn decline(method: &str, reply: oneshot::Sender<Replied>) {
    let why = "the call has become a job, and unhang can no longer ask its client";
    // The server may have gone meanwhile.
    let _gone =
        reply.send(Err((FaultKind::MethodNotFound.code(), format!("`{method}` is declined: {why}")).into()));
}

/// The characters that a record has of what a server says about the end of a call.
const MOST_OF_DETAIL: usize = 2000;

/// Returns how the job ends with this answer, whose result is in a file if it is long. `unanswered` is the method of a question that waits for
/// the client.
fn end(
    answered: ServerAnswer,
    long_result: Option<FilePart>,
    (is_repeatable, unanswered): (bool, Option<&str>),
) -> CallEnd {
    // A server may say megabytes, which are in the error as well.
    let short = |text: &str| shortened(text, MOST_OF_DETAIL).into_owned();
    let failed = |reason, detail: String, error: Option<String>| CallEnd::Failed {
        reason,
        detail: format!("{}; {}", short(&detail), advice(is_repeatable)),
        error,
    };
    match answered.outcome {
        Ok(result) => answer(result, long_result, answered.era),
        Err(Error::Server(error)) => match lost(&error) {
            Some(reason) => failed(reason, error.message.clone(), Some(error.to_json())),
            // The server itself has answered, so its error stands without advice.
            None => CallEnd::Failed {
                reason: EndReason::ServerError,
                detail: short(&error.message),
                error: Some(error.to_json()),
            },
        },
        Err(Error::Failure(failure)) => {
            let mut fault = failure.fault();
            // The limit of calls has no effect on a job. A server's own task names the right limit already.
            if fault.kind == FaultKind::Deadline && fault.hint.contains("--call-timeout") {
                blame_job_timeout(&mut fault, unanswered);
            }
            let reason = match fault.kind {
                FaultKind::Deadline => EndReason::Timeout,
                FaultKind::BadResponse | FaultKind::TooLarge => EndReason::ServerError,
                FaultKind::Cancelled => EndReason::UnhangEnded,
                _ => EndReason::ServerExited,
            };
            let line = fault.response(None);
            let error = Json::new(&line).and_then(|line| Some(line.member("error")?.get().to_owned()));
            failed(reason, fault.message(), error)
        }
        Err(other) => failed(EndReason::ServerExited, format!("the server cannot be asked: {other}"), None),
    }
}

/// Words that the time of a job is over. The limit of its request is the job's, whoever watches over that.
fn blame_job_timeout(fault: &mut Fault<'_>, unanswered: Option<&str>) {
    let Some(method) = unanswered else {
        fault.hint = "unhang cancelled the call; raise --job-timeout if it needs longer";
        return;
    };
    let limit = in_words(fault.limit.unwrap_or(fault.elapsed));
    fault.happened = format!(
        "`{}` needs the client's answer to `{method}`, which did not come within {limit}",
        fault.server
    );
    fault.hint = "unhang cancelled the call; answer the question in time, or raise --job-timeout";
}

/// Returns the reason that another unhang (a gateway, or the leading window) gave for a missing answer. Returns `None` if it gave none.
fn lost(error: &ServerError) -> Option<EndReason> {
    let data = Json::new(error.data.as_ref()?.get().as_bytes())?;
    text_member(data, "origin").filter(|origin| origin == "unhang")?;
    let kind = text_member(data, "kind")?;
    let gone = [
        FaultKind::ServerExited,
        FaultKind::StartFailed,
        FaultKind::BreakerOpen,
        FaultKind::ShuttingDown,
        FaultKind::Cancelled,
    ];
    match &*kind {
        kind if kind == FaultKind::Deadline.word() => Some(EndReason::Timeout),
        kind if gone.iter().any(|gone| kind == gone.word()) => Some(EndReason::ServerExited),
        _ => None,
    }
}

fn no_input_in_time(is_repeatable: bool) -> CallEnd {
    CallEnd::Failed {
        reason: EndReason::Timeout,
        detail: format!(
            "the server asked for input, and no client that follows the task answered before the time of the job \
             was over; {}",
            advice(is_repeatable)
        ),
        error: None,
    }
}

fn nobody_answers() -> CallEnd {
    CallEnd::Failed {
        reason: EndReason::ServerError,
        detail:
            "the server asked for input before it continues, and got no answer; unhang asks a client that \
            follows tasks, and every client with promote-after = \"off\" for this tool"
                .to_owned(),
        error: None,
    }
}

/// The questions of a server of 2026-07-28 that it needs answered before it goes on.
struct QuestionRound {
    /// The server's names for the questions, with method and params.
    questions: Vec<(String, String, Option<Box<RawValue>>)>,
    /// The state that the server wants back.
    state: Option<String>,
}

impl QuestionRound {
    fn of(answered: &ServerAnswer) -> Option<Self> {
        let result = answered.outcome.as_ref().ok().filter(|_| answered.era == Era::Modern)?;
        let result = Json::new(result.get().as_bytes())?;
        if result::kind(result) != result::ResultKind::InputRequired {
            return None;
        }
        let mut questions = Vec::new();
        if let Some(requests) = result.member("inputRequests") {
            requests.each_member(|name, request| {
                let params =
                    request.member("params").and_then(|params| serde_json::from_str(params.get()).ok());
                questions.extend(
                    name.text()
                        .zip(text_member(request, "method"))
                        .map(|(name, method)| (name.into_owned(), method, params)),
                );
            });
        }
        let state = result.member("requestState").map(|state| state.get().to_owned());
        (!questions.is_empty() && questions.len() <= INPUT_LIMIT).then_some(Self { questions, state })
    }

    /// Returns whether another unhang asks, for an older server. Such a server may ask as often as it likes.
    fn is_of_unhang(&self) -> bool {
        let state = self.state.as_ref().and_then(|state| Json::new(state.as_bytes())?.text());
        state.is_some_and(|state| state.starts_with(STATE))
    }

    /// Waits for all answers, and returns the params of the next request with them; `None` if one question is not answered.
    async fn answered(self, id: JobId, to: (&Inputs, &FollowedJob), params: &str) -> Option<Arc<str>> {
        let mut replies = Vec::new();
        for (name, method, params) in self.questions {
            let (question, awaited) = OpenServerQuestion::about_one(method, params);
            ask(id, to, question);
            replies.push((name, awaited));
        }
        let mut responses = Vec::new();
        for (name, replied) in replies {
            let response = replied.reply().await?.ok()?;
            responses.push(format!("{}:{response}", serde_json::Value::from(name)));
        }
        let splice = Splice::new(Json::new(params.as_bytes())?);
        let splice = splice.set("inputResponses", format!("{{{}}}", responses.join(",")));
        let splice = match self.state {
            Some(state) => splice.set("requestState", state),
            None => splice,
        };
        Some(splice.apply()?.into_owned().into())
    }
}

fn answer(result: Box<RawValue>, long_result: Option<FilePart>, era: Era) -> CallEnd {
    let broken = |what: &str| CallEnd::Failed {
        reason: EndReason::ServerError,
        detail: format!("the server answered with {what}; this is a fault of the server"),
        error: None,
    };
    let Some(raw) = Json::new(result.get().as_bytes()).filter(|raw| raw.get().starts_with('{')) else {
        return broken("a result that is not an object");
    };
    match (era, result::kind(raw)) {
        (Era::Legacy, _) | (_, result::ResultKind::Complete) => {
            let is_error = raw.member("isError").is_some_and(|is_error| is_error.get() == "true");
            // A result may have many megabytes, so it is not copied.
            let result = match long_result {
                Some(part) => part.into(),
                None => CallResult::Text(Box::<str>::from(result).into_string()),
            };
            CallEnd::Answered { result, is_error }
        }
        (_, result::ResultKind::InputRequired) => nobody_answers(),
        (_, other) => broken(&other.out_of_place()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The end of a job whose server answered with this error, with and without an open question.
    fn ended(error: Error, unanswered: Option<&str>) -> (EndReason, String, String) {
        let answered =
            ServerAnswer { era: Era::Legacy, server_info: None, outcome: Err(error), asked_for: None };
        match end(answered, None, (true, unanswered)) {
            CallEnd::Failed { reason, detail, error } => (reason, detail, error.unwrap_or_default()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_has_the_beginning_of_what_a_server_says_and_the_error_all_of_it() {
        let message = "x".repeat(1 << 20);
        let (server, method) = ("srv".to_owned(), "tools/call".to_owned());
        let error = ServerError { server, method, code: -32000, message: message.clone(), data: None };
        let (reason, detail, error) = ended(Error::Server(error.into()), None);
        assert_eq!((reason, detail.chars().count()), (EndReason::ServerError, MOST_OF_DETAIL));
        assert!(error.contains(&message));
    }

    #[test]
    fn the_end_of_a_jobs_time_names_the_limit_of_jobs_and_the_question_that_nobody_answered() {
        let late = |hint: &str| {
            let failure = Failure {
                kind: FaultKind::Deadline,
                server: "srv".to_owned(),
                happened: "`srv` did not answer `tools/call` within 2s".to_owned(),
                hint: hint.to_owned(),
                limit: Some(Duration::from_secs(2)),
                ..Failure::ended()
            };
            Error::Failure(failure.into())
        };
        let of_call = || late("unhang cancelled the call; raise --call-timeout if it needs longer");
        let (reason, detail, _) = ended(of_call(), None);
        assert_eq!(reason, EndReason::Timeout);
        assert!(detail.contains("raise --job-timeout") && !detail.contains("--call-timeout"), "{detail}");
        let (_, detail, error) = ended(of_call(), Some("elicitation/create"));
        for text in [detail, error] {
            assert!(text.contains("needs the client's answer to `elicitation/create`"), "{text}");
            assert!(text.contains("within 2s") && text.contains("or raise --job-timeout"), "{text}");
        }
        // The limit of a server's own task is another.
        let (_, detail, _) =
            ended(late("unhang cancelled the task; raise job-timeout if it needs longer"), None);
        assert!(detail.contains("cancelled the task"), "{detail}");
    }
}
