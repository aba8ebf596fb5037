//! Schemes that sign the URL: it is the one that the provider was told, and never what the request says of itself.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::Request;
use tower_webhook::ConfigErrorKind;
use tower_webhook::rejection::RejectionKind::SignatureMismatch;
use tower_webhook::scheme::{self, Scheme};
use tower_webhook::testing::{ManualClock, TestSender};

use crate::schemes::endpoint::{Endpoint, set};
use crate::schemes::preset::{Preset, SECRET};
use crate::schemes::signing::ByHand;
use crate::support::NOW;

const URL_SCHEMES: [&str; 5] = ["square", "hubspot", "hubspot-v2", "twilio", "twilio-shared-key"];

fn scheme_at(name: &str, url: &str) -> Arc<dyn Scheme> {
    try_scheme_at(name, url).unwrap_or_else(|error| panic!("{name} at {url}: {error}"))
}

fn try_scheme_at(name: &str, url: &str) -> Result<Arc<dyn Scheme>, tower_webhook::ConfigError> {
    Ok(match name {
        "square" => Arc::new(scheme::square(SECRET, url)?),
        "hubspot" => Arc::new(scheme::hubspot(SECRET, url)?),
        "hubspot-v2" => Arc::new(scheme::hubspot_v2(SECRET, url)?),
        "twilio" => Arc::new(scheme::twilio(SECRET, url)?),
        "twilio-shared-key" => Arc::new(scheme::twilio_shared_key(SECRET, url)?),
        other => panic!("{other} signs no URL"),
    })
}

/// A delivery for which the provider signed `url`, as it arrives at `uri`.
fn signed_for(name: &str, url: &str, uri: &str) -> Request<Bytes> {
    let signed = ByHand { url: url.to_owned(), ..ByHand::of(&Preset::named(name)).expect("signed by hand") };
    let mut request = signed.request();
    *request.uri_mut() = uri.parse().expect("a uri");
    request
}

#[tokio::test]
async fn what_is_configured_goes_before_what_is_requested() {
    for (configured, uri, signed) in [
        ("https://hooks.example.com/in", "/webhooks", "https://hooks.example.com/in"),
        ("https://hooks.example.com/in", "/webhooks?a=1&b=%20", "https://hooks.example.com/in?a=1&b=%20"),
        ("https://hooks.example.com/in", "/webhooks?", "https://hooks.example.com/in?"),
        ("https://hooks.example.com", "/webhooks", "https://hooks.example.com/webhooks"),
        ("https://hooks.example.com", "/web/hooks?a=1", "https://hooks.example.com/web/hooks?a=1"),
        ("https://hooks.example.com/", "/webhooks?a=1", "https://hooks.example.com/?a=1"),
        ("https://hooks.example.com/in?key=1", "/webhooks", "https://hooks.example.com/in?key=1"),
        ("https://hooks.example.com/in?key=1", "/webhooks?key=2&a=1", "https://hooks.example.com/in?key=1"),
        ("http://u:p@hooks.example.com:8080/in", "/webhooks", "http://u:p@hooks.example.com:8080/in"),
        // HTTP/2 and proxies name a host, which is an inner one or anybody's.
        ("https://hooks.example.com/in", "http://10.0.0.1:8080/webhooks?a=1", "https://hooks.example.com/in?a=1"),
        ("https://hooks.example.com", "http://evil.example/webhooks", "https://hooks.example.com/webhooks"),
    ] {
        for name in URL_SCHEMES {
            let endpoint = Endpoint::new(scheme_at(name, configured));
            endpoint.accepts(signed_for(name, signed, uri), &format!("{name} at {configured}, sent to {uri}")).await;
        }
    }
}

#[tokio::test]
async fn signature_for_another_url_is_refused() {
    for name in URL_SCHEMES {
        let endpoint = Endpoint::new(scheme_at(name, "https://hooks.example.com/in"));
        for signed in [
            "",
            "/webhooks",
            "https://hooks.example.com/webhooks",
            "http://localhost/webhooks",
            "http://hooks.example.com/in",
            "https://hooks.example.com/in/",
            "https://hooks.example.com/IN",
            "https://HOOKS.example.com/in",
            "https://hooks.example.com/in?",
            "https://hooks.example.com/in?a=1",
            "https://hooks.example.com:8443/in",
            "https://hooks.example.com.evil.example/in",
            "https://evil.example/in",
        ] {
            let request = signed_for(name, signed, "/webhooks");
            let kind = endpoint.refuses(request, Preset::named(name).statuses.1, &format!("{name}: {signed}")).await;
            assert_eq!(kind, SignatureMismatch, "{name}: {signed}");
        }
    }
}

/// A query that the provider did not sign is not slipped under its signature.
#[tokio::test]
async fn query_that_was_not_signed_is_refused() {
    for name in URL_SCHEMES {
        let endpoint = Endpoint::new(scheme_at(name, "https://hooks.example.com/in"));
        for uri in ["/webhooks?", "/webhooks?a=2", "/webhooks?a=1&b=2", "/webhooks?A=1", "/webhooks?%61=1", "/webhooks"]
        {
            let request = signed_for(name, "https://hooks.example.com/in?a=1", uri);
            endpoint.refuses(request, Preset::named(name).statuses.1, &format!("{name}: {uri}")).await;
        }
    }
}

#[tokio::test]
async fn headers_that_name_a_host_are_not_believed() {
    for name in URL_SCHEMES {
        let endpoint = Endpoint::new(scheme_at(name, "https://hooks.example.com"));
        let mut forged = signed_for(name, "https://evil.example/webhooks", "/webhooks");
        for (header, value) in [
            ("host", "evil.example"),
            ("x-forwarded-host", "evil.example"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "host=evil.example;proto=https"),
            ("x-original-host", "evil.example"),
        ] {
            set(&mut forged, header, value);
        }
        endpoint.refuses(forged, Preset::named(name).statuses.1, name).await;
    }
}

/// As in HubSpot's own code: these and no others, in either case.
#[tokio::test]
async fn hubspot_signs_twelve_characters_unescaped() {
    let escaped = "a=%3A%2F%3F%40%21%24%27%28%29%2A%2C%3B&b=%3a%2f%3f%2a%2c%3b";
    let plain = "a=:/?@!$'()*,;&b=:/?*,;";
    let url = "https://hooks.example.com/in";
    let endpoint = || Endpoint::new(scheme_at("hubspot", url));
    let (uri, signed) = (format!("/webhooks?{escaped}"), format!("{url}?{plain}"));
    endpoint().accepts(signed_for("hubspot", &signed, &uri), "unescaped").await;
    endpoint().refuses(signed_for("hubspot", &format!("{url}?{escaped}"), &uri), 401, "as they were sent").await;
    // What is sent plainly is signed plainly.
    endpoint().accepts(signed_for("hubspot", &signed, &format!("/webhooks?{plain}")), "plain").await;
    for other in ["%20", "%26", "%3D", "%2B", "%23", "%25", "%25%33%41", "%253A", "%C3%A9", "%5B", "%22", "%3C", "%2E"]
    {
        let (uri, kept) = (format!("/webhooks?a={other}"), format!("{url}?a={other}"));
        endpoint().accepts(signed_for("hubspot", &kept, &uri), &format!("{other} stays")).await;
    }
    for broken in ["%", "%3", "%3g", "%zz", "%+A", "%-1"] {
        let (uri, kept) = (format!("/webhooks?a={broken}"), format!("{url}?a={broken}"));
        endpoint().accepts(signed_for("hubspot", &kept, &uri), &format!("{broken} is no escape")).await;
    }
}

#[tokio::test]
async fn hubspot_v2_and_square_sign_the_url_as_it_was_sent() {
    let url = "https://hooks.example.com/in";
    for name in ["hubspot-v2", "square"] {
        let (uri, signed) = ("/webhooks?a=%3A%2F", format!("{url}?a=%3A%2F"));
        Endpoint::new(scheme_at(name, url)).accepts(signed_for(name, &signed, uri), name).await;
        let unescaped = signed_for(name, &format!("{url}?a=:/"), uri);
        Endpoint::new(scheme_at(name, url)).refuses(unescaped, 401, name).await;
    }
}

/// HubSpot's v2 and v3 sign it; a captured POST is no PUT.
#[tokio::test]
async fn method_is_signed_where_hubspot_signs_it() {
    use axum::http::Method;
    for name in ["hubspot", "hubspot-v2"] {
        let endpoint = Endpoint::configured(scheme_at(name, "https://hooks.example.com/in"), |layer| {
            layer.methods([Method::POST, Method::PUT]).expect("methods")
        });
        let sender = TestSender::new(scheme_at(name, "https://hooks.example.com/in")).clock(ManualClock::at_unix(NOW));
        endpoint.accepts(sender.deliver("[1]").method(Method::PUT).request_as(), name).await;
        let mut changed: Request<Bytes> = sender.deliver("[2]").request_as();
        *changed.method_mut() = Method::PUT;
        endpoint.refuses(changed, 401, name).await;
    }
}

#[test]
fn invalid_public_url_does_not_build() {
    for name in URL_SCHEMES {
        for url in [
            "",
            "/webhooks",
            "hooks.example.com",
            "hooks.example.com/in",
            "https://",
            "https:///in",
            "not a url",
            "https//x/in",
        ] {
            let error = try_scheme_at(name, url).err().unwrap_or_else(|| panic!("{name} was built with {url:?}"));
            assert_eq!(error.kind(), ConfigErrorKind::Scheme, "{name}: {url:?}");
            assert!(error.to_string().contains("https://example.com/path"), "{error}");
        }
    }
}

/// It may have a password in it.
#[test]
fn public_url_is_not_shown() {
    let url = "https://user:pa55word@hooks.example.com/in";
    let shown = [
        format!("{:?}", scheme::square(SECRET, url).unwrap()),
        format!("{:?}", scheme::hubspot(SECRET, url).unwrap()),
        format!("{:?}", scheme::twilio(SECRET, url).unwrap()),
    ];
    for shown in shown {
        assert!(!shown.contains("pa55word") && !shown.contains(SECRET), "{shown}");
    }
}
