//! What each provider does, as its documentation or SDK says, and not as the crate does.

use std::sync::Arc;

use tower_webhook::scheme::{Algorithm, Encoding, Scheme};

use crate::examples::schemes::{Given, names, scheme};
pub(crate) use crate::schemes::preset_table::PRESETS;

/// An Ed25519 pair in hex. Being hex, base64 and text, it is a secret of every scheme but SendGrid's and GitLab's signing token.
pub(crate) const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8";
/// The public half of [`SECRET`].
pub(crate) const ED25519_PUBLIC: &str = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8";
pub(crate) const P256_PRIVATE: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgZXeYBex98UciIInu+sYVGJA3DL/7KrF7kzDLNf1kGMehRANCAATiXxmqyHXNanTVVwsX/OF1RxykAP4ogbM85JU2rbpQ+l2kfwz32j91xT8cz/uvvtkXOc5nydj1+HPBKFj2v6ve";
pub(crate) const P256_PUBLIC: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE4l8Zqsh1zWp01VcLF/zhdUccpAD+KIGzPOSVNq26UPpdpH8M99o/dcU/HM/7r77ZFznOZ8nY9fhzwShY9r+r3g==";
/// The key that HMAC makes of [`SECRET`] in base64, which is longer than a block. GitLab's are that long, and no other.
pub(crate) const SIGNING_TOKEN: &str = "whsec_s13k05CcepJpyi8bUlBT+peTbTrg2eFBnJHKYxzMKOg=";
/// Where the providers that sign it believe the endpoint to be. The requests themselves go to `/webhooks`.
pub(crate) const URL: &str = "https://hooks.example.com/in";
pub(crate) const VERIFY_TOKEN: &str = "verify-token";

/// Schemes whose deliveries may come without their unsigned id, and its header.
pub(crate) const OPTIONAL_IDS: [(&str, &str); 3] = [
    ("gitlab", "idempotency-key"),
    ("twilio", "i-twilio-idempotency-token"),
    ("twilio-shared-key", "i-twilio-idempotency-token"),
];

/// A provider, and a delivery of it.
#[derive(Clone, Copy)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) body: &'static str,
    pub(crate) is_form: bool,
    pub(crate) id: Id,
    pub(crate) event_type: EventType,
    /// Where the signature is: a header, how that reads, and how the signature is spelled.
    pub(crate) header: Option<&'static str>,
    pub(crate) reads: &'static str,
    pub(crate) encoding: Encoding,
    /// The headers that are signed as well.
    pub(crate) timestamp_header: Option<&'static str>,
    pub(crate) id_header: Option<&'static str>,
    pub(crate) algorithm: Algorithm,
    /// What is signed, with `{timestamp}` and the like; `None` where that is no such text.
    pub(crate) signs: Option<&'static str>,
    /// How the secret's text spells the key.
    pub(crate) key: Encoding,
    /// In seconds.
    pub(crate) tolerance: Option<u64>,
    pub(crate) in_millis: bool,
    /// For how many minutes the sender goes on, where that is known.
    pub(crate) retries: Option<u64>,
    /// Without a signature, and with a wrong one.
    pub(crate) statuses: (u16, u16),
    /// Other headers that a handler may go by.
    pub(crate) headers: &'static [&'static str],
}

/// What the event is recognised by, and with it whether that is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    /// This id in the body.
    Json(&'static str),
    /// The delivery's own, in a header that is signed, or inside what is signed.
    Signed,
    /// The delivery's own, in a header that nobody signed.
    Unsigned(&'static str),
    /// As before, with the event's type.
    UnsignedWithType(&'static str),
    BodyDigest,
    /// A digest of the fields that are signed.
    FieldsDigest,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    None,
    InBody(&'static str),
    Header(&'static str),
}

impl Preset {
    pub(crate) fn named(name: &str) -> Self {
        *PRESETS.iter().find(|preset| preset.name == name).unwrap_or_else(|| panic!("{name} is in no row of PRESETS"))
    }

    /// The scheme as a receiver has it.
    pub(crate) fn scheme(&self) -> Arc<dyn Scheme> {
        self.under(self.secret())
    }

    /// The secret that a receiver has.
    pub(crate) fn secret(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Ed25519 => ED25519_PUBLIC,
            Algorithm::EcdsaP256 => P256_PUBLIC,
            _ if self.name == "gitlab-signed" => SIGNING_TOKEN,
            _ => SECRET,
        }
    }

    /// The scheme as the provider has it: the same, but for a private key.
    pub(crate) fn sending(&self) -> Arc<dyn Scheme> {
        self.under(match self.algorithm {
            Algorithm::EcdsaP256 => P256_PRIVATE,
            _ if self.name == "gitlab-signed" => SIGNING_TOKEN,
            _ => SECRET,
        })
    }

    pub(crate) fn under(&self, secret: &str) -> Arc<dyn Scheme> {
        named(self.name, secret)
    }

    /// The headers without any of which there is no proof.
    pub(crate) fn proof_headers(&self) -> impl Iterator<Item = &'static str> {
        [self.header, self.timestamp_header, self.id_header].into_iter().flatten()
    }

    /// What stands before the signature in its header.
    pub(crate) fn marker(&self) -> &'static str {
        let before = self.reads.split("{signature}").next().unwrap_or_default();
        before.rsplit('}').next().unwrap_or_default()
    }
}

/// The preset of this name, under this secret.
pub(crate) fn named(name: &str, secret: &str) -> Arc<dyn Scheme> {
    let given = Given {
        secrets: vec![secret.to_owned()],
        tolerance: None,
        url: Some(URL.to_owned()),
        verify_token: Some(VERIFY_TOKEN.to_owned()),
    };
    scheme(name, given).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Its JWTs are like no other's: they have `plaid.rs`.
const ELSEWHERE: &str = "plaid";

/// A preset that is added without a row is tested by nothing here.
#[test]
fn every_preset_has_a_row_of_facts() {
    let rows: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(rows, names().filter(|name| *name != ELSEWHERE).collect::<Vec<_>>());
    for preset in PRESETS {
        assert_eq!(preset.scheme().name(), preset.name);
    }
}

/// Nor has one a row that is in the crate, but has no name.
#[test]
fn every_constructor_has_a_name() {
    let table = include_str!("../../examples/support/schemes.rs");
    let sources = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scheme/presets")).expect("the presets");
    let sources = sources.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("text"));
    let mut found = 0;
    for line in sources.flat_map(|source| source.lines().map(str::to_owned).collect::<Vec<_>>()) {
        let Some(name) = line.strip_prefix("pub fn ").and_then(|rest| rest.split(['(', '<']).next()) else { continue };
        if name.starts_with(ELSEWHERE) {
            continue;
        }
        assert!(table.contains(&format!("scheme::{name}(")), "{name} is in no row of examples/support/schemes.rs");
        found += 1;
    }
    assert_eq!(found, PRESETS.len());
}
