//! Secrets that cannot be what the scheme needs are found when it is built, and are not shown when that is told.

use tower_webhook::scheme::{self, Scheme, Template};
use tower_webhook::{ConfigError, ConfigErrorKind};

use crate::examples::schemes::{Given, SchemeError, scheme as by_name};
use crate::schemes::preset::{ED25519_PUBLIC, P256_PUBLIC, PRESETS, SECRET, SIGNING_TOKEN, URL, VERIFY_TOKEN};

type Constructor = fn(&str) -> Result<Template, ConfigError>;

/// The error of a preset under this secret.
fn error_of(name: &str, secret: &str) -> Option<ConfigError> {
    let given = Given {
        secrets: vec![secret.to_owned()],
        tolerance: None,
        url: Some(URL.to_owned()),
        verify_token: Some(VERIFY_TOKEN.to_owned()),
    };
    match by_name(name, given) {
        Ok(_) => None,
        Err(SchemeError::Config(error)) => Some(error),
        Err(other) => panic!("{name}: {other}"),
    }
}

/// Asserts that it says what to do, and nothing of the secret.
fn assert_helpful(error: &ConfigError, secret: &str, hint: &str) {
    assert_eq!(error.kind(), ConfigErrorKind::Secret, "{error}");
    let (shown, debugged) = (error.to_string(), format!("{error:?}"));
    assert!(shown.contains(hint), "{hint:?} is not in {shown:?}");
    if secret.trim().len() > 4 {
        assert!(!shown.contains(secret.trim()) && !debugged.contains(secret.trim()), "{shown}");
    }
}

#[test]
fn no_preset_takes_an_empty_blank_or_edged_secret() {
    for preset in PRESETS {
        for (secret, hint) in [
            ("", "empty"),
            (" ", "empty"),
            ("\u{feff}", "empty"),
            (&format!("{SECRET}\n"), "white space"),
            (&format!(" {SECRET}"), "white space"),
            (&format!("{SECRET}\r\n"), "white space"),
            (&format!("{SECRET}\u{200b}"), "white space"),
        ] {
            let error = error_of(preset.name, secret).unwrap_or_else(|| panic!("{} took {secret:?}", preset.name));
            assert_helpful(&error, secret, hint);
        }
    }
}

#[test]
fn no_preset_is_built_without_a_secret() {
    for preset in PRESETS {
        let given =
            Given { url: Some(URL.to_owned()), verify_token: Some(VERIFY_TOKEN.to_owned()), ..Given::default() };
        let Err(SchemeError::Config(error)) = by_name(preset.name, given) else { panic!("{} was built", preset.name) };
        assert_eq!(error.kind(), ConfigErrorKind::Secrets, "{}", preset.name);
    }
}

#[test]
fn standard_webhooks_secrets_are_base64_after_their_prefix() {
    let presets = ["standard-webhooks", "svix", "clerk", "resend", "gitlab-signed"];
    for name in presets {
        for secret in
            ["whsec_not base64", "not-base64!", "whsec_a", "whsec_MfKQ-r8_KYqrTwjU", "whsec_====", "whpk_*", "whsk_*"]
        {
            let error = error_of(name, secret).unwrap_or_else(|| panic!("{name} took {secret}"));
            assert_helpful(&error, secret, "base64 after whsec_");
        }
        for secret in ["whsec_", "whpk_", "whsk_"] {
            let error = error_of(name, secret).unwrap_or_else(|| panic!("{name} took {secret}"));
            assert_eq!(error.kind(), ConfigErrorKind::Secret, "{error}");
        }
        for secret in [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_AAECAw",
            "whsec_AAECAw==",
        ] {
            let refused = error_of(name, secret);
            assert_eq!(refused.is_some(), name == "gitlab-signed", "{name} and {secret}");
        }
    }
    assert_helpful(
        &error_of("openai", "whsec_not base64").expect("refused"),
        "whsec_not base64",
        "base64 after whsec_",
    );
    assert!(error_of("openai", "not base64").is_none(), "without the prefix it is the key");
}

/// All of them are as long: a part of one would only be noticed by every delivery being refused.
#[test]
fn gitlabs_signing_token_has_32_bytes() {
    let (whole, cut) = (SIGNING_TOKEN, &SIGNING_TOKEN[..SIGNING_TOKEN.len() - 4]);
    for secret in [whole, &whole["whsec_".len()..], whole.trim_end_matches('=')] {
        assert!(error_of("gitlab-signed", secret).is_none(), "{secret}");
    }
    for secret in [cut, SECRET, &whole.replacen("whsec_", "whsec_AAAA", 1), "whsec_AAECAw=="] {
        let error = error_of("gitlab-signed", secret).unwrap_or_else(|| panic!("{secret} was taken"));
        assert_helpful(&error, secret, "base64 of 32 bytes");
    }
}

#[test]
fn ed25519_keys_of_standard_webhooks_are_keys() {
    for secret in ["whpk_AAECAw==", "whpk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "whsk_AAECAw=="] {
        let error = error_of("standard-webhooks", secret).unwrap_or_else(|| panic!("{secret} was taken"));
        assert_helpful(&error, secret, "Ed25519");
    }
}

#[test]
fn adyens_secret_is_hex() {
    for name in ["adyen", "adyen-banking"] {
        for secret in ["not hex", "abc", "whsec_00", "0x00", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            let error = error_of(name, secret).unwrap_or_else(|| panic!("{name} took {secret}"));
            assert_helpful(&error, secret, "hex");
        }
        assert!(error_of(name, &SECRET.to_uppercase()).is_none(), "Adyen shows it in upper case");
    }
}

#[test]
fn discords_secret_is_a_public_key_in_hex() {
    for (secret, hint) in [
        ("not a key at all", "hex"),
        (&ED25519_PUBLIC[1..], "hex"),
        (&ED25519_PUBLIC[2..], "Ed25519 public key has 32 bytes"),
        (&format!("{ED25519_PUBLIC}00"), "Ed25519"),
        (&"02".repeat(32), "Ed25519"),
        (&format!("{ED25519_PUBLIC}{ED25519_PUBLIC}"), "seed"),
        ("0100000000000000000000000000000000000000000000000000000000000000", "weak"),
        ("0000000000000000000000000000000000000000000000000000000000000000", "weak"),
    ] {
        let error = error_of("discord", secret).unwrap_or_else(|| panic!("{secret} was taken"));
        assert_helpful(&error, secret, hint);
    }
}

#[test]
fn sendgrids_secret_is_a_p256_key() {
    for (secret, hint) in [
        ("not a key at all", "base64"),
        ("AAECAw==", "P-256"),
        (SECRET, "P-256"),
        (&P256_PUBLIC[4..], "P-256"),
        // An RSA key's algorithm, and a point that is not on the curve.
        (&P256_PUBLIC.replace("KoZIzj0DAQcD", "KoZIzj0DAQcE"), "P-256"),
        (&P256_PUBLIC.replacen("4l8Zqs", "4l8Zqt", 1), "P-256"),
    ] {
        let error = error_of("sendgrid", secret).unwrap_or_else(|| panic!("{secret} was taken"));
        assert_helpful(&error, secret, hint);
    }
}

/// One bad secret among several builds nothing: a rotation must not lose the old one silently.
#[test]
fn rotation_to_a_bad_secret_leaves_the_old_ones() {
    let constructors: [(Constructor, &str, &str); 3] = [
        (|secret| scheme::standard_webhooks(secret), "whsec_AAECAw==", "whsec_!"),
        (|secret| scheme::adyen_banking(secret), "00ff", "0"),
        (|secret| scheme::discord(secret), ED25519_PUBLIC, "00"),
    ];
    for (construct, good, bad) in constructors {
        let scheme = construct(good).expect("a good secret");
        assert!(scheme.secrets().replace([good, bad]).is_err(), "{bad}");
        assert!(scheme.secrets().replace(Vec::<String>::new()).is_err(), "nothing at all");
        let current = scheme.secrets().current().expect("a set");
        assert_eq!(current.active(std::time::SystemTime::now()).count(), 1);
    }
}

#[test]
fn metas_verify_token_is_a_secret_like_any_other() {
    for token in ["", " ", "token\n"] {
        assert!(scheme::meta(SECRET, token).is_err(), "{token:?}");
    }
    let shown = format!("{:?}", scheme::meta(SECRET, VERIFY_TOKEN).unwrap());
    assert!(!shown.contains(VERIFY_TOKEN) && !shown.contains(SECRET), "{shown}");
}

#[test]
fn keys_never_print() {
    for preset in PRESETS {
        let scheme = preset.sending();
        let current = scheme.secrets().current().expect("a set");
        for (label, key) in current.active(std::time::SystemTime::now()) {
            let shown = format!("{label} {key:?} {:?} {:?}", scheme.secrets(), current);
            assert!(!shown.contains(&SECRET[..16]) && !shown.contains("MIGHAg"), "{}: {shown}", preset.name);
        }
    }
}

#[test]
fn api_keys_are_refused_where_a_signing_secret_belongs() {
    for (preset, api_key, prefix, instead) in [
        ("stripe", "sk_live_51H8xYz", "sk_", "whsec_…, from the dashboard under Webhooks"),
        ("stripe", "rk_test_51H8xYz", "rk_", "`stripe listen`"),
        ("openai", "sk-proj-51H8xYz", "sk-", "settings under Webhooks"),
        ("resend", "re_51H8xYz_abc", "re_", "whsec_…"),
        ("clerk", "sk_test_51H8xYz", "sk_", "whsec_…"),
        ("svix", "testsk_51H8xYz", "testsk_", "whsec_…"),
        ("github", "ghp_51H8xYz51H8xYz", "ghp_", "given to the webhook"),
        ("github", "github_pat_51H8xYz", "github_pat_", "given to the webhook"),
        ("gitlab", "glpat-51H8xYz", "glpat-", "secret token"),
        ("linear", "lin_api_51H8xYz", "lin_api_", "lin_wh_…"),
        ("slack", "xoxb-51H8xYz-51H8", "xoxb-", "Basic Information"),
        ("shopify", "shpat_51H8xYz51H8", "shpat_", "client secret"),
        ("paddle", "pdl_live_apikey_51H8", "pdl_live_", "pdl_ntfset_…"),
        ("square", "EAAAl51H8xYz51H8", "EAAA", "signature key"),
        ("meta", "EAAGm51H8xYz51H8", "EAA", "app's secret"),
        ("typeform", "tfp_51H8xYz51H8", "tfp_", "given to the webhook"),
        ("dropbox", "sl.B51H8xYz51H8", "sl.", "app console"),
        ("hubspot", "pat-na1-51H8xYz", "pat-", "client secret"),
    ] {
        let error = error_of(preset, api_key).unwrap_or_else(|| panic!("{preset} took {api_key}"));
        assert_helpful(&error, api_key, instead);
        assert!(error.to_string().contains(&format!("begins with {prefix}, as API keys do")), "{error}");
    }
    for (preset, secret) in
        [("stripe", "whsec_51H8xYz"), ("paddle", "pdl_ntfset_51H8xYz"), ("linear", "lin_wh_51H8xYz")]
    {
        assert!(error_of(preset, secret).is_none(), "{preset} needs {secret}");
    }
}
