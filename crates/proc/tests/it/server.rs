//! How a server starts, runs, ends and is stopped, with real processes.

use std::{io::IoSlice, path::Path, time::Duration};

use crate::common::{PATIENCE, Run, assert_no_survivors, fixture, marked, marker, script, wait_for};
use tokio::time::{Instant, timeout};
use unhang_proc::{
    deadline::Deadline,
    drain::{Tail, drain},
    server::{Exit, Server, ServerEvent, ServerSpec, Tier},
    spawn::{Environment, Launch, SignalGroup, SpawnError, Stream, spawn},
};

const TIERS: [Tier; 2] = [Tier::ControlGroup, Tier::Subreaper];

fn start_error(spec: &ServerSpec) -> SpawnError {
    Server::start(spec).map(drop).expect_err("a refusal")
}

#[tokio::test]
async fn exit_codes_and_signals_are_kept() {
    let cases = [
        ("exit 0", Exit::Code(0)),
        ("exit 7", Exit::Code(7)),
        ("exit 255", Exit::Code(255)),
        ("kill -KILL $$", Exit::Signal(9)),
        ("kill -TERM $$", Exit::Signal(15)),
    ];
    for tier in TIERS {
        for (text, exit) in cases {
            let mut run = Run::new(text, tier);
            let swept = run.gone().await;
            assert_eq!((run.exit, swept.leaked, swept.unkilled), (Some(exit), 0, 0), "{text}");
        }
    }
}

#[tokio::test]
async fn a_polite_server_ends_when_its_stdin_does() {
    let mut run = Run::patient("echo ready; cat >/dev/null; exit 3", Tier::Subreaper);
    run.ready().await;
    assert_eq!(
        run.server.pid().map(|pid| marked(&run.marker).iter().any(|(other, _)| *other == pid)),
        Some(true)
    );
    run.server.begin_stop();
    run.gone().await;
    assert_eq!(run.exit, Some(Exit::Code(3)));
}

#[tokio::test]
async fn l_50_a_server_that_minds_only_sigterm_gets_it() {
    let mut run =
        Run::patient("trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done", Tier::Subreaper);
    run.ready().await;
    run.server.begin_stop();
    run.gone().await;
    assert_eq!(run.exit, Some(Exit::Code(4)));
}

#[tokio::test]
async fn l_51_a_server_that_minds_nothing_is_gone_within_the_limit() {
    for tier in TIERS {
        let marker = marker();
        let spec = script("trap '' TERM HUP INT; echo ready; while :; do sleep $1; done", &marker, tier);
        let mut run = Run::of(&ServerSpec { grace: Duration::from_secs(1), ..spec }, marker);
        run.ready().await;
        let begun = Instant::now();
        run.server.begin_stop();
        run.gone().await;
        assert_eq!(run.exit, Some(Exit::Signal(9)));
        // The graces were given, and the limit of 3 s was kept (with room for a busy machine).
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(1900) && took < Duration::from_secs(5), "{took:?}");
    }
}

#[tokio::test]
async fn signals_ignored_by_the_owner_are_not_ignored_by_the_server() {
    // The owner is started by a shell that ignores signals, as `nohup` does; what it starts would inherit that.
    let marker = marker();
    let text = format!(
        "trap '' TERM HUP QUIT USR1 USR2; exec {} owner subreaper sh -c 'echo ready; while :; do sleep 0.05; done' sh {marker} <&-",
        fixture().display()
    );
    let arguments = ["-c".into(), text.into()];
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let launch =
        Launch { output: Stream::Descriptor(writer), ..Launch::new(Path::new("/bin/sh"), &arguments) };
    let owner = spawn(launch).unwrap();
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(std::fs::File::from(reader))).map(Result::unwrap);
    // The two come in any order.
    let (mut pid, mut is_ready) = (None, false);
    while pid.is_none() || !is_ready {
        let line = lines.next().expect("the owner goes on");
        is_ready |= line == "ready";
        pid = line.strip_prefix("started ").map(|rest| rest.split(' ').next().unwrap().to_owned()).or(pid);
    }
    let pid = pid.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    owner.signal(rustix::process::Signal::KILL);
    assert_no_survivors(&marker).await;
    // Beyond 31 are those that the C library keeps for itself.
    assert_eq!(ignored & 0x7fff_ffff, 0, "no signal must be ignored: {ignored:x}");
}

#[tokio::test]
async fn both_pipes_carry_bytes_and_their_ends() {
    let mut run = Run::new("echo ready; cat; echo over", Tier::ControlGroup);
    run.ready().await;
    let mut input = run.server.input.take().unwrap();
    let mut left = vec![b'x'; 3 << 20];
    let deadline = Instant::now() + PATIENCE;
    while !left.is_empty() {
        match input.try_write_vectored(&[IoSlice::new(&left)]) {
            Ok(count) => drop(left.drain(..count)),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                // The echo has to be read, or both sides wait for each other.
                let before = run.output.len();
                tokio::select! {
                    ready = input.writable() => ready.unwrap(),
                    () = run.until("echo", |run| run.output.len() > before) => {}
                }
            }
        }
        assert!(Instant::now() < deadline);
    }
    assert!(!input.reader_gone());
    drop(input);
    run.gone().await;
    run.until("the rest of the output", |run| run.output.ends_with(b"over\n")).await;
    assert_eq!(run.output.iter().filter(|&&byte| byte == b'x').count(), 3 << 20);
}

#[tokio::test]
async fn a_server_that_closes_its_stdin_is_noticed() {
    let mut run = Run::new("exec <&-; echo ready; sleep $1", Tier::Subreaper);
    run.ready().await;
    let input = run.server.input.take().unwrap();
    timeout(PATIENCE, input.closed()).await.unwrap();
    assert!(input.reader_gone());
    run.server.kill_now();
    run.gone().await;
}

#[tokio::test]
async fn a_missing_program_is_named_with_the_folders_searched() {
    let mut spec = script("", "", Tier::Subreaper);
    spec.program = "no-such-server".into();
    spec.environment = Environment::Exactly(vec![("PATH".into(), "/nowhere/at-all:/bin".into())]);
    let error = start_error(&spec);
    let text = error.to_string();
    assert!(matches!(error, SpawnError::ProgramNotFound { .. }), "{text}");
    assert!(
        text.contains("no-such-server") && text.contains("/nowhere/at-all") && text.contains("/bin"),
        "{text}"
    );
}

#[tokio::test]
async fn a_missing_folder_and_a_missing_lifeline_are_named() {
    let mut spec = script("", "", Tier::Subreaper);
    spec.folder = Some("/nowhere/at-all".into());
    assert!(start_error(&spec).to_string().contains("/nowhere/at-all"));
    spec.folder = None;
    spec.lifeline.program = "/nowhere/lifeline".into();
    assert!(start_error(&spec).to_string().contains("/nowhere/lifeline"));
    // A program that is no lifeline at all ends without a word.
    spec.lifeline.program = "/bin/true".into();
    let (server, _stderr) = Server::start(&spec).unwrap();
    let event = timeout(PATIENCE, server.event()).await.unwrap();
    assert!(matches!(event, ServerEvent::Failed(SpawnError::Shim { .. })), "{event:?}");
    assert!(matches!(timeout(PATIENCE, server.event()).await.unwrap(), ServerEvent::Gone(_)));
}

#[tokio::test]
async fn a_missing_interpreter_is_told_by_an_event() {
    // The script is a file of the repository. If the test wrote it, a process of another test could inherit the open file, and Linux starts no
    // program that somebody can write to.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/missing-interpreter");
    for tier in TIERS {
        let mut spec = script("", "", tier);
        spec.program = file.clone().into();
        let (server, _stderr) = Server::start(&spec).unwrap();
        let event = timeout(PATIENCE, server.event()).await.unwrap();
        let ServerEvent::Failed(error) = event else { panic!("{event:?}") };
        let text = error.to_string();
        assert!(text.contains("interpreter") && text.contains(file.to_str().unwrap()), "{text}");
        assert!(matches!(timeout(PATIENCE, server.event()).await.unwrap(), ServerEvent::Gone(_)));
    }
}

#[tokio::test]
async fn environment_folder_name_and_group_are_as_asked_for() {
    let marker = marker();
    let mut spec = script(
        "echo \"$A|$HOME|$(pwd)|$0|$1\"; ps -o pgid= -o pid= -p $$; cat >/dev/null",
        &marker,
        TIERS[0],
    );
    spec.arguments[2] = "an argument with blanks".into();
    spec.environment = Environment::Exactly(vec![
        ("PATH".into(), "/bin:/usr/bin".into()),
        ("A".into(), "1".into()),
        ("A".into(), "2".into()),
    ]);
    spec.folder = Some("/usr".into());
    let mut run = Run::of(&spec, marker.clone());
    let expected = format!("2||/usr|an argument with blanks|{marker}\n");
    run.until("output", |run| run.output.len() > expected.len()).await;
    assert!(
        String::from_utf8_lossy(&run.output).starts_with(&expected),
        "{}",
        String::from_utf8_lossy(&run.output)
    );
    run.server.begin_stop();
    run.gone().await;
}

#[tokio::test]
async fn g_11_a_process_gets_the_null_device_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("links");
    let arguments = [
        "-c",
        "for fd in 0 1 2; do readlink /proc/$$/fd/$fd; done >$1.new; mv $1.new $1",
        "sh",
        file.to_str().unwrap(),
    ];
    let arguments = arguments.map(Into::into);
    let mut process = spawn(Launch {
        signal_group: SignalGroup::OwnGroup,
        ..Launch::new(Path::new("/bin/sh"), &arguments)
    })
    .unwrap();
    wait_for(|| file.exists(), || "it did not run".to_owned()).await;
    let links = std::fs::read_to_string(&file).unwrap();
    // The middle one is the redirection of the script itself.
    let links: Vec<&str> = links.lines().collect();
    assert_eq!((links[0], links[2]), ("/dev/null", "/dev/null"));
    timeout(PATIENCE, async {
        while process.try_reap().is_none() {
            // Between two looks: reaping never waits.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(process.try_reap(), Some(Exit::Code(0)));
}

#[tokio::test]
async fn g_07_taken_streams_are_out_of_reach_of_prints_and_children() {
    let mut spec = script("", "", Tier::Subreaper);
    spec.program = fixture().into();
    spec.arguments = vec!["streams".into()];
    let mut run = Run::of(&spec, marker());
    let mut input = run.server.input.take().unwrap();
    input.writable().await.unwrap();
    assert_eq!(input.try_write_vectored(&[IoSlice::new(b"question\n")]).unwrap(), 9);
    run.gone().await;
    let text = "answer to question\n";
    run.until("the answer", |run| run.output.len() >= text.len()).await;
    assert_eq!(String::from_utf8_lossy(&run.output), text);
}

#[tokio::test]
async fn a_control_group_is_made_for_the_server_and_removed_after_it() {
    let mut run = Run::new("echo ready; cat >/dev/null", Tier::ControlGroup);
    run.ready().await;
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", run.server.pid().unwrap())).unwrap();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default().to_owned();
    let name = format!("mcp-lifeline-{}-", run.server.lifeline_pid());
    // Where no group can be made, the next tier does the work and the report says so.
    assert_eq!(group.contains(&name), run.tier == Some(Tier::ControlGroup), "{group} {:?}", run.tier);
    run.server.begin_stop();
    run.gone().await;
    for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
        assert!(
            group.is_empty() || !group.contains(&name) || !Path::new(root).join(&group).exists(),
            "{group}"
        );
    }
}

#[tokio::test]
async fn cpu_time_tells_busy_from_idle() {
    for tier in TIERS {
        let mut run = Run::new("sh -c 'while :; do :; done' & echo ready; cat >/dev/null", tier);
        run.ready().await;
        let busy = || run.server.cpu_time().is_some_and(|time| time > Duration::from_millis(100));
        wait_for(busy, || "no time was used".to_owned()).await;
        run.server.begin_stop();
        run.gone().await;
        assert_eq!(run.server.cpu_time(), None);
    }
}

#[tokio::test]
async fn events_survive_being_waited_for_in_slices() {
    let mut run = Run::patient("echo ready; cat >/dev/null; exit 5", Tier::Subreaper);
    run.server.begin_stop();
    let mut events = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while !matches!(events.last(), Some(ServerEvent::Gone(_))) {
        assert!(Instant::now() < deadline, "{events:?}");
        if let Ok(event) = timeout(Duration::from_micros(300), run.server.event()).await {
            events.push(event);
        }
    }
    let [ServerEvent::Started { .. }, ServerEvent::Exited(Exit::Code(5)), ServerEvent::Gone(_)] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert!(
        timeout(Duration::from_millis(50), run.server.event()).await.is_err(),
        "nothing comes after the end"
    );
}

#[tokio::test]
async fn l_37_stderr_is_drained_from_start_to_the_last_byte() {
    // A burst over a pipe's size (L-70), a line over every limit (contract 3.3), a flood while dying.
    let text = "head -c 100000 /dev/zero | tr '\\0' 'b' >&2; echo >&2; head -c 200000 /dev/zero | tr '\\0' 'l' >&2; echo >&2
        echo ready; cat >/dev/null; head -c 5000000 /dev/zero | tr '\\0' 'f' >&2; echo >&2; echo 'last words' >&2";
    let mut run = Run::new(text, Tier::ControlGroup);
    let stderr = run.stderr.take().unwrap();
    let tail = Tail::new(64 * 1024);
    let (sender, pieces) = std::sync::mpsc::sync_channel(10_000);
    let mut drain = drain(stderr, tail.clone(), move |piece| {
        sender.try_send(piece.len()).expect("room");
    });
    run.ready().await;
    run.server.begin_stop();
    run.gone().await;
    assert!(drain.finish(Deadline::after(PATIENCE)).await);
    assert_eq!(tail.bytes_seen(), 100_001 + 200_001 + 5_000_001 + 11);
    assert_eq!(tail.last_lines(1), ["last words"]);
    let pieces: Vec<usize> = pieces.try_iter().collect();
    assert_eq!(pieces.iter().sum::<usize>(), 5_300_010);
    assert!(pieces.iter().all(|&length| length <= 8 * 1024));
}

#[tokio::test]
async fn nothing_of_ours_is_left_after_many_servers() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut run = Run::new("exit 0", Tier::ControlGroup);
    run.gone().await;
    drop(run);
    // Other tests of this program open and close as well, so a leak shows only as a trend.
    let before = descriptors();
    for _ in 0..40 {
        Run::new("exit 0", Tier::ControlGroup).gone().await;
    }
    wait_for(|| descriptors() < before + 40, || format!("{before} descriptors became {}", descriptors()))
        .await;
}
