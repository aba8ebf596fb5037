//! The head of a stored request: how an inbox writes it, and how a worker reads it.
//!
//! Text, a line each: the method and the target, the facts of the verification, an empty line, the headers as HTTP/1
//! writes them. A header's value has no line ends, so nothing needs to be escaped.

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

/// A head that this crate did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

pub(crate) fn write(parts: &Parts, target: &str, keep: &KeepHeader<'_>, facts: &StoredFacts) -> Bytes {
    let mut head = BytesMut::with_capacity(512);
    let signed_at = facts.signed_at.map_or_else(|| "-".to_owned(), |time| unix_millis(time).to_string());
    let retention = facts.retention.as_millis();
    let lines = format!(
        "{} {target}\n{signed_at} {retention} {} {} {} {}\n\n",
        parts.method,
        u8::from(facts.id_authenticated),
        u8::from(facts.type_authenticated),
        u8::from(facts.deduplicated),
        facts.secret_label.replace(['\n', '\r'], " "),
    );
    head.put_slice(lines.as_bytes());
    for (name, value) in parts.headers.iter().filter(|(name, _)| keep(name)) {
        head.put_slice(name.as_str().as_bytes());
        head.put_slice(b": ");
        head.put_slice(value.as_bytes());
        head.put_u8(b'\n');
    }
    head.freeze()
}

/// The head of the request as it was kept, and the facts.
pub(crate) fn read(head: &[u8]) -> Result<(Parts, StoredFacts), Unreadable> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut line = || lines.next().ok_or(Unreadable);
    let (method, target) = text(line()?)?.split_once(' ').ok_or(Unreadable)?;
    let (method, target): (Method, Uri) =
        (method.parse().map_err(|_| Unreadable)?, target.parse().map_err(|_| Unreadable)?);
    let facts = facts(text(line()?)?).ok_or(Unreadable)?;
    if !line()?.is_empty() {
        return Err(Unreadable);
    }
    let headers = lines.filter(|line| !line.is_empty()).map(header).collect::<Result<HeaderMap, _>>()?;
    let (mut parts, ()) = Request::default().into_parts();
    (parts.method, parts.uri, parts.headers) = (method, target, headers);
    Ok((parts, facts))
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

    fn target(parts: &Parts) -> String {
        parts.uri.to_string()
    }

    #[test]
    fn requests_come_back_as_they_were() {
        let (came, facts) = read(&write(&parts(), &target(&parts()), &|_| true, &some_facts())).expect("a head");
        assert_eq!((came.method, came.uri, came.headers), (parts().method, parts().uri, parts().headers));
        assert_eq!(facts, some_facts());
        let unsigned = StoredFacts { signed_at: None, secret_label: "".into(), ..some_facts() };
        assert_eq!(read(&write(&parts(), "/", &|_| false, &unsigned)).expect("a head").1, unsigned);
    }

    #[test]
    fn host_of_http_2_comes_back() {
        let (parts, ()) = Request::post("https://receiver.example/hook?a=b").body(()).expect("a request").into_parts();
        let (came, _) = read(&write(&parts, &target(&parts), &|_| true, &some_facts())).expect("a head");
        assert_eq!(came.uri, parts.uri);
    }

    #[test]
    fn only_what_is_to_be_kept_is_written() {
        let head = write(&parts(), "/webhooks", &|name| name == "x-many", &some_facts());
        let (came, _) = read(&head).expect("a head");
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
