//! Tasks with which servers go on with calls, as far as they can outlive us: the data with which another process can ask for one.
//!
//! ```text
//! TaskPoller ─ TaskNews ─► the keeper of the call: writes down the ServerTask
//! another process ─ Servers::holder_of, take_up ─ TaskPoller
//! ```
//!
//! Invariants
//!
//! - The data that is written down has nothing that could be secret. Of what a client has put into its call, it has the client's name and
//!   capabilities, if there is room for them.
//! - A task is asked for at the server that has it, and not at another server of the same name.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use unhang_bridge::{
    Era,
    params::{CLIENT_CAPABILITIES, CLIENT_INFO, Signature},
    tasks::{self, Dialect},
};
use unhang_wire::Json;

use unhang_core::{digest::digest, revision::Revision};
use unhang_upstream::client::{Endpoint, RequestSignature};

/// The most bytes of a client's description that are kept with a task. Most clients have a few hundred.
const CLIENT_LIMIT: usize = 8 << 10;

/// Returns whether a client's description of so many bytes can be kept.
pub fn has_room(said: usize) -> bool {
    said <= CLIENT_LIMIT
}

/// A server's task, and the data that is needed to ask for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerTask {
    /// The server's name for the task.
    pub id: String,
    /// The dialect of tasks that the server speaks.
    dialect: StoredDialect,
    /// The client as whom the server was asked, if the server hears that with every request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<CallerSignature>,
}

/// [`Dialect`], as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoredDialect {
    Core,
    Extension,
}

impl From<Dialect> for StoredDialect {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Core => StoredDialect::Core,
            Dialect::Extension => StoredDialect::Extension,
        }
    }
}

impl From<StoredDialect> for Dialect {
    fn from(spoken: StoredDialect) -> Self {
        match spoken {
            StoredDialect::Core => Dialect::Core,
            StoredDialect::Extension => Dialect::Extension,
        }
    }
}

/// The client's description of itself in a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CallerSignature {
    info: Value,
    capabilities: Value,
}

impl ServerTask {
    /// Makes the data for a task of a call that was signed like this.
    pub(super) fn new(id: &str, dialect: Dialect, signed: &RequestSignature, meta: Option<&str>) -> Self {
        let said = match signed {
            _ if dialect == Dialect::Core => None,
            RequestSignature::ByUs => None,
            RequestSignature::By(signature) => {
                Some((signature.client_info.clone(), signature.client_capabilities.clone()))
            }
            RequestSignature::Already => meta.and_then(|meta| {
                let meta = Json::new(meta.as_bytes())?;
                let said = |name| meta.member(name).map(|said| said.get().to_owned());
                said(CLIENT_INFO).zip(said(CLIENT_CAPABILITIES))
            }),
        };
        let said = said.filter(|(info, capabilities)| has_room(info.len() + capabilities.len()));
        let client = said.and_then(|(info, capabilities)| {
            let read = |text: &str| serde_json::from_str(text).ok();
            Some(CallerSignature { info: read(&info)?, capabilities: read(&capabilities)? })
        });
        Self { id: id.to_owned(), dialect: dialect.into(), client }
    }

    /// Returns the era of the server that has the task.
    pub(super) fn era(&self) -> Era {
        match self.dialect {
            StoredDialect::Core => Era::Legacy,
            StoredDialect::Extension => Era::Modern,
        }
    }

    /// Returns the dialect of tasks that the server speaks.
    pub(super) fn dialect(&self) -> Dialect {
        self.dialect.into()
    }

    /// Returns the signature with which the server is asked for the task.
    pub(super) fn signed(&self) -> RequestSignature {
        if self.dialect == StoredDialect::Core {
            return RequestSignature::ByUs;
        }
        let (info, capabilities) = match &self.client {
            Some(client) => (client.info.clone(), client.capabilities.to_string()),
            None => (json!({ "name": "unhang", "version": env!("CARGO_PKG_VERSION") }), "{}".to_owned()),
        };
        RequestSignature::By(Arc::new(Signature {
            revision: Revision::V2026July.name(),
            client_info: info.to_string(),
            client_capabilities: tasks::declare(&capabilities),
            log_level: None,
        }))
    }
}

/// Returns a digest of the way to a server: the same in every run that reaches the server in this way.
pub(super) fn server_identity(endpoint: &Endpoint) -> String {
    let mut parts: Vec<&[u8]> = Vec::new();
    match endpoint {
        Endpoint::Http(server) => {
            parts.extend([b"http".as_slice(), server.address.url.as_bytes()]);
            // A caller with other headers is somebody else there, and has no such task.
            for (name, value) in &server.address.headers {
                parts.extend([name.as_bytes(), value.as_bytes()]);
            }
        }
        Endpoint::Stdio(server) => {
            let folder =
                server.folder.as_deref().map_or(&[][..], |folder| folder.as_os_str().as_encoded_bytes());
            parts.extend([b"stdio".as_slice(), server.program.as_encoded_bytes(), folder]);
            parts.extend(server.arguments.iter().map(|argument| argument.as_encoded_bytes()));
        }
    }
    HEXLOWER.encode(&digest::<16>(parts))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Servers, testing::mute},
        *,
    };
    use unhang_upstream::client::Address;

    fn signature(capabilities: &str) -> RequestSignature {
        RequestSignature::By(Arc::new(Signature {
            revision: Revision::V2026July.name(),
            client_info: r#"{"name":"c"}"#.to_owned(),
            client_capabilities: capabilities.to_owned(),
            log_level: None,
        }))
    }

    /// What the server is told of the client when the task is asked for again.
    fn told(task: &ServerTask) -> (String, String) {
        let written = serde_json::to_string(task).unwrap();
        let task: ServerTask = serde_json::from_str(&written).unwrap();
        match task.signed() {
            RequestSignature::By(signature) => {
                (signature.client_info.clone(), signature.client_capabilities.clone())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_task_is_asked_for_again_as_whoever_has_called() {
        let by = ServerTask::new("7", Dialect::Extension, &signature(r#"{"roots":{}}"#), None);
        let (info, capabilities) = told(&by);
        assert_eq!(info, r#"{"name":"c"}"#);
        assert!(capabilities.contains(r#""roots":{}"#) && capabilities.contains(tasks::EXTENSION));

        let meta = json!({
            CLIENT_INFO: { "name": "d" }, CLIENT_CAPABILITIES: { "elicitation": {} },
            "authorization": "Bearer secret", "traceparent": "00-1",
        });
        let already =
            ServerTask::new("7", Dialect::Extension, &RequestSignature::Already, Some(&meta.to_string()));
        let written = serde_json::to_string(&already).unwrap();
        assert!(!written.contains("secret") && !written.contains("traceparent"), "{written}");
        assert_eq!(told(&already).0, r#"{"name":"d"}"#);
        assert!(told(&already).1.contains("elicitation"));

        let core = ServerTask::new("7", Dialect::Core, &signature("{}"), None);
        assert_eq!(serde_json::to_value(&core).unwrap(), json!({ "id": "7", "dialect": "core" }));
        assert!(
            matches!(core.signed(), RequestSignature::ByUs),
            "it has heard it at the beginning of its session"
        );
    }

    #[tokio::test]
    async fn a_server_is_who_is_reached_in_the_same_way_as_the_same_caller() {
        let (_mute, entry) = mute();
        let started = |change: fn(&mut Address)| {
            let mut entry = entry.clone();
            if let Endpoint::Http(server) = &mut entry.spec.endpoint {
                change(&mut server.address);
            }
            Servers::start(vec![entry].into())
        };
        let servers = started(|_| {});
        let kept_by = server_identity(servers.at(0).expect("it is there").endpoint());
        assert!(!kept_by.contains("127.0.0.1"));
        assert_eq!(started(|_| {}).holder_of("srv", &kept_by), Some(0), "also in the next run");
        assert_eq!(servers.holder_of("other", &kept_by), None);
        let other = started(|address| address.headers.push(("authorization".to_owned(), "b".to_owned())));
        assert_eq!(other.holder_of("srv", &kept_by), None, "somebody else has no such task");
        let leader = started(|address| address.socket = Some("/nowhere".into()));
        assert_eq!(leader.holder_of("srv", &kept_by), None, "who leads has servers, and is none");
        assert!(servers.at(0).expect("it is there").outlives_us());
        assert!(!leader.at(0).expect("it is there").outlives_us());
    }

    #[test]
    fn what_a_client_says_of_itself_is_kept_in_bounds() {
        let long = json!({ "experimental": { "x": "y".repeat(CLIENT_LIMIT) } }).to_string();
        let task = ServerTask::new("7", Dialect::Extension, &signature(&long), None);
        assert!(serde_json::to_string(&task).unwrap().len() < 200);
        let (info, capabilities) = told(&task);
        assert!(
            info.contains("unhang") && capabilities.contains(tasks::EXTENSION),
            "then we ask as ourselves"
        );
    }
}
