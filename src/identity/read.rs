use std::borrow::Cow;

use sha2::{Digest, Sha256};

use super::envelope::{self, EnvelopeError, Field, JsonPath};
use super::source::Place;
use super::{IdSource, TypeSource};
use crate::head::Head;
use crate::key::{LONGEST_PART, is_name, is_plain};
use crate::rejection::{Rejection, RejectionKind};

/// The id and the type of an event.
#[derive(Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) event_type: Option<Cow<'a, str>>,
}

/// Reads the id and the type of a verified delivery, in one pass over its body.
pub(crate) fn identify<'a>(
    id: &IdSource,
    event_type: &TypeSource,
    head: &Head<'a>,
    body: &'a [u8],
) -> Result<Identity<'a>, Rejection> {
    let (id, event_type) = match (&id.place, &event_type.0) {
        (Place::Json(id), Some(Place::Json(event_type))) => {
            let [id, event_type] = envelope::read(body, [id, event_type]).map_err(unparseable)?;
            (string_id(id)?, text(event_type))
        }
        (Place::Json(id), other) => {
            let [id] = envelope::read(body, [id]).map_err(unparseable)?;
            (string_id(id)?, other.as_ref().and_then(|place| lookup(place, head, body)))
        }
        (place, other) => {
            let id = lookup(place, head, body).ok_or(RejectionKind::InvalidId)?;
            // A type alone is no reason to demand JSON.
            (id, other.as_ref().and_then(|place| lookup(place, head, body)))
        }
    };
    check_id(&id)?;
    // A type is for people and for dispatch: one that cannot be shown is as good as none, and no reason to refuse.
    Ok(Identity { id, event_type: event_type.filter(|kind| is_name(kind)) })
}

fn lookup<'a>(place: &Place, head: &Head<'a>, body: &'a [u8]) -> Option<Cow<'a, str>> {
    match place {
        Place::Json(path) => json_text(path, body),
        Place::Header(name) => head.text_header(name).map(Cow::Borrowed),
        Place::BodyDigest => Some(Cow::Owned(hex::encode(Sha256::digest(body)))),
        Place::Closure(name) => name(head, body).map(Cow::Owned),
    }
}

fn json_text<'a>(path: &JsonPath, body: &'a [u8]) -> Option<Cow<'a, str>> {
    let [field] = envelope::read(body, [path]).ok()?;
    text(field)
}

fn text(field: Field<'_>) -> Option<Cow<'_, str>> {
    match field {
        Field::Text(text) => Some(text),
        Field::Absent | Field::Other => None,
    }
}

fn string_id(field: Field<'_>) -> Result<Cow<'_, str>, Rejection> {
    match field {
        Field::Text(text) => Ok(text),
        Field::Absent => Err(invalid("it is absent: set id_source to where this sender puts it")),
        Field::Other => Err(invalid("it is not a string")),
    }
}

fn check_id(id: &str) -> Result<(), Rejection> {
    if id.len() > LONGEST_PART {
        return Err(invalid("it is longer than 255 bytes"));
    }
    if is_plain(id) && !id.is_empty() {
        return Ok(());
    }
    if id.trim().is_empty() {
        return Err(invalid("it is empty or blank"));
    }
    if id.chars().any(char::is_control) {
        return Err(invalid("it contains control characters"));
    }
    Ok(())
}

const fn invalid(detail: &'static str) -> Rejection {
    Rejection::with_detail(RejectionKind::InvalidId, detail)
}

fn unparseable(error: EnvelopeError) -> Rejection {
    Rejection::with_detail(RejectionKind::MalformedBody, error.explanation())
}
