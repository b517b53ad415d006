//! The tests that every store passes. [`store_suite!`](crate::store_suite) makes them tests of one store.
//!
//! Invariants: a test knows nothing of a store but [`JobStore`]; each begins with an empty store.

#![allow(clippy::unwrap_used, reason = "these are tests: a failure is a panic")]

use std::{collections::HashSet, fmt::Debug, thread};

use super::{JobEntry, JobOwnerFilter, JobStore, KeptAsAccepted, StoredJob};
use crate::{
    id::JobId,
    record::{EndRecord, FORMAT, JobEnd, JobRecord, JobState},
    room::Rules,
    timestamp::JobTimestamp,
};

/// An empty store, which is removed with this value.
pub trait StoreFixture: Sized {
    /// The store.
    type Store: JobStore<Claimant: Clone + Debug + PartialEq + Send> + Send;

    /// Makes an empty store.
    fn new() -> Self;

    /// Opens a connection of its own to the store.
    fn connect(&self) -> Self::Store;

    /// Returns what a claimant needs to run any job, if the store keeps that.
    fn orders() -> Option<<Self::Store as JobStore>::Orders>;

    /// Returns a claimant. All numbers are claimants of one machine, and their claims count together.
    fn claimant(&self, number: u32) -> <Self::Store as JobStore>::Claimant;
}

/// The claimant of a fixture's store.
type Claimant<F> = <<F as StoreFixture>::Store as JobStore>::Claimant;

/// Returns a new job that waits to run.
pub fn queued() -> JobRecord {
    JobRecord {
        format: FORMAT,
        job_id: JobId::random().unwrap(),
        name: "true".to_owned(),
        tool: None,
        owner: None,
        call: None,
        command: vec!["true".to_owned()],
        folder: "/".into(),
        variables: Vec::new(),
        results: None,
        patch: None,
        timeout_ms: None,
        stop_grace_ms: 10_000,
        log_limit: 1 << 20,
        rules: Rules { max_concurrent: 100, memory_limit: 100.0, disk_reserve: 0, retention_ms: None },
        status: JobState::Queued,
        created_at: JobTimestamp::now(),
        started_at: None,
        ending: None,
        state_applied: None,
        state_reason: None,
    }
}

fn with_end(mut record: JobRecord, end: JobEnd) -> JobRecord {
    record.end(&EndRecord::without_run(end));
    record
}

fn accept<F: StoreFixture>(store: &mut F::Store, records: &[JobRecord]) -> Vec<bool> {
    let orders = F::orders();
    let entries: Vec<_> = records.iter().map(|record| JobEntry { record, orders: orders.as_ref() }).collect();
    store.accept(&entries).unwrap()
}

fn add<F: StoreFixture>(store: &mut F::Store, record: &JobRecord) -> JobId {
    assert_eq!(accept::<F>(store, std::slice::from_ref(record)), [true]);
    record.job_id
}

fn read<S: JobStore>(store: &mut S, id: JobId) -> Option<StoredJob<S::Claimant>> {
    store.get(id).unwrap()
}

fn claim<F: StoreFixture>(store: &mut F::Store, claimant: &Claimant<F>, limit: u32) -> Option<JobId> {
    store.claim(claimant, Some(limit)).unwrap()
}

fn finish<F: StoreFixture>(store: &mut F::Store, record: &JobRecord, by: Option<&Claimant<F>>) -> bool {
    store.finish(record, by).unwrap()
}

fn ids<C>(jobs: &[StoredJob<C>]) -> Vec<JobId> {
    jobs.iter().map(|job| job.record.job_id).collect()
}

/// Jobs are claimed in the order of their acceptance, as long as a slot is free. An end frees a slot.
pub fn jobs_are_claimed_in_order_and_within_the_limit<F: StoreFixture>() {
    let fixture = F::new();
    let (mut store, claimant) = (fixture.connect(), fixture.claimant(1));
    assert_eq!(claim::<F>(&mut store, &claimant, 2), None, "the store is empty");
    let records: Vec<JobRecord> = (0..4).map(|_| queued()).collect();
    assert_eq!(accept::<F>(&mut store, &records), [true; 4]);
    assert_eq!(claim::<F>(&mut store, &claimant, 2), Some(records[0].job_id));
    assert_eq!(claim::<F>(&mut store, &claimant, 2), Some(records[1].job_id));
    assert_eq!(claim::<F>(&mut store, &claimant, 2), None, "two run");
    let job = read(&mut store, records[0].job_id).unwrap();
    assert_eq!((job.is_active, job.claimant.as_ref(), job.claims), (true, Some(&claimant), 1));
    let waiting = read(&mut store, records[2].job_id).unwrap();
    assert_eq!((waiting.is_active, waiting.claimant, waiting.claims), (false, None, 0));
    assert!(job.sequence < waiting.sequence);
    let end = with_end(records[1].clone(), JobEnd::Failed);
    assert!(finish::<F>(&mut store, &end, Some(&claimant)));
    assert_eq!(claim::<F>(&mut store, &claimant, 2), Some(records[2].job_id));
    assert_eq!(claim::<F>(&mut store, &claimant, 2), None);
}

/// Of many claimants that ask at the same time, each job gets one.
pub fn a_job_is_claimed_once_however_many_ask<F: StoreFixture>() {
    const JOBS: usize = 60;
    const CONNECTIONS: usize = 6;
    let fixture = F::new();
    let mut store = fixture.connect();
    let records: Vec<JobRecord> = (0..JOBS).map(|_| queued()).collect();
    accept::<F>(&mut store, &records);
    let claimants: Vec<_> = (1..).map(|number| fixture.claimant(number)).take(CONNECTIONS).collect();
    let connections: Vec<_> = claimants.iter().map(|_| fixture.connect()).collect();
    let claimed: Vec<JobId> = thread::scope(|scope| {
        let ask = |(mut store, claimant): (F::Store, Claimant<F>)| {
            scope.spawn(move || {
                std::iter::from_fn(|| claim::<F>(&mut store, &claimant, u32::MAX)).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = connections.into_iter().zip(claimants).map(ask).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(claimed.len(), JOBS, "no job is claimed twice, and none is left");
    assert_eq!(claimed.into_iter().collect::<HashSet<_>>(), records.iter().map(|job| job.job_id).collect());
}

/// A submitter that did not learn the outcome repeats the submission. Another job cannot have the same id.
pub fn an_id_is_accepted_once_and_a_repeated_submission_keeps_it<F: StoreFixture>() {
    let fixture = F::new();
    let (mut store, claimant) = (fixture.connect(), fixture.claimant(1));
    let (one, two) = (queued(), queued());
    add::<F>(&mut store, &one);
    let other = JobRecord { command: vec!["false".to_owned()], ..one.clone() };
    assert_eq!(accept::<F>(&mut store, &[other, two.clone()]), [false, true]);
    assert_eq!(read(&mut store, one.job_id).unwrap().record.command, ["true"]);
    claim::<F>(&mut store, &claimant, 2);
    assert_eq!(accept::<F>(&mut store, std::slice::from_ref(&one)), [true], "it was accepted before");
    let job = read(&mut store, one.job_id).unwrap();
    assert_eq!((job.is_active, job.claims), (true, 1), "it goes on");
    assert_eq!(claim::<F>(&mut store, &claimant, 2), Some(two.job_id), "it is not in the queue again");
}

/// The first end counts, but for `lost`: the true end may be found after all.
pub fn a_final_state_stays_as_it_is_unless_a_lost_job_is_found<F: StoreFixture>() {
    let fixture = F::new();
    let (mut store, claimant) = (fixture.connect(), fixture.claimant(1));
    let (record, lost, queue) = (queued(), queued(), queued());
    accept::<F>(&mut store, &[record.clone(), lost.clone(), queue.clone()]);
    claim::<F>(&mut store, &claimant, 2);
    claim::<F>(&mut store, &claimant, 2);
    let before = read(&mut store, record.job_id).unwrap().revision;
    assert!(finish::<F>(&mut store, &with_end(record.clone(), JobEnd::Completed), Some(&claimant)));
    assert!(!finish::<F>(&mut store, &with_end(record.clone(), JobEnd::Failed), Some(&claimant)));
    let job = read(&mut store, record.job_id).unwrap();
    assert_eq!((job.record.status, job.is_active, job.claimant), (JobState::Completed, false, None));
    assert!(job.record.ending.is_some() && job.revision > before);
    assert!(finish::<F>(&mut store, &with_end(lost.clone(), JobEnd::Lost), Some(&claimant)));
    assert!(!finish::<F>(&mut store, &with_end(lost.clone(), JobEnd::Lost), Some(&claimant)));
    assert!(finish::<F>(&mut store, &with_end(lost.clone(), JobEnd::Completed), Some(&claimant)));
    assert_eq!(read(&mut store, lost.job_id).unwrap().record.status, JobState::Completed);
    // A job that waits has no claimant, and never runs when it was cancelled.
    assert!(finish::<F>(&mut store, &with_end(queue, JobEnd::Cancelled), None));
    assert_eq!(claim::<F>(&mut store, &claimant, 9), None);
    assert!(!finish::<F>(&mut store, &with_end(queued(), JobEnd::Cancelled), None), "it does not exist");
}

/// Only a job that has ended is removed, and then it is gone.
pub fn an_open_job_cannot_be_removed<F: StoreFixture>() {
    let fixture = F::new();
    let (mut store, claimant) = (fixture.connect(), fixture.claimant(1));
    let records = [queued(), queued()];
    let [active, waiting] = [records[0].job_id, records[1].job_id];
    accept::<F>(&mut store, &records);
    claim::<F>(&mut store, &claimant, 1);
    let mut remove = |id| store.remove(id).unwrap();
    assert_eq!([remove(active), remove(waiting)], [false, false]);
    let mut store = fixture.connect();
    finish::<F>(&mut store, &with_end(records[0].clone(), JobEnd::Failed), Some(&claimant));
    assert!(store.remove(active).unwrap());
    assert!(read(&mut store, active).is_none());
    assert!(!store.remove(active).unwrap(), "it does not exist any more");
    assert_eq!(ids(&store.newest(None, &JobOwnerFilter::Anybodys, 9).unwrap()), [waiting]);
}

/// Lists are cut at the end, and an owner sees the own jobs alone.
pub fn the_newest_jobs_are_listed_by_state_and_owner<F: StoreFixture>() {
    let fixture = F::new();
    let (mut store, claimant) = (fixture.connect(), fixture.claimant(1));
    let mut records: Vec<JobRecord> = (0..5).map(|_| queued()).collect();
    records[1].owner = Some("ann".to_owned());
    records[3].owner = Some("ann".to_owned());
    accept::<F>(&mut store, &records);
    let id = |index: usize| records[index].job_id;
    assert_eq!(claim::<F>(&mut store, &claimant, 9), Some(id(0)));
    assert_eq!(claim::<F>(&mut store, &claimant, 9), Some(id(1)));
    finish::<F>(&mut store, &with_end(records[0].clone(), JobEnd::Failed), Some(&claimant));
    let ann = || JobOwnerFilter::Of(Some("ann".to_owned()));
    for (state, whose, limit, expected) in [
        (None, JobOwnerFilter::Anybodys, 9, vec![id(4), id(3), id(2), id(1), id(0)]),
        (None, JobOwnerFilter::Anybodys, 2, vec![id(4), id(3)]),
        (None, ann(), 9, vec![id(3), id(1)]),
        (None, JobOwnerFilter::Of(None), 9, vec![id(4), id(2), id(0)]),
        (Some(JobState::Queued), JobOwnerFilter::Anybodys, 9, vec![id(4), id(3), id(2)]),
        (Some(JobState::Running), JobOwnerFilter::Anybodys, 9, vec![id(1)]),
        (Some(JobState::Starting), ann(), 9, vec![id(1)]),
        (Some(JobState::Failed), ann(), 9, vec![]),
        (Some(JobState::Failed), JobOwnerFilter::Of(None), 9, vec![id(0)]),
    ] {
        let jobs = store.newest(state, &whose, limit).unwrap();
        assert_eq!(ids(&jobs), expected, "{state:?} {whose:?} {limit}");
    }
    let mut counts = store.counts().unwrap();
    counts.sort_unstable_by_key(|(state, _)| state.as_str());
    assert_eq!(counts, [(JobState::Failed, 1), (JobState::Queued, 3), (JobState::Running, 1)]);
}

/// A job that somebody asked to keep for longer is not removed earlier because another has a shorter retention (F-05).
pub fn f_05_of_different_retentions_the_longest_holds_unless_somebody_says_otherwise<F: StoreFixture>() {
    let fixture = F::new();
    let (mut store, claimant) = (fixture.connect(), fixture.claimant(1));
    let ids_of_ended = [None, Some(60_000), Some(u64::MAX)].map(|retention| {
        let mut record = queued();
        record.rules.retention_ms = retention;
        add::<F>(&mut store, &record);
        claim::<F>(&mut store, &claimant, 9);
        finish::<F>(&mut store, &with_end(record.clone(), JobEnd::Failed), Some(&claimant));
        record.job_id
    });
    add::<F>(&mut store, &queued());
    let later = JobTimestamp::from_millis(JobTimestamp::now().millis() + 1000);
    // A job that ended in this millisecond has not ended before it.
    let moment = JobTimestamp::now();
    while JobTimestamp::now() <= moment {
        thread::yield_now();
    }
    let mut ended = |moment, kept, limit| ids(&store.ended_before(moment, kept, limit).unwrap());
    assert_eq!(ended(later, KeptAsAccepted::AsAccepted, 9), [ids_of_ended[0]]);
    assert_eq!(ended(later, KeptAsAccepted::No, 9), ids_of_ended);
    assert_eq!(ended(later, KeptAsAccepted::No, 2), ids_of_ended[..2]);
    let long_ago = JobTimestamp::from_millis(1000);
    assert!(ended(long_ago, KeptAsAccepted::No, 9).is_empty());
}

/// Makes the tests of this module tests of one store, which a [`StoreFixture`] opens. With a reason after `ignore =`, they are ignored.
#[macro_export]
macro_rules! store_suite {
    ($fixture:ty $(, ignore = $reason:literal)?) => {
        $crate::store_suite! {
            @tests [$($reason)?] $fixture:
            jobs_are_claimed_in_order_and_within_the_limit
            a_job_is_claimed_once_however_many_ask
            an_id_is_accepted_once_and_a_repeated_submission_keeps_it
            a_final_state_stays_as_it_is_unless_a_lost_job_is_found
            an_open_job_cannot_be_removed
            the_newest_jobs_are_listed_by_state_and_owner
            f_05_of_different_retentions_the_longest_holds_unless_somebody_says_otherwise
        }
    };
    (@tests $reason:tt $fixture:ty: $($test:ident)+) => {
        $($crate::store_suite! { @test $reason $fixture: $test })+
    };
    (@test [$($reason:literal)?] $fixture:ty: $test:ident) => {
        #[test]
        $(#[ignore = $reason])?
        fn $test() {
            $crate::store::suite::$test::<$fixture>();
        }
    };
}
