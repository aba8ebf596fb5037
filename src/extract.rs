//! The event as an axum extractor, and its rejection.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::event::WebhookEvent;
use crate::handler::{Failure, HandlerError};
use crate::lock::lock;
use crate::throttle::Throttle;
use crate::{route, telemetry};

/// The longest field name that is reported.
const LONGEST_FIELD: usize = 200;

/// The routes without a layer whose handlers were called in this process.
static MISSING_LAYERS: Mutex<BTreeMap<String, Throttle>> = Mutex::new(BTreeMap::new());

/// The reason why a [`WebhookEvent`] could not be extracted.
#[derive(Debug)]
#[non_exhaustive]
pub enum EventRejection {
    /// The request has no event, because its route lacks the layer. The status is 500, since the sender is not to
    /// blame, and the log names the path.
    MissingLayer,
    /// The body is not of the type that the handler requires. The status is 422 and the claim is released, since a
    /// deploy can fix it before the sender gives up.
    #[non_exhaustive]
    Mismatch {
        /// The field that does not fit, as a path: `data.object.amount`, or `.` for the whole body.
        field: Box<str>,
        /// The reason, in the parser's words: `invalid type: string, expected u64`. The values that the parser quotes
        /// from the body are left out.
        reason: Box<str>,
    },
}

impl fmt::Display for EventRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MissingLayer => "no WebhookEvent in the request: add WebhookLayer to this route",
            Self::Mismatch { .. } => "the event's body does not have the form that the handler asks for",
        })
    }
}

impl std::error::Error for EventRejection {}

impl IntoResponse for EventRejection {
    fn into_response(self) -> Response {
        match &self {
            // The sender learns nothing of how the server is built.
            Self::MissingLayer => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            Self::Mismatch { field, reason } => {
                let mut response = (StatusCode::UNPROCESSABLE_ENTITY, self.to_string()).into_response();
                let reason = format!("{self}: at {field}: {reason}");
                response.extensions_mut().insert(Failure::transient(reason));
                response
            }
        }
    }
}

impl<S: Sync> FromRequestParts<S> for WebhookEvent {
    type Rejection = EventRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, EventRejection> {
        parts.extensions.get::<WebhookEvent>().cloned().ok_or_else(|| {
            report_missing_layer(parts);
            EventRejection::MissingLayer
        })
    }
}

/// A type that an event's body can be parsed as: every type that implements serde's `Deserialize` and borrows nothing from
/// the body.
///
/// Where a handler asks for another type, axum says only that the function is no `Handler`; with its `debug_handler`
/// the compiler says why.
#[diagnostic::on_unimplemented(
    message = "an event's body cannot be parsed as `{Self}`",
    label = "expected a type that implements `serde::Deserialize` and owns its data",
    note = "add `#[derive(serde::Deserialize)]` to it",
    note = "`WebhookEvent` alone has the bytes of the body, and `WebhookEvent<serde_json::Value>` takes any JSON"
)]
pub trait EventData: DeserializeOwned {}

// Otherwise the compiler complains of `Deserialize`, in place of the text above.
#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> EventData for T {}

/// Parses JSON; and a form (`application/x-www-form-urlencoded`), whose one field may be a `payload` of JSON, as GitHub
/// and Slack send it.
impl<S: Sync, T: EventData> FromRequestParts<S> for WebhookEvent<T> {
    type Rejection = EventRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, EventRejection> {
        let event = <WebhookEvent as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        let data = if is_form(parts) { parse_form(event.body()) } else { parse_json(event.body()) };
        Ok(event.with_data(data?))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for WebhookEvent {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get::<WebhookEvent>().cloned())
    }
}

impl IntoResponse for HandlerError {
    fn into_response(self) -> Response {
        self.into()
    }
}

fn report_missing_layer(parts: &Parts) {
    let route = route::matched(&parts.extensions).unwrap_or_default();
    let mut routes = lock(&MISSING_LAYERS);
    if let Some(count) = routes.entry(route.to_owned()).or_default().count(Instant::now()) {
        telemetry::missing_layer(parts.uri.path(), count);
    }
}

fn is_form(parts: &Parts) -> bool {
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, EventRejection> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let data = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| mismatch(&error.path().to_string(), &error.inner().to_string()))?;
    json.end().map_err(|error| mismatch(".", &error.to_string()))?;
    Ok(data)
}

fn parse_form<T: DeserializeOwned>(body: &[u8]) -> Result<T, EventRejection> {
    let mut fields = form_urlencoded::parse(body);
    if let (Some((name, json)), None) = (fields.next(), fields.next())
        && name == "payload"
    {
        return parse_json(json.as_bytes());
    }
    let form = serde_urlencoded::Deserializer::new(form_urlencoded::parse(body));
    serde_path_to_error::deserialize(form)
        .map_err(|error| mismatch(&error.path().to_string(), &error.inner().to_string()))
}

fn mismatch(field: &str, message: &str) -> EventRejection {
    // A part that the parser cannot name is a question mark.
    let field = if field == "?" { "." } else { field };
    let field: String = field.chars().take(LONGEST_FIELD).flat_map(char::escape_debug).collect();
    EventRejection::Mismatch { field: field.into(), reason: without_values(message).into() }
}

/// The words with which serde introduces the values that it quotes.
const KINDS: [&str; 15] = [
    "null",
    "boolean",
    "integer",
    "floating point",
    "character",
    "string",
    "byte array",
    "unit value",
    "Option value",
    "newtype struct",
    "sequence",
    "map",
    "enum",
    "unit variant",
    "newtype variant",
];

/// How messages begin that quote nothing from the body: those of serde that name a field of the type, and those of
/// `serde_json` about syntax.
const PLAIN: [&str; 16] = [
    "missing field `",
    "duplicate field `",
    "invalid length ",
    "EOF while ",
    "expected ",
    "trailing ",
    "key must be ",
    "control character ",
    "invalid escape",
    "invalid number",
    "invalid unicode ",
    "lone leading ",
    "number out of range",
    "recursion limit ",
    "unexpected end ",
    "float key must be ",
];

/// The message of a serde error, without the values that it quotes from the body. The words of a type's own check,
/// which may quote anything, are left out.
fn without_values(message: &str) -> String {
    let (message, place) = message.rfind(" at line ").map_or((message, ""), |at| message.split_at(at));
    let said = if PLAIN.iter().any(|text| message.starts_with(text)) {
        message.to_owned()
    } else if let Some(value) = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: ")) {
        let kind = KINDS.iter().find(|kind| value.starts_with(**kind)).unwrap_or(&"value");
        let expected = value.rsplit_once(", expected ").map_or("another", |(_, expected)| expected);
        format!("invalid {kind}, expected {expected}")
    } else if message.starts_with("unknown field `") || message.starts_with("unknown variant `") {
        let what = if message.starts_with("unknown field") { "field" } else { "variant" };
        let expected = message.rsplit_once("`, expected ").map_or("none", |(_, expected)| expected);
        format!("unknown {what}, expected {expected}")
    } else {
        "the type refuses the value".to_owned()
    };
    said + place
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed")]
    struct Invoice {
        amount: u32,
        lines: Option<Vec<Line>>,
        #[serde(default, deserialize_with = "refused")]
        checked: u8,
        notes: Option<HashMap<String, u8>>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only parsed")]
    struct Line {
        kind: Kind,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Goods,
        Tax,
    }

    fn refused<'de, D: serde::Deserializer<'de>>(value: D) -> Result<u8, D::Error> {
        let text = String::deserialize(value)?;
        Err(serde::de::Error::custom(format!("not this: {text}")))
    }

    fn explained(result: Result<Invoice, EventRejection>) -> (String, String) {
        match result.expect_err("a mismatch") {
            EventRejection::Mismatch { field, reason } => (field.into(), reason.into()),
            EventRejection::MissingLayer => panic!("a mismatch"),
        }
    }

    #[test]
    fn mismatch_names_the_field_and_the_reason_and_quotes_nothing() {
        for (body, field, reason) in [
            (r#"{"amount":"marker"}"#, "amount", "invalid string, expected u32 at line 1 column 18"),
            (r#"{"amount":"marker, expected 5"}"#, "amount", "invalid string, expected u32 at line 1 column 30"),
            (r#"{"amount":-5}"#, "amount", "invalid integer, expected u32 at line 1 column 12"),
            (r#"{"amount":null}"#, "amount", "invalid null, expected u32 at line 1 column 14"),
            (r"{}", ".", "missing field `amount` at line 1 column 2"),
            (
                r#"{"amount":1,"marker":2}"#,
                "marker",
                "unknown field, expected one of `amount`, `lines`, `checked`, `notes` at line 1 column 20",
            ),
            (
                r#"{"amount":1,"lines":[{"kind":"tax"},{"kind":"marker"}]}"#,
                "lines[1].kind",
                "unknown variant, expected `goods` or `tax` at line 1 column 52",
            ),
            (r#"{"amount":1,"checked":"marker"}"#, "checked", "the type refuses the value at line 1 column 31"),
            (r#"{"amount":1"#, ".", "EOF while parsing an object at line 1 column 11"),
            (r#"{"amount":1} marker"#, ".", "trailing characters at line 1 column 14"),
            ("marker", ".", "expected value at line 1 column 1"),
        ] {
            let found = explained(parse_json(body.as_bytes()));
            assert_eq!((&*found.0, &*found.1), (field, reason), "{body}");
            assert!(!found.1.contains("marker"), "{body}");
        }
    }

    #[test]
    fn names_of_fields_are_cut_and_escaped() {
        let name = format!("{}\\n", "x".repeat(300));
        let (field, _) = explained(parse_json(format!(r#"{{"amount":1,"notes":{{"{name}":"a"}}}}"#).as_bytes()));
        assert_eq!(field, format!("notes.{}", "x".repeat(194)));
        let (field, _) = explained(parse_json(br#"{"amount":1,"notes":{"a\nb":"a"}}"#));
        assert_eq!(field, r"notes.a\nb");
    }

    #[test]
    fn forms_are_parsed_and_their_payload_of_json_too() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Message {
            #[serde(rename = "From")]
            from: String,
            count: u8,
        }
        let message = Message { from: "+1 555".to_owned(), count: 7 };
        let parsed: Message = parse_form(b"From=%2B1+555&count=7&other=x").expect("a form");
        assert_eq!(parsed, message);
        let parsed: Message =
            parse_form(br#"payload=%7B%22From%22%3A%22%2B1+555%22%2C%22count%22%3A7%7D"#).expect("JSON");
        assert_eq!(parsed, message);
        let mismatch = parse_form::<Message>(b"From=marker&count=many").expect_err("a mismatch");
        assert!(matches!(mismatch, EventRejection::Mismatch { reason, .. } if !reason.contains("many")));
    }
}
