//! PCD, the Point Cloud Library's files: a header of keywords, then rows as text or bytes.

use std::path::Path;

use super::PointCloud;
use super::table::{Column, Encoding, Number, Table, split_header};
use crate::points::error::PointsError;

/// The points of a whole file.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<PointCloud, PointsError> {
    let header = split_header(path, bytes, |line| keyword(line) == Some("DATA"))?;
    let table = read_header(path, &header.lines)?;
    table.points(path, header.data, header.lines.len())
}

fn keyword(line: &str) -> Option<&str> {
    line.split_whitespace().next()
}

fn read_header(path: &Path, lines: &[&str]) -> Result<Table, PointsError> {
    let values = |name: &'static str| -> Result<Vec<&str>, PointsError> {
        let line = lines.iter().find(|line| keyword(line) == Some(name));
        line.map(|line| line.split_whitespace().skip(1).collect())
            .ok_or_else(|| PointsError::invalid(path, format!("the header has no line {name}")))
    };
    let bad = |name: &str, got: &str| {
        let got: String = got.chars().take(40).collect();
        PointsError::invalid(path, format!("header line {name}: {got:?}"))
    };
    let whole = |name: &'static str, text: &str| -> Result<usize, PointsError> {
        text.parse().map_err(|_| bad(name, text))
    };

    let names = values("FIELDS")?;
    let (sizes, types) = (values("SIZE")?, values("TYPE")?);
    // Older files leave it out when every field is one number.
    let counts = values("COUNT").unwrap_or_else(|_| vec!["1"; names.len()]);
    if [sizes.len(), types.len(), counts.len()] != [names.len(); 3] {
        let what = "header lines FIELDS, SIZE, TYPE and COUNT are not equally long";
        return Err(PointsError::invalid(path, what));
    }
    let mut columns = Vec::with_capacity(names.len());
    for (i, name) in names.iter().enumerate() {
        let number = match (types[i], sizes[i]) {
            ("F", "4") => Number::F32,
            ("F", "8") => Number::F64,
            ("I", "1") => Number::I8,
            ("I", "2") => Number::I16,
            ("I", "4") => Number::I32,
            ("I", "8") => Number::I64,
            ("U", "1") => Number::U8,
            ("U", "2") => Number::U16,
            ("U", "4") => Number::U32,
            ("U", "8") => Number::U64,
            (kind, size) => return Err(bad("TYPE and SIZE", &format!("{kind} {size}"))),
        };
        columns.push(Column {
            name: (*name).to_owned(),
            number,
            count: whole("COUNT", counts[i])?,
        });
    }
    let rows = match values("POINTS")?[..] {
        [points] => whole("POINTS", points)?,
        _ => return Err(bad("POINTS", "")),
    };
    let encoding = match values("DATA")?[..] {
        ["ascii"] => Encoding::Text,
        ["binary"] => Encoding::LittleEndian,
        ["binary_compressed"] => {
            return Err(PointsError::Unsupported {
                path: path.to_path_buf(),
                what: "PCD with DATA binary_compressed (save it as binary)",
            });
        }
        ref other => return Err(bad("DATA", &other.join(" "))),
    };
    Ok(Table {
        columns,
        rows,
        encoding,
        may_go_on: false,
    })
}
