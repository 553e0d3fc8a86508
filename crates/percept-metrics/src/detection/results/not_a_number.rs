//! `NaN` as Python's json module writes it, which JSON does not know.

use std::io::{Read, Result, Write};

use serde_json::ser::Formatter;

/// Reads `NaN` outside of strings as `null`.
pub(super) struct NanAsNull<R> {
    inner: R,
    in_string: bool,
    escaped: bool,
    /// Read, but not yet handed on: the bytes `start..end`.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// How much of `null` is still to be handed on.
    owed: &'static [u8],
}

const CHUNK: usize = 64 << 10;
const NAN: &[u8] = b"NaN";

impl<R: Read> NanAsNull<R> {
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            in_string: false,
            escaped: false,
            buffer: vec![0; CHUNK].into_boxed_slice(),
            start: 0,
            end: 0,
            owed: &[],
        }
    }

    /// At least `NAN.len()` bytes in the buffer, if the file has as many.
    fn fill(&mut self) -> Result<()> {
        while self.end - self.start < NAN.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let read = self.inner.read(&mut self.buffer[self.end..])?;
            if read == 0 {
                break;
            }
            self.end += read;
        }
        Ok(())
    }

    fn note(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ => {}
        }
    }
}

impl<R: Read> Read for NanAsNull<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut written = 0;
        while written < out.len() {
            if let [next, rest @ ..] = self.owed {
                out[written] = *next;
                written += 1;
                self.owed = rest;
                continue;
            }
            if self.end - self.start < NAN.len() {
                if written > 0 {
                    break;
                }
                self.fill()?;
            }
            let waiting = &self.buffer[self.start..self.end];
            let Some(&byte) = waiting.first() else { break };
            if !self.in_string && waiting.starts_with(NAN) {
                self.start += NAN.len();
                self.owed = b"null";
                continue;
            }
            self.start += 1;
            self.note(byte);
            out[written] = byte;
            written += 1;
        }
        Ok(written)
    }
}

/// Writes what has no number as `NaN`, which the public code reads; it would stumble over `null`.
pub(super) struct NullAsNan;

impl Formatter for NullAsNan {
    fn write_null<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        writer.write_all(NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives a few bytes per call.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> Result<usize> {
            let count = self.1.min(out.len());
            (&mut self.0).take(count as u64).read(out)
        }
    }

    fn read(text: &str, at_once: usize) -> String {
        let mut out = String::new();
        let mut reader = NanAsNull::new(Trickle(text.as_bytes(), at_once));
        reader.read_to_string(&mut out).unwrap();
        out
    }

    #[test]
    fn only_the_token_is_replaced() {
        let text = r#"{"NaN": [NaN, -1.5,NaN], "a\"NaN\\": NaN, "Na": "N"}"#;
        let expected = r#"{"NaN": [null, -1.5,null], "a\"NaN\\": null, "Na": "N"}"#;
        for at_once in [1, 2, 3, 7, 1000] {
            assert_eq!(read(text, at_once), expected);
        }
        assert_eq!(read("Na", 1), "Na");
        assert_eq!(read("", 1), "");
    }

    proptest! {
        #[test]
        fn the_cut_does_not_matter(
            parts in prop::collection::vec(prop::sample::select(vec!["NaN", "N", "a", "\"", "\\", " "]), 0..40),
            at_once in 1_usize..6,
        ) {
            let text = parts.concat();
            prop_assert_eq!(read(&text, at_once), read(&text, text.len().max(1)));
        }
    }
}
