//! Twilio: the URL with and without its port, the parameters in order, and the digest of a body that is no form.

use axum::body::Bytes;
use axum::http::Request;
use sha2::{Digest, Sha256};
use tower_webhook::rejection::RejectionKind::{MalformedSignature, SignatureMismatch};
use tower_webhook::scheme::{self, Algorithm, Encoding};

use crate::schemes::endpoint::{Endpoint, set};
use crate::schemes::preset::SECRET;
use crate::schemes::signing::{signature, spell};

pub(crate) const HOOK: &str = "https://hooks.example.com/in";
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

pub(crate) fn endpoint(url: &str) -> Endpoint {
    Endpoint::new(scheme::twilio(SECRET, url).expect("a url"))
}

/// The signature of this very text.
pub(crate) fn over(text: &str) -> String {
    spell(Encoding::Base64, &signature(Algorithm::HmacSha1, SECRET.as_bytes(), text.as_bytes()))
}

pub(crate) fn sent(uri: &str, content_type: &str, body: &str, signature: &str) -> Request<Bytes> {
    let mut request = Request::post(uri).body(Bytes::copy_from_slice(body.as_bytes())).expect("a request");
    set(&mut request, "x-twilio-signature", signature);
    set(&mut request, "content-type", content_type);
    request
}

fn digest(body: &str) -> String {
    hex::encode(Sha256::digest(body))
}

/// No header says which algorithm counts: each of the two schemes has its own.
#[tokio::test]
async fn algorithm_is_the_schemes_and_no_headers() {
    let of =
        |algorithm| spell(Encoding::Base64, &signature(algorithm, SECRET.as_bytes(), format!("{HOOK}A1").as_bytes()));
    let token = || Endpoint::new(scheme::twilio(SECRET, HOOK).expect("a url"));
    let shared_key = || Endpoint::new(scheme::twilio_shared_key(SECRET, HOOK).expect("a url"));
    for announced in [None, Some("HMAC_SHA1"), Some("HMAC_SHA256"), Some("none")] {
        let request = |algorithm| {
            let mut request = sent("/webhooks", FORM, "A=1", &of(algorithm));
            if let Some(announced) = announced {
                let settings = format!("key=webhooks_sharedkey_1,algorithm={announced}");
                set(&mut request, "x-twilio-webhooks-signature-settings", &settings);
            }
            request
        };
        let what = format!("{announced:?}");
        token().accepts(request(Algorithm::HmacSha1), &what).await;
        shared_key().accepts(request(Algorithm::HmacSha256), &what).await;
        assert_eq!(token().refuses(request(Algorithm::HmacSha256), 403, &what).await, MalformedSignature);
        assert_eq!(shared_key().refuses(request(Algorithm::HmacSha1), 403, &what).await, MalformedSignature);
    }
}

#[tokio::test]
async fn url_is_signed_with_its_port_or_without() {
    for (configured, signed, accepted) in [
        ("https://a.example/in", "https://a.example/in", true),
        ("https://a.example/in", "https://a.example:443/in", true),
        ("https://a.example/in", "https://a.example:80/in", false),
        ("https://a.example/in", "https://a.example:8443/in", false),
        ("https://a.example/in", "https://a.example:/in", false),
        ("https://a.example:8443/in", "https://a.example:8443/in", true),
        ("https://a.example:8443/in", "https://a.example/in", true),
        ("https://a.example:8443/in", "https://a.example:443/in", false),
        ("http://a.example/in", "http://a.example:80/in", true),
        ("http://a.example/in", "http://a.example:443/in", false),
        ("http://a.example/in", "https://a.example/in", false),
        ("https://u:p@a.example/in", "https://u:p@a.example/in", true),
        ("https://u:p@a.example/in", "https://u:p@a.example:443/in", true),
        ("https://u:p@a.example/in", "https://a.example/in", false),
        ("https://u:1@a.example/in", "https://u@a.example/in", false),
        ("https://[::1]/in", "https://[::1]:443/in", true),
        ("https://[::1]:99/in", "https://[::1]/in", true),
        ("https://[::1]:99/in", "https://[:]/in", false),
        ("https://a.example/in:1", "https://a.example:443/in:1", true),
        ("https://a.example/in:1", "https://a.example/in", false),
    ] {
        let what = format!("{configured} signed as {signed}");
        let request = sent("/webhooks", FORM, "A=1", &over(&format!("{signed}A1")));
        match accepted {
            true => drop(endpoint(configured).accepts(request, &what).await),
            false => drop(endpoint(configured).refuses(request, 403, &what).await),
        }
    }
}

#[tokio::test]
async fn port_is_looked_for_in_the_authority_only() {
    let request = sent("/webhooks?t=12:34/x@y", FORM, "A=1", &over(&format!("{HOOK}?t=12:34/x@yA1")));
    endpoint(HOOK).accepts(request, "as it is").await;
    let with_port = over("https://hooks.example.com:443/in?t=12:34/x@yA1");
    endpoint(HOOK).accepts(sent("/webhooks?t=12:34/x@y", FORM, "A=1", &with_port), "with the port").await;
}

#[tokio::test]
async fn parameters_are_sorted_by_bytes_and_repeated_values_once() {
    for (body, signed) in [
        ("B=2&A=1", "A1B2"),
        ("a=2&B=1&A=3", "A3B1a2"),
        ("A=2&A=1", "A1A2"),
        ("A=1&A=1", "A1"),
        ("A=2&A=1&A=2", "A1A2"),
        ("A=%2B1+2", "A+1 2"),
        ("A=%C3%A9", "Aé"),
        ("A", "A"),
        ("A=", "A"),
        ("A=b=c", "Ab=c"),
        ("A=%zz%4", "A%zz%4"),
        ("A=1&&B=2&", "A1B2"),
        ("Ab=1&A=b1", "Ab1Ab1"),
        ("", ""),
    ] {
        let request = sent("/webhooks", FORM, body, &over(&format!("{HOOK}{signed}")));
        endpoint(HOOK).accepts(request, body).await;
    }
    for (body, signed) in
        [("B=2&A=1", "B2A1"), ("A=2&A=1", "A2A1"), ("A=1&A=1", "A1A1"), ("A=1", ""), ("A=%2B1", "A%2B1")]
    {
        let request = sent("/webhooks", FORM, body, &over(&format!("{HOOK}{signed}")));
        assert_eq!(endpoint(HOOK).refuses(request, 403, body).await, SignatureMismatch, "{body}");
    }
}

#[tokio::test]
async fn form_is_told_by_its_content_type() {
    let signed = over(&format!("{HOOK}A1"));
    for content_type in
        [FORM, "application/x-www-form-urlencoded; charset=UTF-8", "Application/X-WWW-Form-Urlencoded ;x"]
    {
        endpoint(HOOK).accepts(sent("/webhooks", content_type, "A=1", &signed), content_type).await;
    }
    for content_type in ["", JSON, "text/plain", "multipart/form-data", "application/x-www-form-urlencodedx"] {
        for signed in [&signed, &over(HOOK), &over(&format!("{HOOK}A=1"))] {
            let kind = endpoint(HOOK).refuses(sent("/webhooks", content_type, "A=1", signed), 403, content_type).await;
            assert_eq!(kind, MalformedSignature, "{content_type}: nothing covers the body");
        }
    }
    let mut none = sent("/webhooks", FORM, "A=1", &signed);
    none.headers_mut().remove("content-type");
    endpoint(HOOK).refuses(none, 403, "no content type").await;
}

#[tokio::test]
async fn body_that_is_no_form_is_covered_by_its_digest() {
    let body = r#"{"id":1}"#;
    let right = digest(body);
    for query in [format!("bodySHA256={right}"), format!("a=1&bodySHA256={right}")] {
        let request = sent(&format!("/webhooks?{query}"), JSON, body, &over(&format!("{HOOK}?{query}")));
        endpoint(HOOK).accepts(request, &query).await;
    }
    for query in [
        String::new(),
        "bodySHA256".to_owned(),
        "bodySHA256=".to_owned(),
        format!("bodySHA256={}", digest("{}")),
        format!("bodySHA256={}", right.to_uppercase()),
        format!("bodySHA256={}", &right[..63]),
        format!("bodySHA256={right}0"),
        format!("bodysha256={right}"),
        format!("bodySHA256={right}&bodySHA256={right}"),
        format!("bodySHA256={}&bodySHA256={right}", digest("{}")),
        format!("a=bodySHA256={right}"),
    ] {
        let request = sent(&format!("/webhooks?{query}"), JSON, body, &over(&format!("{HOOK}?{query}")));
        endpoint(HOOK).refuses(request, 403, &query).await;
    }
}

/// The digest in the URL is signed; the one of another body is somebody else's doing.
#[tokio::test]
async fn captured_digest_does_not_cover_an_empty_body() {
    let query = format!("bodySHA256={}", digest(r#"{"id":1}"#));
    let signature = over(&format!("{HOOK}?{query}"));
    for (content_type, body) in [(JSON, ""), (FORM, ""), (FORM, "&&&")] {
        endpoint(HOOK).refuses(sent(&format!("/webhooks?{query}"), content_type, body, &signature), 403, body).await;
    }
}

#[tokio::test]
async fn digest_that_was_not_signed_covers_nothing() {
    let (body, forged) = (r#"{"id":1}"#, r#"{"id":2}"#);
    let signature = over(&format!("{HOOK}?bodySHA256={}", digest(body)));
    for uri in [format!("/webhooks?bodySHA256={}", digest(forged)), format!("/webhooks?bodySHA256={}", digest(body))] {
        endpoint(HOOK).refuses(sent(&uri, JSON, forged, &signature), 403, &uri).await;
    }
}

#[tokio::test]
async fn form_is_covered_by_its_parameters_whatever_the_url_says() {
    let body = "A=1&B=2";
    let query = format!("bodySHA256={}", digest(body));
    let url = format!("{HOOK}?{query}");
    let signature = over(&format!("{url}A1B2"));
    endpoint(HOOK).accepts(sent(&format!("/webhooks?{query}"), FORM, body, &signature), "its parameters").await;
    for (what, body, signed) in [
        ("the digest alone", body, url.clone()),
        ("another form", "A=1&B=3", format!("{url}A1B2")),
        ("another form, and the digest alone", "A=1&B=3", url.clone()),
        ("no parameters", "&&", url.clone()),
        ("nothing", "", url.clone()),
    ] {
        endpoint(HOOK).refuses(sent(&format!("/webhooks?{query}"), FORM, body, &over(&signed)), 403, what).await;
    }
}

/// But for the digest of the body, which no configuration can know.
#[tokio::test]
async fn configured_query_leaves_nothing_to_the_request() {
    let url = format!("{HOOK}?tenant=1");
    let form = sent("/webhooks?tenant=2", FORM, "A=1", &over(&format!("{url}A1")));
    endpoint(&url).accepts(form, "as configured").await;
    let body = "{}";
    let query = format!("tenant=1&bodySHA256={}", digest(body));
    let json = |body: &str| sent(&format!("/webhooks?{query}"), JSON, body, &over(&format!("{HOOK}?{query}")));
    endpoint(&url).accepts(json(body), "the request's digest").await;
    assert_eq!(endpoint(&url).refuses(json("[]"), 403, "another body").await, SignatureMismatch);
    let other = sent("/webhooks?tenant=1", JSON, body, &over(&url));
    assert_eq!(endpoint(&url).refuses(other, 403, "no digest").await, MalformedSignature);
}

/// What stands behind the URL begins with a name; it cannot become a query that was not there.
#[tokio::test]
async fn parameters_do_not_become_a_query() {
    let signature = over(&format!("{HOOK}A1B2"));
    for (uri, body) in
        [("/webhooks?A1", "B=2"), ("/webhooks?A=1", "B=2"), ("/webhooks?A1B2", ""), ("/webhooks?", "A=1&B=2")]
    {
        endpoint(HOOK).refuses(sent(uri, FORM, body, &signature), 403, uri).await;
    }
    let configured = format!("{HOOK}?tenant=1");
    let signature = over(&format!("{configured}A1B2"));
    for uri in ["/webhooks?tenant=1A1", "/webhooks?tenant=1"] {
        endpoint(&configured).refuses(sent(uri, FORM, "B=2", &signature), 403, uri).await;
    }
}

/// Nor does what was signed in the query become a parameter, unless it was none before.
#[tokio::test]
async fn query_does_not_become_a_parameter_where_the_url_is_configured() {
    let configured = format!("{HOOK}?tenant=1");
    let signature = over(&format!("{configured}A1"));
    for (uri, body) in [("/webhooks?tenant=", "1A=1"), ("/webhooks", "A=1&tenant=1"), ("/webhooks", "tenant=1A1")] {
        endpoint(&configured).refuses(sent(uri, FORM, body, &signature), 403, body).await;
    }
}
