//! A tiny typeface for legends: capitals, figures and a few signs, three dots wide and five high.

/// Dots between the left edges of neighbouring letters.
pub(super) const ADVANCE: u32 = 4;
/// Dots from the top to the bottom of a letter.
pub(super) const HEIGHT: u32 = 5;

/// The five rows of a letter, each three bits, the leftmost dot in the highest bit; blank when it is unknown.
pub(super) fn rows(letter: char) -> [u8; 5] {
    let octal: u32 = match letter.to_ascii_uppercase() {
        'A' => 0o25755,
        'B' => 0o65656,
        'C' => 0o34443,
        'D' => 0o65556,
        'E' => 0o74647,
        'F' => 0o74644,
        'G' => 0o34553,
        'H' => 0o55755,
        'I' => 0o72227,
        'J' => 0o11152,
        'K' => 0o55655,
        'L' => 0o44447,
        'M' => 0o57755,
        'N' => 0o65555,
        'O' => 0o25552,
        'P' => 0o65644,
        'Q' => 0o25563,
        'R' => 0o65655,
        'S' => 0o34216,
        'T' => 0o72222,
        'U' => 0o55557,
        'V' => 0o55552,
        'W' => 0o55775,
        'X' => 0o55255,
        'Y' => 0o55222,
        'Z' => 0o71247,
        '0' => 0o75557,
        '1' => 0o26227,
        '2' => 0o61247,
        '3' => 0o61216,
        '4' => 0o55711,
        '5' => 0o74616,
        '6' => 0o34757,
        '7' => 0o71222,
        '8' => 0o75757,
        '9' => 0o75716,
        '-' => 0o00700,
        '_' => 0o00007,
        '.' => 0o00002,
        ',' => 0o00024,
        ':' => 0o02020,
        '/' => 0o11244,
        _ => 0,
    };
    std::array::from_fn(|row| (octal >> (3 * (4 - row)) & 7) as u8)
}
