//! The part of the protobuf wire format that ONNX files need: a message is a list of (field number, value).

/// A message under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

impl Message {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn int(mut self, field: u64, value: i64) -> Self {
        self.tag(field, VARINT);
        // Negative numbers are written as their 64-bit two's complement.
        push_varint(&mut self.bytes, value as u64);
        self
    }

    pub(crate) fn ints(self, field: u64, values: impl IntoIterator<Item = i64>) -> Self {
        values
            .into_iter()
            .fold(self, |message, value| message.int(field, value))
    }

    pub(crate) fn float(mut self, field: u64, value: f32) -> Self {
        self.tag(field, FIXED32);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn text(self, field: u64, text: &str) -> Self {
        self.blob(field, text.as_bytes())
    }

    pub(crate) fn message(self, field: u64, message: &Message) -> Self {
        self.blob(field, &message.bytes)
    }

    fn blob(mut self, field: u64, bytes: &[u8]) -> Self {
        self = self.announce(field, bytes.len() as u64);
        self.bytes.extend(bytes);
        self
    }

    /// The start of a field whose `length` bytes are written by somebody else, right behind.
    pub(crate) fn announce(mut self, field: u64, length: u64) -> Self {
        self.tag(field, LENGTH_DELIMITED);
        push_varint(&mut self.bytes, length);
        self
    }

    /// The fields of this message, then those of another.
    pub(crate) fn followed_by(mut self, other: &Message) -> Self {
        self.bytes.extend(&other.bytes);
        self
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        push_varint(&mut self.bytes, field << 3 | wire_type);
    }
}

/// Seven bits a byte, lowest first; the top bit says that more follow.
fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A reader for tests: the writer's claims checked by an independent hand.
#[cfg(test)]
pub(crate) mod reading {
    #[derive(Clone, Debug, PartialEq)]
    pub(crate) enum Field {
        Varint(u64),
        Bytes(Vec<u8>),
        Fixed32([u8; 4]),
    }

    /// The fields of a message, or `None` when it is no well-formed message.
    pub(crate) fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field)>> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let value = match tag & 7 {
                0 => Field::Varint(varint(&mut bytes)?),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    let (blob, rest) = bytes.split_at_checked(length)?;
                    bytes = rest;
                    Field::Bytes(blob.to_vec())
                }
                5 => {
                    let (number, rest) = bytes.split_at_checked(4)?;
                    bytes = rest;
                    Field::Fixed32(number.try_into().ok()?)
                }
                _ => return None,
            };
            fields.push((tag >> 3, value));
        }
        Some(fields)
    }

    /// All values of a field that holds bytes.
    pub(crate) fn blobs(fields: &[(u64, Field)], number: u64) -> Vec<&[u8]> {
        let blob =
            |(field, value): &'_ (u64, Field)| *field == number && matches!(value, Field::Bytes(_));
        let chosen = fields.iter().filter(|entry| blob(entry));
        chosen
            .map(|(_, value)| match value {
                Field::Bytes(bytes) => bytes.as_slice(),
                _ => unreachable!("filtered above"),
            })
            .collect()
    }

    /// All values of a field that holds integers.
    pub(crate) fn varints(fields: &[(u64, Field)], number: u64) -> Vec<u64> {
        let chosen = fields.iter().filter(|(field, _)| *field == number);
        chosen
            .filter_map(|(_, value)| match value {
                Field::Varint(value) => Some(*value),
                _ => None,
            })
            .collect()
    }

    fn varint(bytes: &mut &[u8]) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = bytes.split_first()?;
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::reading::{Field, fields};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_those_of_the_protobuf_documentation() {
        assert_eq!(Message::new().int(1, 150).as_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::new().text(2, "testing");
        assert_eq!(text.as_bytes(), b"\x12\x07testing");
        let nested = Message::new().message(3, &Message::new().int(1, 150));
        assert_eq!(nested.as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(field in 1u64..5000, int: i64, float: f32, text: String) {
            let message = Message::new().int(field, int).float(field, float).text(field, &text);
            let expected = vec![
                (field, Field::Varint(int as u64)),
                (field, Field::Fixed32(float.to_le_bytes())),
                (field, Field::Bytes(text.into_bytes())),
            ];
            prop_assert_eq!(fields(message.as_bytes()), Some(expected));
        }
    }
}
