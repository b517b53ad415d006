//! The commands, each in a file of its own.

use std::{panic, process::ExitCode};

use unhang::{client::ServerList, exit, process::file_limit};

use crate::arguments::{Arguments, Command};

mod adopt;
mod client;
mod completions;
mod conformance;
mod demo;
mod doctor;
mod engine;
pub(crate) mod first_minute;
mod job;
mod large_numbers;
mod login;
mod man;
mod serve;
mod state;
mod trust;
mod worker;
mod wrap;

/// Runs a command and returns its exit code. After a panic that is the exit code of a bug.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    // A write beyond `ulimit -f` becomes an error that unhang can report, and does not end this process (F-95).
    file_limit::ignore_signal();
    let verbose = arguments.verbose;
    let run = move || match arguments.command {
        Command::Wrap(wrap) => wrap::run(&wrap, verbose),
        Command::Adopt(adopt) => adopt::run(&adopt, verbose),
        Command::Job(job) => job::run(job, verbose),
        Command::State(state) => state::run(state, verbose),
        Command::Worker(worker) => worker::run(&worker, verbose),
        Command::Serve(serve) => serve::run(&serve, verbose),
        Command::Bridge(bridge) => serve::bridge(bridge, verbose),
        Command::Servers(servers) => client::servers(&servers, verbose),
        Command::Tools(tools) => client::tools(&tools, verbose),
        Command::Resources(listing) => client::list(ServerList::Resources, &listing, verbose),
        Command::Prompts(listing) => client::list(ServerList::Prompts, &listing, verbose),
        Command::Ping(listing) => client::ping(&listing, verbose),
        Command::Call(call) => client::call(&call, verbose),
        Command::Read(read) => client::read(&read, verbose),
        Command::Prompt(prompt) => client::prompt(&prompt, verbose),
        Command::Batch(batch) => client::batch(&batch, verbose),
        Command::Trust(trust) => trust::run(&trust, verbose),
        Command::Login(login) => login::login(&login, verbose),
        Command::Logout(logout) => login::logout(&logout, verbose),
        Command::Doctor(doctor) => doctor::run(&doctor, verbose),
        Command::Demo(demo) => demo::run(&demo),
        Command::Completions(completions) => completions::run(&completions),
        Command::Man(man) => man::run(&man),
        Command::ConformanceClient(client) => conformance::run(&client, verbose),
        Command::Zoo(zoo) => unhang_demo_servers::command(&zoo.words),
    };
    // The default hook has printed the panic already, so only the exit code is left to set.
    panic::catch_unwind(panic::AssertUnwindSafe(run)).unwrap_or(ExitCode::from(exit::BUG))
}
