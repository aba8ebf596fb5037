//! The rows of facts, one for each preset, in the order of their names.

use tower_webhook::scheme::{Algorithm, Encoding};

use crate::schemes::preset::{EventType, Id, Preset};

/// In minutes.
const HOURS: u64 = 60;
const DAYS: u64 = 24 * HOURS;

const PLAIN: Preset = Preset {
    name: "",
    body: r#"{"id":"evt_1","type":"thing.done"}"#,
    is_form: false,
    id: Id::Json("evt_1"),
    event_type: EventType::InBody("thing.done"),
    header: None,
    reads: "{signature}",
    encoding: Encoding::Hex,
    timestamp_header: None,
    id_header: None,
    algorithm: Algorithm::HmacSha256,
    signs: Some("{body}"),
    key: Encoding::Text,
    tolerance: None,
    in_millis: false,
    retries: None,
    statuses: (401, 401),
    headers: &[],
};

const STANDARD: Preset = Preset {
    header: Some("webhook-signature"),
    reads: "v1,{signature}",
    encoding: Encoding::Base64,
    timestamp_header: Some("webhook-timestamp"),
    id_header: Some("webhook-id"),
    id: Id::Signed,
    signs: Some("{id}.{timestamp}.{body}"),
    key: Encoding::Base64,
    tolerance: Some(300),
    ..PLAIN
};

const SVIX: Preset = Preset {
    header: Some("svix-signature"),
    timestamp_header: Some("svix-timestamp"),
    id_header: Some("svix-id"),
    retries: Some(27 * HOURS + 36),
    ..STANDARD
};

const LIST: Preset =
    Preset { reads: "t={timestamp},v1={signature}", signs: Some("{timestamp}.{body}"), tolerance: Some(300), ..PLAIN };

const HUBSPOT: Preset = Preset {
    header: Some("x-hubspot-signature"),
    algorithm: Algorithm::KeyedSha256,
    body: r#"[{"eventId":1,"subscriptionType":"contact.creation","attemptNumber":0}]"#,
    id: Id::BodyDigest,
    event_type: EventType::None,
    retries: Some(DAYS),
    ..PLAIN
};

const TWILIO: Preset = Preset {
    name: "twilio",
    body: "MessageSid=SM1&MessageStatus=delivered&To=%2B18005551212",
    is_form: true,
    header: Some("x-twilio-signature"),
    encoding: Encoding::Base64,
    algorithm: Algorithm::HmacSha1,
    signs: Some("{url}MessageSidSM1MessageStatusdeliveredTo+18005551212"),
    id: Id::Unsigned("i-twilio-idempotency-token"),
    event_type: EventType::InBody("delivered"),
    statuses: (400, 403),
    ..PLAIN
};

const ADYEN_ITEMS: &str = r#"{"live":"false","notificationItems":[{"NotificationRequestItem":{"pspReference":"psp_1","originalReference":"","merchantAccountCode":"Acme","merchantReference":"order 1","amount":{"currency":"EUR","value":1000},"eventCode":"AUTHORISATION","success":"true"}}]}"#;

pub(crate) const PRESETS: &[Preset] = &[
    Preset {
        name: "adyen",
        body: ADYEN_ITEMS,
        id: Id::FieldsDigest,
        event_type: EventType::InBody("AUTHORISATION"),
        encoding: Encoding::Base64,
        signs: None,
        key: Encoding::Hex,
        retries: Some(30 * DAYS),
        ..PLAIN
    },
    Preset {
        name: "adyen-banking",
        header: Some("hmacsignature"),
        encoding: Encoding::Base64,
        key: Encoding::Hex,
        id: Id::BodyDigest,
        retries: Some(30 * DAYS),
        ..PLAIN
    },
    Preset {
        name: "atlassian-jira",
        headers: &["x-atlassian-webhook-retry"],
        body: r#"{"timestamp":1700000000000,"webhookEvent":"jira:issue_updated"}"#,
        header: Some("x-hub-signature"),
        reads: "sha256={signature}",
        id: Id::Unsigned("x-atlassian-webhook-identifier"),
        event_type: EventType::InBody("jira:issue_updated"),
        ..PLAIN
    },
    Preset {
        name: "bitbucket",
        headers: &["x-hook-uuid", "x-attempt-number"],
        header: Some("x-hub-signature"),
        reads: "sha256={signature}",
        id: Id::Unsigned("x-request-uuid"),
        event_type: EventType::Header("x-event-key"),
        ..PLAIN
    },
    Preset {
        name: "calendly",
        body: r#"{"event":"invitee.created","created_at":"2023-11-14T22:13:20Z"}"#,
        header: Some("calendly-webhook-signature"),
        id: Id::BodyDigest,
        event_type: EventType::InBody("invitee.created"),
        tolerance: Some(180),
        retries: Some(DAYS),
        ..LIST
    },
    Preset { name: "clerk", ..SVIX },
    Preset {
        name: "coinbase-commerce",
        // The `id` at the top is the attempt's.
        body: r#"{"id":"attempt_1","attempt_number":1,"event":{"id":"evt_1","type":"charge:confirmed"}}"#,
        header: Some("x-cc-webhook-signature"),
        event_type: EventType::InBody("charge:confirmed"),
        retries: Some(3 * DAYS),
        ..PLAIN
    },
    Preset {
        name: "discord",
        body: r#"{"id":"evt_1","type":1,"event":{"type":"ENTITLEMENT_CREATE"}}"#,
        header: Some("x-signature-ed25519"),
        timestamp_header: Some("x-signature-timestamp"),
        algorithm: Algorithm::Ed25519,
        signs: Some("{timestamp}{body}"),
        key: Encoding::Hex,
        event_type: EventType::InBody("ENTITLEMENT_CREATE"),
        tolerance: Some(3600),
        retries: Some(10),
        ..PLAIN
    },
    Preset {
        name: "dropbox",
        body: r#"{"list_folder":{"accounts":["dbid:1"]}}"#,
        header: Some("x-dropbox-signature"),
        id: Id::None,
        event_type: EventType::None,
        ..PLAIN
    },
    Preset {
        name: "github",
        headers: &["x-github-hook-id", "x-github-hook-installation-target-type"],
        header: Some("x-hub-signature-256"),
        reads: "sha256={signature}",
        id: Id::Unsigned("x-github-delivery"),
        event_type: EventType::Header("x-github-event"),
        ..PLAIN
    },
    Preset {
        name: "gitlab",
        headers: &["x-gitlab-event-uuid", "x-gitlab-webhook-uuid", "x-gitlab-instance"],
        header: Some("x-gitlab-token"),
        encoding: Encoding::Text,
        algorithm: Algorithm::Token,
        signs: None,
        id: Id::Unsigned("idempotency-key"),
        event_type: EventType::Header("x-gitlab-event"),
        ..PLAIN
    },
    Preset {
        name: "gitlab-signed",
        headers: &["x-gitlab-event-uuid", "idempotency-key"],
        event_type: EventType::Header("x-gitlab-event"),
        ..STANDARD
    },
    Preset {
        name: "hubspot",
        header: Some("x-hubspot-signature-v3"),
        encoding: Encoding::Base64,
        timestamp_header: Some("x-hubspot-request-timestamp"),
        algorithm: Algorithm::HmacSha256,
        signs: Some("{method}{url}{body}{timestamp}"),
        tolerance: Some(300),
        in_millis: true,
        ..HUBSPOT
    },
    Preset { name: "hubspot-v1", ..HUBSPOT },
    Preset { name: "hubspot-v2", signs: Some("{method}{url}{body}"), ..HUBSPOT },
    Preset {
        name: "intercom",
        body: r#"{"type":"notification_event","id":"evt_1","topic":"conversation.user.created"}"#,
        header: Some("x-hub-signature"),
        reads: "sha1={signature}",
        algorithm: Algorithm::HmacSha1,
        event_type: EventType::InBody("conversation.user.created"),
        ..PLAIN
    },
    Preset {
        name: "lemonsqueezy",
        headers: &["x-event-name"],
        body: r#"{"meta":{"event_name":"order_created"},"data":{"id":"1"}}"#,
        header: Some("x-signature"),
        id: Id::BodyDigest,
        event_type: EventType::InBody("order_created"),
        ..PLAIN
    },
    Preset {
        name: "linear",
        headers: &["linear-event", "linear-timestamp"],
        body: r#"{"webhookTimestamp":1700000000000,"action":"create","type":"Issue"}"#,
        header: Some("linear-signature"),
        id: Id::Unsigned("linear-delivery"),
        event_type: EventType::InBody("Issue"),
        tolerance: Some(60),
        in_millis: true,
        retries: Some(7 * HOURS + 1),
        ..PLAIN
    },
    Preset {
        name: "mailgun",
        body: r#"{"event-data":{"id":"ev1","event":"delivered"}}"#,
        id: Id::Signed,
        event_type: EventType::InBody("delivered"),
        signs: None,
        tolerance: Some(24 * 3600),
        retries: Some(8 * HOURS),
        ..PLAIN
    },
    Preset {
        name: "meta",
        body: r#"{"object":"page","entry":[{"id":"1","time":1700000000}]}"#,
        header: Some("x-hub-signature-256"),
        reads: "sha256={signature}",
        id: Id::BodyDigest,
        event_type: EventType::InBody("page"),
        retries: Some(7 * DAYS),
        ..PLAIN
    },
    // The secret has no `whsec_`: it is the key as it stands.
    Preset { name: "openai", key: Encoding::Text, retries: Some(3 * DAYS), ..STANDARD },
    Preset {
        name: "paddle",
        body: r#"{"event_id":"evt_1","event_type":"transaction.paid","notification_id":"ntf_1"}"#,
        header: Some("paddle-signature"),
        reads: "ts={timestamp};h1={signature}",
        signs: Some("{timestamp}:{body}"),
        event_type: EventType::InBody("transaction.paid"),
        tolerance: Some(5),
        retries: Some(3 * DAYS),
        ..PLAIN
    },
    Preset {
        name: "pagerduty",
        body: r#"{"event":{"id":"evt_1","event_type":"incident.triggered"}}"#,
        header: Some("x-pagerduty-signature"),
        reads: "v1={signature}",
        event_type: EventType::InBody("incident.triggered"),
        statuses: (403, 403),
        ..PLAIN
    },
    Preset { name: "resend", ..SVIX },
    Preset {
        name: "sendgrid",
        body: "[{\"sg_event_id\":\"1\",\"event\":\"delivered\"}]\r\n",
        header: Some("x-twilio-email-event-webhook-signature"),
        encoding: Encoding::Base64,
        timestamp_header: Some("x-twilio-email-event-webhook-timestamp"),
        algorithm: Algorithm::EcdsaP256,
        signs: Some("{timestamp}{body}"),
        key: Encoding::Base64,
        id: Id::BodyDigest,
        event_type: EventType::None,
        tolerance: Some(2 * 24 * 3600),
        retries: Some(DAYS),
        ..PLAIN
    },
    Preset {
        name: "sentry",
        headers: &["sentry-hook-timestamp"],
        header: Some("sentry-hook-signature"),
        id: Id::Unsigned("request-id"),
        event_type: EventType::Header("sentry-hook-resource"),
        ..PLAIN
    },
    Preset {
        name: "shopify",
        headers: &[
            "shopify-shop-domain",
            "shopify-api-version",
            "shopify-event-id",
            "x-shopify-topic",
            "x-shopify-shop-domain",
        ],
        header: Some("shopify-hmac-sha256"),
        encoding: Encoding::Base64,
        id: Id::UnsignedWithType("shopify-webhook-id"),
        event_type: EventType::Header("shopify-topic"),
        retries: Some(4 * HOURS),
        ..PLAIN
    },
    Preset {
        name: "slack",
        headers: &["x-slack-retry-num", "x-slack-retry-reason"],
        body: r#"{"type":"event_callback","event_id":"evt_1","event":{"type":"app_mention"}}"#,
        header: Some("x-slack-signature"),
        reads: "v0={signature}",
        timestamp_header: Some("x-slack-request-timestamp"),
        signs: Some("v0:{timestamp}:{body}"),
        event_type: EventType::InBody("app_mention"),
        tolerance: Some(300),
        retries: Some(DAYS),
        ..PLAIN
    },
    Preset {
        name: "square",
        headers: &["square-environment", "square-retry-number"],
        body: r#"{"event_id":"evt_1","type":"payment.updated"}"#,
        header: Some("x-square-hmacsha256-signature"),
        encoding: Encoding::Base64,
        signs: Some("{url}{body}"),
        event_type: EventType::InBody("payment.updated"),
        retries: Some(DAYS),
        ..PLAIN
    },
    Preset { name: "standard-webhooks", retries: Some(76 * HOURS), ..STANDARD },
    Preset { name: "stripe", header: Some("stripe-signature"), retries: Some(3 * DAYS), ..LIST },
    Preset { name: "svix", ..SVIX },
    Preset { name: "timestamped", header: Some("webhook-signature"), ..LIST },
    TWILIO,
    Preset { name: "twilio-shared-key", algorithm: Algorithm::HmacSha256, ..TWILIO },
    Preset {
        name: "typeform",
        body: r#"{"event_id":"evt_1","event_type":"form_response"}"#,
        header: Some("typeform-signature"),
        reads: "sha256={signature}",
        encoding: Encoding::Base64,
        event_type: EventType::InBody("form_response"),
        retries: Some(10 * HOURS + 35),
        ..PLAIN
    },
    Preset { name: "vercel", header: Some("x-vercel-signature"), algorithm: Algorithm::HmacSha1, ..PLAIN },
    Preset {
        name: "xero",
        body: r#"{"events":[{"eventType":"UPDATE"}],"firstEventSequence":1,"lastEventSequence":1,"entropy":"S0m3"}"#,
        header: Some("x-xero-signature"),
        encoding: Encoding::Base64,
        id: Id::BodyDigest,
        event_type: EventType::None,
        retries: Some(DAYS),
        ..PLAIN
    },
    Preset {
        name: "zoom",
        body: r#"{"event":"meeting.started","event_ts":1700000000000,"payload":{}}"#,
        header: Some("x-zm-signature"),
        reads: "v0={signature}",
        timestamp_header: Some("x-zm-request-timestamp"),
        signs: Some("v0:{timestamp}:{body}"),
        id: Id::BodyDigest,
        event_type: EventType::InBody("meeting.started"),
        tolerance: Some(300),
        retries: Some(85),
        ..PLAIN
    },
];
