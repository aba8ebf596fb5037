use http::{HeaderMap, HeaderName, HeaderValue};

use crate::case::Case;
use crate::keys::TestKey;
use crate::rng::Rng;
use crate::wire::Wire;

pub const URL: &str = "https://receiver.example/hooks/in";

/// A delivery that is still to be signed: twists change it before, between and after.
pub struct Draft {
    pub wire: &'static Wire,
    pub now: u64,
    /// How near to the edge of the tolerance a timestamp may come: the oracle may look at the clock later than we.
    pub margin: u64,
    pub tolerance: Option<u64>,
    pub signers: Vec<TestKey>,
    /// A key that did not sign.
    pub spare: TestKey,
    pub secrets: Vec<String>,
    pub id: Vec<u8>,
    pub timestamp: String,
    /// The timestamp as it is in the signed message.
    pub signed_timestamp: String,
    pub body: Vec<u8>,
    pub url: String,
    pub signed_url: String,
    pub headers: Vec<(&'static str, String)>,
    pub story: Vec<&'static str>,
}

impl Draft {
    /// One that is right.
    pub fn new(rng: &mut Rng, wire: &'static Wire, now: u64, margin: u64, tolerance: Option<u64>) -> Self {
        let [signer, spare] = wire.keys.two(rng);
        let mut draft = Self {
            wire,
            now,
            margin,
            tolerance,
            secrets: vec![signer.secret.clone()],
            signers: vec![signer],
            spare,
            id: format!("msg_{:x}", rng.number()).into_bytes(),
            timestamp: String::new(),
            signed_timestamp: String::new(),
            body: body(rng),
            url: URL.to_owned(),
            signed_url: URL.to_owned(),
            headers: Vec::new(),
            story: Vec::new(),
        };
        let offset = rng.below(draft.reach() as usize + 1) as i64;
        draft.signed_at(rng.pick(&[0, offset, -offset]));
        match wire.provider {
            "linear" => draft.body = draft.linear_body(&draft.in_millis()),
            "twilio" => draft.set_form("Body=Hello+world%21&From=%2B14155550100&MessageSid=SM1"),
            _ => {}
        }
        draft
    }

    /// How far from now a timestamp surely passes.
    pub fn reach(&self) -> u64 {
        self.tolerance.map_or(1_000_000, |tolerance| tolerance.saturating_sub(self.margin))
    }

    pub fn signed_at(&mut self, seconds_from_now: i64) {
        self.spell_timestamp((self.now as i64 + seconds_from_now).to_string());
    }

    pub fn spell_timestamp(&mut self, text: String) {
        self.signed_timestamp.clone_from(&text);
        self.timestamp = text;
    }

    pub fn in_millis(&self) -> String {
        format!("{}000", self.timestamp)
    }

    pub fn linear_body(&self, timestamp: &str) -> Vec<u8> {
        format!(r#"{{"action":"create","webhookTimestamp":{timestamp}}}"#).into_bytes()
    }

    pub fn set_form(&mut self, form: &str) {
        self.body = form.as_bytes().to_vec();
        self.headers = vec![("content-type", "application/x-www-form-urlencoded".to_owned())];
    }

    /// What Twilio signs of a form: sorted by name, then by value, and equal ones once.
    pub fn sorted_form(&self) -> Vec<u8> {
        if self.headers.is_empty() {
            return Vec::new();
        }
        let mut pairs: Vec<_> = form_urlencoded::parse(&self.body).collect();
        pairs.sort();
        pairs.dedup();
        pairs.into_iter().flat_map(|(name, value)| [name.into_owned(), value.into_owned()]).collect::<String>().into()
    }

    /// The delivery, whose signature reads as these elements.
    pub fn written(self, elements: &[String]) -> Option<Case> {
        let mut headers = HeaderMap::new();
        let signature = self.wire.join(elements);
        let claims = [
            (Some(self.wire.signature), signature.as_bytes()),
            (self.wire.timestamp, self.timestamp.as_bytes()),
            (self.wire.id, &self.id),
        ];
        let others = self.headers.iter().map(|(name, value)| (Some(*name), value.as_bytes()));
        for (name, value) in claims.into_iter().chain(others) {
            let Some(name) = name else { continue };
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).ok()?);
        }
        Some(Case {
            provider: self.wire.provider,
            secrets: self.secrets,
            headers,
            body: self.body,
            url: self.url,
            now: self.now,
            tolerance: self.tolerance,
            story: self.story,
        })
    }
}

fn body(rng: &mut Rng) -> Vec<u8> {
    match rng.below(12) {
        0 => Vec::new(),
        1 => {
            let length = 1 + rng.below(200);
            rng.bytes(length)
        }
        2 => "{\"name\":\"Zoë ☃\"}\r\n".into(),
        3 => vec![b'x'; 20_000],
        4 => b"1.2.3".to_vec(),
        _ => format!("{{\"id\":\"evt_{:x}\",\"type\":\"thing.done\"}}", rng.number()).into_bytes(),
    }
}
