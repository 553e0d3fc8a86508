//! The header of a safetensors file: a length and a JSON object of tensors by name.
//!
//! It is parsed here rather than by the `safetensors` crate for errors that name the tensor, for refusing
//! duplicate names, and because that crate's sums of offsets can overflow on hostile headers (0.6 to 0.8).

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::fault::SafetensorsFault;
use crate::error::describe_content;
use percept_graph::{DType, byte_length};

/// Bytes before the header: its length as u64.
pub(super) const PREFIX_BYTES: usize = 8;
/// Where the file's metadata stands among the tensor names.
pub(super) const METADATA_KEY: &str = "__metadata__";
/// The format's own limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// One tensor of the header, checked: its bytes lie inside the file and fit its shape.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// The element type as the file names it.
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// Where it lies in the file.
    pub(super) bytes: Range<usize>,
}

/// The checked header of a file.
#[derive(Debug)]
pub(super) struct Header {
    /// The tensors, in the order of their data.
    pub(super) entries: Vec<Entry>,
    pub(super) metadata: BTreeMap<String, String>,
}

impl Header {
    /// Parses and checks the header of a whole file.
    pub(super) fn parse(file: &[u8]) -> Result<Header, SafetensorsFault> {
        let Some((prefix, rest)) = file.split_first_chunk::<PREFIX_BYTES>() else {
            let found = describe_content(file);
            return Err(SafetensorsFault::NotSafetensors { found });
        };
        let claimed = u64::from_le_bytes(*prefix);
        let available = rest.len() as u64;
        if !rest.starts_with(b"{") {
            let found = describe_content(file);
            return Err(SafetensorsFault::NotSafetensors { found });
        }
        if claimed > available.min(MAX_HEADER_BYTES) {
            return Err(SafetensorsFault::HeaderLength { claimed, available });
        }
        let (json, data) = rest.split_at(claimed as usize);
        let raw: RawHeader =
            serde_json::from_slice(json).map_err(|error| SafetensorsFault::Header {
                reason: error.to_string(),
            })?;
        let data_start = PREFIX_BYTES + json.len();

        let mut tensors = raw.tensors;
        tensors.sort_by_key(|(_, info)| info.data_offsets);
        let mut end_of_last = 0;
        let mut entries = Vec::with_capacity(tensors.len());
        for (
            name,
            TensorInfo {
                dtype,
                shape,
                data_offsets: (begin, end),
            },
        ) in tensors
        {
            let length = end.checked_sub(begin);
            let fits = match dtype_named(&dtype) {
                Some(known) => length.is_some() && length == byte_length(known, &shape),
                None => length.is_some(),
            };
            if !fits {
                return Err(SafetensorsFault::Offsets {
                    tensor: name,
                    dtype,
                    shape,
                    begin,
                    end,
                });
            }
            if end > data.len() {
                let available = data.len();
                return Err(SafetensorsFault::PastEnd {
                    tensor: name,
                    end,
                    available,
                });
            }
            if begin != end_of_last {
                let before = format!("tensor `{name}`");
                return Err(SafetensorsFault::Layout {
                    before,
                    expected: end_of_last,
                    found: begin,
                });
            }
            end_of_last = end;
            entries.push(Entry {
                name,
                dtype,
                shape,
                bytes: data_start + begin..data_start + end,
            });
        }
        if end_of_last != data.len() {
            let before = "the end of the file".to_owned();
            return Err(SafetensorsFault::Layout {
                before,
                expected: end_of_last,
                found: data.len(),
            });
        }
        Ok(Header {
            entries,
            metadata: raw.metadata,
        })
    }
}

/// A tensor as the header's JSON holds it.
#[derive(Serialize, Deserialize)]
pub(super) struct TensorInfo {
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    pub(super) data_offsets: (usize, usize),
}

/// The header as JSON holds it, refusing repeated names (which a plain map would silently merge).
struct RawHeader {
    tensors: Vec<(String, TensorInfo)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawHeader, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut header = RawHeader {
            tensors: Vec::new(),
            metadata: BTreeMap::new(),
        };
        let mut seen = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format_args!(
                    "the name `{name}` appears twice"
                )));
            }
            if name == METADATA_KEY {
                header.metadata = map.next_value()?;
            } else {
                header.tensors.push((name, map.next_value()?));
            }
        }
        Ok(header)
    }
}

/// The element type that the format calls `name`.
pub(super) fn dtype_named(name: &str) -> Option<DType> {
    Some(match name {
        "F64" => DType::F64,
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        "I8" => DType::I8,
        "U8" => DType::U8,
        "I16" => DType::I16,
        "I32" => DType::I32,
        "I64" => DType::I64,
        "BOOL" => DType::Bool,
        _ => return None,
    })
}

/// What the format calls an element type.
pub(super) fn name_of(dtype: DType) -> String {
    dtype.to_string().to_uppercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(json: &str, data_bytes: usize) -> Vec<u8> {
        let mut file = (json.len() as u64).to_le_bytes().to_vec();
        file.extend(json.as_bytes());
        file.resize(file.len() + data_bytes, 7);
        file
    }

    fn parse_error(json: &str, data_bytes: usize) -> String {
        Header::parse(&file(json, data_bytes))
            .unwrap_err()
            .to_string()
    }

    const TWO: &str = r#"{"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},"__metadata__":{"by":"test"}}"#;

    #[test]
    fn a_good_header_is_read() {
        let bytes = file(TWO, 11);
        let header = Header::parse(&bytes).unwrap();
        let names: Vec<_> = header
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(header.entries[1].bytes, bytes.len() - 3..bytes.len());
        assert_eq!(header.metadata["by"], "test");
    }

    #[test]
    fn hostile_headers_are_refused_by_name() {
        let table = [
            (
                r#"{"t":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#,
                12,
                "tensor `t` ends at byte 16",
            ),
            (
                r#"{"t":{"dtype":"F32","shape":[4],"data_offsets":[0,12]}}"#,
                12,
                "offsets 0..12",
            ),
            (
                r#"{"t":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}}"#,
                4,
                "offsets 4..0",
            ),
            (
                r#"{"t":{"dtype":"U8","shape":[4000000000000],"data_offsets":[0,4000000000000]}}"#,
                4,
                "truncated",
            ),
            (
                r#"{"t":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#,
                8,
                "tensor `t`",
            ),
            (
                r#"{"t":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}"#,
                1,
                "not valid",
            ),
            (
                r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
                1,
                "`t` appears twice",
            ),
            (
                r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#,
                3,
                "before tensor `b`",
            ),
            (
                r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}"#,
                5,
                "before tensor `b`",
            ),
            (
                r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#,
                5,
                "the end of the file",
            ),
            (r#"{"a":{"dtype":"U8"}}"#, 0, "missing field"),
            (r#"{"a":"#, 0, "not valid"),
        ];
        for (json, data_bytes, expected) in table {
            let error = parse_error(json, data_bytes);
            assert!(error.contains(expected), "{json}: {error}");
        }
    }

    #[test]
    fn sums_of_offsets_cannot_overflow() {
        let eighth = 1u64 << 61;
        let tensors: Vec<String> = (0..8)
            .map(|i| {
                let (begin, end) = (i * (eighth - 1), (i + 1) * (eighth - 1));
                format!(
                    r#""{i}":{{"dtype":"U8","shape":[{}],"data_offsets":[{begin},{end}]}}"#,
                    eighth - 1
                )
            })
            .collect();
        let error = parse_error(&format!("{{{}}}", tensors.join(",")), 8);
        assert!(error.contains("truncated"), "{error}");
    }

    #[test]
    fn other_content_is_named() {
        let error = |bytes: &[u8]| Header::parse(bytes).unwrap_err().to_string();
        assert!(error(b"").contains("an empty file"));
        assert!(error(b"PK\x03\x04 and more bytes").contains("a zip archive"));
        let mut too_long = file("{}", 0);
        too_long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(error(&too_long).contains("claims 18446744073709551615 bytes"));
        let mut not_utf8 = file(TWO, 11);
        not_utf8[10] = 0xff;
        assert!(error(&not_utf8).contains("not valid"));
        let deep = "{\"a\":".repeat(100_000);
        assert!(error(&file(&deep, 0)).contains("not valid"));
    }

    proptest! {
        #[test]
        fn damaged_headers_give_an_error_or_lie_inside_the_file(
            cut in 0usize..200, flips in prop::collection::vec((0usize..200, 0u8..8), 0..4),
        ) {
            let mut bytes = file(TWO, 11);
            for (at, bit) in flips {
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Ok(header) = Header::parse(&bytes) {
                for entry in header.entries {
                    prop_assert!(bytes.get(entry.bytes).is_some());
                }
            }
        }

        #[test]
        fn random_shapes_and_offsets_are_refused_or_fill_the_file(
            dtype in prop::sample::select(vec!["F32", "U8", "F8_E4M3", ""]),
            shape in prop::collection::vec(prop_oneof![0u64..4, any::<u64>()], 0..4),
            begin in prop_oneof![0u64..4, any::<u64>()], end in prop_oneof![0u64..20, any::<u64>()],
        ) {
            let json = format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}}}"#);
            let bytes = file(&json, 16);
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert_eq!(header.entries[0].bytes.len(), 16);
            }
        }
    }
}
