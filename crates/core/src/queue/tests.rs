use super::*;

/// Takes so many bytes and then no more.
struct Narrow {
    room: usize,
    taken: Vec<u8>,
}

impl Sink for Narrow {
    fn write_some(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut count = 0;
        for part in parts {
            let take = part.len().min(self.room);
            self.taken.extend_from_slice(&part[..take]);
            self.room -= take;
            count += take;
        }
        Ok(count)
    }
}

fn narrow(room: usize) -> Narrow {
    Narrow { room, taken: Vec::new() }
}

#[test]
fn bytes_go_out_at_once_and_the_rest_in_order() {
    let (mut queue, mut sink) = (Queue::new(1000), narrow(3));
    queue.push(Class::Kept, b"first", Some(&mut sink), None);
    queue.push(Class::Kept, b"second", Some(&mut sink), None);
    assert_eq!(sink.taken, b"fir");
    while !queue.is_empty() {
        sink.room = 2;
        queue.flush(&mut sink);
    }
    assert_eq!(sink.taken, b"first\nsecond\n");
    assert_eq!(queue.cost(), 0);
    sink.room = 100;
    queue.push(Class::Kept, b"", Some(&mut sink), None);
    assert!(queue.is_empty() && sink.taken.ends_with(b"\n\n"));
}

fn waiting(queue: &mut Queue) -> String {
    let mut sink = narrow(usize::MAX);
    queue.flush(&mut sink);
    String::from_utf8(sink.taken).unwrap()
}

fn push(queue: &mut Queue, class: Class, text: &str) {
    queue.push(class, text.as_bytes(), None::<&mut Narrow>, None);
}

#[test]
fn x_01_under_pressure_logs_go_first_then_progress_then_list_changed() {
    let mut queue = Queue::new(10 * ENTRY_OVERHEAD);
    let progress = |token| Class::Progress(Id::Integer(token));
    push(&mut queue, Class::Kept, "r1");
    for round in 0..3 {
        push(&mut queue, Class::Log, &format!("l{round}"));
        push(&mut queue, progress(1), &format!("p1-{round}"));
        push(&mut queue, Class::ListChanged("tools".into()), &format!("t{round}"));
    }
    assert_eq!(queue.shed(), 3, "ten entries and their bytes are over the limit");
    assert_eq!(waiting(&mut queue), "r1\np1-0\nt0\np1-1\nt1\np1-2\nt2\n");
}

#[test]
fn only_the_newest_progress_of_each_token_is_kept() {
    let mut queue = Queue::new(4 * ENTRY_OVERHEAD);
    for round in 0..40 {
        push(&mut queue, Class::Progress(Id::Integer(round % 2)), &format!("{}:{round}", round % 2));
    }
    let left = waiting(&mut queue);
    assert!(left.ends_with("0:38\n1:39\n") && left.lines().count() <= 4, "{left}");
}

#[test]
fn a_response_is_never_dropped_and_fills_the_queue_instead() {
    let mut queue = Queue::new(4 * ENTRY_OVERHEAD);
    for round in 0..40 {
        push(&mut queue, Class::Kept, &round.to_string());
        push(&mut queue, Class::Log, "log");
    }
    assert!(queue.is_full());
    let left = waiting(&mut queue);
    assert_eq!(left.lines().filter(|line| *line != "log").count(), 40);
    assert!(left.lines().count() < 44, "{left}");
}

#[test]
fn what_has_begun_to_leave_is_not_shed() {
    let (mut queue, mut sink) = (Queue::new(2 * ENTRY_OVERHEAD), narrow(0));
    push(&mut queue, Class::Log, "a log message");
    sink.room = 5;
    queue.flush(&mut sink);
    for _ in 0..10 {
        push(&mut queue, Class::Log, "x");
    }
    sink.room = 1000;
    queue.flush(&mut sink);
    assert!(sink.taken.starts_with(b"a log message\n"));
}

#[test]
fn the_rest_of_a_long_line_is_not_copied() {
    let memory = Arc::new(b"before\na long line\na line that ends otherwise\r\nshort\n".to_vec());
    let holders = |queue: &mut Queue, sink: &mut Narrow, range: Range<usize>| {
        queue.push(Class::Kept, &memory[range], Some(sink), Some(&memory));
        Arc::strong_count(&memory) - 1
    };
    let whole = Arc::new([vec![b'x'; 100], vec![b'\n']].concat());
    let (mut queue, mut sink) = (Queue::new(1000), narrow(30));
    queue.push(Class::Kept, &whole[..100], Some(&mut sink), Some(&whole));
    assert_eq!((Arc::strong_count(&whole), queue.cost()), (2, 71 + ENTRY_OVERHEAD));
    assert_eq!(holders(&mut queue, &mut sink, 7..18), 0, "it is little of its memory");
    assert_eq!(holders(&mut queue, &mut sink, 19..45), 0, "its own ending is another");
    sink.room = 1000;
    queue.flush(&mut sink);
    assert_eq!(Arc::strong_count(&whole), 1);
    let expected = [whole.as_slice(), b"a long line\na line that ends otherwise\n"].concat();
    assert_eq!(String::from_utf8_lossy(&sink.taken), String::from_utf8_lossy(&expected));
    let elsewhere = vec![b'x'; 60];
    sink.room = 0;
    queue.push(Class::Kept, &elsewhere, Some(&mut sink), Some(&whole));
    assert_eq!(Arc::strong_count(&whole), 1, "it stands elsewhere");
}

#[test]
fn the_rest_of_a_message_that_has_begun_to_leave_is_not_shed() {
    let (mut queue, mut sink) = (Queue::new(2 * ENTRY_OVERHEAD), narrow(5));
    queue.push(Class::Log, b"a log message", Some(&mut sink), None);
    for _ in 0..10 {
        push(&mut queue, Class::Log, "x");
    }
    sink.room = 1000;
    queue.flush(&mut sink);
    assert!(sink.taken.starts_with(b"a log message\n"), "{}", String::from_utf8_lossy(&sink.taken));
}

#[test]
fn list_changed_is_merged_to_one_of_a_kind() {
    let mut queue = Queue::new(4 * ENTRY_OVERHEAD);
    for round in 0..40 {
        let kind = if round % 2 == 0 { "tools" } else { "prompts" };
        push(&mut queue, Class::ListChanged(kind.into()), &format!("{kind}:{round}"));
    }
    let left = waiting(&mut queue);
    assert!(left.ends_with("tools:38\nprompts:39\n") && left.lines().count() <= 4, "{left}");
}

/// A pipe takes a message of up to 4 KiB whole or not at all.
struct WholeWriteSink(Narrow);

impl Sink for WholeWriteSink {
    fn write_some(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > self.0.room { Err(io::ErrorKind::WouldBlock.into()) } else { self.0.write_some(parts) }
    }
}

#[test]
fn a_short_message_does_not_overtake_a_long_one() {
    let (mut queue, mut sink) = (Queue::new(1000), WholeWriteSink(narrow(6)));
    queue.push(Class::Kept, b"longer", Some(&mut sink), None);
    queue.push(Class::Kept, b"short", Some(&mut sink), None);
    sink.0.room = 100;
    queue.flush(&mut sink);
    assert_eq!(sink.0.taken, b"longer\nshort\n");
}

/// Fails at each write.
struct Broken;

impl Sink for Broken {
    fn write_some(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[test]
fn a_failed_write_means_that_the_peer_has_gone() {
    let mut queue = Queue::new(1000);
    queue.push(Class::Kept, b"lost", Some(&mut Broken), None);
    assert!(queue.peer_gone() && queue.is_empty());
    queue.push(Class::Kept, b"lost too", Some(&mut Broken), None);
    queue.push(Class::Kept, b"lost as well", None::<&mut Broken>, None);
    assert!(queue.is_empty(), "nothing piles up for a peer that has gone");
}

/// A text whose entry costs a hundred bytes.
fn hundred(name: &str) -> String {
    format!("{name:<3}")
}

fn blocked() -> Narrow {
    narrow(0)
}

#[test]
fn a_queue_is_full_above_its_limit_and_then_sheds_its_oldest_logs_down_to_three_quarters() {
    let mut queue = Queue::new(400);
    for (round, cost, shed, is_full) in
        [(0, 100, 0, false), (1, 200, 0, false), (2, 300, 0, false), (3, 400, 0, false), (4, 300, 2, false)]
    {
        // A sink that takes nothing makes no difference.
        queue.push(Class::Log, hundred(&format!("l{round}")).as_bytes(), Some(&mut blocked()), None);
        assert_eq!((queue.cost(), queue.shed(), queue.is_full()), (cost, shed, is_full), "{round}");
    }
    assert_eq!(waiting(&mut queue), "l2 \nl3 \nl4 \n");
    assert!(queue.is_empty() && queue.cost() == 0);
    for _ in 0..4 {
        push(&mut queue, Class::Kept, &hundred("r"));
    }
    assert!(!queue.is_full());
    push(&mut queue, Class::Kept, "");
    assert_eq!((queue.is_full(), queue.cost(), queue.shed()), (true, 497, 2), "the ending of a line counts");
}

#[test]
fn no_more_is_shed_than_the_limit_demands() {
    let progress = |name: &str| (Class::Progress(Id::Integer(1)), hundred(name));
    let changed = |name: &str| (Class::ListChanged("tools".into()), hundred(name));
    let (log, kept) = ((Class::Log, hundred("l")), (Class::Kept, hundred("r")));
    for (messages, left) in [
        // The logs suffice, although they do not bring the queue down to three quarters.
        ([progress("p1"), progress("p2"), kept.clone(), log, kept.clone()], "p1 p2 r  r  "),
        // The progress suffices.
        ([progress("p1"), progress("p2"), changed("t1"), changed("t2"), kept.clone()], "p2 t1 t2 r  "),
        ([changed("t1"), changed("t2"), kept.clone(), kept.clone(), kept.clone()], "t2 r  r  r  "),
        ([progress("p1"), progress("p2"), progress("p3"), progress("p4"), kept], "p3 p4 r  "),
    ] {
        let mut queue = Queue::new(400);
        for (class, text) in messages {
            push(&mut queue, class, &text);
        }
        assert_eq!(queue.cost() / 100, left.len() / 3);
        assert_eq!(waiting(&mut queue).replace('\n', ""), left);
    }
}

#[test]
fn replies_are_counted_apart_until_they_have_left() {
    let (mut queue, mut sink) = (Queue::new(1000), blocked());
    for (class, room, text, replies, cost) in [
        (Class::Kept, 0, "r1", 0, 99),
        (Class::Reply, 0, "one", 100, 199),
        (Class::Reply, 0, "three", 202, 301),
        (Class::Kept, 3, "r2", 202, 301),
        (Class::Kept, 2, "r3", 202, 400),
        (Class::Kept, 2, "r4", 102, 399),
        (Class::Kept, 9, "r5", 0, 297),
    ] {
        sink.room = room;
        queue.push(class, text.as_bytes(), Some(&mut sink), None);
        assert_eq!((queue.replies(), queue.cost()), (replies, cost), "{text}");
    }
    let mut begun = Queue::new(1000);
    begun.push(Class::Reply, b"reply", Some(&mut narrow(4)), None);
    assert_eq!((begun.replies(), begun.cost()), (98, 98), "what is left of it, and its ending");
    assert_eq!(waiting(&mut begun), "y\n");
    assert_eq!((begun.replies(), begun.cost()), (0, 0));
    begun.push(Class::Reply, b"reply", Some(&mut blocked()), None);
    begun.clear();
    assert_eq!((begun.replies(), begun.cost()), (0, 0));
}

#[test]
fn a_cleared_queue_has_nothing_but_its_limit_and_its_count() {
    let mut queue = Queue::new(300);
    for round in 0..4 {
        push(&mut queue, Class::Log, &hundred(&format!("l{round}")));
    }
    assert_eq!((queue.shed(), queue.cost()), (2, 200));
    queue.clear();
    assert_eq!((queue.shed(), queue.cost(), queue.is_empty(), queue.peer_gone()), (2, 0, true, false));
    for _ in 0..3 {
        push(&mut queue, Class::Kept, &hundred("r"));
    }
    assert!(!queue.is_full());
    push(&mut queue, Class::Kept, &hundred("r"));
    assert!(queue.is_full());
}

#[test]
fn a_write_that_fails_takes_what_waits_with_it_and_nothing_is_written_for_nothing() {
    let mut queue = Queue::new(1000);
    queue.flush(&mut Broken);
    assert!(!queue.peer_gone(), "nothing waits");
    push(&mut queue, Class::Reply, "lost");
    queue.flush(&mut Broken);
    assert!(queue.peer_gone() && queue.is_empty());
    assert_eq!((queue.cost(), queue.replies()), (0, 0));
    let mut queue = Queue::new(1000);
    push(&mut queue, Class::Kept, "lost");
    queue.push(Class::Kept, b"lost too", Some(&mut Broken), None);
    assert!(queue.peer_gone() && queue.is_empty());
}

/// Takes so many bytes at each write.
struct SmallWriteSink(usize, Vec<u8>);

impl Sink for SmallWriteSink {
    fn write_some(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut once = narrow(self.0);
        let count = if self.0 == 0 { 0 } else { once.write_some(parts)? };
        self.1.extend(once.taken);
        Ok(count)
    }
}

#[test]
fn a_message_leaves_at_once_in_as_many_writes_as_it_takes() {
    for at_once in [1, 2, 3, 4, 100] {
        let (mut queue, mut sink) = (Queue::new(1000), SmallWriteSink(at_once, Vec::new()));
        queue.push(Class::Kept, b"one", Some(&mut sink), None);
        assert!(queue.is_empty(), "{at_once} bytes at once");
        queue.push(Class::Log, b"two", Some(&mut sink), None);
        assert_eq!((queue.cost(), sink.1.as_slice()), (0, b"one\ntwo\n".as_slice()));
    }
    let (mut queue, mut sink) = (Queue::new(1000), SmallWriteSink(0, Vec::new()));
    queue.push(Class::Kept, b"one", Some(&mut sink), None);
    queue.flush(&mut sink);
    assert!(!queue.peer_gone(), "a sink that takes no byte may take some later");
    assert_eq!(waiting(&mut queue), "one\n");
    let mut sink = narrow(3);
    queue.push(Class::Kept, b"one", Some(&mut sink), None);
    assert_eq!((sink.taken.as_slice(), queue.cost()), (b"one".as_slice(), 1 + ENTRY_OVERHEAD));
    assert_eq!(waiting(&mut queue), "\n", "its ending waits");
}

#[test]
fn more_messages_than_one_write_takes_leave_in_order() {
    let mut queue = Queue::new(1 << 20);
    let mut expect = String::new();
    for round in 0..3 * VECTOR + 8 {
        push(&mut queue, Class::Kept, &round.to_string());
        expect += &format!("{round}\n");
    }
    // A first part leaves in small writes, and the rest at once.
    let mut sent = Vec::new();
    for room in [37, 37, 37, 37, usize::MAX] {
        let mut sink = narrow(room);
        queue.flush(&mut sink);
        assert!(sink.taken.len() == 37 || room == usize::MAX, "as much as there is room for");
        sent.extend(sink.taken);
    }
    assert_eq!(String::from_utf8_lossy(&sent), expect);
    assert_eq!((queue.cost(), queue.is_empty()), (0, true));
}

#[test]
fn a_rest_shares_its_memory_if_it_is_half_of_it() {
    let memory = Arc::new([vec![b'x'; 99], vec![b'\n']].concat());
    for (taken, holders) in [(48, 2), (49, 2), (50, 1)] {
        let mut queue = Queue::new(1000);
        queue.push(Class::Kept, &memory[..99], Some(&mut narrow(taken)), Some(&memory));
        assert_eq!(Arc::strong_count(&memory), holders, "{taken} bytes have left");
        assert_eq!(waiting(&mut queue), format!("{}\n", "x".repeat(99 - taken)));
        assert_eq!(Arc::strong_count(&memory), 1, "it is given back");
    }
}
