//! Keeps the server for a call holder while calls of it are jobs, so that the jobs outlive this process.
//!
//! ```text
//! job on the disk ─ ask ─► lifeline ─ Kept ─► confirmed: the keeper goes into the job's record ─► the id goes out
//! line of the server ─ LinePlaces ─► PipeReader::processed, up to the oldest line that is still needed
//! last job has ended ─ ended ─► release: the server ends with this process again
//! ```
//!
//! Invariants
//!
//! - The lifeline has the plan of a call before the id of its job goes out. A call that the server has not got yet is in no plan: a call
//!   holder would wait for its answer in vain. Such a job gets its keeper once the server has the call.
//! - The lifeline has the plan of a job's next request before the server gets it, with its place in the journal of the server's input. So a
//!   call holder knows whether the server has it, wherever this process is killed.
//! - A lifeline that does not answer within [`KEEP_LIMIT`] has refused.
//! - A line stays in the journal until nobody needs it again: the answer of a job until the job has ended, a question until it is answered.
//!   Beyond a limit the line goes, so that the server can go on.
//! - Without a job, nothing of this costs anything.

mod plan;

use std::{io, os::fd::AsFd, path::PathBuf, time::Duration};

use tokio::time::Instant;
use unhang_core::queue::Queue;
use unhang_jobs::{id::JobId, record::Holder};
use unhang_proc::{
    file_limit::file_limit, identity::Identity, pipe::LONGEST_UNPROCESSED, server::HolderCommand,
};
use unhang_wire::Id;

pub use self::plan::{
    HolderPlan, KeptCall, KeptRoots, KeptServer, LONGEST_ROOTS, NextRequest, PLAN_FORMAT, PlanError,
    WhoIsAsked,
};
use crate::process::ServerProcess;

/// The bytes of the journal beyond which questions no longer hold lines back. The rest is for answers.
const MOST_FOR_QUESTIONS: u64 = LONGEST_UNPROCESSED / 2;

/// The bytes of the journal beyond which nothing holds lines back, and a line that is still arriving does not either. A full journal would
/// stop the server for ever if `max-message` is larger.
const MOST_HELD: u64 = LONGEST_UNPROCESSED / 4 * 3;

/// The time in which a lifeline has to answer a request to keep its server. It answers at once unless it is stopped or the machine is stuck.
pub const KEEP_LIMIT: Duration = Duration::from_secs(5);

/// A line of the server that is needed once more if this process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeededLine {
    /// The answer to the call with this id, which is a job or about to become one.
    Answer(Id),
    /// The question with this id.
    Question(Id),
}

/// The places of lines in the journal of the server's output.
#[derive(Debug, Default)]
struct LinePlaces {
    /// The bytes that were read since the journal began.
    read: u64,
    /// The bytes that were reported as processed.
    processed: u64,
    /// The lines that are needed, and where each begins.
    needed: Vec<(NeededLine, u64)>,
}

impl LinePlaces {
    /// Returns how many more bytes are processed, if all lines before `place` were handled.
    fn newly_processed(&mut self, place: u64) -> u64 {
        if place.saturating_sub(self.processed) > MOST_FOR_QUESTIONS {
            self.needed.retain(|(line, _)| matches!(line, NeededLine::Answer(_)));
        }
        if self.read.saturating_sub(self.processed) > MOST_HELD {
            self.needed.clear();
            return self.read - std::mem::replace(&mut self.processed, self.read);
        }
        let oldest = self.needed.iter().map(|(_, place)| *place).min();
        let until = oldest.map_or(place, |oldest| oldest.min(place)).max(self.processed);
        until - std::mem::replace(&mut self.processed, until)
    }
}

/// How far the lifeline is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KeepingPhase {
    /// There are no journals.
    #[default]
    Direct,
    /// There are journals, and the lifeline keeps the server, or was asked to.
    Journaled,
    /// There are journals that nobody needs any more.
    Ending,
}

/// A call of the plan.
#[derive(Debug)]
struct PlannedCall {
    /// The id under which the call became a job. A job that asks its server once more has another id then.
    first: Id,
    kept: KeptCall,
}

/// The facts that a plan has besides its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanFacts {
    /// The command of a call holder, without the plan.
    pub command: HolderCommand,
    /// The data folder of the jobs.
    pub data_folder: PathBuf,
    /// The facts about the server.
    pub server: KeptServer,
}

/// Keeps one server. See the module's text.
#[derive(Debug, Default)]
pub struct ServerKeeping {
    phase: KeepingPhase,
    calls: Vec<PlannedCall>,
    /// The facts of the last plan.
    facts: Option<PlanFacts>,
    /// The requests to the lifeline that it has not answered.
    asked: usize,
    /// When the lifeline has to have answered them.
    answer_by: Option<Instant>,
    places: LinePlaces,
}

impl ServerKeeping {
    /// Returns whether calls can outlive a process here. A low limit for files, which counts for journals too, would cut the server's
    /// output.
    #[must_use]
    pub fn is_possible() -> bool {
        file_limit().is_none_or(|limit| limit > LONGEST_UNPROCESSED)
    }

    /// Returns whether a call of the plan is a job that has not ended, on a server that the lifeline keeps.
    pub fn has_jobs(&self, process: Option<&ServerProcess>) -> bool {
        !self.calls.is_empty() && process.is_some_and(|process| process.server.is_kept())
    }

    /// Asks the lifeline to keep the server with one more call. `held` are the bytes of the server that were read and are no line yet.
    /// [`ServerKeeping::confirmed`] or [`ServerKeeping::refused`] follows.
    ///
    /// # Errors
    /// Fails if the system refuses a step. The call is not in the plan then.
    pub fn ask(
        &mut self,
        process: &mut ServerProcess,
        held: &[u8],
        facts: PlanFacts,
        call: KeptCall,
    ) -> io::Result<()> {
        self.prepare(process, held)?;
        self.calls.push(PlannedCall { first: call.id.clone(), kept: call });
        self.facts = Some(facts);
        let asked = self.send_plan(process);
        if asked.is_err() {
            self.calls.pop();
        }
        asked
    }

    /// Gives the lifeline the plan as it is now.
    fn send_plan(&mut self, process: &mut ServerProcess) -> io::Result<()> {
        let Some(PlanFacts { mut command, data_folder, server }) = self.facts.clone() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let calls = self.calls.iter().map(|call| call.kept.clone()).collect();
        command.arguments.extend(HolderPlan { data_folder, server, calls }.words());
        let stderr = process.stderr.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        process.server.keep(&command, stderr.as_fd())?;
        self.asked += 1;
        self.answer_by.get_or_insert_with(|| Instant::now() + KEEP_LIMIT);
        self.phase = KeepingPhase::Journaled;
        Ok(())
    }

    /// Gives the lifeline a plan that has changed besides its calls.
    pub fn renew(&mut self, process: &mut ServerProcess, server: KeptServer) {
        match &mut self.facts {
            Some(facts) if !self.calls.is_empty() && facts.server != server => facts.server = server,
            _ => return,
        }
        self.resend_plan(process);
    }

    /// Gives the lifeline the next request of a job, whose last one was `before`. Call it before the request is written. `queue` is what
    /// waits for the server.
    pub fn asks_again(&mut self, process: Option<&mut ServerProcess>, queue: &Queue, before: &Id, id: Id) {
        let Some(call) = self.calls.iter_mut().find(|call| call.kept.id == *before) else { return };
        let Some(process) = process else { return };
        let Some(input) = &process.server.input else { return };
        call.kept.next = Some(NextRequest { id, after: input.accepted() + queue.bytes() as u64 });
        self.resend_plan(process);
    }

    /// Puts the next request of each job in the place of the one before, once the server has got it: its input has `accepted` so many bytes.
    fn go_on(&mut self, accepted: u64) {
        for call in &mut self.calls {
            if let Some(before) = call.kept.go_on(accepted) {
                self.places.needed.retain(|(line, _)| *line != NeededLine::Answer(before.clone()));
            }
        }
    }

    /// Returns the first id of this job, if it is in the plan.
    #[must_use]
    pub fn first_of(&self, job: JobId) -> Option<&Id> {
        self.calls.iter().find(|call| call.kept.job == job).map(|call| &call.first)
    }

    /// Returns whether the request with this id is in the plan.
    #[must_use]
    pub fn has(&self, id: &Id) -> bool {
        self.calls
            .iter()
            .any(|call| call.kept.id == *id || call.kept.next.as_ref().is_some_and(|next| next.id == *id))
    }

    /// Notes which requests of the plan the server has got meanwhile, as far as `is_sent` tells.
    pub fn sent(&mut self, process: Option<&mut ServerProcess>, is_sent: impl Fn(&Id) -> bool) {
        let mut is_changed = false;
        for call in self.calls.iter_mut().map(|call| &mut call.kept).filter(|call| !call.is_sent) {
            call.is_sent = is_sent(&call.id);
            is_changed |= call.is_sent;
        }
        if let Some(process) = process.filter(|_| is_changed) {
            self.resend_plan(process);
        }
    }

    /// Gives the lifeline the plan once more. It confirms that too.
    pub fn resend_plan(&mut self, process: &mut ServerProcess) {
        if let Err(error) = self.send_plan(process) {
            tracing::warn!("the call holder of the server would know less than unhang does: {error}");
        }
    }

    /// Begins the journals, unless they are there. `held` are the bytes of the server that were read and are no line yet.
    ///
    /// # Errors
    /// Fails if the system refuses a step.
    pub fn prepare(&mut self, process: &mut ServerProcess, held: &[u8]) -> io::Result<()> {
        if self.phase != KeepingPhase::Direct {
            return Ok(());
        }
        let Some(input) = &mut process.server.input else { return Err(io::ErrorKind::BrokenPipe.into()) };
        input.begin_journal()?;
        process.server.output.begin_journal(held)?;
        self.places = LinePlaces { read: held.len() as u64, ..LinePlaces::default() };
        self.phase = KeepingPhase::Ending;
        Ok(())
    }

    /// Notes that the lifeline has confirmed one request. Returns the keeper that the waiting jobs have, once it has answered all.
    pub fn confirmed(&mut self, process: Option<&ServerProcess>) -> Option<io::Result<Holder>> {
        self.refused();
        if self.asked > 0 {
            return None;
        }
        let lifeline = process.map(|process| process.server.lifeline_pid())?;
        let identity = Identity::of(lifeline).ok_or_else(|| io::Error::other("the lifeline has gone"));
        Some(identity.and_then(Holder::here))
    }

    /// Notes that the lifeline has refused one request.
    pub fn refused(&mut self) {
        self.asked = self.asked.saturating_sub(1);
        if self.asked == 0 {
            self.answer_by = None;
        }
    }

    /// Returns when the lifeline has to have answered.
    pub fn answer_by(&self) -> Option<Instant> {
        self.answer_by
    }

    /// Returns whether the lifeline is late with an answer. That is true once for each request.
    pub fn is_late(&mut self) -> bool {
        self.answer_by.take_if(|by| *by <= Instant::now()).is_some()
    }

    /// Notes that bytes of the server were read.
    pub fn read(&mut self, count: usize) {
        if self.phase != KeepingPhase::Direct {
            self.places.read += count as u64;
        }
    }

    /// Returns whether the places of lines matter.
    pub fn notes_lines(&self) -> bool {
        self.phase == KeepingPhase::Journaled
    }

    /// Returns the calls of the plan for whose answers nobody waits any more, as far as `is_awaited` tells.
    pub fn answered(&self, is_awaited: impl Fn(&Id) -> bool) -> Vec<NeededLine> {
        let answered = self.calls.iter().filter(|call| !is_awaited(&call.kept.id));
        answered.map(|call| NeededLine::Answer(call.kept.id.clone())).collect()
    }

    /// Notes a line that is needed once more, unless it is known. `held` bytes were read and not handled before it.
    pub fn needs(&mut self, line: NeededLine, held: usize) {
        let place = self.places.read.saturating_sub(held as u64);
        if self.places.needed.iter().all(|(known, _)| *known != line) {
            self.places.needed.push((line, place));
        }
    }

    /// Forgets the lines that were needed for requests and questions that are over, and tells the journal what is processed. `held` bytes
    /// were read and not handled.
    pub fn processed(
        &mut self,
        process: Option<&mut ServerProcess>,
        held: usize,
        is_open: impl Fn(&Id) -> bool,
    ) {
        if self.phase == KeepingPhase::Direct {
            return;
        }
        if let Some(input) = process.as_ref().and_then(|process| process.server.input.as_ref()) {
            self.go_on(input.accepted());
        }
        self.places.needed.retain(|(line, _)| match line {
            NeededLine::Question(id) => is_open(id),
            NeededLine::Answer(_) => true,
        });
        let count = self.places.newly_processed(self.places.read.saturating_sub(held as u64));
        let Some(process) = process else { return };
        if count > 0
            && let Err(error) = process.server.output.processed(count)
        {
            tracing::warn!("the journal of the server's output cannot be marked: {error}");
        }
        if self.phase == KeepingPhase::Ending {
            self.end_journals(process);
        }
    }

    /// Notes that the job of a call has ended, which had this id first. After the last one, the server ends with this process again.
    pub fn ended(&mut self, process: Option<&mut ServerProcess>, first: &Id) {
        let ended: Vec<_> = self.calls.extract_if(.., |call| call.first == *first).collect();
        for PlannedCall { kept, .. } in ended {
            self.places.needed.retain(|(line, _)| *line != NeededLine::Answer(kept.id.clone()));
        }
        if self.calls.is_empty() && self.phase == KeepingPhase::Journaled {
            self.phase = KeepingPhase::Ending;
            if let Some(process) = process {
                process.server.release_kept();
            }
            // The lifeline answers no request that was taken back.
            (self.asked, self.answer_by) = (0, None);
        }
    }

    /// Returns the first ids of the calls whose jobs have not ended.
    pub fn unsettled(&self) -> Vec<Id> {
        self.calls.iter().map(|call| call.first.clone()).collect()
    }

    /// Notes that another process of the server runs, or none.
    pub fn process_changed(&mut self) {
        (self.phase, self.places) = (KeepingPhase::Direct, LinePlaces::default());
        (self.asked, self.answer_by) = (0, None);
        self.calls.clear();
    }

    /// Returns to plain pipes as soon as the journals are empty.
    fn end_journals(&mut self, process: &mut ServerProcess) {
        let input = process.server.input.as_mut().map_or(Ok(()), |input| input.end_journal());
        if input.is_ok() && process.server.output.end_journal().is_ok() {
            self.phase = KeepingPhase::Direct;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(id: i64) -> PlannedCall {
        let (job, id) = (JobId::random().expect("an id"), Id::Integer(id));
        let kept = KeptCall {
            job,
            id: id.clone(),
            token: None,
            who: WhoIsAsked::Nobody,
            client: None,
            is_sent: true,
            next: None,
        };
        PlannedCall { first: id, kept }
    }

    #[test]
    fn a_refusal_does_not_stand_in_the_way_of_the_next_job() {
        let mut keeping = ServerKeeping::default();
        (keeping.asked, keeping.answer_by) = (2, Some(Instant::now() + KEEP_LIMIT));
        keeping.refused();
        assert_eq!((keeping.asked, keeping.answer_by().is_some()), (1, true));
        assert!(keeping.confirmed(None).is_none(), "without a process there is no keeper");
        assert_eq!((keeping.asked, keeping.answer_by()), (0, None));
    }

    #[test]
    fn an_answer_that_was_taken_back_is_not_awaited() {
        let (phase, answer_by) = (KeepingPhase::Journaled, Some(Instant::now()));
        let calls = vec![planned(1), planned(2)];
        let mut keeping = ServerKeeping { phase, calls, asked: 1, answer_by, ..ServerKeeping::default() };
        keeping.ended(None, &Id::Integer(1));
        assert_eq!((keeping.asked, keeping.phase), (1, KeepingPhase::Journaled), "another job is there");
        assert!(keeping.is_late() && !keeping.is_late(), "a late answer is told once");
        keeping.ended(None, &Id::Integer(2));
        assert_eq!((keeping.asked, keeping.phase), (0, KeepingPhase::Ending));
    }

    #[test]
    fn a_call_of_the_plan_that_was_answered_is_needed_under_its_last_id() {
        let mut keeping = ServerKeeping::default();
        (keeping.phase, keeping.calls) = (KeepingPhase::Journaled, vec![planned(1)]);
        assert_eq!(keeping.answered(|_| true), []);
        let answered = keeping.answered(|_| false);
        assert_eq!(answered, [NeededLine::Answer(Id::Integer(1))]);
        keeping.needs(answered[0].clone(), 0);
        let next = NextRequest { id: Id::Integer(5), after: 100 };
        keeping.calls[0].kept.next = Some(next);
        assert!(keeping.has(&Id::Integer(1)) && keeping.has(&Id::Integer(5)));
        keeping.go_on(100);
        assert_eq!(keeping.places.needed.len(), 1, "the server has not got the other request yet");
        keeping.go_on(101);
        assert!(keeping.places.needed.is_empty(), "that answer has led to another request");
        assert!(!keeping.has(&Id::Integer(1)) && keeping.has(&Id::Integer(5)));
        assert_eq!(keeping.answered(|_| false), [NeededLine::Answer(Id::Integer(5))]);
        keeping.needs(NeededLine::Answer(Id::Integer(5)), 0);
        keeping.ended(None, &Id::Integer(1));
        assert!(keeping.calls.is_empty() && keeping.places.needed.is_empty());
    }

    #[test]
    fn a_line_that_is_needed_holds_the_mark_until_it_is_not() {
        let mut keeping = ServerKeeping::default();
        (keeping.phase, keeping.calls) = (KeepingPhase::Journaled, vec![planned(1)]);
        keeping.read(100);
        keeping.needs(NeededLine::Answer(Id::Integer(1)), 40);
        keeping.needs(NeededLine::Question(Id::Integer(7)), 60);
        assert_eq!(keeping.places.newly_processed(80), 40, "the question begins there");
        keeping.processed(None, 20, |_| false);
        assert_eq!(keeping.places.processed, 60, "it was answered, and the answer of the job begins here");
        keeping.ended(None, &Id::Integer(1));
        keeping.processed(None, 0, |_| false);
        assert_eq!(keeping.places.processed, 100);
    }

    #[test]
    fn a_question_that_stays_open_does_not_fill_the_journal() {
        let mut keeping = ServerKeeping { phase: KeepingPhase::Journaled, ..ServerKeeping::default() };
        keeping.needs(NeededLine::Question(Id::Integer(7)), 0);
        keeping.read(usize::try_from(MOST_FOR_QUESTIONS).expect("it fits") + 1);
        keeping.processed(None, 0, |_| true);
        assert_eq!(keeping.places.processed, keeping.places.read);
    }
}
