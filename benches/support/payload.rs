//! Bodies that look like what providers send.

use std::fmt::Write;

/// A JSON event of about `size` bytes: nested objects, short strings, numbers.
pub(crate) fn event(id: &str, size: usize) -> String {
    let mut body = format!(
        r#"{{"id":"{id}","object":"event","api_version":"2026-07-29","created":1700000000,"type":"invoice.paid","data":{{"object":{{"lines":["#
    );
    let mut line = 0;
    while body.len() + 220 < size {
        let comma = if line == 0 { "" } else { "," };
        let _ = write!(
            body,
            r#"{comma}{{"id":"il_{line:08}","amount":{},"currency":"usd","description":"Subscription for line {line}, monthly","discountable":true,"period":{{"start":1700000000,"end":1702592000}},"proration":false,"quantity":1}}"#,
            1000 + line
        );
        line += 1;
    }
    body.push_str(r#"],"total":2000,"paid":true}},"livemode":false,"pending_webhooks":1,"request":{"id":null}}"#);
    let missing = size.saturating_sub(body.len());
    body.push_str(&" ".repeat(missing));
    body
}
