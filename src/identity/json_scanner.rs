//! A strict scanner for JSON (RFC 8259). It takes one pass, builds no tree, does not recurse, and allocates only for a
//! requested string with escapes.
//!
//! The functions marked `inline(always)` make up the loop of [`Scanner::skip_value`], through which every body passes
//! whole.

use std::borrow::Cow;

/// The reason why a text is not JSON that this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanError {
    /// The text breaks the grammar at this byte.
    Syntax { offset: usize },
    /// More than 127 arrays and objects are open at once.
    TooDeep,
}

type Result<T> = std::result::Result<T, ScanError>;

/// A position in a JSON text, and the arrays and objects that are open there.
#[derive(Clone, Copy)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    rest: &'a [u8],
    nesting: Nesting,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, rest: text.as_bytes(), nesting: Nesting::NONE }
    }

    /// Returns the first byte of the next token without consuming it. At the end it returns NUL, which starts no token.
    #[inline(always)]
    pub(super) fn peek_token(&mut self) -> u8 {
        match self.rest {
            [byte, ..] if *byte > b' ' => return *byte,
            // Pretty printers put one space after a colon.
            [b' ', rest @ ..] if rest.first() > Some(&b' ') => self.rest = rest,
            _ => self.rest = skip_whitespace(self.rest),
        }
        self.peek()
    }

    /// Whether the whole text is consumed, including trailing white space.
    pub(super) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Checks that only white space is left.
    pub(super) fn end(&mut self) -> Result<()> {
        self.peek_token();
        if self.at_end() { Ok(()) } else { Err(self.syntax()) }
    }

    /// Consumes a scalar, or the bracket that opens an array or object. Returns whether an item follows.
    #[inline(always)]
    pub(super) fn begin_value(&mut self) -> Result<bool> {
        match self.peek_token() {
            b'"' => self.skip_quoted()?,
            b'{' => return self.begin_items(self.nesting.object()),
            b'[' => return self.begin_items(self.nesting.array()),
            b'-' | b'0'..=b'9' => self.skip_number()?,
            b't' => self.skip_literal(b"true")?,
            b'f' => self.skip_literal(b"false")?,
            b'n' => self.skip_literal(b"null")?,
            _ => return Err(self.syntax()),
        }
        Ok(false)
    }

    /// Consumes the comma or the closing bracket after an item. Returns whether another item follows.
    #[inline(always)]
    pub(super) fn next_item(&mut self) -> Result<bool> {
        let token = self.peek_token();
        if token != b',' && token != self.nesting.closing() {
            return Err(self.syntax());
        }
        self.advance(1);
        if token == b',' {
            return Ok(true);
        }
        self.nesting = self.nesting.closed();
        Ok(false)
    }

    /// Consumes a key and its colon; returns the key unescaped.
    #[inline(always)]
    pub(super) fn key(&mut self) -> Result<Cow<'a, str>> {
        let key = self.string()?;
        self.expect(b':')?;
        Ok(key)
    }

    /// Consumes a string and returns it unescaped.
    #[inline(always)]
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>> {
        self.expect(b'"')?;
        let plain = self.plain();
        if self.peek() != b'"' {
            return self.unescaped(plain).map(Cow::Owned);
        }
        self.advance(1);
        Ok(Cow::Borrowed(plain))
    }

    /// Consumes one value and returns its text, without the white space around it.
    pub(super) fn raw_value(&mut self) -> Result<&'a str> {
        self.peek_token();
        let start = self.offset();
        self.skip_value()?;
        Ok(self.text_since(start))
    }

    /// Consumes one value of any type.
    pub(super) fn skip_value(&mut self) -> Result<()> {
        // A copy can live in registers; through `self` every step would go to memory.
        let mut here = *self;
        let mut inside = here.begin_value()?;
        while inside {
            if here.nesting.in_object() {
                here.skip_key()?;
            }
            inside = here.begin_value()?;
            while !inside {
                inside = here.next_item()?;
                if !inside && here.nesting == self.nesting {
                    break;
                }
            }
        }
        *self = here;
        Ok(())
    }

    #[inline(always)]
    fn begin_items(&mut self, opened: Option<Nesting>) -> Result<bool> {
        let opened = opened.ok_or(ScanError::TooDeep)?;
        self.advance(1);
        if self.peek_token() == opened.closing() {
            self.advance(1);
            return Ok(false);
        }
        self.nesting = opened;
        Ok(true)
    }

    #[inline(always)]
    fn skip_key(&mut self) -> Result<()> {
        if self.peek_token() != b'"' {
            return Err(self.syntax());
        }
        self.skip_quoted()?;
        self.expect(b':')
    }

    /// Consumes a string, from its opening quote to its closing one.
    #[inline(always)]
    fn skip_quoted(&mut self) -> Result<()> {
        self.advance(1);
        loop {
            self.rest = skip_run(self.rest, not_plain);
            match self.peek() {
                b'"' => break,
                b'\\' => *self = self.past_escape()?,
                _ => return Err(self.syntax()),
            }
        }
        self.advance(1);
        Ok(())
    }

    #[inline(always)]
    fn skip_number(&mut self) -> Result<()> {
        if self.peek() == b'-' {
            self.advance(1);
        }
        if self.peek() == b'0' {
            self.advance(1);
        } else {
            self.skip_digits()?;
        }
        if self.peek() == b'.' {
            self.advance(1);
            self.skip_digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.advance(1);
            if matches!(self.peek(), b'+' | b'-') {
                self.advance(1);
            }
            self.skip_digits()?;
        }
        Ok(())
    }

    #[inline(always)]
    fn skip_digits(&mut self) -> Result<()> {
        let before = self.rest.len();
        while let [b'0'..=b'9', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.len() == before { Err(self.syntax()) } else { Ok(()) }
    }

    #[inline(always)]
    fn skip_literal(&mut self, literal: &[u8]) -> Result<()> {
        self.rest = self.rest.strip_prefix(literal).ok_or(self.syntax())?;
        Ok(())
    }

    /// Consumes the text before the next quote, backslash or control character.
    #[inline(always)]
    fn plain(&mut self) -> &'a str {
        let start = self.offset();
        self.rest = skip_run(self.rest, not_plain);
        self.text_since(start)
    }

    #[cold]
    fn unescaped(&mut self, plain: &str) -> Result<String> {
        let mut text = String::from(plain);
        loop {
            match self.peek() {
                b'"' => break,
                b'\\' => text.push(self.character()?),
                _ => return Err(self.syntax()),
            }
            text.push_str(self.plain());
        }
        self.advance(1);
        Ok(text)
    }

    /// Kept out of line and taken by value: skipped strings stay in registers, and rarely have escapes.
    #[cold]
    #[inline(never)]
    fn past_escape(mut self) -> Result<Self> {
        self.character()?;
        Ok(self)
    }

    /// Consumes one escape, or two that make up a surrogate pair.
    fn character(&mut self) -> Result<char> {
        let lone = self.syntax();
        let first = self.escape()?;
        let paired = (0xD800..0xDC00).contains(&first) && self.peek() == b'\\';
        let second = if paired { self.escape()? } else { 0 };
        match char::decode_utf16([first, second]).next() {
            Some(Ok(character)) => Ok(character),
            _ => Err(lone),
        }
    }

    /// Consumes one escape and returns the UTF-16 unit that it stands for.
    #[inline(always)]
    fn escape(&mut self) -> Result<u16> {
        self.advance(1);
        let unit = match self.peek() {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.hex_unit(),
            _ => return Err(self.syntax()),
        };
        self.advance(1);
        Ok(u16::from(unit))
    }

    #[inline(always)]
    fn hex_unit(&mut self) -> Result<u16> {
        let mut unit = 0;
        self.advance(1);
        for _ in 0..4 {
            let digit = char::from(self.peek()).to_digit(16).ok_or(self.syntax())?;
            unit = unit << 4 | digit as u16;
            self.advance(1);
        }
        Ok(unit)
    }

    #[inline(always)]
    fn expect(&mut self, token: u8) -> Result<()> {
        if self.peek_token() != token {
            return Err(self.syntax());
        }
        self.advance(1);
        Ok(())
    }

    #[inline(always)]
    fn peek(&self) -> u8 {
        self.rest.first().copied().unwrap_or(0)
    }

    #[inline(always)]
    fn advance(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// The number of bytes consumed.
    #[inline(always)]
    pub(super) fn offset(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    /// The text consumed since the offset `start`.
    #[inline(always)]
    pub(super) fn text_since(&self, start: usize) -> &'a str {
        &self.text[start..self.offset()]
    }

    #[inline(always)]
    fn syntax(&self) -> ScanError {
        ScanError::Syntax { offset: self.offset() }
    }
}

/// The arrays and objects that are open: one bit each, the innermost lowest, below a bit that marks the bottom.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Nesting(u128);

impl Nesting {
    const NONE: Self = Self(1);

    /// `None` if 127 are open. `serde_json` stops there too, so deeper bodies would only fail later, in the handler.
    #[inline(always)]
    fn array(self) -> Option<Self> {
        (self.0.leading_zeros() > 0).then_some(Self(self.0 << 1))
    }

    #[inline(always)]
    fn object(self) -> Option<Self> {
        self.array().map(|Self(bits)| Self(bits | 1))
    }

    #[inline(always)]
    fn closed(self) -> Self {
        Self(self.0 >> 1)
    }

    #[inline(always)]
    fn in_object(self) -> bool {
        self.0 & 1 == 1
    }

    /// The bracket that closes the innermost array or object.
    #[inline(always)]
    fn closing(self) -> u8 {
        if self.in_object() { b'}' } else { b']' }
    }
}

#[inline(never)]
fn skip_whitespace(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = bytes {
        bytes = skip_run(rest, |word| word ^ all(b' '));
    }
    bytes
}

/// Skips to the first byte that is not part of a run, eight bytes at a time. `stops` receives eight bytes as a word,
/// the first byte lowest. The lowest bit set in its result must lie in the first byte that ends the run. NUL must not
/// be part of any run.
#[inline(always)]
fn skip_run(mut bytes: &[u8], stops: impl Fn(u64) -> u64) -> &[u8] {
    while let Some((word, rest)) = bytes.split_first_chunk() {
        let stop = stops(u64::from_le_bytes(*word));
        if stop != 0 {
            return &bytes[stop.trailing_zeros() as usize / 8..];
        }
        bytes = rest;
    }
    skip_last_run(bytes, stops)
}

#[cold]
#[inline(never)]
fn skip_last_run(bytes: &[u8], stops: impl Fn(u64) -> u64) -> &[u8] {
    let padded = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    &bytes[stops(padded).trailing_zeros() as usize / 8..]
}

/// A word in which every byte is `byte`.
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Stops at a quote, a backslash or a control character.
#[inline(always)]
fn not_plain(word: u64) -> u64 {
    // Flipping bit 1 swaps the quote with the space, right above the control characters, so one subtraction finds both.
    // Its borrow can set false marks only in bytes above a true stop.
    let quote_or_control = (word ^ all(2)).wrapping_sub(all(0x21));
    let backslash = (word ^ all(b'\\')).wrapping_sub(all(1));
    (quote_or_control | backslash) & !word & all(0x80)
}
