//! Events as the providers send them, cut down to what tells one from another.

use std::fmt::Write as _;
use std::time::SystemTime;

use tower_webhook::scheme::Scheme;
use tower_webhook::testing::{TestDelivery, TestSender};

/// By scheme: the type of its demo event, and the body, in which `$id` and `$type` are strings. A provider whose body has a
/// top-level `id` and `type` needs no line.
const EVENTS: &[(&str, &str, &str)] = &[
    (
        "adyen",
        "AUTHORISATION",
        r#"{"live":"false","notificationItems":[{"NotificationRequestItem":{"eventCode":$type,"success":"true","pspReference":$id,"merchantAccountCode":"Demo","merchantReference":"order 1","amount":{"value":1000,"currency":"EUR"}}}]}"#,
    ),
    ("adyen-banking", "balancePlatform.transfer.created", r#"{"type":$type,"data":{"id":$id}}"#),
    ("atlassian-jira", "jira:issue_created", r#"{"webhookEvent":$type,"issue":{"key":$id}}"#),
    ("bitbucket", "repo:push", r#"{"push":{"changes":[{"new":{"name":$id}}]}}"#),
    ("calendly", "invitee.created", r#"{"event":$type,"payload":{"uri":$id}}"#),
    ("clerk", "user.created", r#"{"type":$type,"object":"event","data":{"id":$id}}"#),
    ("coinbase-commerce", "charge:confirmed", r#"{"attempt_number":1,"event":{"id":$id,"type":$type}}"#),
    (
        "discord",
        "APPLICATION_AUTHORIZED",
        r#"{"version":1,"type":1,"event":{"type":$type,"data":{"user":{"id":$id}}}}"#,
    ),
    ("dropbox", "", r#"{"list_folder":{"accounts":[$id]}}"#),
    ("github", "push", r#"{"ref":"refs/heads/main","after":$id}"#),
    ("gitlab", "Push Hook", r#"{"object_kind":"push","after":$id}"#),
    ("gitlab-signed", "Push Hook", r#"{"object_kind":"push","after":$id}"#),
    ("hubspot", "contact.creation", r#"[{"eventId":$id,"subscriptionType":$type,"attemptNumber":0}]"#),
    ("hubspot-v1", "contact.creation", r#"[{"eventId":$id,"subscriptionType":$type,"attemptNumber":0}]"#),
    ("hubspot-v2", "contact.creation", r#"[{"eventId":$id,"subscriptionType":$type,"attemptNumber":0}]"#),
    ("intercom", "contact.created", r#"{"type":"notification_event","topic":$type,"id":$id}"#),
    ("lemonsqueezy", "order_created", r#"{"meta":{"event_name":$type},"data":{"type":"orders","id":$id}}"#),
    ("linear", "Issue", r#"{"action":"create","type":$type,"data":{"id":$id}}"#),
    ("mailgun", "delivered", r#"{"event-data":{"event":$type,"id":$id}}"#),
    ("meta", "page", r#"{"object":$type,"entry":[{"id":$id,"changes":[{"field":"feed"}]}]}"#),
    ("openai", "response.completed", r#"{"object":"event","type":$type,"data":{"id":$id}}"#),
    ("paddle", "transaction.completed", r#"{"event_id":$id,"event_type":$type,"data":{}}"#),
    ("pagerduty", "incident.triggered", r#"{"event":{"id":$id,"event_type":$type,"resource_type":"incident"}}"#),
    ("plaid", "SYNC_UPDATES_AVAILABLE", r#"{"webhook_type":"TRANSACTIONS","webhook_code":$type,"item_id":$id}"#),
    ("resend", "email.sent", r#"{"type":$type,"data":{"email_id":$id}}"#),
    ("sendgrid", "delivered", r#"[{"event":$type,"sg_event_id":$id}]"#),
    ("sentry", "issue", r#"{"action":"created","data":{"issue":{"id":$id}}}"#),
    ("shopify", "orders/create", r#"{"admin_graphql_api_id":$id,"total_price":"10.00"}"#),
    ("slack", "app_mention", r#"{"type":"event_callback","event_id":$id,"event":{"type":$type,"text":"it's a demo"}}"#),
    ("square", "payment.created", r#"{"merchant_id":"Demo","type":$type,"event_id":$id}"#),
    ("twilio", "delivered", "MessageSid=$id&MessageStatus=$type&Body=it's+a+demo"),
    ("twilio-shared-key", "delivered", "MessageSid=$id&MessageStatus=$type&Body=it's+a+demo"),
    ("typeform", "form_response", r#"{"event_id":$id,"event_type":$type}"#),
    ("vercel", "deployment.created", r#"{"id":$id,"type":$type}"#),
    ("xero", "CREATE", r#"{"events":[{"resourceId":$id,"eventType":$type}],"entropy":$id}"#),
    ("zoom", "meeting.started", r#"{"event":$type,"payload":{"object":{"uuid":$id}}}"#),
];

/// Whether its secrets can sign: public keys cannot.
pub(crate) fn can_sign(scheme: &dyn Scheme) -> bool {
    let secrets = scheme.secrets().current();
    secrets.is_some_and(|secrets| secrets.active(SystemTime::now()).all(|(_, key)| key.can_sign()))
}

/// A delivery of event `id`, by the provider whom `sender` plays. An id stands for one event: its body is always the same.
pub(crate) fn deliver(sender: &TestSender, scheme: &str, id: &str, event_type: Option<&str>) -> TestDelivery {
    let of_its_own = EVENTS.iter().find(|(name, ..)| *name == scheme);
    let (_, its_type, body) = of_its_own.unwrap_or(&("", "invoice.paid", r#"{"id":$id,"type":$type}"#));
    let event_type = event_type.unwrap_or(its_type);
    if matches!(scheme, "twilio" | "twilio-shared-key") {
        return delivery(sender, &filled(body, id, event_type, escaped), id, event_type).form();
    }
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    delivery(sender, &filled(body, id, event_type, quoted), id, event_type)
}

fn delivery(sender: &TestSender, body: &str, id: &str, event_type: &str) -> TestDelivery {
    let delivery = sender.deliver(body.to_owned()).id(id);
    if event_type.is_empty() { delivery } else { delivery.event_type(event_type) }
}

fn filled(body: &str, id: &str, event_type: &str, written: impl Fn(&str) -> String) -> String {
    body.replace("$id", &written(id)).replace("$type", &written(event_type))
}

/// The text as it stands in a form or a query.
pub(crate) fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        match byte {
            b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => escaped.push(char::from(byte)),
            byte => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
        escaped
    })
}
