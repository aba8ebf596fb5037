use std::time::SystemTime;

use super::Template;
use super::headers::{Family, ProofHeader};
use super::signed_text::Values;
use crate::identity::envelope::{self, Field};
use crate::rejection::Rejection;
use crate::scheme::{Head, Proof, Tolerance};

impl Template {
    /// What the head claims, or that the body is needed to know it. Whatever the head gives reason to refuse is refused now.
    pub(super) fn read_head(&self, head: &Head<'_>) -> Result<Proof, Rejection> {
        if self.body_timestamp.is_none() && !self.json_body {
            return self.claimed(head, &[]);
        }
        let mut proof = Proof::new();
        match &self.body_timestamp {
            Some(_) => drop(self.form.read(self.family(head).signature.of(head)?, &mut proof, self.algorithm)?),
            None => proof = self.claimed(head, &[])?,
        }
        proof.check().map(|()| Proof::in_body())
    }

    /// What the head claims, given the body.
    pub(super) fn proof_with(&self, head: &Head<'_>, body: &[u8]) -> Result<Proof, Rejection> {
        let Some(path) = &self.body_timestamp else {
            let is_json = body.is_empty() || envelope::read(body, []).is_ok();
            return if is_json { self.claimed(head, &[]) } else { Err(Rejection::malformed("the body is not json")) };
        };
        match envelope::read(body, [path]) {
            Ok([Field::Text(text)]) => self.claimed(head, text.as_bytes()),
            Ok([Field::Other(number)]) => self.claimed(head, number.as_bytes()),
            _ => Err(Rejection::malformed("the body has no timestamp")),
        }
    }

    /// The first family whose signature is there.
    fn family(&self, head: &Head<'_>) -> &Family {
        let present = |family: &&Family| head.headers().contains_key(&family.signature.name);
        match &*self.families {
            [only] => only,
            families => families.iter().find(present).unwrap_or(&families[0]),
        }
    }

    /// What the head claims. `body_timestamp` is the text of a timestamp that is not in the head.
    fn claimed(&self, head: &Head<'_>, body_timestamp: &[u8]) -> Result<Proof, Rejection> {
        let family = self.family(head);
        let mut proof = Proof::new();
        let listed = self.form.read(family.signature.of(head)?, &mut proof, self.algorithm)?;
        let timestamp = match &family.timestamp {
            Some(header) => header.of(head)?,
            None => listed.unwrap_or(body_timestamp),
        };
        if let Some(time) = self.signed_at(timestamp, family, head.now())? {
            proof.set_timestamp(time);
        }
        let id = family.id.as_ref().map(|header| self.signed_id(head, header)).transpose()?;
        let url = self.url.as_ref().map(|url| url.of(head)).transpose()?;
        let values = Values {
            timestamp,
            id: id.unwrap_or_default().as_bytes(),
            url: url.as_deref().unwrap_or_default(),
            method: head.method().as_str(),
        };
        self.signed.fill(&mut proof, &values);
        Ok(match id {
            Some(id) => proof.id(id),
            None => proof,
        })
    }

    fn signed_id<'a>(&self, head: &Head<'a>, header: &ProofHeader) -> Result<&'a str, Rejection> {
        let id = std::str::from_utf8(header.of(head)?).map_err(|_| Rejection::malformed("the id is no text"))?;
        // Of a number that could be no timestamp, nobody can make one.
        let is_timestamp = |part: &str| self.unit.is_shaped(part.as_bytes(), self.tolerance.notices_digits());
        let separator = self.signed.id_separator().and_then(|text| std::str::from_utf8(text).ok());
        if separator.is_some_and(|separator| id.split(separator).skip(1).any(is_timestamp)) {
            return Err(Rejection::malformed(
                "the id contains what could be a timestamp: what is signed could be split in two ways",
            ));
        }
        Ok(id)
    }

    /// When it was signed, where that can be told. Unchecked and in a header of its own, a timestamp may be any number; not any
    /// text, or a part of the body could be passed off as a part of it.
    fn signed_at(&self, text: &[u8], family: &Family, now: SystemTime) -> Result<Option<SystemTime>, Rejection> {
        if !self.is_timestamped() {
            return Ok(None);
        }
        let exact = self.signed.has_timestamp_next_to_body();
        if !self.tolerance.notices_digits() && !self.unit.is_shaped(text, exact) {
            return Err(Rejection::malformed("the timestamp is not as long as today's, or no number"));
        }
        let unchecked = self.tolerance == Tolerance::InsecureUnchecked && family.timestamp.is_some();
        match self.unit.read(text, self.tolerance, now) {
            Err(_) if unchecked => Ok(None),
            read => read.map(Some),
        }
    }
}
