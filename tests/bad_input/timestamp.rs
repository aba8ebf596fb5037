//! Rows 1 to 23: the header as a whole, and its timestamp.

use tower_webhook::rejection::RejectionKind::{
    Early, MalformedSignature, MissingSignature, SignatureMismatch, Stale, UnsupportedSignature,
};
use tower_webhook::scheme::{self, Tolerance};

use crate::bad_input::case::{
    BODY, accepted, accepted_by, good, receiver_with, refused, refused_by, request, sign, unsigned,
};
use crate::support::{NOW, SECRET};

const TOLERANCE: u64 = 300;

#[tokio::test]
async fn header_must_be_there_and_whole() {
    refused(unsigned(BODY), 401, MissingSignature, "1: header absent").await;
    let good = good();
    for (what, header, kind) in [
        ("2: empty", String::new(), MissingSignature),
        ("3: whitespace", " ".into(), MalformedSignature),
        ("3: whitespace, tab", "\t \t".into(), MalformedSignature),
        ("4: no v1", format!("t={NOW}"), UnsupportedSignature),
        ("5: no t", format!("v1={good}"), MalformedSignature),
        ("5: no t, a bare digest", good.clone(), MalformedSignature),
        ("5: no t, another key", format!("ts={NOW},v1={good}"), MalformedSignature),
    ] {
        refused(request(header, BODY), 401, kind, what).await;
    }
}

#[tokio::test]
async fn timestamp_has_one_spelling() {
    for (what, text) in [
        ("6: t=", ""),
        ("7: t=abc", "abc"),
        ("8: t=+N", "+1700000000"),
        ("9: t=-1", "-1"),
        ("9: t=-0", "-0"),
        ("9: t=-N", "-1700000000"),
        ("9: i64::MIN", "-9223372036854775808"),
        ("10: leading zero", "01700000000"),
        ("10: only zeros", "00"),
        ("11: space before N", " 1700000000"),
        ("11: space after N", "1700000000 "),
        ("11: tab before N", "\t1700000000"),
        ("12: float", "1700000000.0"),
        ("12: dot at the end", "1700000000."),
        ("13: 1e9", "1e9"),
        ("13: 17e8, which is now", "17e8"),
        ("14: 0x…", "0x6553f100"),
        ("14: hex without prefix", "6553f100"),
        ("15: Arabic-Indic digits", "١٧٠٠٠٠٠٠٠٠"),
        ("15: fullwidth digits", "１７００００００００"),
        ("17: twenty digits, more than fit", "99999999999999999999"),
        ("17: a thousand digits", &"9".repeat(1000)),
        ("17: underscores", "1_700_000_000"),
    ] {
        // Neither the text as it stands nor the number that a lenient parser would make of it may be signed.
        for signed in [text, "1700000000"] {
            let header = format!("t={text},v1={}", sign(signed, BODY));
            refused(request(header, BODY), 401, MalformedSignature, what).await;
        }
    }
}

#[tokio::test]
async fn timestamp_is_near_now() {
    for (what, seconds, kind) in [
        ("16: i64::MAX", i64::MAX as u64, MalformedSignature),
        ("17: twenty digits, u64::MAX", u64::MAX, MalformedSignature),
        ("18: milliseconds", NOW * 1000, MalformedSignature),
        ("18: hundredths of a second", NOW * 100, Early),
        ("19: now - tolerance - 1 s", NOW - TOLERANCE - 1, Stale),
        ("19: the epoch", 0, Stale),
        ("21: now + tolerance + 1 s", NOW + TOLERANCE + 1, Early),
    ] {
        let header = format!("t={seconds},v1={}", sign(seconds.to_string(), BODY));
        refused(request(header, BODY), 401, kind, what).await;
    }
    for (what, seconds) in [
        ("20: now - tolerance exactly", NOW - TOLERANCE),
        ("20: now + tolerance exactly", NOW + TOLERANCE),
        ("20: now", NOW),
    ] {
        let header = format!("t={seconds},v1={}", sign(seconds.to_string(), BODY));
        accepted(request(header, BODY), what).await;
    }
}

#[tokio::test]
async fn stale_delivery_cannot_be_freshened() {
    let old = NOW - TOLERANCE - 1;
    let header = format!("t={NOW},v1={}", sign(old.to_string(), BODY));
    refused(request(header, BODY), 401, SignatureMismatch, "19: stale, with another t").await;
}

#[tokio::test]
async fn unchecked_timestamps_are_still_parsed() {
    let receiver =
        receiver_with(scheme::timestamped(SECRET).expect("a secret").tolerance(Tolerance::InsecureUnchecked));
    for (what, text) in [
        ("8: t=+N, unchecked", "+1700000000"),
        ("10: leading zero, unchecked", "01700000000"),
        ("16: i64::MAX, unchecked", "9223372036854775807"),
        ("17: u64::MAX, unchecked", "18446744073709551615"),
    ] {
        let header = format!("t={text},v1={}", sign(text, BODY));
        refused_by(&receiver, request(header, BODY), 401, MalformedSignature, what).await;
    }
    for (what, text) in [("19: the epoch, unchecked", "0"), ("21: the far future, unchecked", "999999999999")] {
        let body = format!(r#"{{"id":"{text}"}}"#);
        let header = format!("t={text},v1={}", sign(text, &body));
        accepted_by(&receiver, request(header, body), what).await;
    }
}

#[tokio::test]
async fn repeated_timestamp_is_refused() {
    let (other, good) = (NOW - 1, good());
    let good_of_other = sign(other.to_string(), BODY);
    for (what, header) in [
        ("22: two equal t", format!("t={NOW},t={NOW},v1={good}")),
        ("22: two equal t, apart", format!("t={NOW},v1={good},t={NOW}")),
        ("22: the second is empty", format!("t={NOW},v1={good},t=")),
        ("23: two t, signed over the first", format!("t={NOW},t={other},v1={good}")),
        ("23: two t, signed over the second", format!("t={other},t={NOW},v1={good}")),
        ("23: two t, both signed", format!("t={NOW},v1={good},t={other},v1={good_of_other}")),
        ("23: two t, signed over both", format!("t={NOW},t={other},v1={}", sign(format!("{NOW},{other}"), BODY))),
    ] {
        refused(request(header, BODY), 401, MalformedSignature, what).await;
    }
}
