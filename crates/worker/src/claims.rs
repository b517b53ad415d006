//! The loop of the claims: takes jobs from the store while the worker has free slots.
//!
//! Invariants
//!
//! - A job that may have been claimed without an answer is looked for before the next claim.
//! - A job that the engine refuses goes back to the queue: its work has not begun.

use std::{ffi::OsStr, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use unhang_jobs::{
    error::JobError,
    folder::InputName,
    id::JobId,
    record::{EndReason, EndRecord, JobEnd, JobRecord},
    shared_work::SharedWork,
    store::JobStore as _,
    submission::{InputSource, JobInput, Submission},
};
use unhang_postgres::{JobHeartbeat, LeaseRequest, LeasedJob, PostgresError, PostgresStore, WorkerClaim};

use crate::{
    deliveries::STREAMS,
    held::HeldJob,
    link::{StoreLink, jittered},
    notes::LeaseNote,
    worker::{WorkerState, lease_clock},
};

/// The pause before the next claim when the machine has no room for another job.
const ROOM_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause between a hint and the claim, after a job and after many hints that brought none.
const FIRST_HINT_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_HINT_PAUSE: Duration = Duration::from_secs(1);

/// The number of looks for jobs that are this worker's, in a lease.
const LOOKS: u32 = 3;

/// The pause before a job is claimed again whose inputs a worker could not read.
const FETCH_PAUSE: Duration = Duration::from_secs(30);

/// A job that was claimed, and has not begun.
struct ClaimedJob {
    record: JobRecord,
    /// The work, in the words of the store.
    work: String,
    note: LeaseNote,
    /// The time of this machine's clock at which the work has to be dead.
    until: Duration,
}

/// What became of a try to begin a job.
enum Beginning {
    /// The engine has the job.
    Begun,
    /// The engine may have the job.
    Open,
    /// The work has not begun, and another worker may do it.
    NotHere(String),
    /// The work cannot be done.
    Refused(String),
}

/// Takes jobs until it is aborted.
pub(crate) async fn run(state: Arc<WorkerState>) {
    let mut link = StoreLink::new(state.address.clone(), "ask its store for jobs");
    // The time of the last look for jobs that are this worker's.
    let mut looked_at = None;
    // The number of hints since the last job: other workers were faster.
    let mut misses = 0;
    loop {
        let pause = match step(&state, &mut link, &mut looked_at).await {
            Ok(pause) => pause,
            Err(_) => {
                looked_at = None;
                Some(link.pause())
            }
        };
        if let Some(pause) = pause {
            let wake = async {
                tokio::select! {
                    () = state.slot_is_free.notified() => {}
                    () = state.has_work.notified() => {
                        sleep(hint_pause(misses)).await;
                        misses += 1;
                    }
                }
            };
            let _ = timeout(pause, wake).await;
        } else {
            misses = 0;
        }
    }
}

/// Takes one job, if there is one. Returns the pause before the next step.
async fn step(
    state: &Arc<WorkerState>,
    link: &mut StoreLink,
    looked_at: &mut Option<Instant>,
) -> Result<Option<Duration>, PostgresError> {
    // Besides after each failure: the database may do a claim later than its answer was waited for.
    let look_again = state.settings.lengths.repeatable / LOOKS;
    if looked_at.is_none_or(|looked_at| looked_at.elapsed() >= look_again) {
        look_for_own(state, link).await?;
        *looked_at = Some(Instant::now());
    }
    let has_slot = state.held.count() < usize::try_from(state.settings.slots).unwrap_or(usize::MAX);
    if state.is_draining() || !has_slot {
        return Ok(Some(state.poll()));
    }
    if let Ok(Some(shortage)) = state.engine.shortage().await {
        tracing::debug!("the worker takes no job: {shortage}");
        return Ok(Some(ROOM_PAUSE));
    }
    let token = match token() {
        Ok(token) => token,
        Err(error) => {
            tracing::warn!("the worker takes no job, because it cannot draw a token: {error}");
            return Ok(Some(ROOM_PAUSE));
        }
    };
    let claimant = WorkerClaim { worker: state.identity.name().to_owned(), token };
    let (labels, slots, lengths) = (state.labels(), state.settings.slots, state.settings.lengths);
    let asked_at = lease_clock();
    let leased = link
        .run(move |store| {
            store.lease(&LeaseRequest { claimant: &claimant, labels: &labels, limit: Some(slots), lengths })
        })
        .await?;
    match leased {
        Some(leased) => take(state, link, leased, asked_at).await.map(|()| None),
        None => Ok(Some(state.poll())),
    }
}

/// Looks for the active jobs of this worker: claims without an answer, and jobs of an earlier process.
async fn look_for_own(state: &Arc<WorkerState>, link: &mut StoreLink) -> Result<(), PostgresError> {
    let worker = state.identity.name().to_owned();
    for leased in link.run(move |store| store.leased(&worker)).await? {
        let id = leased.job.record.job_id;
        let Some(token) = leased.job.claimant.as_ref().map(|claimant| claimant.token.clone()) else {
            continue;
        };
        let known = state.held.get(id).filter(|held| held.note.token == token);
        let is_in_engine = state.engine.status(id).await.is_ok();
        match known {
            Some(held) if held.note.has_begun || is_in_engine || held.is_fetching => {
                state.held.change(id, &token, |held| held.record = Some(leased.job.record));
            }
            // It was claimed, and the engine never got it. Its lease may be nearly over.
            _ => {
                let asked_at = lease_clock();
                let heartbeat = move |store: &mut PostgresStore| {
                    store.renew(&[JobHeartbeat { id, token: &token, started_at: None, progress: None }])
                };
                if !link.run(heartbeat).await?.is_empty() {
                    take(state, link, leased, asked_at).await?;
                }
            }
        }
    }
    state.has_news.notify_one();
    Ok(())
}

/// Gives a job to the engine. If that cannot be, gives the job back, or ends it.
async fn take(
    state: &Arc<WorkerState>,
    link: &mut StoreLink,
    leased: LeasedJob,
    asked_at: Duration,
) -> Result<(), PostgresError> {
    let record = leased.job.record;
    let (id, length, is_large) = (record.job_id, leased.length, leased.has_large_inputs);
    let token = leased.job.claimant.map(|claimant| claimant.token).unwrap_or_default();
    let note = LeaseNote {
        job: id,
        token: token.clone(),
        claims: leased.job.claims,
        length_ms: u64::try_from(length.as_millis()).unwrap_or(u64::MAX),
        has_begun: false,
        log_bases: [0; 2],
    };
    let until = state.until(asked_at, length);
    let is_first = note.claims == 1;
    let (inputs, log_bases) = link
        .run(move |store| {
            let mut log_bases = [0; 2];
            for (base, stream) in log_bases.iter_mut().zip(STREAMS).filter(|_| !is_first) {
                *base = store.log_extent(id, stream)?.end;
            }
            Ok(((!is_large).then(|| store.inputs(id)).transpose()?, log_bases))
        })
        .await?;
    let claimed = ClaimedJob { record, work: leased.work, note: LeaseNote { log_bases, ..note }, until };
    match inputs {
        Some(inputs) => start(state, link, claimed, inputs).await,
        None => {
            // The heartbeats hold the lease meanwhile, and the loop takes other jobs.
            let held = HeldJob::new(claimed.note.clone(), Some(claimed.record.clone()), until);
            state.held.insert(HeldJob { is_fetching: true, ..held });
            tokio::spawn(fetch(Arc::clone(state), claimed));
            Ok(())
        }
    }
}

/// Begins a job whose inputs are in an object store. If they cannot be read, the job goes back to the queue.
async fn fetch(state: Arc<WorkerState>, claimed: ClaimedJob) {
    let (id, token) = (claimed.note.job, claimed.note.token.clone());
    let mut link = StoreLink::new(state.address.clone(), "fetch the inputs of a job");
    let files = state.files.clone();
    let read = link.run(move |store| match files.inputs(store, id) {
        Err(error) if error.is_of_artifacts() => Ok(Err(error.to_string())),
        read => read.map(Ok),
    });
    let done = match read.await {
        Ok(Ok(inputs)) => match state.held.get(id).filter(|held| held.note.token == token) {
            Some(held) if !held.is_revoked => {
                let claimed = ClaimedJob { until: held.until, ..claimed };
                start(&state, &mut link, claimed, inputs).await
            }
            // The lease was lost meanwhile.
            _ => Ok(()),
        },
        Ok(Err(why)) => {
            tracing::warn!("the worker gives job {id} back to the queue: {why}");
            let trouble = format!("worker {} cannot read its inputs: {why}", state.identity.name());
            let own = token.clone();
            link.run(move |store| store.put_back_for(id, &own, FETCH_PAUSE, &trouble)).await.map(drop)
        }
        Err(error) => Err(error),
    };
    if let Err(error) = done {
        // The loop of the claims finds the job among its own, and begins anew.
        tracing::debug!("job {id} has not begun: {error}");
    }
    if state.held.get(id).is_some_and(|held| held.is_fetching && held.note.token == token) {
        state.held.remove(id);
        state.slot_is_free.notify_one();
    }
}

/// Gives a job with its inputs to the engine. If that cannot be, gives the job back, or ends it.
async fn start(
    state: &Arc<WorkerState>,
    link: &mut StoreLink,
    claimed: ClaimedJob,
    inputs: Vec<(String, Vec<u8>)>,
) -> Result<(), PostgresError> {
    let ClaimedJob { record, work, note, until } = claimed;
    let (id, token) = (note.job, note.token.clone());
    match begin(state, &record, &work, inputs, note, until).await {
        Beginning::Begun | Beginning::Open => Ok(()),
        Beginning::NotHere(why) => {
            tracing::warn!("the worker gives job {id} back to the queue: {why}");
            link.run(move |store| store.put_back(id, &token)).await?;
            state.forget(id).await;
            sleep(jittered(ROOM_PAUSE)).await;
            Ok(())
        }
        Beginning::Refused(why) => {
            tracing::warn!("job {id} cannot be done: {why}");
            let mut record = record;
            record.end(&EndRecord::without_run(JobEnd::Failed).because(EndReason::StartFailed, why));
            let claimant = WorkerClaim { worker: state.identity.name().to_owned(), token };
            link.run(move |store| store.finish(&record, Some(&claimant))).await?;
            state.forget(id).await;
            Ok(())
        }
    }
}

async fn begin(
    state: &WorkerState,
    record: &JobRecord,
    work: &str,
    inputs: Vec<(String, Vec<u8>)>,
    note: LeaseNote,
    until: Duration,
) -> Beginning {
    let id = record.job_id;
    if let Err(why) = clear(state, id).await {
        return Beginning::NotHere(why);
    }
    let submission = SharedWork::of_text(work)
        .map_err(|_| {
            "this worker cannot read what is to be done; a newer unhang may have submitted it".to_owned()
        })
        .and_then(|work| state.resolver.submission(record, &work).map_err(|refusal| refusal.to_string()));
    let submission = match submission {
        Ok(submission) => submission,
        Err(why) => return Beginning::Refused(why),
    };
    let mut submission = Submission { lease_until: Some(until), ..submission };
    for (name, content) in inputs {
        match InputName::new(OsStr::new(&name)) {
            Ok(file) => submission.inputs.push(JobInput { file, source: InputSource::Bytes(content) }),
            Err(error) => return Beginning::Refused(format!("an input has no usable name: {error}")),
        }
    }
    if let Err(error) = state.notes.write(&note) {
        return Beginning::NotHere(error.to_string());
    }
    state.held.insert(HeldJob::new(note.clone(), Some(record.clone()), until));
    let submitted = state.engine.submit(submission).await;
    match submitted {
        Ok(_) => {
            if let Err(error) = state.notes.write(&LeaseNote { has_begun: true, ..note.clone() }) {
                tracing::warn!("{error}");
            }
            let held = state.held.change(id, &note.token, |held| held.note.has_begun = true);
            if held.is_none() {
                // Another worker got the job while the engine took its time. The supervisor would end the work with its lease.
                let _ = state.engine.revoke(id).await;
            }
            state.has_news.notify_one();
            Beginning::Begun
        }
        // The loop of the deliveries sees what became of it.
        Err(JobError::Uncertain { .. } | JobError::Unconfirmed { .. }) => Beginning::Open,
        Err(
            error @ (JobError::NoRoom { .. } | JobError::File(_) | JobError::Store(_) | JobError::Closed),
        ) => Beginning::NotHere(error.to_string()),
        Err(error) => Beginning::Refused(error.to_string()),
    }
}

/// Removes what an earlier attempt of the job has left in the engine. Returns the reason why it is still there.
async fn clear(state: &WorkerState, id: JobId) -> Result<(), String> {
    let Ok(status) = state.engine.status(id).await else { return Ok(()) };
    if !status.record.status.is_final() {
        let revoked = state.engine.revoke(id).await;
        revoked.map_err(|error| format!("an earlier attempt still runs here: {error}"))?;
    }
    let removed = state.engine.remove_leased(id).await;
    removed.map_err(|error| format!("an earlier attempt cannot be removed here: {error}"))
}

/// Returns a random pause after a hint, so that many workers do not ask at the same moment. It grows with the hints that brought nothing.
fn hint_pause(misses: u32) -> Duration {
    let longest = LONGEST_HINT_PAUSE.min(FIRST_HINT_PAUSE * (1 << misses.min(10)));
    longest * (getrandom::u32().unwrap_or_default() % 100) / 100
}

/// Draws a token that nobody can guess.
///
/// # Errors
/// Fails if the system has no random source.
pub(crate) fn token() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
