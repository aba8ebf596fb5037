//! Names under which credentials travel.

/// Whether a header or a query's parameter of this name may carry a credential or a proof.
///
/// A name cannot tell for certain. What is kept is therefore chosen by an allow-list first; this is for names that the
/// list does not know one by one.
pub(super) fn is_credential(name: &str) -> bool {
    /// These count anywhere in a name.
    const PARTS: [&str; 30] = [
        "accesskey",
        "apikey",
        "assertion",
        "authenti",
        "authkey",
        "authoriz",
        "bearer",
        "cookie",
        "credential",
        "csrf",
        "hmac",
        "jwt",
        "licensekey",
        "masterkey",
        "oidc",
        "passcode",
        "passphrase",
        "passw",
        "privatekey",
        "proof",
        "secret",
        "sessid",
        "session",
        "sharedkey",
        "signature",
        "signingkey",
        "subscriptionkey",
        "token",
        "verification",
        "xsrf",
    ];
    /// These count as words of their own: `x-author` and `design` carry no credential.
    const WORDS: [&str; 10] = ["auth", "key", "otp", "pass", "pin", "psk", "pw", "pwd", "sig", "sign"];
    /// These count as whole names only: `code` is the key of an Azure function, and an authorization code of OAuth.
    const NAMES: [&str; 2] = ["code", "sid"];
    let lower = name.to_ascii_lowercase();
    // An id by another name.
    if lower.contains("idempotency") {
        return false;
    }
    PARTS.iter().any(|part| lower.contains(part))
        || NAMES.contains(&&*lower)
        || words(name).any(|word| WORDS.contains(&&*word))
}

/// The words of `x-api-key`, `api_key` and `apiKey`, in lower case.
fn words(name: &str) -> impl Iterator<Item = String> {
    let pieces = name.split(|character: char| !character.is_ascii_alphanumeric());
    pieces.flat_map(|piece| {
        let mut words: Vec<String> = Vec::new();
        let mut after_lower = false;
        for character in piece.chars() {
            match words.last_mut().filter(|_| !(after_lower && character.is_ascii_uppercase())) {
                Some(word) => word.push(character.to_ascii_lowercase()),
                None => words.push(character.to_ascii_lowercase().to_string()),
            }
            after_lower = !character.is_ascii_uppercase();
        }
        words
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_told_by_their_names() {
        for name in [
            "authorization",
            "proxy-authorization",
            "cookie",
            "x-auth",
            "x-basic-auth",
            "cf-access-jwt-assertion",
            "x-goog-iap-jwt-assertion",
            "x-amzn-oidc-data",
            "x-bearer",
            "x-session-id",
            "x-sig",
            "x-api-key",
            "X-API-KEY",
            "api_key",
            "apiKey",
            "apikey",
            "auth",
            "auth_token",
            "accessToken",
            "sig",
            "sid",
            "authkey",
            "code",
            "pw",
            "user_pw",
            "subscriptionKey",
            "PHPSESSID",
            "x-shopify-hmac-sha256",
            "x-gitlab-token",
            "x-hub-signature-256",
            "plaid-verification",
            "x-webhook-auth",
            "pwd",
            "user.pass",
            "hub.verify_token",
            "clientSecret",
            "X-Amz-Signature",
            "X-Amz-Security-Token",
            "X-Amz-Credential",
        ] {
            assert!(is_credential(name), "{name}");
        }
    }

    #[test]
    fn ordinary_names_are_none() {
        for name in [
            "x-author",
            "x-github-event",
            "x-github-hook-installation-target-id",
            "design",
            "AccountSid",
            "CallSid",
            "country_code",
            "monkey",
            "keyword",
            "x-shopify-shop-domain",
            "bodySHA256",
            "i-twilio-idempotency-token",
            "idempotency-key",
            "tenant",
            "passenger",
            "x-slack-retry-reason",
            "signal",
            "",
            "ü",
        ] {
            assert!(!is_credential(name), "{name}");
        }
    }
}
