//! `layerlet canary --url` against servers with planted faults: each must be found, and a sound one
//! passes.

mod common;

use common::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tiny_http::{Request, Response, Server};

/// What is wrong with a server.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Another answer as soon as somebody else asks at the same time.
    OthersShow,
    /// Sums are one too large.
    WrongSums,
    /// It thinks something else every other time.
    Reasoning,
    /// Some requests get no answer.
    Busy,
    /// It wants a key.
    Locked,
}

/// A server that answers by rule, on a port of its own. Its threads end with the test.
fn serve(fault: Fault) -> String {
    let server = Arc::new(Server::http("127.0.0.1:0").expect("a port"));
    let url = format!("http://{}", server.server_addr());
    let (flying, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..8 {
        let (server, flying, asked) = (server.clone(), flying.clone(), asked.clone());
        thread::spawn(move || {
            while let Ok(request) = server.recv() {
                flying.fetch_add(1, Ordering::SeqCst);
                let nth = asked.fetch_add(1, Ordering::SeqCst);
                // Long enough for a second request to arrive while this one is answered.
                if fault == Fault::OthersShow {
                    thread::sleep(std::time::Duration::from_millis(3));
                }
                let alone = flying.load(Ordering::SeqCst) == 1;
                reply(request, fault, nth, alone);
                flying.fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
    url
}

fn reply(mut request: Request, fault: Fault, nth: usize, alone: bool) {
    let key = (request.headers().iter())
        .find(|h| h.field.equiv("authorization"))
        .map(|h| h.value.as_str().to_string());
    let mut body = String::new();
    request
        .as_reader()
        .read_to_string(&mut body)
        .expect("a body");
    let (status, answer) = match (request.url(), fault) {
        (_, Fault::Locked) if key.as_deref() != Some("Bearer open sesame") => {
            (401, json!({"error": {"message": "who are you?"}}))
        }
        ("/v1/models", _) => (200, json!({"data": [{"id": "rule"}]})),
        (_, Fault::Busy) if nth % 7 == 3 => (503, json!({"error": {"message": "too many"}})),
        ("/v1/chat/completions", _) => (200, completion(&body, fault, nth, alone)),
        (other, _) => panic!("nobody asks for {other}"),
    };
    let response = Response::from_string(answer.to_string()).with_status_code(status);
    // A client that has gone is no fault of the server's.
    let _ = request.respond(response);
}

fn completion(body: &str, fault: Fault, nth: usize, alone: bool) -> Value {
    let asked: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(
        (&asked["model"], &asked["temperature"]),
        (&json!("rule"), &json!(0))
    );
    let question = asked["messages"][0]["content"].as_str().expect("text");
    let mut said = answer(question, u64::from(fault == Fault::WrongSums));
    if fault == Fault::OthersShow && !alone {
        said.push('.');
    }
    let thought = match fault == Fault::Reasoning && nth % 2 == 1 {
        true => "Hm.",
        false => "So.",
    };
    let message = json!({"role": "assistant", "content": said, "reasoning_content": thought});
    json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).expect("the words before");
    rest.split_once(after).map_or(rest, |(found, _)| found)
}

/// The right answer to any question of the field, and `off` more to a sum.
fn answer(question: &str, off: u64) -> String {
    if question.contains("JSON") {
        between(question, "else: ", "\n").into()
    } else if question.contains("colours") {
        between(question, "colours: ", ".").into()
    } else if question.contains("Copy") {
        between(question, "else: ", "\n").into()
    } else if question.contains("+") {
        let sum = between(question, "What is ", "?");
        let (a, b) = sum.split_once(" + ").expect("two numbers");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        (number(a) + number(b) + off).to_string()
    } else {
        let line = between(question, "counted in line ", "?");
        let line = between(question, &format!("Line {line}: "), "\n");
        between(line, "counted ", " birds").into()
    }
}

/// The report of a run that fails, or of one that does not.
fn report(args: &[&str], passes: bool) -> Value {
    let output = layerlet(&[&["canary", "--json"], args].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), passes, "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"))
}

/// Kinds of questions with a problem of this sort.
fn kinds(report: &Value, what: &str) -> Vec<String> {
    let questions = report["questions"].as_array().expect("a list").iter();
    let with = questions.filter(|q| {
        let problems = q["problems"].as_array().expect("a list");
        problems.iter().any(|p| p["what"] == what)
    });
    let mut kinds: Vec<String> = with
        .map(|q| q["kind"].as_str().expect("a kind").to_string())
        .collect();
    kinds.dedup();
    kinds
}

const ALL: [&str; 5] = ["json", "colours", "copy", "arithmetic", "long context"];

#[test]
fn a_sound_server_passes() {
    let url = serve(Fault::None);
    let found = report(&["--url", &format!("{url}/v1/"), "--repeats", "3"], true);
    assert_eq!(found["servers"], json!([{"url": url, "model": "rule"}]));
    let questions = found["questions"].as_array().expect("a list");
    assert_eq!(questions.len(), 15);
    for question in questions {
        let given = question["answers"].as_array().expect("a list");
        assert_eq!(given.len(), 1, "{question}");
        assert_eq!(given[0]["times"], json!({"1": 3, "8": 3}));
        assert_eq!(given[0]["right"], true);
    }
    let table = stdout(&["canary", "--url", &url, "--repeats", "1"]);
    for word in ["| server", "varying", "long context", &url] {
        assert!(table.contains(word), "no {word:?} in\n{table}");
    }
}

#[test]
fn an_answer_that_others_change_is_found() {
    let url = serve(Fault::OthersShow);
    // Alone everything is well.
    report(
        &["--url", &url, "--concurrency", "1", "--repeats", "2"],
        true,
    );
    let found = report(&["--url", &url, "--concurrency", "1,8"], false);
    assert!(!kinds(&found, "varying").is_empty(), "{found}");
    assert!(kinds(&found, "failed").is_empty(), "{found}");
}

#[test]
fn wrong_answers_are_found_and_shown() {
    let url = serve(Fault::WrongSums);
    let found = report(&["--url", &url, "--repeats", "2"], false);
    assert_eq!(kinds(&found, "wrong"), ["arithmetic"]);
    assert!(kinds(&found, "varying").is_empty());
    let output = layerlet(&[
        "canary",
        "--url",
        &url,
        "--repeats",
        "1",
        "--concurrency",
        "1",
    ]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("arithmetic: What is "), "{shown}");
    assert!(shown.contains("1 wrong answers"), "{shown}");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("3 of 15 canaries fail"), "{errors}");
}

#[test]
fn other_thoughts_are_another_answer() {
    let url = serve(Fault::Reasoning);
    let found = report(
        &["--url", &url, "--concurrency", "1", "--repeats", "4"],
        false,
    );
    assert_eq!(kinds(&found, "varying"), ALL);
    assert!(kinds(&found, "wrong").is_empty());
}

#[test]
fn a_request_without_an_answer_is_a_failure() {
    let url = serve(Fault::Busy);
    let found = report(
        &["--url", &url, "--concurrency", "2", "--repeats", "2"],
        false,
    );
    assert!(!kinds(&found, "failed").is_empty());
    assert!(found.to_string().contains("status 503"), "{found}");
    assert!(found.to_string().contains("too many"), "{found}");
}

#[test]
fn two_servers_that_differ_are_told_apart() {
    let (sound, wrong) = (serve(Fault::None), serve(Fault::WrongSums));
    let both = ["--url", &sound, "--url", &wrong, "--repeats", "1"];
    let found = report(&both, false);
    assert_eq!(kinds(&found, "unlike_first"), ["arithmetic"]);
    let blamed = found["questions"].as_array().expect("a list").iter();
    for problem in blamed.flat_map(|q| q["problems"].as_array().expect("a list")) {
        assert_eq!(problem["server"], json!(wrong));
    }
    let again = serve(Fault::None);
    report(&["--url", &sound, "--url", &again, "--repeats", "1"], true);
}

#[test]
fn keys_and_files_of_questions() {
    let url = serve(Fault::Locked);
    let args = ["canary", "--url", &url, "--repeats", "1"];
    refused(&args, 1, &["/v1/models", "status 401", "who are you?"]);
    stdout(&[&args[..], &["--api-key", "open sesame"]].concat());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("questions.json");
    let ask = json!({
        "messages": [{"role": "user", "content": "What is 1 + 2?"}], "answer": "3",
    });
    std::fs::write(&path, json!({"sums": [ask]}).to_string()).unwrap();
    let path = path.display().to_string();
    let url = serve(Fault::None);
    let found = report(&["--url", &url, "--canaries", &path], true);
    assert_eq!(found["questions"][0]["kind"], "sums");
    let url = serve(Fault::WrongSums);
    let found = report(&["--url", &url, "--canaries", &path], false);
    assert_eq!(kinds(&found, "wrong"), ["sums"]);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let url = "http://127.0.0.1:1";
    refused(
        &["canary", "--url", url],
        1,
        &["--url", "127.0.0.1:1/v1/models"],
    );
    let named = [
        "canary",
        "--url",
        url,
        "--served-model",
        "x",
        "--repeats",
        "1",
    ];
    let output = layerlet(&named);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("2 times, first "), "{shown}");
    let extra = ["canary", "--url", url, "--extra", "[1]"];
    refused(&extra, 1, &["--extra", "JSON object"]);
    refused(
        &["canary", "--url", url, "--concurrency", "0"],
        2,
        &["--concurrency"],
    );
    refused(&["canary", "--extra", "{}"], 2, &["--url"]);
}
