//! PLY, Stanford's polygon files: a header of elements and their properties; points are the vertices.

use std::path::Path;

use super::PointCloud;
use super::table::{Column, Encoding, Number, Table, split_header};
use crate::points::error::PointsError;

/// The vertices of a whole file.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<PointCloud, PointsError> {
    if !bytes.starts_with(b"ply") {
        return Err(PointsError::invalid(path, "not a PLY file"));
    }
    let header = split_header(path, bytes, |line| line.trim() == "end_header")?;
    let table = read_header(path, &header.lines)?;
    table.points(path, header.data, header.lines.len())
}

fn read_header(path: &Path, lines: &[&str]) -> Result<Table, PointsError> {
    let unsupported = |what| PointsError::Unsupported {
        path: path.to_path_buf(),
        what,
    };
    let mut encoding = None;
    // The vertices, once their element has begun.
    let mut vertices: Option<(usize, Vec<Column>)> = None;
    let mut elements = 0;
    for (number, line) in (1..).zip(lines) {
        let bad = |expected| PointsError::BadLine {
            path: path.to_path_buf(),
            line: number,
            expected,
            got: line.chars().take(80).collect(),
        };
        let words: Vec<&str> = line.split_whitespace().take(6).collect();
        match words[..] {
            ["format", form, "1.0"] => {
                encoding = Some(match form {
                    "ascii" => Encoding::Text,
                    "binary_little_endian" => Encoding::LittleEndian,
                    "binary_big_endian" => Encoding::BigEndian,
                    _ => return Err(bad("a format that PLY has")),
                });
            }
            ["element", name, count] => {
                elements += 1;
                if name == "vertex" {
                    if elements > 1 {
                        return Err(unsupported("PLY with other elements before its vertices"));
                    }
                    let rows = count.parse().map_err(|_| bad("a number of vertices"))?;
                    vertices = Some((rows, Vec::new()));
                }
            }
            // Properties of what follows the vertices do not matter.
            ["property", ..] if elements > 1 => {}
            ["property", "list", ..] => {
                return Err(unsupported("PLY whose vertices have lists"));
            }
            ["property", kind, name] => {
                let (_, columns) = vertices
                    .as_mut()
                    .ok_or_else(|| bad("an element before its properties"))?;
                columns.push(Column {
                    name: name.to_owned(),
                    number: number_named(kind).ok_or_else(|| bad("a type that PLY has"))?,
                    count: 1,
                });
            }
            ["comment" | "obj_info", ..] | ["ply"] | ["end_header"] | [] => {}
            _ => return Err(bad("a line of a PLY header")),
        }
    }
    let encoding = encoding.ok_or_else(|| PointsError::invalid(path, "no line 'format'"))?;
    let (rows, columns) =
        vertices.ok_or_else(|| PointsError::invalid(path, "no element 'vertex'"))?;
    Ok(Table {
        columns,
        rows,
        encoding,
        may_go_on: elements > 1,
    })
}

fn number_named(name: &str) -> Option<Number> {
    Some(match name {
        "char" | "int8" => Number::I8,
        "uchar" | "uint8" => Number::U8,
        "short" | "int16" => Number::I16,
        "ushort" | "uint16" => Number::U16,
        "int" | "int32" => Number::I32,
        "uint" | "uint32" => Number::U32,
        "float" | "float32" => Number::F32,
        "double" | "float64" => Number::F64,
        _ => return None,
    })
}
