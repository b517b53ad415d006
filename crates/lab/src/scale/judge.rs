//! The judgement of a job of the kill matrix, from what the observer and the store say about it. Pure.
//!
//! Invariant: the observer's word counts above that of unhang. The store's word is what is judged.

use std::{collections::BTreeMap, time::Duration};

use unhang::jobs::record::{EndReason, JobState};
use unhang_zoo::scale::WorkAttempt;

use super::plan::{MatrixJob, MatrixPace, ScaleFault};

/// The accuracy of the observer: two looks on a busy machine, and a tick of the kernel.
const BLUR: Duration = Duration::from_millis(250);
/// The time after the end of work within which a fault may keep its supervisor from writing the end down.
const UNWRITTEN: Duration = Duration::from_secs(2);

/// The time from the start of a worker to its first heartbeat, on a busy machine.
const START: Duration = Duration::from_secs(2);

/// A fault that happened, by the clock of the observer.
#[derive(Clone, Debug)]
pub(super) struct FaultRecord {
    pub(super) fault: ScaleFault,
    /// The worker that it hit, if it was not the database.
    pub(super) worker: usize,
    pub(super) from: Duration,
    /// The time of its end; `None` if it lasted to the end of the run.
    pub(super) until: Option<Duration>,
}

/// What the store says about a job in the end.
#[derive(Clone, Debug)]
pub(super) struct StoredEnd {
    pub(super) state: JobState,
    pub(super) reason: Option<EndReason>,
    pub(super) exit_code: Option<i32>,
    pub(super) claims: u32,
    pub(super) log: String,
}

/// What is wrong with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobFlaw {
    /// It was accepted, and has no end.
    NoEnd,
    /// It ran in two places at one moment.
    TwoPlaces,
    /// It began twice, and must not.
    BegunTwice,
    /// Its end is not true.
    UntrueEnd,
    /// It does not repeat, its work was killed, and no fault explains that.
    KilledUnasked,
    /// The same of a job that repeats. Its lease is short, and a machine that is busy enough sends no heartbeat in time.
    LateHeartbeat,
}

impl JobFlaw {
    /// Returns whether a promise is broken. It is not where work was killed in vain and is done again.
    pub(super) fn breaks_a_promise(self) -> bool {
        self != Self::LateHeartbeat
    }
}

/// A run of the matrix, as far as it bears on the judgement.
pub(super) struct MatrixEvents<'a> {
    pub(super) pace: &'a MatrixPace,
    pub(super) faults: &'a [FaultRecord],
    /// The worker that each process namespace belongs to.
    pub(super) lives: &'a BTreeMap<String, usize>,
}

/// Judges a job. Returns what is wrong with it, in words.
pub(super) fn judge(
    job: &MatrixJob,
    attempts: &[WorkAttempt],
    end: Option<&StoredEnd>,
    events: &MatrixEvents<'_>,
) -> Vec<(JobFlaw, String)> {
    let mut flaws = Vec::new();
    if let Some((one, other)) = at_one_moment(attempts) {
        flaws.push((JobFlaw::TwoPlaces, format!("it ran in two places: {one:?} and {other:?}")));
    }
    let Some(end) = end.filter(|end| end.state.is_final()) else {
        flaws.push((JobFlaw::NoEnd, format!("it was accepted and has no end: {end:?}")));
        return flaws;
    };
    let told = end.log.lines().filter(|line| line.starts_with("begun")).count();
    let most = if job.is_repeatable { end.claims.try_into().unwrap_or(usize::MAX) } else { 1 };
    if attempts.len() > most || told > most {
        let seen = attempts.len();
        flaws.push((
            JobFlaw::BegunTwice,
            format!("{seen} beginnings were seen and {told} told, {most} are allowed"),
        ));
    }
    for attempt in attempts.iter().filter(|attempt| was_cut_short(job, attempt)) {
        if !events.explain(job, attempt) {
            let flaw = if job.is_repeatable { JobFlaw::LateHeartbeat } else { JobFlaw::KilledUnasked };
            flaws.push((flaw, format!("no fault explains why this was killed: {attempt:?}")));
        }
    }
    if let Some(why) = untrue(job, attempts, end, events) {
        flaws.push((JobFlaw::UntrueEnd, format!("{why}: {end:?}, {attempts:?}")));
    }
    flaws
}

/// Finds two attempts that ran at one moment: one had begun before the other was last seen alive.
fn at_one_moment(attempts: &[WorkAttempt]) -> Option<(&WorkAttempt, &WorkAttempt)> {
    let pairs = attempts
        .iter()
        .enumerate()
        .flat_map(|(index, one)| attempts[index + 1..].iter().map(move |other| (one, other)));
    pairs.into_iter().find(|(one, other)| one.began_by < other.alive_at && other.began_by < one.alive_at)
}

fn was_cut_short(job: &MatrixJob, attempt: &WorkAttempt) -> bool {
    let lasted = attempt.ended_by.map(|ended| ended.saturating_sub(attempt.began_by));
    lasted.is_none_or(|lasted| lasted + BLUR < job.work)
}

/// Says why an end is not true; `None` if it is.
fn untrue(
    job: &MatrixJob,
    attempts: &[WorkAttempt],
    end: &StoredEnd,
    events: &MatrixEvents<'_>,
) -> Option<&'static str> {
    let last = attempts.last();
    let went_through = last.is_some_and(|attempt| attempt.ended_by.is_some() && !was_cut_short(job, attempt));
    let has_last_line = end.log.lines().last() == Some("done");
    match end.state {
        JobState::Completed | JobState::Failed => {
            let expected = if job.code == 0 { JobState::Completed } else { JobState::Failed };
            let checks = [
                (end.state == expected && end.exit_code == Some(job.code), "the work left with another code"),
                (went_through, "the last attempt did not go through"),
                (has_last_line, "the log has no last line"),
            ];
            checks.into_iter().find_map(|(is_true, why)| (!is_true).then_some(why))
        }
        JobState::Lost => {
            let reasons = [EndReason::WorkerLost, EndReason::ShimKilled, EndReason::LeaseOver];
            if end.reason.is_none_or(|reason| !reasons.contains(&reason)) {
                return Some("a lost job has another reason");
            }
            match last {
                // Nobody knows whether it began, so it must have been claimed by a worker that a fault hit.
                None => events.faults.is_empty().then_some("it never ran, and nothing happened"),
                Some(attempt) if went_through && !events.hid_the_end_of(attempt) => {
                    Some("it is lost, though its work went through and nothing hid that")
                }
                Some(_) => None,
            }
        }
        _ => Some("nobody cancelled it"),
    }
}

impl MatrixEvents<'_> {
    /// Returns the faults of this worker and of the database, with their times.
    fn faults_of<'a>(&'a self, attempt: &WorkAttempt) -> impl Iterator<Item = &'a FaultRecord> {
        let worker = self.lives.get(&attempt.namespace).copied();
        self.faults
            .iter()
            .filter(move |record| record.fault.is_of_database() || Some(record.worker) == worker)
    }

    /// Returns whether a fault explains that this attempt was killed.
    fn explain(&self, job: &MatrixJob, attempt: &WorkAttempt) -> bool {
        let lease = if job.is_repeatable { self.pace.lease } else { self.pace.lost_after };
        let ended_by = attempt.ended_by.unwrap_or(Duration::MAX);
        self.faults_of(attempt).any(|record| {
            let mut until = record.until.unwrap_or(Duration::MAX);
            if record.fault.kills_work() {
                return record.from <= ended_by && until.saturating_add(BLUR) >= attempt.alive_at;
            }
            if record.fault == ScaleFault::WorkerKilled {
                until = until.saturating_add(START);
            }
            // Heartbeats come six times in a lease. After a cut, the network needs about as long again.
            let is_long = until.saturating_sub(record.from) >= lease / 3;
            record.fault.silences()
                && is_long
                && record.from <= ended_by
                && until.saturating_add(lease) >= ended_by
        })
    }

    /// Returns whether a fault killed those who would have written down the end of this attempt.
    fn hid_the_end_of(&self, attempt: &WorkAttempt) -> bool {
        let ended_by = attempt.ended_by.unwrap_or(Duration::MAX);
        self.faults_of(attempt).any(|record| {
            record.fault.kills_work()
                && record.from + BLUR >= attempt.alive_at
                && record.from <= ended_by.saturating_add(UNWRITTEN)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn job(is_repeatable: bool) -> MatrixJob {
        MatrixJob { is_repeatable, work: 4 * SECOND, code: 0 }
    }

    fn attempt(from: u32, until: u32) -> WorkAttempt {
        WorkAttempt {
            namespace: "life".to_owned(),
            began_by: from * SECOND,
            alive_at: until * SECOND,
            ended_by: Some(until * SECOND),
        }
    }

    fn end(state: JobState, log: &str) -> StoredEnd {
        let (reason, exit_code) = match state {
            JobState::Lost => (Some(EndReason::WorkerLost), None),
            _ => (None, Some(0)),
        };
        StoredEnd { state, reason, exit_code, claims: 2, log: log.to_owned() }
    }

    fn flaws(
        job: &MatrixJob,
        attempts: &[WorkAttempt],
        end: Option<&StoredEnd>,
        faults: &[(ScaleFault, u32, u32)],
    ) -> Vec<JobFlaw> {
        let faults: Vec<_> = faults
            .iter()
            .map(|(fault, from, until)| FaultRecord {
                fault: *fault,
                worker: 1,
                from: *from * SECOND,
                until: Some(*until * SECOND),
            })
            .collect();
        let pace = MatrixPace::quick(8 * SECOND);
        let lives = [("life".to_owned(), 1)].into();
        let events = MatrixEvents { pace: &pace, faults: &faults, lives: &lives };
        judge(job, attempts, end, &events).into_iter().map(|(flaw, _)| flaw).collect()
    }

    const WHOLE: &str = "begun\nmiddle\ndone\n";

    #[test]
    fn a_job_that_went_through_has_no_flaw() {
        let done = end(JobState::Completed, WHOLE);
        assert_eq!(flaws(&job(false), &[attempt(1, 5)], Some(&done), &[]), []);
        let again = end(JobState::Completed, "begun\nbegun\nmiddle\ndone\n");
        let cut = [(ScaleFault::WorkerCutOff, 1, 5)];
        assert_eq!(flaws(&job(true), &[attempt(1, 4), attempt(6, 10)], Some(&again), &cut), []);
    }

    #[test]
    fn two_places_at_one_moment_are_seen_however_short() {
        let again = end(JobState::Completed, "begun\nbegun\nmiddle\ndone\n");
        let cut = [(ScaleFault::WorkerCutOff, 1, 5)];
        let attempts = [attempt(1, 4), WorkAttempt { began_by: 4 * SECOND - SECOND / 100, ..attempt(4, 8) }];
        assert_eq!(flaws(&job(true), &attempts, Some(&again), &cut), [JobFlaw::TwoPlaces]);
    }

    #[test]
    fn a_job_without_an_end_is_seen() {
        assert_eq!(flaws(&job(true), &[], None, &[]), [JobFlaw::NoEnd]);
        let running = end(JobState::Running, "");
        assert_eq!(flaws(&job(true), &[attempt(1, 5)], Some(&running), &[]), [JobFlaw::NoEnd]);
    }

    #[test]
    fn a_second_beginning_is_seen_by_the_observer_and_in_the_log() {
        let killed = [(ScaleFault::MachineKilled, 3, 4)];
        let done = end(JobState::Completed, WHOLE);
        let twice = [attempt(1, 3), attempt(6, 10)];
        assert_eq!(flaws(&job(false), &twice, Some(&done), &killed), [JobFlaw::BegunTwice]);
        let told = end(JobState::Completed, "begun\nbegun\ndone\n");
        assert_eq!(flaws(&job(false), &[attempt(1, 5)], Some(&told), &[]), [JobFlaw::BegunTwice]);
    }

    #[test]
    fn an_end_that_is_not_true_is_seen() {
        let done = end(JobState::Completed, WHOLE);
        let killed = [(ScaleFault::MachineKilled, 3, 4)];
        assert_eq!(flaws(&job(false), &[attempt(1, 3)], Some(&done), &killed), [JobFlaw::UntrueEnd]);
        let torn = end(JobState::Completed, "begun\nmiddle\n");
        let lost = end(JobState::Lost, WHOLE);
        let failed = StoredEnd { exit_code: Some(3), ..end(JobState::Failed, WHOLE) };
        let cancelled = end(JobState::Cancelled, WHOLE);
        for untrue in [torn, lost.clone(), failed, cancelled] {
            assert_eq!(
                flaws(&job(false), &[attempt(1, 5)], Some(&untrue), &[]),
                [JobFlaw::UntrueEnd],
                "{untrue:?}"
            );
        }
        let odd = StoredEnd { reason: Some(EndReason::Timeout), ..lost.clone() };
        assert_eq!(flaws(&job(false), &[attempt(1, 3)], Some(&odd), &killed), [JobFlaw::UntrueEnd]);
        assert_eq!(flaws(&job(false), &[attempt(1, 3)], Some(&lost), &killed), []);
        // The supervisor was killed before it could write down the end.
        let hidden = [(ScaleFault::SupervisorKilled, 5, 5)];
        assert_eq!(flaws(&job(false), &[attempt(1, 5)], Some(&lost), &hidden), []);
    }

    #[test]
    fn a_kill_without_a_fault_that_is_long_enough_is_seen() {
        let lost = end(JobState::Lost, "begun\n");
        let killed =
            |faults: &[(ScaleFault, u32, u32)]| flaws(&job(false), &[attempt(1, 3)], Some(&lost), faults);
        assert_eq!(killed(&[(ScaleFault::MachineKilled, 3, 4)]), []);
        assert_eq!(killed(&[(ScaleFault::WorkerCutOff, 0, 4)]), []);
        for faults in [
            &[][..],
            &[(ScaleFault::WorkerCutOff, 1, 3)],
            &[(ScaleFault::DatabaseClockForward, 1, 20)],
            &[(ScaleFault::WorkerCutOff, 4, 20)],
        ] {
            assert_eq!(killed(faults), [JobFlaw::KilledUnasked], "{faults:?}");
        }
        let again = end(JobState::Completed, "begun\nbegun\nmiddle\ndone\n");
        assert_eq!(
            flaws(&job(true), &[attempt(1, 3), attempt(6, 10)], Some(&again), &[]),
            [JobFlaw::LateHeartbeat]
        );
        assert!(JobFlaw::KilledUnasked.breaks_a_promise() && !JobFlaw::LateHeartbeat.breaks_a_promise());
    }
}
