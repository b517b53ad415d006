//! Notifications that come with a subscription (protocol.md 3.3, rows 12 and 18).
//!
//! Invariant: a modern client gets each notification under its own subscription. The id of the request that began it names the
//! subscription.

use std::borrow::Cow;

use unhang_wire::{Id, Json};

use crate::{with_meta, without_reserved};

/// The subscription that a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Puts the params under the subscription of a modern client. Params that are not an object are replaced by an object.
#[must_use]
pub fn under(params: Option<Json<'_>>, subscription: &Id) -> String {
    with_meta(params, |meta| meta.set(SUBSCRIPTION_ID, subscription.to_json()))
}

/// Translates the params for a legacy client, which knows no subscriptions. Returns `None` if there are none, or if they are not an object.
#[must_use]
pub fn to_legacy(params: Option<Json<'_>>) -> Option<Cow<'_, str>> {
    without_reserved(params?).apply()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Option<Json<'_>> {
        Some(Json::new(text.as_bytes()).expect("JSON"))
    }

    #[test]
    fn a_notification_is_brought_under_a_subscription_and_out_of_one() {
        for (params, id, expect) in [
            (None, Id::Integer(7), r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#),
            (
                json(r#"{"uri":"u"}"#),
                Id::from("a"),
                r#"{"uri":"u","_meta":{"io.modelcontextprotocol/subscriptionId":"a"}}"#,
            ),
            (
                json(r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":1,"x":2},"uri":"u"}"#),
                Id::Integer(9),
                r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":9,"x":2},"uri":"u"}"#,
            ),
            (json("[]"), Id::Integer(7), r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#),
        ] {
            assert_eq!(under(params, &id), expect);
        }
        let tagged = json(r#"{"uri":"u","_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#);
        assert_eq!(to_legacy(tagged).as_deref(), Some(r#"{"uri":"u"}"#));
        assert_eq!(to_legacy(None), None);
    }
}
