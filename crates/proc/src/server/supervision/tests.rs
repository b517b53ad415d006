//! Tests of the supervision with a clock of their own. A process that does nothing stands for the lifeline; the test says
//! what a lifeline would say.

use std::{io::Write, os::unix::net::UnixStream};

use rustix::process::Signal;

use super::*;
use crate::{
    server::Tier,
    testing::{sleeper, wait_until, without_hanging},
};

struct Scene {
    supervision: Supervision,
    link: OwnedFd,
    far: Option<UnixStream>,
}

impl Scene {
    fn new() -> Self {
        let stop_timeouts = StopTimeouts { grace: Duration::from_secs(1), limit: Duration::from_secs(3) };
        let (near, far) = UnixStream::pair().unwrap();
        let supervision = Supervision::new(
            LifelineProcess::Child(sleeper()),
            "server".into(),
            "lifeline".into(),
            stop_timeouts,
        );
        Self { supervision, link: near.into(), far: Some(far) }
    }

    /// The lifeline says this.
    fn says(&mut self, report: &LifelineReport) {
        self.far.as_ref().unwrap().write_all(&report.to_line()).unwrap();
        assert!(self.supervision.hear(&self.link));
    }

    /// The lifeline's end of the link closes.
    fn ends(&mut self) {
        self.far = None;
        // A process that another test is starting at this moment has a copy until it executes its program.
        wait_until("the end of the link", || self.supervision.hear(&self.link));
    }

    /// Whether all is over when `limit` has passed, in steps of a tenth of a second.
    fn is_gone_after(&mut self, limit: Duration) -> bool {
        let begun = Instant::now();
        let step = Duration::from_millis(100);
        let times = std::iter::successors(Some(Duration::ZERO), |time| Some(*time + step));
        times.take_while(|time| *time <= limit + step).any(|time| {
            let event = self.supervision.advance(begun + time, &self.link).event;
            matches!(event, Some(ServerEvent::Gone(_)))
        })
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.supervision.lifeline.signal(Signal::KILL);
    }
}

/// Two events come before the last, each at a step of its own.
const TO_BE_TOLD: Duration = Duration::from_millis(200);

#[test]
fn a_lifeline_that_is_lost_is_stood_in_for() {
    let mut scene = Scene::new();
    scene.ends();
    assert!(scene.is_gone_after(sweep::LIMIT + TO_BE_TOLD));
}

#[test]
fn a_lifeline_that_says_goodbye_and_stays_is_ended() {
    let mut scene = Scene::new();
    scene.says(&LifelineReport::Gone(SweptTree::default()));
    assert!(scene.is_gone_after(REAP_LIMIT + sweep::LIMIT + TO_BE_TOLD));
}

/// A group that cannot be removed stands for a process that cannot be killed.
#[test]
fn a_rescue_that_cannot_succeed_ends_in_time() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("busy"), "").unwrap();
    let mut scene = Scene::new();
    let group = Some(folder.path().to_owned());
    scene.says(&LifelineReport::Started {
        pid: scene.supervision.lifeline_pid(),
        tier: Tier::ControlGroup,
        group,
    });
    scene.ends();
    assert!(scene.is_gone_after(sweep::LIMIT + TO_BE_TOLD));
}

/// The deadlines of a stop are kept only by whoever wakes up for them.
#[test]
fn a_stop_says_when_to_look_again() {
    let mut scene = Scene::new();
    let begun = Instant::now();
    assert_eq!(scene.supervision.advance(begun, &scene.link).next, None);
    scene.supervision.begin_stop(begun);
    for (at, grace) in [(0, 1), (1, 2)] {
        let step = scene.supervision.advance(begun + Duration::from_secs(at), &scene.link);
        assert_eq!(step.next, Some(begun + Duration::from_secs(grace)));
    }
}

#[test]
fn a_lifeline_that_says_nothing_is_not_waited_for() {
    let mut scene = Scene::new();
    assert!(!without_hanging(move || scene.supervision.hear(&scene.link)));
}

#[test]
fn a_report_without_end_is_cut() {
    let mut scene = Scene::new();
    for _ in 0..100 {
        scene.supervision.read_report(&[b'x'; 1000]);
    }
    assert!(scene.supervision.report_start.len() <= LONGEST_REPORT);
}
