//! The head of a stored request: how an inbox writes it, and how a worker reads it.
//!
//! Text, a line each: the method and the target, the facts of the verification, an empty line, the headers as HTTP/1
//! writes them. A header's value has no line ends, so nothing needs to be escaped.
//!
//! If an outer router has stripped a prefix from the target, the original target is a header of the crate's own, which
//! no delivery can have. A version of the crate that does not know this header leaves it among the others.

use std::time::{Duration, SystemTime};

use bytes::{BufMut, Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use crate::clock::{from_unix_millis, unix_millis};

/// Which of a request's headers are kept.
pub(crate) type KeepHeader<'a> = dyn Fn(&HeaderName) -> bool + 'a;

/// The facts of a verified delivery that its worker needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredFacts {
    pub(crate) secret_label: Box<str>,
    pub(crate) signed_at: Option<SystemTime>,
    pub(crate) id_authenticated: bool,
    pub(crate) type_authenticated: bool,
    pub(crate) deduplicated: bool,
    pub(crate) retention: Duration,
}

/// The header that holds the original target.
const ORIGINAL_TARGET: &str = "tower-webhook-original-target";

/// The targets of a request, as they are stored.
pub(crate) struct Targets {
    /// The target that the layer saw.
    pub(crate) here: String,
    /// The target that the sender requested, if an outer router has stripped a prefix from it.
    pub(crate) original: Option<String>,
}

/// A stored head, as a worker reads it.
#[derive(Clone, Debug)]
pub(crate) struct StoredHead {
    pub(crate) parts: Parts,
    pub(crate) original_uri: Option<Uri>,
    pub(crate) facts: StoredFacts,
}

/// A head that this crate did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

pub(crate) fn write(parts: &Parts, targets: &Targets, keep: &KeepHeader<'_>, facts: &StoredFacts) -> Bytes {
    let mut head = BytesMut::with_capacity(512);
    let signed_at = facts.signed_at.map_or_else(|| "-".to_owned(), |time| unix_millis(time).to_string());
    let retention = facts.retention.as_millis();
    let lines = format!(
        "{} {}\n{signed_at} {retention} {} {} {} {}\n\n",
        parts.method,
        targets.here,
        u8::from(facts.id_authenticated),
        u8::from(facts.type_authenticated),
        u8::from(facts.deduplicated),
        facts.secret_label.replace(['\n', '\r'], " "),
    );
    head.put_slice(lines.as_bytes());
    let original = targets.original.as_deref().map(|target| (ORIGINAL_TARGET, target.as_bytes()));
    let headers = parts.headers.iter().filter(|(name, _)| *name != ORIGINAL_TARGET && keep(name));
    for (name, value) in headers.map(|(name, value)| (name.as_str(), value.as_bytes())).chain(original) {
        head.put_slice(name.as_bytes());
        head.put_slice(b": ");
        head.put_slice(value);
        head.put_u8(b'\n');
    }
    head.freeze()
}

/// Reads the head of a request as it was stored.
pub(crate) fn read(head: &[u8]) -> Result<StoredHead, Unreadable> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut line = || lines.next().ok_or(Unreadable);
    let (method, target) = text(line()?)?.split_once(' ').ok_or(Unreadable)?;
    let (method, target): (Method, Uri) =
        (method.parse().map_err(|_| Unreadable)?, target.parse().map_err(|_| Unreadable)?);
    let facts = facts(text(line()?)?).ok_or(Unreadable)?;
    if !line()?.is_empty() {
        return Err(Unreadable);
    }
    let mut headers = lines.filter(|line| !line.is_empty()).map(header).collect::<Result<HeaderMap, _>>()?;
    let original_uri = headers.remove(ORIGINAL_TARGET);
    let original_uri = original_uri.map(|value| Uri::try_from(value.as_bytes()).map_err(|_| Unreadable)).transpose()?;
    let (mut parts, ()) = Request::default().into_parts();
    (parts.method, parts.uri, parts.headers) = (method, target, headers);
    Ok(StoredHead { parts, original_uri, facts })
}

fn facts(line: &str) -> Option<StoredFacts> {
    let mut words = line.splitn(6, ' ');
    let signed_at = match words.next()? {
        "-" => None,
        millis => Some(from_unix_millis(millis.parse().ok()?)),
    };
    Some(StoredFacts {
        signed_at,
        retention: Duration::from_millis(words.next()?.parse().ok()?),
        id_authenticated: words.next()? == "1",
        type_authenticated: words.next()? == "1",
        deduplicated: words.next()? == "1",
        secret_label: words.next()?.into(),
    })
}

fn header(line: &[u8]) -> Result<(HeaderName, HeaderValue), Unreadable> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Unreadable)?;
    let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| Unreadable)?;
    let value = line[colon + 1..].strip_prefix(b" ").ok_or(Unreadable)?;
    Ok((name, HeaderValue::from_bytes(value).map_err(|_| Unreadable)?))
}

fn text(line: &[u8]) -> Result<&str, Unreadable> {
    std::str::from_utf8(line).map_err(|_| Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_facts() -> StoredFacts {
        StoredFacts {
            secret_label: "the old one".into(),
            signed_at: Some(from_unix_millis(1_700_000_000_123)),
            id_authenticated: true,
            type_authenticated: true,
            deduplicated: false,
            retention: Duration::from_secs(60),
        }
    }

    fn parts() -> Parts {
        let request = Request::post("/webhooks/a%20b?x=1&y=ü%0a")
            .header("content-type", "application/json")
            .header("x-many", "one")
            .header("x-many", "two: three")
            .header("x-empty", "")
            .header("x-odd", HeaderValue::from_bytes(b"\xff\tz").expect("a value"));
        request.body(()).expect("a request").into_parts().0
    }

    fn targets(parts: &Parts) -> Targets {
        Targets { here: parts.uri.to_string(), original: None }
    }

    #[test]
    fn requests_come_back_as_they_were() {
        let StoredHead { parts: came, original_uri, facts } =
            read(&write(&parts(), &targets(&parts()), &|_| true, &some_facts())).expect("a head");
        assert_eq!((came.method, came.uri, came.headers), (parts().method, parts().uri, parts().headers));
        assert_eq!((original_uri, facts), (None, some_facts()));
        let unsigned = StoredFacts { signed_at: None, secret_label: "".into(), ..some_facts() };
        assert_eq!(read(&write(&parts(), &targets(&parts()), &|_| false, &unsigned)).expect("a head").facts, unsigned);
    }

    #[test]
    fn host_of_http_2_comes_back() {
        let (parts, ()) = Request::post("https://receiver.example/hook?a=b").body(()).expect("a request").into_parts();
        let came = read(&write(&parts, &targets(&parts), &|_| true, &some_facts())).expect("a head");
        assert_eq!(came.parts.uri, parts.uri);
    }

    #[test]
    fn original_target_comes_back_and_no_sender_can_set_it() {
        let original = Some("/api/webhooks?x=1".to_owned());
        let mut parts = parts();
        parts.headers.insert(ORIGINAL_TARGET, HeaderValue::from_static("/forged"));
        let head = write(&parts, &Targets { here: "/webhooks?x=1".to_owned(), original }, &|_| true, &some_facts());
        let came = read(&head).expect("a head");
        assert_eq!(came.original_uri, Some(Uri::from_static("/api/webhooks?x=1")));
        assert!(!came.parts.headers.contains_key(ORIGINAL_TARGET));
        let came = read(&write(&parts, &targets(&parts), &|_| true, &some_facts())).expect("a head");
        assert_eq!(came.original_uri, None);
    }

    #[test]
    fn only_what_is_to_be_kept_is_written() {
        let targets = Targets { here: "/webhooks".to_owned(), original: None };
        let head = write(&parts(), &targets, &|name| name == "x-many", &some_facts());
        let StoredHead { parts: came, .. } = read(&head).expect("a head");
        assert_eq!(came.uri, "/webhooks");
        assert_eq!(came.headers.get_all("x-many").iter().count(), 2);
        assert_eq!(came.headers.len(), 2);
    }

    #[test]
    fn what_was_not_written_here_is_unreadable() {
        for head in [
            "",
            "POST",
            "POST /\n",
            "POST /\n- x 1 1 1 l\n\n",
            "POST /\n- 5 1 1 1 l\nx: y\n",
            "POST /\n- 5 1 1 1 l\n\nx\n",
        ] {
            assert_eq!(read(head.as_bytes()).err(), Some(Unreadable), "{head:?}");
        }
    }
}
