//! Rows 71 to 78: the id of a correctly signed event.

use tower_webhook::rejection::RejectionKind::{InvalidId, MalformedBody};

use crate::bad_input::case::{accepted, accepted_by, refused, signed};
use crate::support::Receiver;

#[tokio::test]
async fn repeated_id_is_refused() {
    for (what, body) in [
        ("71: duplicate id", r#"{"id":"evt_1","id":"evt_2"}"#),
        ("71: duplicate id, equal", r#"{"id":"evt_1","id":"evt_1"}"#),
        ("71: duplicate id, apart", r#"{"id":"evt_1","data":{"id":"x"},"id":"evt_2"}"#),
        ("71: duplicate id, one is no string", r#"{"id":null,"id":"evt_1"}"#),
        ("72: \"\\u0069d\" and \"id\"", r#"{"\u0069d":"evt_1","id":"evt_2"}"#),
        ("72: \"id\" and \"\\u0069\\u0064\"", r#"{"id":"evt_1","\u0069\u0064":"evt_2"}"#),
    ] {
        refused(signed(body), 400, MalformedBody, what).await;
    }
    accepted(signed(r#"{"\u0069d":"evt_1","data":{"id":"x"}}"#), "72: \"\\u0069d\" alone").await;
}

#[tokio::test]
async fn id_is_a_usable_string() {
    for (what, body) in [
        ("73: number", r#"{"id":1}"#),
        ("73: null", r#"{"id":null}"#),
        ("73: bool", r#"{"id":true}"#),
        ("73: array", r#"{"id":["evt_1"]}"#),
        ("73: object", r#"{"id":{"id":"evt_1"}}"#),
        ("74: missing", r#"{"type":"test.event"}"#),
        ("74: missing at the top", r#"{"data":{"id":"evt_1"}}"#),
        ("74: in another case", r#"{"ID":"evt_1"}"#),
        ("74: an array of events", r#"[{"id":"evt_1"}]"#),
        ("74: a bare string", r#""evt_1""#),
        ("74: a bare null", "null"),
        ("74: empty", r#"{"id":""}"#),
        ("74: blank", r#"{"id":"  "}"#),
        ("74: blank, an escaped space", r#"{"id":"\u0020"}"#),
        ("74: blank, a no-break space", r#"{"id":"\u00a0"}"#),
        ("76: NUL", r#"{"id":"a\u0000"}"#),
        ("76: NUL within", r#"{"id":"evt_1\u0000evt_2"}"#),
        ("76: line break", r#"{"id":"evt_1\nevt_2"}"#),
        ("76: carriage return", r#"{"id":"evt_1\r"}"#),
        ("76: tab", r#"{"id":"evt\t1"}"#),
        ("76: escape", r#"{"id":"\u001b[31mevt_1"}"#),
        ("76: unit separator", r#"{"id":"evt\u001f1"}"#),
        ("76: delete", r#"{"id":"evt\u007f1"}"#),
        ("76: delete, not escaped", "{\"id\":\"evt\x7f1\"}"),
        ("76: next line, of the second set of control characters", r#"{"id":"evt\u00851"}"#),
    ] {
        refused(signed(body), 400, InvalidId, what).await;
    }
    refused(signed("{\"id\":\"evt\n1\"}"), 400, MalformedBody, "76: line break, not escaped").await;
}

#[tokio::test]
async fn id_has_at_most_255_bytes() {
    let event = |id: String| signed(format!(r#"{{"id":"{id}"}}"#));
    accepted(event("x".repeat(255)), "75: id of 255 bytes").await;
    accepted(event("é".repeat(127) + "x"), "75: id of 255 bytes in 128 letters").await;
    accepted(event(r"\u0041".repeat(255)), "75: id of 255 bytes, escaped").await;
    for (what, id) in [
        ("75: id of 256 bytes", "x".repeat(256)),
        ("75: id of 256 bytes in 128 letters", "é".repeat(128)),
        ("75: id of 256 bytes, escaped", r"\u0041".repeat(256)),
        ("75: id of 1 MB", "x".repeat(1_000_000)),
    ] {
        refused(event(id), 400, InvalidId, what).await;
    }
}

#[tokio::test]
async fn ids_are_compared_as_they_are() {
    let receiver = Receiver::new();
    for (what, id) in [
        ("77: a", "a"),
        ("77: with :", "a:b"),
        ("77: with : at the end", "a:"),
        ("77: with {}", "{a}"),
        ("77: with {} only", "{}"),
        ("77: with *", "*"),
        ("77: with * at the end", "a*"),
        ("77: with ?", "?"),
        ("77: with /", "a/b"),
        ("77: with / in front", "/a"),
        ("77: with %", "a%b"),
        ("77: with '", "a'b"),
        ("77: with a key's form", "9.0:/webhooks//a"),
        ("77: with a backslash", r"a\\b"),
        ("77: in another case", "A"),
        ("77: with a space at the end", "a "),
        ("78: NFC", "caf\u{e9}"),
        ("78: NFD", "cafe\u{301}"),
        ("78: without the accent", "cafe"),
    ] {
        accepted_by(&receiver, signed(format!(r#"{{"id":"{id}"}}"#)), what).await;
    }
    let escaped = receiver.send(signed(r#"{"id":"caf\u00e9"}"#)).await;
    assert_eq!(escaped.outcome, Some(tower_webhook::Outcome::Duplicate), "78: the same id, escaped");
}
