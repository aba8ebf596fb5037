/// What is left of a list `key=value,key=value`, with its own separators. One element that is not of this form spoils it.
pub(super) struct Elements<'a> {
    rest: &'a [u8],
    separator: u8,
    between: u8,
}

/// The text is no such list.
pub(super) struct NotAList;

impl<'a> Elements<'a> {
    pub(super) fn new(text: &'a [u8], separator: u8, between: u8) -> Self {
        Self { rest: text, separator, between }
    }

    /// The next element's key: a plain word.
    pub(super) fn key(&mut self) -> Result<Option<&'a [u8]>, NotAList> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let is_plain = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let length = self.rest.iter().take_while(is_plain).count();
        match self.rest[length..].split_first() {
            Some((between, rest)) if *between == self.between && length > 0 => {
                Ok(Some(&std::mem::replace(&mut self.rest, rest)[..length]))
            }
            _ => Err(NotAList),
        }
    }

    /// The value that belongs to it: visible ASCII up to the separator.
    pub(super) fn value(&mut self) -> Result<&'a [u8], NotAList> {
        let length = self.rest.iter().take_while(|byte| byte.is_ascii_graphic() && **byte != self.separator).count();
        self.take(length)
    }

    /// The value that belongs to it, if that has this length. Whether it is visible ASCII is left to the caller.
    pub(super) fn peek(&self, length: usize) -> Option<&'a [u8]> {
        let ends_there = self.rest.get(length).is_none_or(|byte| *byte == self.separator);
        self.rest.get(..length).filter(|_| ends_there)
    }

    /// Consumes a value of this length, and the separator after it, behind which another element must stand.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], NotAList> {
        let (value, rest) = self.rest.split_at(length);
        self.rest = match rest {
            [] => rest,
            [separator, rest @ ..] if *separator == self.separator && !rest.is_empty() => rest,
            _ => return Err(NotAList),
        };
        Ok(value)
    }
}
