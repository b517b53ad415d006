//! The zoo as a program of its own: `unhang-zoo zoo NAME ARGS...` does what `unhang-lab zoo NAME ARGS...` does, and so does
//! `unhang-zoo NAME ARGS...`.

fn main() -> std::process::ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "zoo") {
        words.remove(0);
    }
    unhang_zoo::command(&words)
}
