//! The tools on a job service that keeps everything in memory.

mod memory_service;

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::{Value, json};
use unhang_core::config::ANSWER_CHARACTERS;
use unhang_jobs::{log::LogStream, record::JobState};
use unhang_tools::{service::LogRequest, *};

use self::memory_service::{FILE, ID, MemoryService, call, cancellable, fields, keys, table};
use crate::settings::Settings;

#[tokio::test]
async fn j_23_a_job_is_answered_with_its_id_at_once() {
    let service = MemoryService::new(JobState::Queued);
    let started = fields(&call(&service, "simulate", json!({ "cod": 5, "days": null })).await);
    assert_eq!(keys(&started), ["job_id", "message", "next_steps", "status"]);
    assert_eq!((&started["job_id"], &started["status"]), (&json!(ID), &json!("queued")));
    let steps = started["next_steps"].to_string();
    assert!(steps.contains("get_job_status") && steps.contains("get_job_results"), "{steps}");
    assert!(steps.contains("5 to 10 seconds") && steps.contains("other work"), "J-83: {steps}");
    let asked = service.asked();
    let [request] = &asked.submitted[..] else { panic!("one submission") };
    let command: Vec<_> = request.command.iter().map(|word| word.render(Path::new("/jobs/x"), "x")).collect();
    assert_eq!(command, ["python", "simulate.py", "--out=/jobs/x", "--cod", "5"]);
    assert_eq!(Value::from(request.arguments.clone()), json!({ "cod": 5, "days": null }));
    let settings =
        Settings::read(FILE, "unhang.toml", Path::new("/project"), &|_| None).expect("right").settings;
    let tool = &settings.tools[0];
    assert_eq!(
        (&request.inputs, &request.results, &request.state),
        (&tool.inputs, &tool.results, &tool.state)
    );
    assert!(tool.inputs.len() == 1 && tool.results.is_some() && tool.state.is_some());
    assert_eq!(request.timeout, Some(Duration::from_secs(1800)));
    assert_eq!((&*request.tool, &*request.folder), ("simulate", Path::new("/project")));
}

#[tokio::test]
async fn j_16_what_does_not_fit_the_schema_is_no_job() {
    let service = MemoryService::new(JobState::Queued);
    let large = "x".repeat(100_000);
    for (tool, arguments, expect) in [
        ("simulate", json!({}), r#""cod" is a required property"#),
        ("simulate", json!({ "cod": "5" }), "`cod`: value is not of type \"number\""),
        ("simulate", json!({ "cod": large }), "`cod`: value is not of type \"number\""),
        ("simulate", json!({ "cod": 1, "days": large.repeat(2) }), "input.json"),
        ("quick", json!({ "a": 1 }), "there is no such argument"),
    ] {
        let answer = call(&service, tool, arguments).await;
        assert!(answer.is_error && answer.text.contains(expect), "{}", answer.text);
        assert!(answer.text.chars().count() < 600, "nothing long is echoed");
    }
    assert!(service.asked().submitted.is_empty());
}

#[tokio::test]
async fn j_137_a_submission_that_fails_is_an_answer() {
    let service = MemoryService::new(JobState::Queued);
    service.asked().refuse = Some("the state field `basis_of_design` is missing".to_owned());
    let answer = call(&service, "simulate", json!({ "cod": 1 })).await;
    assert!(answer.is_error);
    assert_eq!(answer.text, "Job submission failed: the state field `basis_of_design` is missing");
}

#[tokio::test]
async fn a_child_is_answered_when_it_ends() {
    for (end, is_error) in [(JobState::Completed, false), (JobState::Failed, true)] {
        let service = MemoryService::new(JobState::Running);
        service.asked().results = Some(json!({ "ch4": 1.5 }));
        let ending = Arc::clone(&service);
        let (answer, ()) = tokio::join!(call(&service, "quick", json!({})), async move {
            tokio::task::yield_now().await;
            ending.state.send_replace(end);
        });
        let structured = Value::from(answer.structured.clone().expect("structured"));
        assert_eq!((answer.is_error, &structured["status"]), (is_error, &json!(end.as_str())));
        assert_eq!(structured["results"]["ch4"], 1.5);
        let tail = structured["stdout_tail"].as_str().expect("text");
        assert!(tail.ends_with("the end") && tail.len() == 4000);
    }
}

#[tokio::test]
async fn a_child_that_nobody_waits_for_is_ended() {
    let service = MemoryService::new(JobState::Running);
    let (cancel, cancellation) = Cancellation::new();
    cancel.send_replace(true);
    let limit = Duration::from_secs(20);
    let answer = tokio::time::timeout(limit, cancellable(&service, "quick", json!({}), cancellation)).await;
    assert!(answer.expect("it ends").is_error);
    assert_eq!(service.asked().terminated, 1);
    assert_eq!(service.job().status, JobState::Cancelled);
}

#[tokio::test]
async fn the_mode_of_the_file_can_be_overridden() {
    let loaded = Settings::read(FILE, "unhang.toml", Path::new("/project"), &|_| None).expect("it is right");
    let overrides = ModeOverrides::parse("simulate=child,*=job").expect("it can be read");
    let service = MemoryService::new(JobState::Running);
    let table =
        Table::new(loaded.settings.tools, &overrides, service, JobTools::Listed).expect("no name is taken");
    let promised = |name: &str| {
        let definitions = table.definitions();
        let tool = definitions.iter().find(|tool| tool.name == name).expect("listed");
        tool.output_schema.as_ref().expect("it has one")["properties"].get("next_steps").is_some()
            && tool.output_schema.as_ref().expect("it has one")["properties"].get("stdout_tail").is_none()
    };
    assert_eq!((promised("simulate"), promised("quick")), (false, true));
}

#[tokio::test]
async fn j_78_a_status_has_the_fields_that_mean_something() {
    let head = ["created_at", "elapsed_time_seconds"];
    for (state, also) in [
        (
            JobState::Queued,
            &["job_id", "name", "next_steps", "progress", "progress_message", "queue_position"][..],
        ),
        (JobState::Running, &["job_id", "name", "next_steps", "progress", "progress_message", "started_at"]),
        (
            JobState::Failed,
            &[
                "detail",
                "job_id",
                "name",
                "next_steps",
                "progress",
                "progress_message",
                "reason",
                "started_at",
            ],
        ),
        (JobState::Completed, &["exit_code", "job_id", "name", "next_steps", "started_at", "state_applied"]),
    ] {
        let service = MemoryService::new(state);
        let answer = call(&service, "get_job_status", json!({ "job_id": ID })).await;
        let status = fields(&answer);
        let completed = state.is_final().then_some("completed_at");
        let mut expect: Vec<_> =
            head.iter().chain(also).copied().chain(completed).chain(["status"]).collect();
        expect.sort_unstable();
        assert_eq!(keys(&status), expect);
        assert_eq!(
            (&status["status"], &status["elapsed_time_seconds"]),
            (&json!(state.as_str()), &json!(12.346))
        );
        assert!(
            answer.text.starts_with(&format!("Job {ID} ")) && answer.text.contains("12.3s"),
            "{}",
            answer.text
        );
        assert!(
            answer.text.contains(r#""job_id""#),
            "a client may show its model the text alone: {}",
            answer.text
        );
    }
}

/// The definitions are what a client reads, and the reports what it gets.
#[tokio::test]
async fn each_member_of_an_answer_is_in_the_schema_of_its_tool() {
    let service = MemoryService::new(JobState::Failed);
    service.asked().jobs = 1;
    let table = table(&service);
    for (tool, arguments) in [
        ("get_job_results", json!({ "job_id": ID })),
        ("get_job_logs", json!({ "job_id": ID })),
        ("list_jobs", json!({})),
        ("get_system_status", json!({})),
        ("list_state", json!({})),
    ] {
        let answer = fields(&call(&service, tool, arguments).await);
        let schema =
            table.definitions().iter().find(|known| known.name == tool).cloned().expect("it is listed");
        let properties = schema.output_schema.expect("all have one")["properties"].clone();
        for member in keys(&answer) {
            assert!(properties.get(member).is_some(), "{tool} promises no `{member}`");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_waited_for_no_longer_than_any_client_waits() {
    let service = MemoryService::new(JobState::Running);
    for (asked, waited) in [(json!(0), 0), (json!(2.5), 2500), (json!(60), 25_000), (json!(1e300), 25_000)] {
        call(&service, "get_job_status", json!({ "job_id": ID, "wait_seconds": asked })).await;
        assert_eq!(service.asked().waits.pop(), Some(Duration::from_millis(waited)));
    }
    let answer = call(&service, "get_job_status", json!({ "job_id": ID, "wait_seconds": -1 })).await;
    assert!(answer.is_error && answer.text.contains("`wait_seconds`"), "{}", answer.text);
}

#[tokio::test]
async fn every_tool_answers_in_the_form_that_it_promises() {
    let service = MemoryService::new(JobState::Running);
    service.asked().jobs = 2;
    service.asked().log = "line\n".to_owned();
    for (tool, arguments, expect) in [
        ("get_job_results", json!({ "job_id": ID }), "stdout_tail"),
        ("get_job_logs", json!({ "job_id": ID, "stream": "stderr", "offset": 3 }), "next_offset"),
        ("list_jobs", json!({}), "jobs"),
        ("get_system_status", json!({}), "system"),
        ("set_state", json!({ "field": "basis", "value": { "a": [1] } }), "updated_at"),
        ("get_state", json!({ "field": "basis" }), "value"),
        ("list_state", json!({}), "fields"),
        ("terminate_job", json!({ "job_id": ID }), "job_id"),
    ] {
        let answer = fields(&call(&service, tool, arguments).await);
        assert!(answer.get(expect).is_some(), "{tool}: {answer}");
    }
    let asked = service.asked();
    assert_eq!(asked.pages, [LogRequest { stream: LogStream::Stderr, offset: 3, max_bytes: 8000 }]);
    assert_eq!((&asked.lists[..], &asked.value), (&[(None, 20)][..], &Some(json!({ "a": [1] }))));
}

#[tokio::test]
async fn what_a_service_refuses_and_what_no_schema_allows_is_told() {
    let service = MemoryService::new(JobState::Completed);
    for (tool, arguments, expect) in [
        (
            "get_job_status",
            json!({ "job_id": "../../etc" }),
            "there is no job `../../etc`: a job id has 12 characters",
        ),
        ("get_job_status", json!({ "id": ID }), r#""job_id" is a required property"#),
        ("terminate_job", json!({ "job_id": ID }), "has ended already"),
        ("list_jobs", json!({ "limit": 0 }), "`limit`"),
        ("list_jobs", json!({ "limit": 1001 }), "`limit`"),
        ("list_jobs", json!({ "status_filter": "done" }), "`status_filter`"),
        ("get_job_logs", json!({ "job_id": ID, "offset": -1 }), "`offset`"),
        ("get_state", json!({ "field": "../x" }), "`field`"),
        ("get_state", json!({ "field": "unset" }), "was never set"),
        ("set_state", json!({ "field": "x" }), r#""value" is a required property"#),
    ] {
        let answer = call(&service, tool, arguments).await;
        assert!(answer.is_error && answer.text.contains(expect), "{tool}: {}", answer.text);
    }
    assert!(
        call(&service, "list_jobs", json!({ "limit": 1000.0, "status_filter": "lost" }))
            .await
            .structured
            .is_some()
    );
    assert_eq!(service.asked().lists, [(Some(JobState::Lost), 1000)]);
}

#[tokio::test]
async fn an_answer_is_bounded_and_says_where_the_rest_is() {
    let service = MemoryService::new(JobState::Completed);
    let huge = Value::from("\u{1}".repeat(30_000));
    service.asked().results = Some(huge.clone());
    service.asked().value = Some(huge);
    service.asked().jobs = 1000;
    service.asked().log = "\u{1b}\"".repeat(25_000);
    for (tool, arguments, expect) in [
        ("get_job_results", json!({ "job_id": ID }), "/data/jobs/x"),
        ("get_state", json!({ "field": "x" }), "/data/state/x.json"),
        ("list_jobs", json!({ "limit": 1000 }), "are left out"),
        ("get_system_status", json!({}), "are left out"),
        ("list_state", json!({}), "are left out"),
    ] {
        let answer = call(&service, tool, arguments).await;
        let told = fields(&answer);
        assert!(
            told["message"].as_str().is_some_and(|text| text.contains(expect)),
            "{tool}: {}",
            told["message"]
        );
        assert!(answer.text.contains(expect), "{tool}");
    }
    let page = fields(&call(&service, "get_job_logs", json!({ "job_id": ID, "max_bytes": 1_000_000 })).await);
    assert!(service.asked().pages[0].max_bytes <= 10_000);
    assert!(page["next_offset"].as_u64().is_some_and(|next| next > 0), "it goes on");
}

/// All characters of an answer, as its client gets them.
fn length(answer: &ToolAnswer) -> usize {
    Value::from(answer.to_json(unhang_core::revision::Revision::V2025November)).to_string().chars().count()
}

/// What results come to that are asked for part after part, each of which has to be bounded and to say what it is.
async fn in_parts(service: &Arc<MemoryService>) -> String {
    let (mut whole, mut offset) = (String::new(), 0);
    loop {
        let arguments = match offset {
            0 => json!({ "job_id": ID }),
            offset => json!({ "job_id": ID, "offset": offset }),
        };
        let answer = call(service, "get_job_results", arguments).await;
        assert!(length(&answer) <= ANSWER_CHARACTERS, "{} at {offset}", length(&answer));
        let told = fields(&answer);
        assert_eq!(told["offset"], offset, "{told:?}");
        let part = told["part"].as_str().expect("a part");
        assert!(answer.text.ends_with(part) && answer.content.is_empty());
        whole.push_str(part);
        let Some(next) = told.get("next_offset").and_then(Value::as_u64) else { break };
        let next_call = format!("get_job_results(job_id=\"{ID}\", offset={next})");
        assert!(answer.text.contains(&next_call), "{}", &answer.text[..600]);
        assert!(told["message"].as_str().is_some_and(|text| text.contains(&next_call)));
        offset = usize::try_from(next).expect("a place");
        assert_eq!(whole.chars().count(), offset);
    }
    whole
}

#[tokio::test]
async fn f_71_an_answer_that_is_too_long_comes_in_parts_that_say_so() {
    let service = MemoryService::new(JobState::Completed);
    let text: String = (0..9000).map(|number| format!("{number} \"é\"\n")).collect();
    let block = |text: &str| json!({ "type": "text", "text": text });
    let image = json!({ "type": "image", "mimeType": "image/png", "data": "A".repeat(50_000) });
    service.asked().answer = Some(json!({ "content": [block(&text), image, block("end")] }));
    let whole = in_parts(&service).await;
    let rest = whole.strip_prefix(&text).expect("the text comes first, as it is");
    assert!(rest.contains("[image, image/png, 5") && rest.ends_with("\nend"), "{rest}");
    assert!(rest.contains(&format!("job://{ID}")), "{rest}");
    service.asked().answer = Some(json!({ "content": [block(&text)], "isError": true }));
    let answer = call(&service, "get_job_results", json!({ "job_id": ID })).await;
    assert!(answer.is_error, "as its server said");
    // Neither too long to be content, nor short enough to be told twice.
    for (length_of_it, is_in_fields) in [(100, true), (15_000, false)] {
        let given = block(&"a".repeat(length_of_it));
        service.asked().answer = Some(json!({ "content": [given] }));
        let answer = call(&service, "get_job_results", json!({ "job_id": ID })).await;
        assert!(length(&answer) <= ANSWER_CHARACTERS, "{}", length(&answer));
        assert_eq!(answer.content[0].get(), given.to_string(), "as the server gave it");
        assert_eq!(fields(&answer)["results"].is_object(), is_in_fields);
        assert!(!answer.text.contains("left out"), "{}", answer.text);
    }
    // Past the end there is nothing, and that is said.
    let past = call(&service, "get_job_results", json!({ "job_id": ID, "offset": 1_000_000 })).await;
    assert!(past.text.contains("this is the last part"), "{}", past.text);
}

#[tokio::test]
async fn f_71_results_of_a_command_that_are_too_long_come_in_parts() {
    let service = MemoryService::new(JobState::Completed);
    let results = json!({ "rows": (0..12_000).map(|number| json!([number, "é"])).collect::<Vec<Value>>() });
    service.asked().results = Some(results.clone());
    assert_eq!(in_parts(&service).await, results.to_string());
    let answer = call(&service, "get_job_results", json!({ "job_id": ID })).await;
    assert!(answer.text.contains("It is the file /data/jobs/x/results.json."), "{}", &answer.text[..600]);
}

#[tokio::test]
async fn f_72_counts_are_told_by_kind() {
    let service = MemoryService::new(JobState::Running);
    service.asked().jobs = 1;
    let answer = call(&service, "get_system_status", json!({})).await;
    let expect = "1 job of commands and 0 calls of servers' tools run, 0 jobs wait for a slot; 1 of 4 slots are taken.";
    assert!(answer.text.starts_with(expect), "{}", answer.text);
}

#[test]
fn f_73_our_tools_are_listed_where_there_is_a_use_for_them() {
    let service = MemoryService::new(JobState::Queued);
    let listed = |file: &str, job_tools| {
        let loaded = Settings::read(file, "unhang.toml", Path::new("/"), &|_| None).expect("it is right");
        let service = Arc::clone(&service);
        let table = Table::new(loaded.settings.tools, &ModeOverrides::default(), service, job_tools);
        let table = table.expect("no name is taken");
        let definitions = table.definitions();
        let count = |listing| definitions.iter().filter(|tool| tool.listing == listing).count();
        [count(ToolListing::First), count(ToolListing::Last), count(ToolListing::Nowhere)]
    };
    let quick = "[tools.quick]\ncommand = [\"echo\"]\n";
    assert_eq!(listed("", JobTools::ListedWithTools), [0, 0, 9], "nothing can become a job");
    assert_eq!(listed("", JobTools::Listed), [0, 6, 3], "calls of servers can");
    assert_eq!(listed(quick, JobTools::ListedWithTools), [1, 6, 3]);
    assert_eq!(listed(FILE, JobTools::ListedWithTools), [2, 9, 0], "one uses the state");
}

#[test]
fn the_names_of_ours_are_taken() {
    let text = "[tools.get_job_status]\ncommand = [\"a\"]";
    let loaded = Settings::read(text, "unhang.toml", Path::new("/"), &|_| None).expect("it is right");
    let service = MemoryService::new(JobState::Queued);
    let told = Table::new(loaded.settings.tools, &ModeOverrides::default(), service, JobTools::Listed)
        .err()
        .expect("it is taken");
    assert!(told.contains("`get_job_status` is the name of a tool that unhang itself offers"), "{told}");
}
