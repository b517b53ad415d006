use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn an_answer_takes_its_entry_once() {
    let mut table = InFlight::new(10);
    assert_eq!(table.register(1.into(), None, "a"), Ok(()));
    assert_eq!(table.register("1".into(), None, "b"), Ok(()));
    assert!(!table.is_empty());
    assert_eq!(table.complete(&1.into()), Completion::Matched("a"));
    assert_eq!(table.complete(&"1".into()), Completion::Matched("b"));
    assert_eq!(table.complete(&1.into()), Completion::Unknown);
    assert!(table.is_empty());
}

#[test]
fn an_id_in_flight_is_refused() {
    let mut table = InFlight::new(10);
    assert_eq!(table.register(1.into(), None, "a"), Ok(()));
    assert_eq!(table.register(1.into(), Some(at(1)), "b"), Err(RegisterError::InFlight("b")));
    assert_eq!(RegisterError::InFlight("b").into_entry(), "b");
    assert_eq!(table.next_deadline(), None);
    assert_eq!(table.get(&1.into()), Some(&"a"));
}

#[test]
fn an_id_whose_late_answer_may_come_is_refused_until_it_has_come() {
    let mut table = InFlight::new(10);
    assert_eq!(table.register(1.into(), None, "a"), Ok(()));
    assert_eq!(table.cancel(&1.into()), Some("a"));
    assert_eq!(table.cancel(&1.into()), None);
    assert_eq!(table.register(1.into(), None, "b"), Err(RegisterError::AwaitsLate("b")));
    assert_eq!(table.complete(&1.into()), Completion::Late);
    assert_eq!(table.complete(&1.into()), Completion::Unknown);
    assert_eq!(table.register(1.into(), None, "b"), Ok(()));
}

#[test]
fn x_13_an_id_of_the_other_type_is_repaired_only_when_it_can_be_no_other() {
    let mut table = InFlight::new(10);
    assert_eq!(table.register(1.into(), Some(at(1)), "a"), Ok(()));
    assert_eq!(table.complete(&"01".into()), Completion::Unknown);
    assert_eq!(table.complete(&"2".into()), Completion::Unknown);
    assert_eq!(table.complete(&"1".into()), Completion::Repaired { id: 1.into(), entry: "a" });
    assert_eq!(table.next_deadline(), None);
    assert_eq!(table.register("1".into(), None, "b"), Ok(()));
    assert_eq!(table.register(2.into(), None, "c"), Ok(()));
    assert_eq!(table.register(1.into(), None, "d"), Ok(()));
    assert_eq!(table.complete(&1.into()), Completion::Matched("d"), "an id that fits exactly comes first");
    assert_eq!(table.complete(&1.into()), Completion::Repaired { id: "1".into(), entry: "b" });
    assert_eq!(table.complete(&2.into()), Completion::Matched("c"));
}

#[test]
fn a_late_answer_of_the_other_type_is_late_too() {
    let mut table = InFlight::new(10);
    assert_eq!(table.register(1.into(), None, "a"), Ok(()));
    assert_eq!(table.cancel(&1.into()), Some("a"));
    assert_eq!(table.register("1".into(), None, "b"), Ok(()));
    // Its own entry comes before the late one.
    assert_eq!(table.complete(&"1".into()), Completion::Matched("b"));
    assert_eq!(table.complete(&"1".into()), Completion::Late);
    assert_eq!(table.register(1.into(), None, "c"), Ok(()));
}

#[test]
fn what_is_due_expires_earliest_first_and_in_order() {
    let mut table = InFlight::new(10);
    for (id, deadline) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
        assert_eq!(table.register(id.into(), Some(at(deadline)), id), Ok(()));
    }
    assert_eq!(table.register(5.into(), None, 5), Ok(()));
    assert_eq!(table.next_deadline(), Some(at(10)));
    assert_eq!(table.expire(at(9)), None);
    assert_eq!(table.expire(at(20)), Some((2.into(), 2)));
    assert_eq!(table.expire(at(20)), Some((4.into(), 4)));
    assert_eq!(table.expire(at(20)), Some((3.into(), 3)));
    assert_eq!(table.expire(at(20)), None);
    assert_eq!(table.next_deadline(), Some(at(30)));
    assert_eq!(table.complete(&1.into()), Completion::Matched(1));
    assert_eq!(table.next_deadline(), None);
    assert_eq!(table.expire(Duration::MAX), None);
    assert_eq!(table.complete(&3.into()), Completion::Late);
}

#[test]
fn the_oldest_late_id_is_forgotten_first() {
    let mut table = InFlight::new(2);
    for id in 1..=3 {
        assert_eq!(table.register(id.into(), None, id), Ok(()));
        assert_eq!(table.cancel(&id.into()), Some(id));
    }
    assert_eq!(table.complete(&1.into()), Completion::Unknown);
    assert_eq!(table.complete(&2.into()), Completion::Late);
    assert_eq!(table.complete(&3.into()), Completion::Late);
    let mut table = InFlight::new(0);
    assert_eq!(table.register(1.into(), None, 1), Ok(()));
    assert_eq!(table.cancel(&1.into()), Some(1));
    assert_eq!(table.complete(&1.into()), Completion::Unknown);
}

#[test]
fn all_are_taken_in_order_of_registration_and_late_ids_are_forgotten() {
    let mut table = InFlight::new(10);
    // So many that no hash table has them in this order by chance.
    let ids: Vec<i64> = (0..40).rev().collect();
    for &id in &ids {
        assert_eq!(table.register(id.into(), Some(at(1)), id), Ok(()));
    }
    assert_eq!(table.cancel(&9.into()), Some(9));
    let left: Vec<(Id, i64)> = ids.iter().filter(|id| **id != 9).map(|id| ((*id).into(), *id)).collect();
    assert_eq!(table.take_all(), left);
    assert_eq!(table.next_deadline(), None);
    assert_eq!(table.register(9.into(), None, 9), Ok(()));
    assert_eq!(table.only(), Some((&9.into(), &9)));
}

#[test]
fn entries_can_be_seen_and_changed() {
    let mut table = InFlight::new(10);
    assert_eq!(table.only(), None);
    assert_eq!(table.register(1.into(), None, 1), Ok(()));
    *table.get_mut(&1.into()).unwrap() = 7;
    assert_eq!((table.get(&1.into()), table.contains(&1.into()), table.len()), (Some(&7), true, 1));
    assert_eq!(table.only(), Some((&1.into(), &7)));
    assert_eq!(table.register(2.into(), None, 2), Ok(()));
    assert_eq!(table.only(), None);
    let mut seen: Vec<_> = table.iter().map(|(_, entry)| *entry).collect();
    seen.sort_unstable();
    assert_eq!(seen, [2, 7]);
}

#[test]
fn what_is_postponed_is_due_later_and_keeps_its_place() {
    let mut table = InFlight::new(10);
    for id in 1..=3 {
        assert_eq!(table.register(id.into(), Some(at(1)).filter(|_| id < 3), id), Ok(()));
    }
    assert_eq!((table.due(at(0)), table.due(at(1))), (None, Some(&1.into())));
    assert!(table.postpone(&1.into(), at(5)) && table.postpone(&3.into(), at(5)));
    assert!(!table.postpone(&4.into(), at(5)));
    assert_eq!(table.due(at(4)), Some(&2.into()));
    assert_eq!(table.expire(at(4)), Some((2.into(), 2)));
    assert_eq!(table.next_deadline(), Some(at(5)));
    assert_eq!(table.expire(at(5)), Some((1.into(), 1)));
    assert_eq!(table.expire(at(5)), Some((3.into(), 3)));
}

/// The table as a reader would explain it: two lists.
struct Model {
    capacity: usize,
    waiting: Vec<(Id, Option<Duration>, u32)>,
    late: Vec<Id>,
}

impl Model {
    fn register(&mut self, id: Id, deadline: Option<Duration>, entry: u32) -> Result<(), RegisterError<u32>> {
        if self.waiting.iter().any(|(other, ..)| *other == id) {
            return Err(RegisterError::InFlight(entry));
        }
        if self.late.contains(&id) {
            return Err(RegisterError::AwaitsLate(entry));
        }
        self.waiting.push((id, deadline, entry));
        Ok(())
    }

    fn take(&mut self, id: &Id) -> Option<u32> {
        let index = self.waiting.iter().position(|(other, ..)| other == id)?;
        Some(self.waiting.remove(index).2)
    }

    fn forget(&mut self, id: &Id) -> bool {
        let before = self.late.len();
        self.late.retain(|other| other != id);
        self.late.len() < before
    }

    fn remember(&mut self, id: Id) {
        self.late.push(id);
        if self.late.len() > self.capacity {
            self.late.remove(0);
        }
    }

    fn complete(&mut self, id: &Id) -> Completion<u32> {
        if let Some(entry) = self.take(id) {
            return Completion::Matched(entry);
        }
        let variant = id.variant();
        if self.forget(id) || variant.as_ref().is_some_and(|variant| self.forget(variant)) {
            return Completion::Late;
        }
        match variant {
            Some(id) => match self.take(&id) {
                Some(entry) => Completion::Repaired { id, entry },
                None => Completion::Unknown,
            },
            None => Completion::Unknown,
        }
    }

    fn cancel(&mut self, id: &Id) -> Option<u32> {
        let entry = self.take(id)?;
        self.remember(id.clone());
        Some(entry)
    }

    fn postpone(&mut self, id: &Id, deadline: Duration) -> bool {
        let found = self.waiting.iter_mut().find(|(other, ..)| other == id);
        found.map(|waiting| waiting.1 = Some(deadline)).is_some()
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.waiting.iter().filter_map(|(_, deadline, _)| *deadline).min()
    }

    fn expire(&mut self, now: Duration) -> Option<(Id, u32)> {
        let earliest = self.next_deadline().filter(|earliest| *earliest <= now);
        let index =
            self.waiting.iter().position(|(_, deadline, _)| earliest.is_some() && *deadline == earliest)?;
        let (id, _, entry) = self.waiting.remove(index);
        self.remember(id.clone());
        Some((id, entry))
    }
}

#[derive(Clone, Debug)]
enum Event {
    Register(Id, Option<Duration>),
    Complete(Id),
    Cancel(Id),
    Postpone(Id, Duration),
    Expire(Duration),
    TakeAll,
}

fn event() -> impl Strategy<Value = Event> {
    let id = || {
        (0_i64..5, any::<bool>())
            .prop_map(|(id, text)| if text { Id::from(&*id.to_string()) } else { id.into() })
    };
    let time = || (0_u64..6).prop_map(at);
    prop_oneof![
        6 => (id(), prop::option::of(time())).prop_map(|(id, deadline)| Event::Register(id, deadline)),
        4 => id().prop_map(Event::Complete),
        2 => id().prop_map(Event::Cancel),
        3 => (id(), time()).prop_map(|(id, deadline)| Event::Postpone(id, deadline)),
        2 => time().prop_map(Event::Expire),
        1 => Just(Event::TakeAll),
    ]
}

proptest! {
    #[test]
    fn it_does_what_the_model_does(capacity in 0_usize..4, events in prop::collection::vec(event(), 0..60)) {
        let mut table = InFlight::new(capacity);
        let mut model = Model { capacity, waiting: Vec::new(), late: Vec::new() };
        for (entry, event) in (0..).zip(events) {
            match event {
                Event::Register(id, deadline) => prop_assert_eq!(
                    table.register(id.clone(), deadline, entry), model.register(id, deadline, entry)),
                Event::Complete(id) => prop_assert_eq!(table.complete(&id), model.complete(&id)),
                Event::Cancel(id) => prop_assert_eq!(table.cancel(&id), model.cancel(&id)),
                Event::Postpone(id, deadline) => {
                    prop_assert_eq!(table.postpone(&id, deadline), model.postpone(&id, deadline));
                }
                Event::Expire(now) => {
                    let due = table.due(now).cloned();
                    let expired = table.expire(now);
                    prop_assert_eq!(due.as_ref(), expired.as_ref().map(|(id, _)| id));
                    prop_assert_eq!(expired, model.expire(now));
                }
                Event::TakeAll => {
                    model.late.clear();
                    let all: Vec<_> = model.waiting.drain(..).map(|(id, _, entry)| (id, entry)).collect();
                    prop_assert_eq!(table.take_all(), all);
                }
            }
            prop_assert_eq!(table.len(), model.waiting.len());
            prop_assert_eq!(table.next_deadline(), model.next_deadline());
            for id in (0_i64..5).flat_map(|number| [Id::Integer(number), Id::from(&*number.to_string())]) {
                let known = model.late.contains(&id) || model.waiting.iter().any(|(waiting, ..)| *waiting == id);
                prop_assert_eq!(table.is_free(&id), !known);
            }
            prop_assert_eq!(table.late.by_id.len(), table.late.by_age.len());
            prop_assert_eq!(table.late.by_id.len(), model.late.len());
        }
    }
}
