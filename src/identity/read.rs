use std::borrow::Cow;

use sha2::{Digest, Sha256};

use super::envelope::{self, EnvelopeError, Field, JsonPath};
use super::id_source::IdLink;
use super::place::Place;
use super::{IdSource, TypeSource, typed_digest};
use crate::head::Head;
use crate::key::{LONGEST_PART, RESERVED, is_name, is_plain};
use crate::rejection::{Rejection, RejectionKind};

/// The id and the type of an event.
#[derive(Debug)]
pub(crate) struct Identity<'a> {
    /// `None` when the event is not to be deduplicated.
    pub(crate) id: Option<Cow<'a, str>>,
    pub(crate) event_type: Option<Cow<'a, str>>,
}

/// Reads the id and the type of a verified delivery; `signed_id` is what its scheme took for the id.
pub(crate) fn identify<'a>(
    id: &IdSource,
    event_type: &TypeSource,
    head: &Head<'a>,
    body: &'a [u8],
    signed_id: Option<&'a str>,
) -> Result<Identity<'a>, Rejection> {
    // Nearly always, and then in one pass over the body.
    if let ([IdLink { place: Place::Json(id), typed: false, .. }], [Place::Json(event_type)]) =
        (&id.links[..], &event_type.places[..])
    {
        let [id, event_type] = envelope::read(body, [id, event_type]).map_err(unparseable)?;
        let id = match id {
            Field::Text(id) => id,
            Field::Absent => return Err(ABSENT),
            Field::Other(_) => return Err(NOT_TEXT),
        };
        check_id(&id)?;
        return Ok(Identity { id: Some(id), event_type: shown(event_type.text()) });
    }
    Reader { head, body, signed_id }.identity(id, event_type)
}

const ABSENT: Rejection = invalid("it is absent: set id_source to where this sender puts it");
const NOT_TEXT: Rejection = invalid("it is not a string");

/// What ids and types are read from.
struct Reader<'a, 'h> {
    head: &'h Head<'a>,
    body: &'a [u8],
    signed_id: Option<&'a str>,
}

/// What a place has to say of the id.
enum Found<'a> {
    Id(Cow<'a, str>),
    /// That there is to be none.
    NoId,
    /// Nothing, and this is why: the refusal, unless there is another place.
    Nothing(Rejection),
}

impl<'a> Reader<'a, '_> {
    /// Apart from the usual case, which would otherwise make room for all of this.
    #[inline(never)]
    fn identity(&self, id: &IdSource, event_type: &TypeSource) -> Result<Identity<'a>, Rejection> {
        let event_type = self.event_type(event_type);
        Ok(Identity { id: self.id(id, event_type.as_deref())?, event_type })
    }

    fn event_type(&self, source: &TypeSource) -> Option<Cow<'a, str>> {
        source.places.iter().find_map(|place| shown(self.type_at(place)))
    }

    fn type_at(&self, place: &Place) -> Option<Cow<'a, str>> {
        match place {
            Place::Json(path) => {
                // A type alone is no reason to demand JSON.
                let [field] = envelope::read(self.body, [path]).ok()?;
                field.text()
            }
            Place::Header(name) => self.head.text_header(name).map(Cow::Borrowed),
            Place::Closure(name) => name(self.head, self.body).map(Cow::Owned),
            Place::BodyClosure(name) => name(self.body).map(Cow::Owned),
            Place::BodyDigest | Place::Scheme | Place::Nowhere => None,
        }
    }

    /// The first id of the chain. What it finds unusable it refuses, and does not pass over.
    fn id(&self, source: &IdSource, event_type: Option<&str>) -> Result<Option<Cow<'a, str>>, Rejection> {
        let mut refusal = ABSENT;
        for link in &source.links {
            match self.id_at(link, event_type)? {
                Found::NoId => return Ok(None),
                Found::Nothing(why) => refusal = why,
                Found::Id(id) => {
                    check_id(&id)?;
                    return link.complete(id, event_type).map(Some);
                }
            }
        }
        Err(refusal)
    }

    fn id_at(&self, link: &IdLink, event_type: Option<&str>) -> Result<Found<'a>, Rejection> {
        let id = match &link.place {
            Place::Json(path) => return self.json_id(path),
            Place::Header(name) => match self.head.text_header(name) {
                None if self.head.headers().contains_key(name) => {
                    return Err(invalid("its header came more than once, or is not visible ascii"));
                }
                id => id.map(Cow::Borrowed),
            },
            Place::Closure(name) => name(self.head, self.body).map(Cow::Owned),
            Place::BodyClosure(name) => name(self.body).map(Cow::Owned),
            Place::BodyDigest if link.typed => Some(Cow::Owned(hex::encode(typed_digest(event_type, self.body)))),
            Place::BodyDigest => Some(Cow::Owned(hex::encode(Sha256::digest(self.body)))),
            Place::Scheme => self.signed_id.map(Cow::Borrowed),
            Place::Nowhere => return Ok(Found::NoId),
        };
        Ok(id.map_or(Found::Nothing(ABSENT), Found::Id))
    }

    fn json_id(&self, path: &JsonPath) -> Result<Found<'a>, Rejection> {
        match envelope::read(self.body, [path]) {
            Ok([Field::Text(id)]) => Ok(Found::Id(id)),
            Ok([Field::Absent]) => Ok(Found::Nothing(ABSENT)),
            Ok([Field::Other(_)]) => Err(NOT_TEXT),
            // The id is there, and more than once.
            Err(error @ EnvelopeError::RepeatedKey) => Err(unparseable(error)),
            Err(error) => Ok(Found::Nothing(unparseable(error))),
        }
    }
}

impl IdLink {
    /// The id together with the type, where that is asked for: lengths first, so that no two pairs read the same.
    fn complete<'a>(&self, id: Cow<'a, str>, event_type: Option<&str>) -> Result<Cow<'a, str>, Rejection> {
        if !self.typed || matches!(self.place, Place::BodyDigest) {
            return Ok(id);
        }
        let event_type = event_type.unwrap_or_default();
        let id = format!("{}:{event_type}:{id}", event_type.len());
        if id.len() > LONGEST_PART {
            return Err(invalid("it is longer than 255 bytes together with the type"));
        }
        Ok(Cow::Owned(id))
    }
}

/// A type is for people and for dispatch: one that cannot be shown is as good as none, and no reason to refuse.
#[inline(always)]
fn shown(event_type: Option<Cow<'_, str>>) -> Option<Cow<'_, str>> {
    match event_type {
        Some(text) if is_name(&text) => Some(text),
        _ => None,
    }
}

#[inline(always)]
fn check_id(id: &str) -> Result<(), Rejection> {
    let usual = (1..=LONGEST_PART).contains(&id.len()) && is_plain(id) && !id.starts_with(RESERVED);
    if usual { Ok(()) } else { check_unusual_id(id) }
}

#[cold]
fn check_unusual_id(id: &str) -> Result<(), Rejection> {
    if id.len() > LONGEST_PART {
        return Err(invalid("it is longer than 255 bytes"));
    }
    if id.starts_with(RESERVED) {
        return Err(invalid("it begins as this crate's own keys do"));
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

#[cfg(test)]
mod tests;
