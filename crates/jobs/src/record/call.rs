//! The facts of a call that is a job: which process waits for the answer, and which process can have it after that one.
//!
//! Invariants
//!
//! - A call that has ended has neither ticket nor keeper nor a [`CallRecord::lost_with_holder`].
//! - A call with a keeper has a ticket too, its own or [`CallTicket::stand_in`]. An older unhang knows no keepers. It settles a call as soon
//!   as the holder has gone, unless the call has a ticket and its time is not over. So [`FORMAT`](super::FORMAT) stays: an older unhang
//!   still lists such a call and cancels it, and it finds no server with the stand-in's name.

use std::{fmt, io};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use unhang_proc::identity::{Identity, boot_id};

use super::ProcessRecord;

/// The record of a call: a server's tool works on the job, and a process waits for the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The server, as the configuration calls it.
    pub server: String,
    /// The tool, as the server calls it.
    pub tool: String,
    /// Whether the tool may be called once more without doing anything twice, as its server says.
    pub is_repeatable: bool,
    /// The process that waits for the answer. Without a ticket and a keeper no other process will ever have it.
    pub holder: Holder,
    /// The ticket with which another process can still get the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<CallTicket>,
    /// The process that stands by, and that has the answer waited for when the holder has gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<CallKeeper>,
    /// Why the answer is lost if the holder goes: the rest of a sentence for a person. `None` if nothing is known. A ticket outweighs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_with_holder: Option<String>,
    /// Whether no process of the server had the call when the job began. A keeper is named when one has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unsent: bool,
    /// The key that the same call has in a later session. `None` if no later session joins the job, or if a client has read its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasting_key: Option<String>,
    /// Whether the process that made the call has gone, and another one has gone on with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_passed_on: bool,
}

/// Returns the advice whether to call the tool again, for the end of a sentence about a call without an answer. `is_unsent` is
/// [`CallRecord::is_unsent`].
#[must_use]
pub fn repeat_advice(is_repeatable: bool, is_unsent: bool) -> &'static str {
    match (is_repeatable, is_unsent) {
        (true, false) => "the server declares that the call is safe to repeat",
        (true, true) => {
            "the server did not have the call when the job began and may never have got it, and it declares that \
             the call is safe to repeat"
        }
        (false, true) => {
            "the server did not have the call when the job began and may never have got it, so check before you \
             repeat it"
        }
        (false, false) => "the server may have carried out the call, so check before you repeat it",
    }
}

impl CallRecord {
    /// Returns the call as other machines may see it: without what only a process of this machine can use. A ticket can hold a secret.
    #[must_use]
    pub fn for_other_machines(&self) -> Self {
        Self { ticket: None, keeper: None, lost_with_holder: None, lasting_key: None, ..self.clone() }
    }

    /// Returns whether the call has a ticket with which a server can be asked for the answer.
    pub(crate) fn has_ticket(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| ticket.kept_by != STAND_IN)
    }
}

/// The means to get the answer of a call whose holder has gone: the server keeps the answer, under a name of its own.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct CallTicket {
    /// The server that keeps the answer, told from others of the same name.
    pub kept_by: String,
    /// The parameters of the request to that server. This crate does not read them. They can hold the name of a session, which is a
    /// secret: nothing shows them.
    pub details: Value,
    /// Whether the holder has let go of the call. The holder may live on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_free: bool,
}

impl fmt::Debug for CallTicket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CallTicket")
            .field("kept_by", &self.kept_by)
            .field("is_free", &self.is_free)
            .finish_non_exhaustive()
    }
}

/// The name of no server: those of servers are digests.
const STAND_IN: &str = "keeper";

impl CallTicket {
    /// Makes the ticket of a call with a keeper. An older unhang sees the ticket, and does not settle the call. The ticket leads to no answer.
    pub(crate) fn stand_in() -> Self {
        Self { kept_by: STAND_IN.to_owned(), details: Value::Null, is_free: false }
    }
}

/// The process that stands by for a call: when the holder has gone, it starts a process that resumes the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallKeeper {
    /// The process.
    #[serde(flatten)]
    pub identity: Holder,
    /// Whether the holder has left the call to it. The holder may live on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_free: bool,
}

/// A process of one boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The boot in which the identity means something.
    pub boot_id: String,
    /// The process.
    pub process: ProcessRecord,
}

impl Holder {
    /// Names a process of this boot.
    ///
    /// # Errors
    /// Fails with the system's error if the system does not tell which boot this is.
    pub fn here(process: Identity) -> io::Result<Self> {
        Ok(Self { boot_id: boot_id()?, process: process.into() })
    }

    /// Returns whether the process lives, as seen from this boot.
    pub(crate) fn lives_in(&self, boot_id: &str) -> bool {
        self.boot_id == boot_id && Identity::from(self.process).is_alive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    /// What an unhang without keepers reads.
    #[derive(Deserialize)]
    struct OlderCall {
        holder: Holder,
        ticket: Option<CallTicket>,
    }

    #[test]
    fn an_old_record_is_read_as_before_and_an_older_unhang_sees_a_ticket() {
        let holder = json!({ "boot_id": "boot", "process": { "pid": 7, "start": 70 } });
        let old = json!({ "server": "srv", "tool": "slow", "is_repeatable": true, "holder": holder });
        let mut call: CallRecord = from_value(old.clone()).unwrap();
        assert_eq!((&call.ticket, &call.keeper, call.has_ticket()), (&None, &None, false));
        assert_eq!(to_value(&call).unwrap(), old, "nothing is added to a call without a keeper");

        let identity = Holder { boot_id: "boot".to_owned(), process: ProcessRecord { pid: 8, start: 80 } };
        call.keeper = Some(CallKeeper { identity, is_free: false });
        call.ticket = Some(CallTicket::stand_in());
        let written = to_value(&call).unwrap();
        let keeper = json!({ "boot_id": "boot", "process": { "pid": 8, "start": 80 } });
        assert_eq!(written["keeper"], keeper);
        let older: OlderCall = from_value(written.clone()).unwrap();
        assert_eq!(older.holder, call.holder);
        assert!(older.ticket.is_some_and(|ticket| !ticket.is_free), "it leaves the call alone for its time");
        assert!(!call.has_ticket(), "nobody is asked for the answer");
        assert_eq!(from_value::<CallRecord>(written).unwrap(), call);
    }

    #[test]
    fn what_a_ticket_holds_is_shown_to_nobody() {
        let details = json!({ "stream": { "session": "secret-7" } });
        let ticket = CallTicket { kept_by: "srv-1".to_owned(), details, is_free: true };
        let shown = format!("{ticket:?}");
        assert!(shown.contains("srv-1") && !shown.contains("secret-7"), "{shown}");
    }

    #[test]
    fn other_machines_get_neither_the_ticket_nor_what_only_this_one_can_use() {
        let holder = Holder { boot_id: "boot".to_owned(), process: crate::testing::NOBODY };
        let shown = json!({ "server": "srv", "tool": "slow", "is_repeatable": true, "holder": holder });
        let mut whole = shown.clone();
        whole["ticket"] = json!({ "kept_by": "srv-1", "details": { "session": "secret-7" } });
        whole["keeper"] = json!(holder);
        whole["lost_with_holder"] = json!("its stream cannot be resumed");
        whole["lasting_key"] = json!("key");
        let call: CallRecord = from_value(whole).unwrap();
        assert!(call.ticket.is_some() && call.keeper.is_some() && call.lasting_key.is_some());
        assert_eq!(to_value(call.for_other_machines()).unwrap(), shown);
    }

    #[test]
    fn a_process_lives_in_its_own_boot_alone() {
        let own = Holder::here(Identity::own().unwrap()).unwrap();
        assert!(own.lives_in(&own.boot_id));
        assert!(!own.lives_in("another"));
        let gone = Holder { process: crate::testing::NOBODY, ..own.clone() };
        assert!(!gone.lives_in(&own.boot_id));
    }
}
