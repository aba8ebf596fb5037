//! An event as it is stored: an entry of the stream, and the request.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::error::Result;
use super::record::{self, Progress, Record, State, Unreadable};
use crate::EventKey;
use crate::clock::{from_unix_millis, unix_millis};
use crate::store::ClaimRequest;
use crate::store::queue::{EventState, Order, QueuedEvent, StoredRequest};

/// How entries are written. Every version begins with the version, the key, the order and the name of the request.
const VERSION: &str = "1";

/// How many texts an entry has: these, and the type, the fingerprint, the time, the sequence, and the request's length.
const TEXTS: usize = 9;

/// An entry of the stream.
pub(super) struct Entry {
    pub(super) key: EventKey,
    pub(super) event_type: Option<Box<str>>,
    pub(super) request_name: String,
    pub(super) request_length: usize,
    received: i64,
    order: Option<Order>,
}

impl Entry {
    /// Reads what [`encode`] wrote.
    pub(super) fn read(encoded: &[u8]) -> Result<Self, Unreadable> {
        let [version, key, order, request_name, event_type, _, received, sequence, length] = texts(encoded)?;
        if version != VERSION {
            return Err(Unreadable);
        }
        Ok(Self {
            key: read_key(&key)?,
            event_type: read_optional(&event_type).map(Into::into),
            request_name,
            request_length: length.parse().map_err(|_| Unreadable)?,
            received: read_number(&received)?,
            order: read_optional(&order).map(|order| Order { sequence: read_sequence(&sequence), ..Order::of(order) }),
        })
    }

    /// A request without head and body.
    pub(super) fn empty_request(&self) -> StoredRequest {
        StoredRequest::new(Bytes::new(), Bytes::new(), from_unix_millis(self.received))
    }

    /// Reads what [`write_request`] wrote.
    pub(super) fn read_request(&self, value: Vec<u8>) -> Result<StoredRequest, Unreadable> {
        let mut value = Bytes::from(value);
        let head = take(&mut value)?;
        let request = StoredRequest::new(head, value, from_unix_millis(self.received));
        Ok(StoredRequest { order: self.order.clone(), ..request })
    }
}

/// Writes an entry: everything about an event but its request and its progress.
pub(super) fn encode(claim: &ClaimRequest<'_>, request: &StoredRequest, request_length: usize) -> Vec<u8> {
    let order = request.order.as_ref();
    let texts: [&str; TEXTS] = [
        VERSION,
        claim.key.as_str(),
        &optional(order.map(|order| &*order.key)),
        &record::token(claim.token),
        &optional(claim.event_type),
        &record::fingerprint(claim.fingerprint),
        &unix_millis(request.received_at).to_string(),
        &order.and_then(|order| order.sequence).map_or_else(String::new, write_sequence),
        &request_length.to_string(),
    ];
    let mut encoded = Vec::with_capacity(texts.iter().map(|text| size_of::<u32>() + text.len()).sum());
    for text in texts {
        encoded.put_u32(text.len() as u32);
        encoded.put_slice(text.as_bytes());
    }
    encoded
}

/// Writes head and body into one value.
pub(super) fn write_request(request: &StoredRequest) -> Bytes {
    let mut value = BytesMut::with_capacity(size_of::<u32>() + request.head.len() + request.body.len());
    value.put_u32(request.head.len() as u32);
    value.put_slice(&request.head);
    value.put_slice(&request.body);
    value.freeze()
}

/// Reads the event key of an entry, of whatever version.
pub(super) fn event_key(encoded: &[u8]) -> Result<String, Unreadable> {
    let [_, key] = texts(encoded)?;
    Ok(key)
}

/// Makes an event without its request of parts of its entry and of its record.
pub(super) fn queued_event(key: &str, event_type: &str, received: &str, value: &[u8]) -> Result<QueuedEvent> {
    let (record, progress) = (Record::read(value)?, Progress::read(value).ok_or(Unreadable)?);
    let mut event = QueuedEvent::new(read_key(key)?, progress.arrival, from_unix_millis(read_number(received)?));
    event.event_type = read_optional(event_type).map(Into::into);
    event.attempts = progress.attempts;
    let time = Some(from_unix_millis(progress.time));
    event.state = match record.state {
        State::Completed => EventState::Completed,
        State::Failed => EventState::Dead,
        State::Queued if progress.is_waiting() => EventState::Waiting,
        State::Queued | State::Running => EventState::Running,
    };
    match event.state {
        EventState::Waiting => event.due_at = time,
        EventState::Running => {}
        EventState::Completed | EventState::Dead => {
            (event.processed_at, event.summary) = (time, Some(progress.rest.into()));
        }
    }
    Ok(event)
}

/// Writes an optional text, so that an absent one differs from an empty one.
pub(super) fn optional(text: Option<&str>) -> String {
    text.map_or_else(String::new, |text| format!(":{text}"))
}

fn read_optional(text: &str) -> Option<&str> {
    text.strip_prefix(':')
}

/// Reads the first texts of an entry.
fn texts<const N: usize>(encoded: &[u8]) -> Result<[String; N], Unreadable> {
    let mut encoded = Bytes::copy_from_slice(encoded);
    let mut texts = [const { String::new() }; N];
    for text in &mut texts {
        *text = String::from_utf8(take(&mut encoded)?.into()).map_err(|_| Unreadable)?;
    }
    Ok(texts)
}

/// Takes bytes that follow their length.
fn take(bytes: &mut Bytes) -> Result<Bytes, Unreadable> {
    let length = bytes.try_get_u32().map_err(|_| Unreadable)? as usize;
    if length > bytes.len() {
        return Err(Unreadable);
    }
    Ok(bytes.split_to(length))
}

/// Writes a sequence as twenty digits, which sort as the numbers do: a number in Lua has only 53 bits.
fn write_sequence(sequence: i64) -> String {
    format!("{:020}", sequence.wrapping_sub(i64::MIN).cast_unsigned())
}

fn read_sequence(text: &str) -> Option<i64> {
    text.parse::<u64>().ok().map(|number| number.cast_signed().wrapping_add(i64::MIN))
}

fn read_key(text: &str) -> Result<EventKey, Unreadable> {
    EventKey::parse(text).ok_or(Unreadable)
}

fn read_number(text: &str) -> Result<i64, Unreadable> {
    text.parse().map_err(|_| Unreadable)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::ClaimToken;

    #[test]
    fn sequences_sort_as_text_and_come_back() {
        let numbers = [i64::MIN, i64::MIN + 1, -7, -1, 0, 1, 5, 1 << 53, (1 << 53) + 1, i64::MAX];
        let texts = numbers.map(write_sequence);
        assert!(texts.is_sorted() && texts.iter().all(|text| text.len() == 20));
        assert_eq!(texts.each_ref().map(|text| read_sequence(text)), numbers.map(Some));
        assert_eq!(read_sequence(""), None);
    }

    #[test]
    fn entries_and_requests_come_back_as_written_and_nothing_less() {
        let key = EventKey::new("/hook", Some("ténant"), "evt_1");
        let claim = ClaimRequest::new(&key, ClaimToken::random(), Duration::ZERO).event_type(Some("invoice.paid"));
        let plain = StoredRequest::new("a head", vec![0, 255, b'\n'], from_unix_millis(1_700_000_000_123));
        let ordered = plain.clone().ordered(Order { sequence: Some(-3), ..Order::of("sub_1") });
        for request in [plain, ordered] {
            let value = write_request(&request);
            let encoded = encode(&claim, &request, value.len());
            let entry = Entry::read(&encoded).expect("an entry");
            assert_eq!((&entry.key, entry.event_type.as_deref()), (&key, Some("invoice.paid")));
            assert_eq!((entry.request_name.as_str(), entry.request_length), (&*record::token(claim.token), 13));
            assert_eq!(entry.read_request(value.to_vec()), Ok(request));
            assert_eq!(event_key(&encoded).as_deref(), Ok(key.as_str()));
            for length in 0..encoded.len() {
                assert!(Entry::read(&encoded[..length]).is_err(), "{length} bytes of it");
            }
            for length in 0..4 + "a head".len() {
                assert!(entry.read_request(value[..length].to_vec()).is_err(), "{length} bytes of the request");
            }
        }
    }

    #[test]
    fn absent_text_is_not_an_empty_one() {
        for value in [None, Some(""), Some("invoice.paid"), Some(":")] {
            assert_eq!(read_optional(&optional(value)), value);
        }
    }
}
