//! Rows 24 to 50: the signatures, and the list that they stand in. Rows 51 and 52 are in `http`.

use std::sync::atomic::Ordering;

use axum::http::HeaderValue;
use tower_webhook::rejection::RejectionKind::{
    MalformedSignature, RepeatedSignature, SignatureMismatch, UnsupportedSignature,
};

use crate::bad_input::case::{BODY, accepted, endless_body, good, header_by, refused, request, sign};
use crate::support::{HEADER, NOW, SECRET};

const BAD: &str = "00000000000000000000000000000000000000000000000000000000000000ff";

#[tokio::test]
async fn any_good_v1_is_enough() {
    let (good, upper) = (good(), good().to_uppercase());
    let mixed = format!("{}{}", &good[..32], &upper[32..]);
    for (what, header) in [
        ("26: v1 bad + v1 good", format!("t={NOW},v1={BAD},v1={good}")),
        ("26: v1 good + v1 bad", format!("t={NOW},v1={good},v1={BAD}")),
        ("26: v1 undecodable + v1 good", format!("t={NOW},v1=zz,v1={good}")),
        ("26: v1 empty + v1 good", format!("t={NOW},v1=,v1={good}")),
        ("26: v1 too long + v1 good", format!("t={NOW},v1={BAD}{BAD},v1={good}")),
        ("26: the same v1 twice", format!("t={NOW},v1={good},v1={good}")),
        ("26: t at the end", format!("v1={good},t={NOW}")),
        ("27: v1 good + unknown v2", format!("t={NOW},v1={good},v2=anything+/==")),
        ("27: v0 bad + v1 good", format!("t={NOW},v0={BAD},v1={good}")),
        ("27: another word + v1 good", format!("kid=3,t={NOW},v1={good}")),
        ("29: uppercase hex", format!("t={NOW},v1={upper}")),
        ("29: mixed hex", format!("t={NOW},v1={mixed}")),
    ] {
        accepted(request(header, BODY), what).await;
    }
}

#[tokio::test]
async fn other_versions_do_not_count() {
    let good = good();
    for (what, header, kind) in [
        ("24: only v0, correct digest", format!("t={NOW},v0={good}"), UnsupportedSignature),
        ("24: only v2, correct digest", format!("t={NOW},v2={good}"), UnsupportedSignature),
        ("24: only v10, correct digest", format!("t={NOW},v10={good}"), UnsupportedSignature),
        ("25: v0 good + v1 bad", format!("t={NOW},v0={good},v1={BAD}"), SignatureMismatch),
        ("25: v1 bad + v0 good", format!("t={NOW},v1={BAD},v0={good}"), SignatureMismatch),
        ("25: v0 good + v1 undecodable", format!("t={NOW},v0={good},v1=zz"), MalformedSignature),
        ("28: V1=", format!("t={NOW},V1={good}"), UnsupportedSignature),
        ("28: T=", format!("T={NOW},v1={good}"), MalformedSignature),
    ] {
        refused(request(header, BODY), 401, kind, what).await;
    }
}

#[tokio::test]
async fn signature_is_64_hex_digits() {
    let good = good();
    for (what, v1) in [
        ("30: empty v1", String::new()),
        ("31: 63 hex digits", good[..63].to_owned()),
        ("31: 62 hex digits", good[..62].to_owned()),
        ("32: 65 hex digits", format!("{good}0")),
        ("32: 66 hex digits", format!("{good}00")),
        ("33: correct one-byte prefix", good[..2].to_owned()),
        ("33: correct half", good[..32].to_owned()),
        ("34: digest doubled", format!("{good}{good}")),
        ("35: non-hex", "g".repeat(64)),
        ("35: one letter is not hex", format!("{}g", &good[..63])),
        ("36: nothing but +f pairs", "+f".repeat(32)),
        ("37: base64 digest", base64(&hex::decode(&good).expect("hex"))),
        ("38: 0x prefix", format!("0x{good}")),
        ("38: 0x prefix within 64", format!("0x{}", &good[2..])),
        ("39: sha256= prefix", format!("sha256={good}")),
        ("40: quoted", format!("\"{good}\"")),
        ("40: quoted within 64", format!("\"{}\"", &good[1..63])),
        ("41: é across a pair, 64 bytes", format!("{}é{}", &good[..1], &good[3..])),
        ("41: é across a pair, 64 letters", format!("{}é{}", &good[..1], &good[2..])),
        ("41: é 32 times", "é".repeat(32)),
        ("46: v1==", format!("={good}")),
        ("46: = at the end", format!("{good}=")),
    ] {
        refused(request(format!("t={NOW},v1={v1}"), BODY), 401, MalformedSignature, what).await;
    }
    refused(request(format!("\"t={NOW},v1={good}\""), BODY), 401, MalformedSignature, "40: all of it quoted").await;
}

#[tokio::test]
async fn plus_signs_are_no_digits() {
    let bodies = (0..1000).map(|n| format!(r#"{{"id":"evt_{n}"}}"#));
    let mut signed = bodies.map(|body| (sign(NOW.to_string(), &body), body));
    let (digest, body) = signed.find(|(digest, _)| digest.starts_with('0')).expect("a digest with a leading zero");
    accepted(request(format!("t={NOW},v1={digest}"), body.clone()), "36: the digest itself").await;
    let header = format!("t={NOW},v1=+{}", &digest[1..]);
    refused(request(header, body), 401, MalformedSignature, "36: +f for 0f").await;
}

#[tokio::test]
async fn header_is_ascii() {
    let good = good();
    for byte in 0x80..=0xff_u8 {
        for (what, before, after) in [
            ("42: in front", String::new(), format!("t={NOW},v1={good}")),
            ("42: at the end", format!("t={NOW},v1={good}"), String::new()),
            ("42: in a key", format!("t={NOW},v"), format!("1={good}")),
            ("42: in t", format!("t={}", NOW / 10), format!(",v1={good}")),
            ("42: in v1", format!("t={NOW},v1={}", &good[..10]), good[11..].to_owned()),
        ] {
            let header = [before.as_bytes(), &[byte], after.as_bytes()].concat();
            refused(request(header, BODY), 401, MalformedSignature, &format!("{what}, {byte:#x}")).await;
        }
    }
}

#[tokio::test]
async fn header_is_ascii_beside_a_good_signature_too() {
    let good = good();
    for byte in 0x80..=0xff_u8 {
        for (what, before, after) in [
            ("42: in a v1 beside a good one", format!("t={NOW},v1="), format!(",v1={good}")),
            ("42: in what is passed over", format!("t={NOW},v1={good},v2="), String::new()),
        ] {
            let header = [before.as_bytes(), &[byte], after.as_bytes()].concat();
            refused(request(header, BODY), 401, MalformedSignature, &format!("{what}, {byte:#x}")).await;
        }
    }
}

#[tokio::test]
async fn list_has_one_syntax() {
    let good = good();
    for (what, header) in [
        ("43: ; separator", format!("t={NOW};v1={good}")),
        ("43: space separator", format!("t={NOW} v1={good}")),
        ("43: & separator", format!("t={NOW}&v1={good}")),
        ("44: space after comma", format!("t={NOW}, v1={good}")),
        ("44: space before comma", format!("t={NOW} ,v1={good}")),
        ("44: space around =", format!("t={NOW},v1 = {good}")),
        ("44: space at the end", format!("t={NOW},v1={good} ")),
        ("44: space in front", format!(" t={NOW},v1={good}")),
        ("45: leading comma", format!(",t={NOW},v1={good}")),
        ("45: trailing comma", format!("t={NOW},v1={good},")),
        ("45: double comma", format!("t={NOW},,v1={good}")),
        ("45: element without =", format!("t={NOW},v1,v1={good}")),
        ("45: element without a key", format!("t={NOW},={good},v1={good}")),
        ("45: : for =", format!("t:{NOW},v1:{good}")),
    ] {
        refused(request(header, BODY), 401, MalformedSignature, what).await;
    }
}

#[tokio::test]
async fn signatures_are_capped() {
    let good = format!(",v1={}", good());
    let (bad, junk) = (format!(",v1={BAD}"), ",v1=zz");
    let sixteen = format!("t={NOW}{}{good}", bad.repeat(15));
    accepted(request(sixteen, BODY), "47: sixteen v1, the last one good").await;
    for (what, values) in [
        ("47: 17 v1, the first good", format!("{good}{}", bad.repeat(16))),
        ("47: 17 v1, the last good", format!("{}{good}", bad.repeat(16))),
        ("47: 17 v1, all good", good.repeat(17)),
        ("47: 17 v1, all but one undecodable", format!("{good}{}", junk.repeat(16))),
        ("48: a thousand empty v1 in 4 KiB", format!("{good}{}", ",v1=".repeat(900))),
        ("48: two thousand other values, two bytes each", format!("{good}{}", ",x".repeat(1900))),
        ("48: five thousand v1", good.repeat(5000)),
    ] {
        // Not a byte of the body is read, let alone hashed, for them.
        let (body, polled) = endless_body(b" ");
        refused(request(format!("t={NOW}{values}"), body), 401, MalformedSignature, what).await;
        assert_eq!(polled.load(Ordering::SeqCst), 0, "{what}");
    }
}

#[tokio::test]
async fn header_has_at_most_4_kib() {
    let header = format!("t={NOW},v1={},x=", good());
    let padded = |length: usize| format!("{header}{}", "a".repeat(length - header.len()));
    accepted(request(padded(4096), BODY), "49: header of 4 KiB").await;
    for length in [4097, 70_000] {
        refused(request(padded(length), BODY), 401, MalformedSignature, "49: header over 4 KiB").await;
    }
}

#[tokio::test]
async fn repeated_header_is_refused() {
    let (good, bad) = (header_by(SECRET, BODY), format!("t={NOW},v1={BAD}"));
    let (part, rest) = (format!("t={NOW}"), format!("v1={}", crate::bad_input::case::good()));
    for (what, first, second) in [
        ("50: good + bad", &good, &bad),
        ("50: bad + good", &bad, &good),
        ("50: good + another good", &good, &good.to_uppercase().replace("T=", "t=").replace(",V1=", ",v1=")),
        ("50: the same twice", &good, &good),
        ("50: good + empty", &good, &String::new()),
        ("50: empty + good", &String::new(), &good),
        ("50: one header in two", &part, &rest),
    ] {
        let mut request = request(first, BODY);
        request.headers_mut().append(HEADER, HeaderValue::from_str(second).expect("text"));
        refused(request, 401, RepeatedSignature, what).await;
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | chunk.get(at).copied().map_or(0, usize::from));
        let letter = |at: usize| if at > chunk.len() { '=' } else { char::from(ALPHABET[bits >> (18 - 6 * at) & 63]) };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}
