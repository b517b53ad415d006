//! The zoo as a program of its own: `unhang-zoo zoo NAME ARGS...` does what `unhang zoo NAME ARGS...` does.

fn main() -> std::process::ExitCode {
    unhang_zoo::command(&std::env::args().skip(2).collect::<Vec<_>>())
}
