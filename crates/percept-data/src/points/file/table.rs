//! Rows of named columns, as text or as bytes: what PCD and PLY have in common.

use std::path::Path;

use super::PointCloud;
use crate::points::error::PointsError;

/// More columns than any file of points has; above it is damage.
const MAX_COLUMNS: usize = 4096;

/// Names under which files keep the intensity.
const INTENSITY_NAMES: [&str; 5] = [
    "intensity",
    "i",
    "scalar_intensity",
    "reflectance",
    "reflectivity",
];

/// A number as a file stores it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Encoding {
    Text,
    LittleEndian,
    BigEndian,
}

/// A run of `count` numbers under one name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) number: Number,
    pub(super) count: usize,
}

/// What a header says about the rows behind it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: usize,
    pub(super) encoding: Encoding,
    /// Whether something else may follow the rows.
    pub(super) may_go_on: bool,
}

/// Where a value stands in a row.
#[derive(Clone, Copy)]
struct Slot {
    number: Number,
    byte: usize,
    token: usize,
}

impl Number {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The number at the beginning of `bytes`; NaN when they are too few.
    fn read(self, bytes: &[u8], encoding: Encoding) -> f32 {
        let Some(bytes) = bytes.get(..self.bytes()) else {
            return f32::NAN;
        };
        let mut word = [0; 8];
        // As the low bytes of a little-endian word.
        for (place, byte) in word.iter_mut().zip(0..bytes.len()) {
            *place = match encoding {
                Encoding::BigEndian => bytes[bytes.len() - 1 - byte],
                Encoding::LittleEndian | Encoding::Text => bytes[byte],
            };
        }
        let word = u64::from_le_bytes(word);
        match self {
            Self::F32 => f32::from_bits(word as u32),
            Self::F64 => f64::from_bits(word) as f32,
            Self::I8 => f32::from(word as i8),
            Self::I16 => f32::from(word as i16),
            Self::I32 => word as i32 as f32,
            Self::I64 => word as i64 as f32,
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => word as f32,
        }
    }
}

impl Table {
    /// The points in `data`, which begins behind the header and its `header_lines` lines.
    pub(super) fn points(
        &self,
        path: &Path,
        data: &[u8],
        header_lines: usize,
    ) -> Result<PointCloud, PointsError> {
        let total = self
            .columns
            .iter()
            .try_fold(0usize, |sum, column| sum.checked_add(column.count))
            .filter(|&total| total <= MAX_COLUMNS)
            .ok_or_else(|| {
                PointsError::invalid(path, format!("more than {MAX_COLUMNS} columns"))
            })?;
        let [x, y, z] = ["x", "y", "z"].map(|name| self.slot(&[name]));
        let (Some(x), Some(y), Some(z)) = (x, y, z) else {
            let what = format!("no columns x, y and z: there are {}", self.names());
            return Err(PointsError::invalid(path, what));
        };
        let slots = [
            Some(x),
            Some(y),
            Some(z),
            self.slot(&INTENSITY_NAMES),
            self.slot(&["dt"]),
        ];
        match self.encoding {
            Encoding::Text => self.text_points(path, data, header_lines, total, &slots),
            Encoding::LittleEndian | Encoding::BigEndian => self.byte_points(path, data, &slots),
        }
    }

    fn byte_points(
        &self,
        path: &Path,
        data: &[u8],
        slots: &[Option<Slot>; PointCloud::CHANNELS],
    ) -> Result<PointCloud, PointsError> {
        let row_bytes: usize = self.columns.iter().map(Column::bytes).sum();
        let expected = self.rows.checked_mul(row_bytes);
        let fits = expected.is_some_and(|expected| {
            expected == data.len() || self.may_go_on && expected < data.len()
        });
        if !fits {
            let what = format!(
                "the header tells of {} points of {row_bytes} bytes, but {} bytes follow it",
                self.rows,
                data.len()
            );
            return Err(PointsError::invalid(path, what));
        }
        let value = |row: &[u8], slot: &Option<Slot>| {
            slot.map_or(0.0, |slot| {
                let from = row.get(slot.byte..).unwrap_or_default();
                slot.number.read(from, self.encoding)
            })
        };
        let rows = data.chunks_exact(row_bytes).take(self.rows);
        Ok(rows
            .map(|row| slots.each_ref().map(|slot| value(row, slot)))
            .collect())
    }

    fn text_points(
        &self,
        path: &Path,
        data: &[u8],
        header_lines: usize,
        total: usize,
        slots: &[Option<Slot>; PointCloud::CHANNELS],
    ) -> Result<PointCloud, PointsError> {
        let text = String::from_utf8_lossy(data);
        let mut lines = (header_lines + 1..)
            .zip(text.lines())
            .filter(|(_, line)| !line.trim().is_empty());
        let mut found = 0;
        let mut tokens = Vec::new();
        let cloud = lines
            .by_ref()
            .take(self.rows)
            .map(|(number, line)| {
                found += 1;
                tokens.clear();
                tokens.extend(line.split_whitespace().take(total + 1));
                let bad = |expected| PointsError::BadLine {
                    path: path.to_path_buf(),
                    line: number,
                    expected,
                    got: line.chars().take(80).collect(),
                };
                if tokens.len() != total {
                    return Err(bad("one number for each column"));
                }
                let mut row = [0.0; PointCloud::CHANNELS];
                for (value, slot) in row.iter_mut().zip(slots) {
                    if let Some(slot) = slot {
                        *value = tokens[slot.token].parse().map_err(|_| bad("numbers"))?;
                    }
                }
                Ok(row)
            })
            .collect::<Result<PointCloud, PointsError>>()?;
        if found < self.rows || (!self.may_go_on && lines.next().is_some()) {
            let more = if found < self.rows {
                "only "
            } else {
                "more than "
            };
            let what = format!(
                "the header tells of {} points, but {more}{found} follow it",
                self.rows
            );
            return Err(PointsError::invalid(path, what));
        }
        Ok(cloud)
    }

    /// The first column with one of these names, in any case.
    fn slot(&self, names: &[&str]) -> Option<Slot> {
        let (mut byte, mut token) = (0, 0);
        for column in &self.columns {
            let named = names
                .iter()
                .any(|name| column.name.eq_ignore_ascii_case(name));
            if named && column.count == 1 {
                return Some(Slot {
                    number: column.number,
                    byte,
                    token,
                });
            }
            byte += column.bytes();
            token += column.count;
        }
        None
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
        let some: String = names.join(" ").chars().take(200).collect();
        if some.is_empty() {
            "none".to_owned()
        } else {
            some
        }
    }
}

impl Column {
    fn bytes(&self) -> usize {
        self.number.bytes() * self.count
    }
}

/// A header: its lines, and what comes behind it.
pub(super) struct Header<'a> {
    pub(super) lines: Vec<&'a str>,
    pub(super) data: &'a [u8],
}

/// Splits a file behind the first line that `ends` says is the header's last.
pub(super) fn split_header<'a>(
    path: &Path,
    bytes: &'a [u8],
    ends: impl Fn(&str) -> bool,
) -> Result<Header<'a>, PointsError> {
    /// Longer headers are no headers.
    const MAX_HEADER_BYTES: usize = 1 << 16;
    let mut lines = Vec::new();
    let mut data = bytes;
    while let Some(end) = data.iter().take(MAX_HEADER_BYTES).position(|&b| b == b'\n') {
        let (line, rest) = data.split_at(end);
        data = rest.strip_prefix(b"\n").unwrap_or(rest);
        let line = str::from_utf8(line).map_err(|_| PointsError::BadLine {
            path: path.to_path_buf(),
            line: lines.len() + 1,
            expected: "a line of the header",
            got: line.iter().take(40).copied().map(char::from).collect(),
        })?;
        let line = line.trim_end_matches('\r');
        lines.push(line);
        if ends(line) {
            return Ok(Header { lines, data });
        }
        if bytes.len() - data.len() > MAX_HEADER_BYTES {
            break;
        }
    }
    let what = "the header has no end: truncated, or another format";
    Err(PointsError::invalid(path, what))
}
