//! Signing by hand: the primitives, and deliveries that are signed like a preset's but for one thing.

use axum::body::Bytes;
use axum::http::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use tower_webhook::scheme::{Algorithm, Encoding};
use tower_webhook::secrets::Key;

use crate::schemes::endpoint::{DELIVERY_ID, set, unsigned};
use crate::schemes::preset::{P256_PRIVATE, Preset, SECRET, URL};
use crate::support::NOW;

/// HMAC-SHA256, by no code of the crate.
pub(crate) fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key will do");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// The signature of this algorithm. Only what is as simple as that is done by hand.
pub(crate) fn signature(algorithm: Algorithm, key: &[u8], message: &[u8]) -> Vec<u8> {
    match algorithm {
        Algorithm::HmacSha256 => hmac_sha256(key, message),
        Algorithm::KeyedSha256 => Sha256::digest([key, message].concat()).to_vec(),
        Algorithm::Token => key.to_vec(),
        other => Key::new(other, key).expect("a key").sign(&[message]).expect("a private key"),
    }
}

pub(crate) fn spell(encoding: Encoding, bytes: &[u8]) -> String {
    match encoding {
        Encoding::Hex => hex::encode(bytes),
        Encoding::Base64 => STANDARD.encode(bytes),
        Encoding::Text => String::from_utf8(bytes.to_vec()).expect("text"),
    }
}

pub(crate) fn unspell(encoding: Encoding, text: &str) -> Vec<u8> {
    match encoding {
        Encoding::Hex => hex::decode(text).expect("hex"),
        Encoding::Base64 => STANDARD.decode(text).expect("base64"),
        Encoding::Text => text.as_bytes().to_vec(),
    }
}

/// The key bytes that a secret's text spells; what no preset's sender would have is a key all the same.
pub(crate) fn key_of(preset: &Preset, secret: &str) -> Vec<u8> {
    match preset.algorithm {
        Algorithm::EcdsaP256 => unspell(Encoding::Base64, P256_PRIVATE),
        _ => unspell(preset.key, secret),
    }
}

/// A delivery that is signed by hand: as the preset's, until something is changed.
#[derive(Clone)]
pub(crate) struct ByHand {
    pub(crate) preset: Preset,
    pub(crate) algorithm: Algorithm,
    pub(crate) signs: String,
    pub(crate) key: Vec<u8>,
    pub(crate) timestamp: String,
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) body: Vec<u8>,
}

impl ByHand {
    /// `None` for those that sign something else than a text with places in it.
    pub(crate) fn of(preset: &Preset) -> Option<Self> {
        Some(Self {
            preset: *preset,
            algorithm: preset.algorithm,
            signs: preset.signs?.to_owned(),
            key: key_of(preset, SECRET),
            timestamp: if preset.in_millis { format!("{NOW}000") } else { NOW.to_string() },
            id: DELIVERY_ID.to_owned(),
            url: URL.to_owned(),
            body: preset.body.as_bytes().to_vec(),
        })
    }

    /// What is signed.
    pub(crate) fn message(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let mut rest = &*self.signs;
        while let Some((literal, after)) = rest.split_once('{') {
            message.extend_from_slice(literal.as_bytes());
            let (place, after) = after.split_once('}').expect("a place");
            message.extend_from_slice(match place {
                "timestamp" => self.timestamp.as_bytes(),
                "id" => self.id.as_bytes(),
                "url" => self.url.as_bytes(),
                "method" => b"POST",
                "body" => &self.body,
                other => panic!("{other} is no place"),
            });
            rest = after;
        }
        message.extend_from_slice(rest.as_bytes());
        message
    }

    pub(crate) fn signature(&self) -> Vec<u8> {
        signature(self.algorithm, &self.key, &self.message())
    }

    pub(crate) fn request(&self) -> Request<Bytes> {
        self.with_signature(&spell(self.preset.encoding, &self.signature()))
    }

    /// The same delivery with this text in the signature's place.
    pub(crate) fn with_signature(&self, signature: &str) -> Request<Bytes> {
        let mut request = unsigned(&self.preset);
        *request.body_mut() = self.body.clone().into();
        let value = self.preset.reads.replace("{timestamp}", &self.timestamp).replace("{signature}", signature);
        set(&mut request, self.preset.header.expect("a header"), value);
        if let Some(name) = self.preset.timestamp_header {
            set(&mut request, name, &self.timestamp);
        }
        if let Some(name) = self.preset.id_header {
            set(&mut request, name, &self.id);
        }
        request
    }
}
