//! End-to-end tests of the binary against real processes from the zoo, one file a promise.
//!
//! Each test runs in a [`harness::Sandbox`]: its own home, a cleared environment, and a marker that every process of the
//! test carries, so that at its end the sandbox can demand that none is left.

mod apart;
mod asking;
mod authorization;
mod bad_disk;
mod bad_input;
mod bad_jobs;
mod batches;
mod bench;
mod both_ways;
mod client_library;
mod combinations;
mod contract;
mod contract_commands;
mod contract_jobs;
mod corpus;
mod diagnostics;
mod doctor;
mod endings;
mod example_digester;
mod gateway;
mod gateway_access;
mod gateway_http;
mod gateway_metrics;
mod gateway_oauth;
mod gateway_routing;
mod gateway_shared;
mod guide;
mod harness;
mod hostile_clients;
mod job_commands;
mod jobs;
mod login;
mod manual;
mod processes;
mod promise_1_answered;
mod promise_2_clean_wire;
mod promise_3_drained;
mod promise_4_isolated;
mod promise_5_nothing_left_behind;
mod promise_6_restarted;
mod promise_7_durable;
mod promise_8_fair;
mod remote;
mod remote_faults;
mod remote_tls;
mod rooms;
mod serve;
mod smoke;
mod talk;
mod terminal;
mod zoo_jobs;
