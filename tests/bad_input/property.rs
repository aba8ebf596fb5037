//! What holds of any header and any body.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

use crate::bad_input::case::{BODY, good, header_by, request, sign};
use crate::support::{NOW, Receiver, SECRET};

/// Holds `check` against many values, on one runtime.
fn for_any<S: Strategy>(values: S, check: impl AsyncFn(S::Value)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) };
    let checked = TestRunner::new(config).run(&values, |value| {
        runtime.block_on(check(value));
        Ok(())
    });
    checked.expect("it holds of every value");
}

/// Whether a fresh receiver takes the request; a refusal must be a 401 that left nothing behind.
async fn takes(request: Request<Body>) -> bool {
    let receiver = Receiver::new();
    let answer = receiver.send(request).await;
    let accepted = answer.status.is_success();
    if !accepted {
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::UNAUTHORIZED, &b""[..]));
    }
    assert_eq!((receiver.runs(), receiver.store.len()), (usize::from(accepted), usize::from(accepted)));
    accepted
}

/// The grammar, written down once more.
fn is_valid(header: &str) -> bool {
    let elements: Option<Vec<(&str, &str)>> = header.split(',').map(|element| element.split_once('=')).collect();
    let Some(elements) = elements else { return false };
    let all = |wanted: &'static str| elements.iter().filter(move |(key, _)| *key == wanted).map(|(_, value)| *value);
    let word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let [time] = all("t").collect::<Vec<_>>()[..] else { return false };
    header.len() <= 4096
        && elements.iter().all(|(key, value)| word(key) && value.is_ascii())
        && [NOW, NOW - 1].iter().any(|seconds| seconds.to_string() == time)
        && all("v1").count() <= 16
        && all("v1").any(|v1| v1.eq_ignore_ascii_case(&sign(time, BODY)))
}

#[test]
fn arbitrary_headers_are_refused() {
    for_any(prop::collection::vec(any::<u8>(), 0..200), async |bytes| {
        if HeaderValue::from_bytes(&bytes).is_ok() {
            assert!(!takes(request(bytes, BODY)).await);
        }
    });
}

#[test]
fn header_is_taken_exactly_when_it_is_valid() {
    let (good, upper, other) = (good(), good().to_uppercase(), sign((NOW - 1).to_string(), BODY));
    let elements = [
        format!("t={NOW}"),
        format!("t={}", NOW - 1),
        format!("t=0{NOW}"),
        "t".into(),
        "t=".into(),
        format!("v1={good}"),
        format!("v1={upper}"),
        format!("v1={other}"),
        format!("v1={}", &good[1..]),
        format!("v1 ={good}"),
        format!(" v1={good}"),
        format!("v1=é{}", &good[2..]),
        format!("v0={good}"),
        "v1=".into(),
        ["v1=00"; 14].join(","),
        "v2=a=b".into(),
        "x=1".into(),
        "=".into(),
        String::new(),
    ];
    let start = Just(vec![format!("t={NOW}"), format!("v1={good}")]);
    let extra = prop::collection::vec(prop::sample::select(elements.to_vec()), 0..4);
    let lists = (start, extra).prop_map(|(start, extra)| [start, extra].concat()).prop_shuffle();
    let cut =
        lists.prop_flat_map(|list| (0..list.len()).prop_map(move |from| list[from.saturating_sub(1)..].join(",")));
    let (taken, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for_any(cut, async |header| {
        let valid = is_valid(&header);
        assert_eq!(takes(request(&header, BODY)).await, valid, "{header}");
        if valid { &taken } else { &refused }.fetch_add(1, Ordering::Relaxed);
    });
    assert!(taken.into_inner() > 0 && refused.into_inner() > 0, "both kinds were tried");
}

#[test]
fn any_changed_byte_of_the_header_is_noticed() {
    let header = header_by(SECRET, BODY);
    let digest_at = header.find("v1=").expect("a signature") + 3;
    for_any((any::<Index>(), any::<u8>()), async |(index, byte)| {
        let mut bytes = header.clone().into_bytes();
        let at = index.index(bytes.len());
        let same = bytes[at] == byte || (at >= digest_at && bytes[at].eq_ignore_ascii_case(&byte));
        bytes[at] = byte;
        if HeaderValue::from_bytes(&bytes).is_ok() {
            assert_eq!(takes(request(&bytes, BODY)).await, same, "{:?}", String::from_utf8_lossy(&bytes));
        }
    });
}

#[test]
fn any_inserted_or_removed_byte_of_the_header_is_noticed() {
    let header = header_by(SECRET, BODY);
    for_any((any::<Index>(), any::<Option<u8>>()), async |(index, inserted)| {
        let mut bytes = header.clone().into_bytes();
        let at = index.index(bytes.len());
        match inserted {
            Some(byte) => bytes.insert(at, byte),
            None => drop(bytes.remove(at)),
        }
        if HeaderValue::from_bytes(&bytes).is_ok() {
            assert!(!takes(request(&bytes, BODY)).await, "{:?}", String::from_utf8_lossy(&bytes));
        }
    });
}

#[test]
fn any_changed_byte_of_the_body_is_noticed() {
    let header = header_by(SECRET, BODY);
    for_any((any::<Index>(), any::<u8>()), async |(index, byte)| {
        let mut bytes = BODY.as_bytes().to_vec();
        let at = index.index(bytes.len());
        let same = bytes[at] == byte;
        bytes[at] = byte;
        assert_eq!(takes(request(&header, bytes)).await, same, "byte {at} set to {byte:#x}");
    });
}
