//! Requests to paste into a shell: a signed event, and how the provider validates the endpoint.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};
use tower_webhook::testing::TestSender;

use super::events::{self, escaped};

/// The header in which the `receiver` example says how a delivery ended, so that `send` can count duplicates.
pub(crate) const OUTCOME_HEADER: &str = "x-outcome";

/// A signed event that the receiver has not seen.
pub(crate) fn event(sender: &TestSender, scheme: &str) -> Request<Bytes> {
    let unix_time = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    events::deliver(sender, scheme, &format!("evt_demo_{}", unix_time.as_secs()), None).request_as()
}

/// What the provider sends before it sends events, if the scheme answers that.
pub(crate) fn handshake(sender: &TestSender, scheme: &str, verify_token: &str) -> Option<Request<Bytes>> {
    let signed = |body: &'static str| Some(sender.deliver(body).request_as());
    match scheme {
        "discord" => signed(r#"{"type":1}"#),
        "dropbox" => get("challenge=demo"),
        "intercom" => signed(r#"{"type":"notification_event","topic":"ping"}"#),
        "meta" => {
            let token = escaped(verify_token);
            get(&format!("hub.mode=subscribe&hub.verify_token={token}&hub.challenge=1158201444"))
        }
        "slack" => signed(r#"{"type":"url_verification","challenge":"demo"}"#),
        "xero" => signed(r#"{"events":[],"entropy":"demo"}"#),
        "zoom" => signed(r#"{"event":"endpoint.url_validation","payload":{"plainToken":"demo"}}"#),
        _ => None,
    }
}

/// What has to be said of a request whose signature soon expires.
pub(crate) fn hurry(scheme: &str, tolerance: Option<Duration>) -> Option<String> {
    let seconds = tolerance.map(|tolerance| tolerance.as_secs()).filter(|seconds| *seconds < 300)?;
    Some(format!(
        "It is accepted for {seconds} seconds. `--tolerance 300` gives more, `cargo run --example send -- --scheme {scheme}` \
         signs anew."
    ))
}

/// The command that sends this request, in parts that go on one line or on several.
pub(crate) fn curl(request: &Request<Bytes>, origin: &str) -> Vec<String> {
    let url = quoted(&format!("{origin}{}", request.uri()));
    let mut parts = vec![match request.method() {
        &Method::GET => format!("curl -i {url}"),
        method => format!("curl -i -X {method} {url}"),
    }];
    for (name, value) in request.headers() {
        let value = value.to_str().expect("what a scheme signs with is visible ASCII");
        parts.push(format!("-H {}", quoted(&format!("{name}: {value}"))));
    }
    if !request.body().is_empty() {
        let body = std::str::from_utf8(request.body()).expect("an event is text");
        parts.push(format!("--data-raw {}", quoted(body)));
    }
    parts
}

/// Nothing is special to a shell within single quotes, but a single quote.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn get(query: &str) -> Option<Request<Bytes>> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = Uri::try_from(format!("/webhooks?{query}")).ok()?;
    Some(request)
}
