//! What we sign, the oracles accept; what they sign, we accept.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use tower_webhook::ConfigError;
use tower_webhook::scheme::{self, Outgoing, Scheme};
use tower_webhook_differential::case::{Case, Verdict};
use tower_webhook_differential::contest::{ALL, Contest};
use tower_webhook_differential::draft::URL;
use tower_webhook_differential::keys::{private_secret, whsec};
use tower_webhook_differential::rng::Rng;

const BODIES: [&str; 4] =
    [r#"{"id":"evt_1","type":"thing.done"}"#, "{\"id\":\"evt_1\",\"name\":\"Zoë ☃\"}\r\n", "", "plain = text & more"];

/// A sender's scheme: it has the private key where the receiver has the public one.
type Sender = fn(String) -> Result<Box<dyn Scheme>, ConfigError>;

/// By contest; the presets that only differ in name from one that has an oracle are tried, too.
const SENDERS: &[(&str, Sender)] = &[
    ("standardwebhooks", |secret| Ok(Box::new(scheme::standard_webhooks(secret)?))),
    ("standardwebhooks", |secret| Ok(Box::new(scheme::openai(secret)?))),
    ("svix", |secret| Ok(Box::new(scheme::svix(secret)?))),
    ("svix", |secret| Ok(Box::new(scheme::clerk(secret)?))),
    ("svix", |secret| Ok(Box::new(scheme::resend(secret)?))),
    ("async-stripe", |secret| Ok(Box::new(scheme::stripe(secret)?))),
    ("webhook-verify/stripe", |secret| Ok(Box::new(scheme::stripe(secret)?))),
    ("webhook-verify/standard-webhooks", |secret| Ok(Box::new(scheme::standard_webhooks(secret)?))),
    ("webhook-verify/github", |secret| Ok(Box::new(scheme::github(secret)?))),
    ("webhook-verify/github", |secret| Ok(Box::new(scheme::meta(secret, "token")?))),
    ("webhook-verify/shopify", |secret| Ok(Box::new(scheme::shopify(secret)?.header("x-shopify-hmac-sha256")?))),
    ("webhook-verify/slack", |secret| Ok(Box::new(scheme::slack(secret)?))),
    ("webhook-verify/zoom", |secret| Ok(Box::new(scheme::zoom(secret)?))),
    ("webhook-verify/square", |secret| Ok(Box::new(scheme::square(secret, URL)?))),
    ("webhook-verify/twilio", |secret| Ok(Box::new(scheme::twilio(secret, URL)?))),
    ("webhook-verify/linear", |secret| Ok(Box::new(scheme::linear(secret)?))),
    ("webhook-verify/dropbox", |secret| Ok(Box::new(scheme::dropbox(secret)?))),
    ("webhook-verify/discord", |secret| Ok(Box::new(scheme::discord(secret)?))),
    ("webhook-verify/sendgrid", |secret| Ok(Box::new(scheme::sendgrid(secret)?))),
];

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs()
}

/// The delivery that our scheme signs; `None` where it signs no such body.
fn signed(contest: &Contest, sender: Sender, secret: &str, body: &str) -> Option<Case> {
    let now = now();
    let scheme = sender(private_secret(contest.wire.keys, secret)).expect("a scheme");
    let mut message = Outgoing::new(body.to_owned()).signed_at(UNIX_EPOCH + Duration::from_secs(now));
    *message.request.uri_mut() = URL.parse().expect("a url");
    if contest.wire.provider == "twilio" {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        message.request.headers_mut().insert("content-type", form);
    }
    scheme.sign(&mut message, &scheme.secrets().current().expect("a set")).ok()?;
    let (parts, body) = message.request.into_parts();
    Some(Case {
        provider: contest.wire.provider,
        secrets: vec![secret.to_owned()],
        headers: parts.headers,
        body: body.to_vec(),
        url: URL.to_owned(),
        now,
        tolerance: Some(300),
        story: vec!["signed by us"],
    })
}

#[test]
fn what_we_sign_the_oracles_accept() {
    let mut rng = Rng::new(7);
    for contest in ALL {
        let senders: Vec<_> = SENDERS.iter().filter(|(name, _)| *name == contest.name).collect();
        assert!(!senders.is_empty(), "{} has no sender", contest.name);
        for (_, sender) in senders {
            let mut accepted = 0;
            for case in BODIES.into_iter().cycle().take(40) {
                let [key, _] = contest.wire.keys.two(&mut rng);
                let Some(case) = signed(contest, *sender, &key.secret, case) else { continue };
                assert_eq!((contest.oracle)(&case), Verdict::Accept, "{}: {case:#?}", contest.name);
                assert_eq!(case.ours(), Verdict::Accept, "{case:#?}");
                accepted += 1;
            }
            assert!(accepted >= 10, "{}: hardly anything could be signed", contest.name);
        }
    }
}

/// GitLab's tokens are all of one length, and it takes no others.
#[test]
fn what_gitlab_signs_standardwebhooks_accepts() {
    let (mut rng, gitlab): (_, Sender) = (Rng::new(7), |secret| Ok(Box::new(scheme::gitlab_signed(secret)?)));
    for body in BODIES.into_iter().cycle().take(40) {
        let case = signed(&ALL[0], gitlab, &whsec(&rng.bytes(32)).secret, body).expect("signed");
        assert_eq!((ALL[0].oracle)(&case), Verdict::Accept, "{case:#?}");
        assert_eq!(case.ours(), Verdict::Accept, "{case:#?}");
    }
}

fn delivered(contest: &str, secret: &str, headers: &[(&'static str, &str)], body: &str, now: u64) -> Case {
    let contest = ALL.iter().find(|known| known.name == contest).expect("a contest");
    let header = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::try_from(*value).expect("a header"))
    };
    Case {
        provider: contest.wire.provider,
        secrets: vec![secret.to_owned()],
        headers: headers.iter().map(header).collect::<HeaderMap>(),
        body: body.as_bytes().to_vec(),
        url: URL.to_owned(),
        now,
        tolerance: Some(300),
        story: vec!["signed by the oracle"],
    }
}

#[test]
fn what_standardwebhooks_and_svix_sign_we_accept() {
    let (mut rng, now) = (Rng::new(8), now());
    for body in BODIES.into_iter().cycle().take(100) {
        let [key, _] = ALL[0].wire.keys.two(&mut rng);
        let (id, timestamp) = (format!("msg_{:x}", rng.number()), now.to_string());
        let hook = standardwebhooks::Webhook::new(&key.secret).expect("a secret");
        let signature = hook.sign(&id, now as i64, body.as_bytes()).expect("a signature");
        let headers = [("webhook-id", &*id), ("webhook-timestamp", &timestamp), ("webhook-signature", &signature)];
        assert_eq!(delivered("standardwebhooks", &key.secret, &headers, body, now).ours(), Verdict::Accept);

        let hook = svix::webhooks::Webhook::new(&key.secret).expect("a secret");
        let signature = hook.sign(&id, now as i64, body.as_bytes()).expect("a signature");
        let headers = [("svix-id", &*id), ("svix-timestamp", &timestamp), ("svix-signature", &signature)];
        assert_eq!(delivered("svix", &key.secret, &headers, body, now).ours(), Verdict::Accept);
    }
}

#[test]
fn what_async_stripe_signs_we_accept() {
    let (mut rng, now) = (Rng::new(9), 1_700_000_000);
    for body in BODIES.into_iter().cycle().take(100) {
        let secret = format!("whsec_{:x}", rng.number());
        let header = stripe_webhook::Webhook::generate_test_header(body, &secret, Some(now as i64));
        let case = delivered("async-stripe", &secret, &[("stripe-signature", &header)], body, now);
        assert_eq!(case.ours(), Verdict::Accept, "{case:#?}");
    }
}
