use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tower_webhook::secrets::{Algorithm, Key};

use crate::rng::Rng;

/// A secret as the receiver has it, and the key that the sender signs with.
#[derive(Clone, Debug)]
pub struct TestKey {
    pub secret: String,
    pub key: Key,
}

/// What a provider's secrets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Text,
    TextSha1,
    /// Base64 after `whsec_`.
    Whsec,
    /// The public key in hex.
    Ed25519,
    /// The public key in base64 of DER.
    P256,
}

/// Seed and public key, made for these tests.
const ED25519: [[&str; 2]; 2] = [
    [
        "383e1133f65b1ca550b26f012b00f2b933f99fc609fbfddb6e455e51f5319c11",
        "0960176eea716260f19dd51a6996b33130d7f911d4add5c89f4069dd1b807675",
    ],
    [
        "e10b10d4790259c345a6201b574f0a5b65dae2d4f71d0abd0b94d0690a966f13",
        "45b6259588b3c1260ea2abcb7dc12bd30987984bd10b00d1c23c977e6a70f9b2",
    ],
];

/// Private (PKCS #8) and public (SubjectPublicKeyInfo), made for these tests.
const P256: [[&str; 2]; 2] = [
    [
        "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgMvT+2BOb5GFmPYH0mQ3G3ziX30vihEHc3p2OguKo2zqhRANCAASp0fjSvbTY7jOxoW4LToucAK2eZnh8W9Sscja51+AeGhg2rNcXzcGNATfXbjYrSuIZ2HDxPsRlML/biiJucrLJ",
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqdH40r202O4zsaFuC06LnACtnmZ4fFvUrHI2udfgHhoYNqzXF83BjQE31242K0riGdhw8T7EZTC/24oibnKyyQ==",
    ],
    [
        "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgH1aMRY9lwb+VwKdEyH8QCPbPATX6uisVo5VpzNvF8VuhRANCAAQi8M+LKiDVEn5jYtwIIVyGdGGS8J+t3TumEheaP9gJ+m1S7fHp8uqkg3956vi23Hvv9e+c7Mj66JED+VKJ2Snx",
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEIvDPiyog1RJ+Y2LcCCFchnRhkvCfrd07phIXmj/YCfptUu3x6fLqpIN/eer4ttx77/XvnOzI+uiRA/lSidkp8Q==",
    ],
];

/// Made once: it takes as long as a signature.
static P256_KEYS: LazyLock<[TestKey; 2]> = LazyLock::new(|| {
    P256.map(|[private, public]| {
        let key = Key::new(Algorithm::EcdsaP256, &STANDARD.decode(private).expect("base64"));
        TestKey { secret: public.to_owned(), key: key.expect("a key") }
    })
});

/// The secrets of senders, by those of their receivers: the seed with the public key, as Discord's preset signs with.
pub fn private_secret(kind: KeyKind, public: &str) -> String {
    match kind {
        KeyKind::Ed25519 => ED25519.iter().find(|[_, own]| *own == public).map(|pair| pair.concat()),
        KeyKind::P256 => P256.iter().find(|[_, own]| *own == public).map(|[private, _]| (*private).to_owned()),
        KeyKind::Text | KeyKind::TextSha1 | KeyKind::Whsec => Some(public.to_owned()),
    }
    .expect("a key of these tests")
}

impl KeyKind {
    /// Two different keys.
    pub fn two(self, rng: &mut Rng) -> [TestKey; 2] {
        let one = rng.below(2);
        match self {
            Self::Text | Self::TextSha1 => [0, 1].map(|_| self.keyed(format!("secret-{:016x}", rng.number()))),
            Self::Whsec => [0, 1].map(|_| {
                let length = 24 + rng.below(17);
                whsec(&rng.bytes(length))
            }),
            Self::Ed25519 => [one, 1 - one].map(|at| ed25519(at, ED25519[at][1].to_owned())),
            Self::P256 => [one, 1 - one].map(|at| P256_KEYS[at].clone()),
        }
    }

    /// The key that is this text; the empty one is spelled by a zero, with which HMAC pads it anyway.
    pub fn keyed(self, secret: String) -> TestKey {
        let algorithm = if self == Self::TextSha1 { Algorithm::HmacSha1 } else { Algorithm::HmacSha256 };
        let bytes = if secret.is_empty() { b"\0" } else { secret.as_bytes() };
        TestKey { key: Key::new(algorithm, bytes).expect("a key"), secret }
    }
}

pub fn whsec(bytes: &[u8]) -> TestKey {
    let key = Key::hmac_sha256(if bytes.is_empty() { b"\0" } else { bytes }).expect("a key");
    TestKey { secret: format!("whsec_{}", STANDARD.encode(bytes)), key }
}

/// The asymmetric keys of Standard Webhooks.
pub fn whpk(at: usize) -> TestKey {
    let public = hex::decode(ED25519[at][1]).expect("hex");
    ed25519(at, format!("whpk_{}", STANDARD.encode(public)))
}

fn ed25519(at: usize, secret: String) -> TestKey {
    let pair = hex::decode(ED25519[at].concat()).expect("hex");
    TestKey { secret, key: Key::new(Algorithm::Ed25519, &pair).expect("a key") }
}
