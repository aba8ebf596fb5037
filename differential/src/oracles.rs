//! The oracles' verdicts, each called as its own documentation calls it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_TYPE, HeaderValue};
use stripe_webhook::{Webhook as Stripe, WebhookError};
use webhook_verify::{Clock, Provider, Secret, VerifyOptions, VerifyingKeyMaterial};

use crate::case::{Case, Verdict};

/// `standardwebhooks`: reads the system's clock, and takes 300 s.
pub fn standardwebhooks(case: &Case) -> Verdict {
    any_secret(case, |secret| {
        Verdict::of(standardwebhooks::Webhook::new(secret).and_then(|hook| hook.verify(&case.body, &case.headers)))
    })
}

/// `standardwebhooks` for deliveries of another day: it cannot be told the time, so its signature is looked for in the header.
pub fn standardwebhooks_at_any_time(case: &Case) -> Verdict {
    let text = |name| case.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Ok(timestamp) = text("webhook-timestamp").parse() else { return Verdict::Reject("no timestamp".to_owned()) };
    any_secret(case, |secret| {
        let hook = standardwebhooks::Webhook::new(secret);
        match hook.and_then(|hook| hook.sign(text("webhook-id"), timestamp, &case.body)) {
            Ok(right) if text("webhook-signature").split(' ').any(|given| given == right) => Verdict::Accept,
            Ok(_) => Verdict::Reject("no such signature".to_owned()),
            Err(error) => Verdict::Reject(format!("{error:?}")),
        }
    })
}

/// `svix`: reads the system's clock, and takes 300 s or whatever.
pub fn svix(case: &Case) -> Verdict {
    any_secret(case, |secret| {
        let hook = svix::webhooks::Webhook::new(secret);
        Verdict::of(hook.and_then(|hook| match case.tolerance {
            Some(_) => hook.verify(&case.body, &case.headers),
            None => hook.verify_ignoring_timestamp(&case.body, &case.headers),
        }))
    })
}

/// `async-stripe-webhook`: can be told the time, and takes 300 s. Only what it has verified is parsed.
pub fn async_stripe(case: &Case) -> Verdict {
    let Some(header) = case.headers.get("stripe-signature").and_then(|value| value.to_str().ok()) else {
        return Verdict::Reject("no header that is text".to_owned());
    };
    let Ok(body) = std::str::from_utf8(&case.body) else {
        return Verdict::Reject("no body that is text".to_owned());
    };
    any_secret(case, |secret| match Stripe::construct_event_with_timestamp(body, header, secret, case.now as i64) {
        Ok(_) | Err(WebhookError::BadParse(_)) => Verdict::Accept,
        Err(error) => Verdict::Reject(format!("{error:?}")),
    })
}

/// `webhook-verify`: can be told the time and the tolerance, and takes several secrets.
pub fn webhook_verify(case: &Case, provider: Provider) -> Verdict {
    let options = VerifyOptions::default()
        .with_clock(Some(Arc::new(At(case.now))))
        .with_max_age(case.tolerance.map(Duration::from_secs))
        .with_request_url(&case.url)
        .with_form_params(form(case));
    if provider == Provider::SendGrid {
        return any_secret(case, |secret| {
            let key = VerifyingKeyMaterial::EcdsaP256PublicKey(STANDARD.decode(secret).unwrap_or_default());
            let options = options.clone().with_verifying_material(key);
            Verdict::of(webhook_verify::verify(provider, &case.headers, &case.body, &Secret::new(""), options))
        });
    }
    let secrets: Vec<Secret> = case.secrets.iter().map(Secret::new).collect();
    Verdict::of(webhook_verify::verify_any(provider, &case.headers, &case.body, &secrets, options))
}

struct At(u64);

impl Clock for At {
    fn now(&self) -> u64 {
        self.0
    }
}

fn form(case: &Case) -> Vec<(String, String)> {
    let content_type = case.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    match content_type.starts_with(b"application/x-www-form-urlencoded") {
        true => form_urlencoded::parse(&case.body).into_owned().collect(),
        false => Vec::new(),
    }
}

/// How a receiver rotates with an oracle that takes one secret. A panic counts as a refusal: both let nothing in.
fn any_secret(case: &Case, verdict: impl Fn(&str) -> Verdict) -> Verdict {
    let one = |secret: &String| {
        let caught = catch_unwind(AssertUnwindSafe(|| verdict(secret)));
        caught.unwrap_or_else(|_| Verdict::Reject("panicked".to_owned()))
    };
    let verdicts: Vec<Verdict> = case.secrets.iter().map(one).collect();
    let accepted = verdicts.iter().find(|verdict| verdict.accepts());
    // That a secret cannot be read says more than that another does not match.
    let unreadable = verdicts.iter().find(|verdict| verdict.is("InvalidSecret"));
    accepted.or(unreadable).or(verdicts.last()).cloned().expect("a secret")
}
