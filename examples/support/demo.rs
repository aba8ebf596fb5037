//! Secrets to try the examples with. They are here for everybody to read: anyone can sign under them.

/// What the providers sign with in the form that `scheme` wants, where it is not any text.
const SECRETS: &[(&[&str], &str)] = &[
    (&["adyen", "adyen-banking"], "64656d6f20736563726574206f662074"),
    (&["clerk", "openai", "resend", "standard-webhooks", "svix"], "whsec_ZGVtbyBzZWNyZXQgb2YgdG93ZXItd2ViaG9vaw=="),
    (&["gitlab-signed"], "whsec_ZGVtbyBzZWNyZXQgb2YgdGhlIHRvd2VyLXdlYmhvb2s="),
    // Private keys, so that the examples can sign; a real receiver has the public one. A seed and its public key, and PKCS #8.
    (
        &["discord"],
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\
         03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8",
    ),
    (
        &["plaid", "sendgrid"],
        "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRG/4Uu9iQxQMvB+aerr+OMMG5wTWQCYAP9ITHLCaGseh\
         RANCAASJu/uUB2OipVWt8TdgeKjFQrHdeRD9gGFp8yltT47WCQDweA1WEjx9fmQ4p+bViKtWQEIpRk6XuYkSzpiQdfya",
    ),
];

/// The secrets that were given, or the demo secret of this scheme.
pub(crate) fn secrets(given: &[String], scheme: &str) -> Vec<String> {
    match given {
        [] => vec![secret(scheme).to_owned()],
        given => given.to_vec(),
    }
}

fn secret(scheme: &str) -> &'static str {
    let of_its_own = SECRETS.iter().find(|(schemes, _)| schemes.contains(&scheme));
    of_its_own.map_or("whsec_demo_secret", |(_, secret)| secret)
}
