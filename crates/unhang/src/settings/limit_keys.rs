//! The keys of the limits of a server in the configuration file.

use super::keys::{COUNT, SettingKey, SettingKind, key};
use unhang_core::promotion::Promotion;

/// The keys of `[servers.NAME.limits]`.
pub(super) const LIMITS: &[SettingKey] = &[
    key("start-timeout", SettingKind::Duration, "The time from the start to the first answer. Default: 55s."),
    key(
        "request-timeout",
        SettingKind::Duration,
        "The limit of any request except tools/call. Default: 30s.",
    ),
    key("call-timeout", SettingKind::Duration, "The limit of a whole tools/call. Default: 5m."),
    key(
        "promote-after",
        SettingKind::DurationOr(&Promotion::WORDS),
        "When a tools/call becomes a job, in any case before its client's timeout; off: never. Default: \
         by-clock, which is 80 % of the client's clock, or 45s if that is not known.",
    ),
    key(
        "job-timeout",
        SettingKind::Duration,
        "The limit of a whole tools/call that has become a job. Default: 2h.",
    ),
    key(
        "busy-after",
        SettingKind::Duration,
        "How long a call may keep an instance of the server before the next call goes to another one, if \
         the server has `instances`. Default: 1s.",
    ),
    key(
        "eof-grace",
        SettingKind::Duration,
        "The time for calls in flight after the client has ended. Default: 5s.",
    ),
    key(
        "stop-grace",
        SettingKind::Duration,
        "The time between closing stdin, SIGTERM and SIGKILL. Default: 1s.",
    ),
    key("max-message", SettingKind::Size, "The size of one message in either direction. Default: 64MiB."),
    key(
        "max-in-flight",
        SettingKind::Whole(COUNT),
        "Requests to the server at the same time, of all clients of `unhang serve` together; other \
         requests wait for their turn. Default: 1000; over HTTP 200 at most.",
    ),
    key(
        "max-waiting",
        SettingKind::Whole(COUNT),
        "Requests that may wait for their turn at the server; unhang refuses further requests. Default: \
         1000.",
    ),
    key(
        "queue-bytes",
        SettingKind::Size,
        "Bytes that may wait for a client or a server that does not read. Default: 16MiB.",
    ),
    key(
        "restart-delay",
        SettingKind::Duration,
        "The pause before the first restart; it doubles up to 30s. Default: 250ms.",
    ),
    key(
        "breaker-failures",
        SettingKind::Whole(COUNT),
        "Failures in a row after which unhang stops using the server for a while. Default: 5.",
    ),
    key("breaker-cooldown", SettingKind::Duration, "The length of that pause. Default: 30s."),
    key(
        "health-interval",
        SettingKind::Duration,
        "The idle time after which unhang checks that the server still answers. Default: 30s.",
    ),
    key(
        "stderr-tail",
        SettingKind::Size,
        "The last bytes of stderr that unhang keeps for error messages. Default: 64KiB.",
    ),
    key("stderr-log", SettingKind::Size, "The size of the server's log on the disk. Default: 10MiB."),
];
