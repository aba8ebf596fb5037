use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tower_webhook::secrets::Algorithm;

use crate::draft::Draft;
use crate::keys::{KeyKind, TestKey};

/// How a provider's deliveries look, written down a second time: nothing here is taken from our schemes.
pub struct Wire {
    pub provider: &'static str,
    pub signature: &'static str,
    pub timestamp: Option<&'static str>,
    pub id: Option<&'static str>,
    pub form: Form,
    pub encoding: Encoding,
    pub keys: KeyKind,
    pub message: fn(&Draft) -> Vec<u8>,
}

#[derive(Clone, Copy)]
pub enum Form {
    One { prefix: &'static str },
    List { separator: char, between: char, version: &'static str, timestamp: Option<&'static str> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Hex,
    Base64,
}

const PLAIN: Wire = Wire {
    provider: "",
    signature: "",
    timestamp: None,
    id: None,
    form: Form::One { prefix: "" },
    encoding: Encoding::Hex,
    keys: KeyKind::Text,
    message: |draft| draft.body.clone(),
};

pub const STRIPE: Wire = Wire {
    provider: "stripe",
    signature: "stripe-signature",
    form: Form::List { separator: ',', between: '=', version: "v1", timestamp: Some("t") },
    message: |draft| joined(draft, &[draft.signed_timestamp.as_bytes(), b"."]),
    ..PLAIN
};

pub const STANDARD_WEBHOOKS: Wire = Wire {
    provider: "standard-webhooks",
    signature: "webhook-signature",
    timestamp: Some("webhook-timestamp"),
    id: Some("webhook-id"),
    form: Form::List { separator: ' ', between: ',', version: "v1", timestamp: None },
    encoding: Encoding::Base64,
    keys: KeyKind::Whsec,
    message: |draft| joined(draft, &[&draft.id, b".", draft.signed_timestamp.as_bytes(), b"."]),
};

pub const SVIX: Wire = Wire {
    provider: "svix",
    signature: "svix-signature",
    timestamp: Some("svix-timestamp"),
    id: Some("svix-id"),
    ..STANDARD_WEBHOOKS
};

pub const GITHUB: Wire =
    Wire { provider: "github", signature: "x-hub-signature-256", form: Form::One { prefix: "sha256=" }, ..PLAIN };

pub const SHOPIFY: Wire =
    Wire { provider: "shopify", signature: "x-shopify-hmac-sha256", encoding: Encoding::Base64, ..PLAIN };

pub const SLACK: Wire = Wire {
    provider: "slack",
    signature: "x-slack-signature",
    timestamp: Some("x-slack-request-timestamp"),
    form: Form::One { prefix: "v0=" },
    message: |draft| joined(draft, &[b"v0:", draft.signed_timestamp.as_bytes(), b":"]),
    ..PLAIN
};

pub const ZOOM: Wire =
    Wire { provider: "zoom", signature: "x-zm-signature", timestamp: Some("x-zm-request-timestamp"), ..SLACK };

pub const SQUARE: Wire = Wire {
    provider: "square",
    signature: "x-square-hmacsha256-signature",
    encoding: Encoding::Base64,
    message: |draft| joined(draft, &[draft.url.as_bytes()]),
    ..PLAIN
};

pub const TWILIO: Wire = Wire {
    provider: "twilio",
    signature: "x-twilio-signature",
    encoding: Encoding::Base64,
    keys: KeyKind::TextSha1,
    message: |draft| [draft.signed_url.as_bytes(), &draft.sorted_form()].concat(),
    ..PLAIN
};

pub const DISCORD: Wire = Wire {
    provider: "discord",
    signature: "x-signature-ed25519",
    timestamp: Some("x-signature-timestamp"),
    keys: KeyKind::Ed25519,
    message: |draft| joined(draft, &[draft.signed_timestamp.as_bytes()]),
    ..PLAIN
};

pub const SENDGRID: Wire = Wire {
    provider: "sendgrid",
    signature: "x-twilio-email-event-webhook-signature",
    timestamp: Some("x-twilio-email-event-webhook-timestamp"),
    encoding: Encoding::Base64,
    keys: KeyKind::P256,
    ..DISCORD
};

pub const LINEAR: Wire = Wire { provider: "linear", signature: "linear-signature", ..PLAIN };

pub const DROPBOX: Wire = Wire { provider: "dropbox", signature: "x-dropbox-signature", ..PLAIN };

impl Wire {
    /// The headers that a verdict depends on.
    pub fn proof_headers(&self) -> Vec<&'static str> {
        [Some(self.signature), self.timestamp, self.id].into_iter().flatten().collect()
    }

    pub fn encode(&self, bytes: &[u8]) -> String {
        match self.encoding {
            Encoding::Hex => hex::encode(bytes),
            Encoding::Base64 => STANDARD.encode(bytes),
        }
    }

    pub fn decode(&self, text: &str) -> Option<Vec<u8>> {
        match self.encoding {
            Encoding::Hex => hex::decode(text).ok(),
            Encoding::Base64 => STANDARD.decode(text).ok(),
        }
    }

    /// The signature's header in elements, signed by these keys; of a form that has room for one, by the first.
    pub fn elements(&self, draft: &Draft, keys: &[TestKey]) -> Vec<String> {
        let message = (self.message)(draft);
        let signature = |key: &TestKey| self.encode(&key.key.sign(&[&message]).expect("a private key"));
        match self.form {
            Form::One { prefix } => vec![format!("{prefix}{}", signature(&keys[0]))],
            Form::List { between, version, timestamp, .. } => {
                let timestamp = timestamp.map(|name| format!("{name}{between}{}", draft.timestamp));
                let version_of = |key: &TestKey| match key.key.algorithm() {
                    Algorithm::Ed25519 => "v1a",
                    _ => version,
                };
                let signed = keys.iter().map(|key| format!("{}{between}{}", version_of(key), signature(key)));
                timestamp.into_iter().chain(signed).collect()
            }
        }
    }

    pub fn separator(&self) -> Option<char> {
        match self.form {
            Form::One { .. } => None,
            Form::List { separator, .. } => Some(separator),
        }
    }

    pub fn join(&self, elements: &[String]) -> String {
        elements.join(&self.separator().map(String::from).unwrap_or_default())
    }
}

fn joined(draft: &Draft, before: &[&[u8]]) -> Vec<u8> {
    [&before.concat(), &draft.body[..]].concat()
}
