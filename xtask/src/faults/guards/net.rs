//! The guards of `net`, in the order of its files.

use super::{SwitchedGuard, end_to_end, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "redirect-stays-at-home" [2]
        "A redirect to another origin is not followed, so that what is for one server goes to no other."
        end_to_end("remote_faults::redirects_lead_to_no_other_origin_and_not_round_for_ever");
    "http-body-bounded" [3]
        "An answer that comes whole is read up to the limit and no further."
        end_to_end("remote_faults::what_is_no_message_or_has_no_end_is_told");
    "endless-event-ended" [1]
        "An event that goes on and on far over the limit ends its stream, so that nobody waits for its end."
        end_to_end("remote_faults::what_is_no_message_or_has_no_end_is_told");
    "login-answer-limit" [1]
        "Each answer on the way to a token has a limit of time, so an authorization server that hangs hangs nobody else."
        end_to_end("login::what_cannot_be_trusted_is_refused_before_a_person_is_asked");
    "login-answer-bytes" [3]
        "Each answer on the way to a token has a limit of bytes, so one without end fills no memory."
        end_to_end("login::what_cannot_be_trusted_is_refused_before_a_person_is_asked");
    "renewals-end" [1]
        "After three tokens in a row that a server refused none is asked for any more, so nobody goes round in circles."
        end_to_end("authorization::a_server_that_refuses_every_token_has_the_last_word");
    "one-login-for-all" [8]
        "Who waited while another one was asking for a token takes what came of it, so many do not ask one after the other."
        end_to_end("authorization::many_refusals_that_come_to_nothing_ask_once");
    "asks-whoever-leads-next" [6]
        "What a gateway that ends has not taken is asked of the one that comes after it."
        unit("net", "http::tests::what_nobody_has_read_at_a_socket_is_asked_of_whoever_comes_next");
    "signatures-are-proven" [2]
        "A token that the authorization server has not signed lets nobody in."
        unit("net", "oauth::resource::tests::what_is_no_signature_of_theirs_lets_nobody_in");
    "issuer-is-ours" [2]
        "A token of another authorization server lets nobody in."
        unit("net", "oauth::resource::tests::a_token_is_good_for_us_and_for_its_time");
    "audience-is-us" [2]
        "A token that was given for another server lets nobody in."
        unit("net", "oauth::resource::tests::a_token_is_good_for_us_and_for_its_time");
    "tokens-end" [2]
        "A token that has expired lets nobody in."
        unit("net", "oauth::resource::tests::a_token_is_good_for_us_and_for_its_time");
    "tokens-begin" [2]
        "A token that is not good yet lets nobody in."
        unit("net", "oauth::resource::tests::a_token_is_good_for_us_and_for_its_time");
    "scopes-are-granted" [2]
        "A token that was not given for all that is needed lets nobody in."
        unit("net", "oauth::resource::tests::a_token_is_good_for_us_and_for_its_time");
    "keys-are-asked-for-seldom" [8]
        "However many tokens name keys that are not known, the authorization server is asked once a minute."
        end_to_end("gateway_oauth::only_tokens_that_were_given_for_us_let_in");
    "connections-bounded" [8]
        "There are at most so many connections at a time, whoever comes."
        unit("net", "serve::tests::there_are_so_many_connections_at_a_time");
    "connections-of-one-bounded" [8]
        "Of one address there are at most so many connections, so that others come in before anybody has shown a token."
        unit("net", "serve::tests::of_one_address_there_are_so_many_connections");
    "slow-handshake-ends" [8]
        "A connection whose client is slow with the handshake of TLS ends."
        unit("net", "serve::tests::who_is_slow_with_the_handshake_is_let_go");
    "deaf-connection-ends" [3]
        "A connection whose client takes nothing of its answer ends."
        unit("net", "serve::tests::who_does_not_read_is_let_go");
    "slow-head-ends" [8]
        "A connection whose client is slow with the head of a request ends."
        unit("net", "serve::tests::who_is_slow_with_a_head_is_let_go");
};
