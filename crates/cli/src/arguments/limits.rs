//! The limits on the command line. Each is described once, here, for help, manual pages, completions and the reference.
//!
//! Invariants: the flag's name is the key in unhang.toml, and in capitals after `UNHANG_` the environment variable. A text ends with the
//! default, which a test compares with `unhang_core::config`. A limit that was not given stays unset.

use std::time::Duration;

use clap::Args;
use unhang::{
    limits::Limits,
    promotion::Promotion,
    settings::LimitSettings,
    units::{parse_duration, parse_size},
};

use super::number::whole_number;

/// What a call and its answer may take, whoever makes it.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
struct CallLimits {
    /// Limit of a whole `tools/call`; progress does not extend it [default: 5m]
    #[arg(long, env = "UNHANG_CALL_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    call_timeout: Option<Duration>,
    /// Size of one message in either direction [default: 64MiB]
    #[arg(long, env = "UNHANG_MAX_MESSAGE", hide_env = true, value_name = "SIZE", value_parser = parse_size)]
    max_message: Option<u64>,
}

/// When a call becomes a job, what that may take, and what a slow call means for other calls.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
struct PromotionLimits {
    /// When a `tools/call` becomes a job, in any case before its client's timeout: a time, `off` or `by-clock` [default: by-clock,
    /// which is 80 % of the client's clock, or 45s if that is not known]
    #[arg(long, env = "UNHANG_PROMOTE_AFTER", hide_env = true, value_name = "TIME")]
    promote_after: Option<Promotion>,
    /// Limit of a whole `tools/call` that has become a job [default: 2h]
    #[arg(long, env = "UNHANG_JOB_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    job_timeout: Option<Duration>,
    /// Whether a repeated call with the same arguments joins the job of the first call and does not run twice, if its tool
    /// declares that it is safe to repeat [default: false]
    #[arg(long, env = "UNHANG_JOIN_SAME_CALL", hide_env = true, value_name = "BOOL")]
    join_same_call: Option<bool>,
    /// How long a call may keep an instance of a server before the next call goes to another one, if the server has `instances`
    /// [default: 1s]
    #[arg(long, env = "UNHANG_BUSY_AFTER", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    busy_after: Option<Duration>,
}

/// What a server may take to start, to answer and to stop.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
struct ServerLimits {
    /// Time from the start of a server to its first answer [default: 55s]
    #[arg(long, env = "UNHANG_START_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    start_timeout: Option<Duration>,
    /// Limit of any request except `tools/call`; a list with all its pages counts as one request [default: 30s]
    #[arg(long, env = "UNHANG_REQUEST_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    request_timeout: Option<Duration>,
    /// Time between closing a server's stdin, SIGTERM and SIGKILL [default: 1s]
    #[arg(long, env = "UNHANG_STOP_GRACE", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    stop_grace: Option<Duration>,
}

/// What one client may ask for and leave waiting.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
struct ClientLimits {
    /// Time for calls in flight after the client's stdin ended [default: 5s]
    #[arg(long, env = "UNHANG_EOF_GRACE", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    eof_grace: Option<Duration>,
    /// Requests of one client at the same time [default: 1000]
    #[arg(long, env = "UNHANG_MAX_IN_FLIGHT", hide_env = true, value_name = "COUNT", value_parser = whole_number::<u32>(1, u32::MAX))]
    max_in_flight: Option<u32>,
    /// Bytes that may wait for a client or a server that does not read [default: 16MiB]
    #[arg(long, env = "UNHANG_QUEUE_BYTES", hide_env = true, value_name = "SIZE", value_parser = parse_size)]
    queue_bytes: Option<u64>,
}

/// The limits of a command that asks servers itself.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AskingLimits {
    #[command(flatten)]
    call: CallLimits,
    #[command(flatten)]
    server: ServerLimits,
}

/// The limits of a session with a client.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SessionLimits {
    #[command(flatten)]
    call: CallLimits,
    #[command(flatten)]
    promotion: PromotionLimits,
    #[command(flatten)]
    server: ServerLimits,
    #[command(flatten)]
    client: ClientLimits,
}

/// The limits of the guard: those of its client, those of its server, and those of its watch over it.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct GuardLimits {
    #[command(flatten)]
    call: CallLimits,
    #[command(flatten)]
    promotion: PromotionLimits,
    #[command(flatten)]
    server: ServerLimits,
    #[command(flatten)]
    client: ClientLimits,
    /// Pause before the first restart; it doubles up to 30s [default: 250ms]
    #[arg(long, env = "UNHANG_RESTART_DELAY", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    restart_delay: Option<Duration>,
    /// Failures in a row after which unhang stops using a server for a while [default: 5]
    #[arg(long, env = "UNHANG_BREAKER_FAILURES", hide_env = true, value_name = "COUNT", value_parser = whole_number::<u32>(1, u32::MAX))]
    breaker_failures: Option<u32>,
    /// Length of that pause [default: 30s]
    #[arg(long, env = "UNHANG_BREAKER_COOLDOWN", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    breaker_cooldown: Option<Duration>,
    /// Idle time after which unhang checks that a server still answers [default: 30s]
    #[arg(long, env = "UNHANG_HEALTH_INTERVAL", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    health_interval: Option<Duration>,
    /// Last bytes of a server's stderr that unhang keeps for error messages [default: 64KiB]
    #[arg(long, env = "UNHANG_STDERR_TAIL", hide_env = true, value_name = "SIZE", value_parser = parse_size)]
    stderr_tail: Option<u64>,
    /// Size of a server's log on disk [default: 10MiB]
    #[arg(long, env = "UNHANG_STDERR_LOG", hide_env = true, value_name = "SIZE", value_parser = parse_size)]
    stderr_log: Option<u64>,
    /// Hold back every notification to the client while a call runs
    #[arg(long, env = "UNHANG_QUIET", hide_env = true, value_parser = parse_switch)]
    quiet: bool,
}

/// Reads the value that an environment variable gives for a flag without a value.
fn parse_switch(text: &str) -> Result<bool, String> {
    match &*text.to_ascii_lowercase() {
        "true" | "yes" | "on" | "1" | "t" | "y" => Ok(true),
        "false" | "no" | "off" | "0" | "f" | "n" => Ok(false),
        _ => Err(format!(
            "`{text}` is neither true nor false; write true, yes, on or 1, or false, no, off or 0"
        )),
    }
}

impl CallLimits {
    fn say(self, settings: &mut LimitSettings) {
        settings.call_timeout = self.call_timeout;
        settings.max_message = self.max_message;
    }
}

impl PromotionLimits {
    fn say(self, settings: &mut LimitSettings) {
        settings.promote_after = self.promote_after;
        settings.job_timeout = self.job_timeout;
        settings.join_same_call = self.join_same_call;
        settings.busy_after = self.busy_after;
    }
}

impl ServerLimits {
    fn say(self, settings: &mut LimitSettings) {
        settings.start_timeout = self.start_timeout;
        settings.request_timeout = self.request_timeout;
        settings.stop_grace = self.stop_grace;
    }
}

impl ClientLimits {
    fn say(self, settings: &mut LimitSettings) {
        settings.eof_grace = self.eof_grace;
        settings.max_in_flight = self.max_in_flight;
        settings.queue_bytes = self.queue_bytes;
    }
}

impl AskingLimits {
    /// Returns the limits as settings, in the form that a file has.
    pub(crate) fn settings(self) -> LimitSettings {
        let mut settings = LimitSettings::default();
        self.call.say(&mut settings);
        self.server.say(&mut settings);
        settings
    }
}

impl SessionLimits {
    /// Returns the limits as settings, in the form that a file has.
    pub(crate) fn settings(self) -> LimitSettings {
        let mut settings = LimitSettings::default();
        self.call.say(&mut settings);
        self.promotion.say(&mut settings);
        self.server.say(&mut settings);
        self.client.say(&mut settings);
        settings
    }

    /// Returns the limits that these arguments set, with the defaults of all others.
    pub(crate) fn limits(self) -> Limits {
        over_the_defaults(&self.settings())
    }
}

impl GuardLimits {
    /// Returns the limits that these arguments set, with the defaults of all others.
    pub(crate) fn limits(self) -> Limits {
        let Self { restart_delay, breaker_failures, breaker_cooldown, .. } = self;
        let Self { health_interval, stderr_tail, stderr_log, quiet, .. } = self;
        let mut settings = LimitSettings {
            restart_delay,
            breaker_failures,
            breaker_cooldown,
            health_interval,
            stderr_tail,
            stderr_log,
            quiet: quiet.then_some(true),
            ..LimitSettings::default()
        };
        self.call.say(&mut settings);
        self.promotion.say(&mut settings);
        self.server.say(&mut settings);
        self.client.say(&mut settings);
        over_the_defaults(&settings)
    }
}

fn over_the_defaults(settings: &LimitSettings) -> Limits {
    let mut limits = Limits::default();
    settings.apply(&mut limits);
    limits
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use clap::{CommandFactory, Parser};
    use unhang::jobs::{engine::EngineOptions, shims::ShimCommand, submission::LOG_LIMIT};

    use super::*;
    use crate::arguments::{Arguments, Command, jobs::JobVerb};

    /// The flags of a command under `Limits` that have a default, with it, as its help has it.
    fn defaults(command: &str) -> Vec<String> {
        let whole = Arguments::command();
        let command = whole.find_subcommand(command).expect("a command");
        let limits = command.get_arguments().filter(|argument| argument.get_help_heading() == Some("Limits"));
        let flag = |argument: &clap::Arg| {
            let help = argument.get_help()?.to_string();
            let (_, default) = help.strip_suffix(']')?.rsplit_once("[default: ")?;
            let is_value = default.starts_with(|first: char| first.is_ascii_digit());
            Some(format!("--{}={default}", argument.get_long()?)).filter(|_| is_value)
        };
        limits.filter_map(flag).collect()
    }

    fn typed(words: &[&str], flags: Vec<String>, rest: &[&str]) -> Command {
        let words = ["unhang"].iter().chain(words).map(|word| (*word).to_owned());
        let words = words.chain(flags).chain(rest.iter().map(|word| (*word).to_owned()));
        Arguments::try_parse_from(words).unwrap().command
    }

    #[test]
    fn the_defaults_in_the_texts_are_those_of_the_library() {
        let said = defaults("wrap");
        assert_eq!(said.len(), 16, "{said:?}");
        for flags in [said, Vec::new()] {
            let Command::Wrap(wrap) = typed(&["wrap"], flags, &["--", "true"]) else { panic!("not a wrap") };
            assert_eq!(wrap.limits.limits(), Limits::default());
        }
        for flags in [Vec::new(), defaults("serve")] {
            let Command::Serve(serve) = typed(&["serve"], flags, &[]) else { panic!("not a serve") };
            assert_eq!(serve.gateway.limits.limits(), Limits::default());
        }
    }

    #[test]
    fn a_switch_says_what_it_takes() {
        for (text, expect) in [("true", true), ("ON", true), ("1", true), ("no", false), ("0", false)] {
            assert_eq!(parse_switch(text), Ok(expect), "{text}");
        }
        let told = parse_switch("maybe").unwrap_err();
        assert!(told.contains("write true, yes, on or 1, or false, no, off or 0"), "{told}");
    }

    #[test]
    fn when_calls_become_jobs_can_be_typed() {
        let flags = ["--promote-after=off", "--job-timeout=3h", "--join-same-call=true"].map(str::to_owned);
        let expect = Limits {
            promote_after: Promotion::Off,
            job_timeout: Duration::from_secs(3 * 60 * 60),
            join_same_call: true,
            ..Limits::default()
        };
        let Command::Wrap(wrap) = typed(&["wrap"], flags.to_vec(), &["--", "true"]) else {
            panic!("not a wrap")
        };
        assert_eq!(wrap.limits.limits(), expect);
        let Command::Serve(serve) = typed(&["serve"], flags.to_vec(), &[]) else { panic!("not a serve") };
        assert_eq!(serve.gateway.limits.limits(), expect);
        for (flag, why) in [
            ("--promote-after=30", "needs a unit: 30ms, 30s or 30m?; or write `off` or `by-clock`"),
            ("--job-timeout=off", "`off` is not a length of time"),
        ] {
            let told = Arguments::try_parse_from(["unhang", "wrap", flag, "--", "true"]).unwrap_err();
            assert!(told.to_string().contains(why), "{told}");
        }
    }

    #[test]
    fn the_defaults_of_jobs_in_the_texts_are_those_of_the_library() {
        let flags = defaults("job");
        assert_eq!(flags.len(), 2, "{flags:?}");
        let log_limit = vec!["--log-limit=8MiB".to_owned()];
        let job = typed(&["job", "run"], [flags, log_limit].concat(), &["--", "true"]);
        let Command::Job(job) = job else { panic!("not a job") };
        let options = || EngineOptions::new(PathBuf::new(), ShimCommand::this_program());
        let (mut said, unsaid) = (options(), options());
        job.common.limits.settings().apply(&mut said);
        assert_eq!((said.retention, said.rules.memory_limit), (unsaid.retention, unsaid.rules.memory_limit));
        let JobVerb::Run(run) = job.verb else { panic!("not a run") };
        assert_eq!(run.log_limit, Some(LOG_LIMIT));
    }

    #[test]
    fn a_limit_is_described_in_one_way_wherever_it_can_be_typed() {
        let whole = Arguments::command();
        let mut described = BTreeMap::new();
        for command in whole.get_subcommands() {
            let limits = command.get_arguments().filter(|argument| argument.get_help_heading().is_some());
            for limit in limits {
                let name = limit.get_long().expect("a flag");
                let variable = format!("UNHANG_{}", name.to_uppercase().replace('-', "_"));
                assert_eq!(limit.get_env().and_then(|name| name.to_str()), Some(variable.as_str()));
                let text = limit.get_help().expect("a text").to_string();
                let known = described.entry(name).or_insert_with(|| text.clone());
                assert_eq!(*known, text, "--{name} of {}", command.get_name());
            }
        }
        assert!(described.len() > 15, "{described:?}");
    }
}
