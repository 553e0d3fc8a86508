//! COCO's two ways to write an RLE: a list of run lengths, not set and set in turn, and the same list as text.
//!
//! The text has six bits per character, from `0` on: five of the number and one that says that it goes on, the lowest
//! first, with a sign. From the fourth number on, the difference to the last but one stands there.

use serde::{Deserialize, Serialize};

use super::rle::checked_size;
use super::{MaskFault, Rle};

/// The least character of the text.
const ZERO: u8 = b'0';
const MORE: u8 = 0x20;
const SIGN: u8 = 0x10;
/// Characters of the longest number: seven times five bits hold any run of any mask, and its negative.
const MAX_CHARACTERS: u32 = 7;

impl Rle {
    /// A mask from COCO's text.
    pub fn from_coco_text(height: usize, width: usize, text: &str) -> Result<Self, MaskFault> {
        Self::from_counts(height, width, &parse_counts(text.as_bytes())?)
    }

    /// A mask from lengths of runs down the columns: not set, set, not set, and so on. Runs of length 0 are taken.
    pub fn from_counts(height: usize, width: usize, counts: &[u32]) -> Result<Self, MaskFault> {
        let (height, width) = checked_size(height, width)?;
        let pixels = u64::from(height) * u64::from(width);
        let wrong = |covered| MaskFault::Runs {
            width,
            height,
            covered,
        };
        let mut edges: Vec<u32> = Vec::with_capacity(counts.len());
        let mut place = 0u64;
        for (i, &count) in counts.iter().enumerate() {
            let start = place;
            place += u64::from(count);
            if place > pixels {
                return Err(wrong(place));
            }
            if i % 2 == 1 && count > 0 {
                // Places are at most `pixels`, which fits u32.
                let (start, end) = (start as u32, place as u32);
                match edges.last_mut() {
                    Some(last) if *last == start => *last = end,
                    _ => edges.extend([start, end]),
                }
            }
        }
        if place < pixels {
            return Err(wrong(place));
        }
        Ok(Self::from_edges(height, width, edges))
    }

    /// The lengths of its runs down the columns: not set, set, not set, and so on.
    pub fn counts(&self) -> Vec<u32> {
        let mut counts = Vec::with_capacity(self.edges().len() + 1);
        let mut last = 0;
        for &edge in self.edges() {
            counts.push(edge - last);
            last = edge;
        }
        if last < self.pixels() || counts.is_empty() {
            counts.push(self.pixels() - last);
        }
        counts
    }

    /// COCO's text.
    pub fn coco_text(&self) -> String {
        let counts = self.counts();
        let mut text = String::new();
        for (i, &count) in counts.iter().enumerate() {
            let before = if i > 2 { i64::from(counts[i - 2]) } else { 0 };
            push_number(&mut text, i64::from(count) - before);
        }
        text
    }
}

fn push_number(text: &mut String, mut number: i64) {
    loop {
        let bits = (number & 0x1f) as u8;
        number >>= 5;
        let is_last = number == if bits & SIGN != 0 { -1 } else { 0 };
        text.push(char::from(ZERO + bits + if is_last { 0 } else { MORE }));
        if is_last {
            return;
        }
    }
}

fn parse_counts(text: &[u8]) -> Result<Vec<u32>, MaskFault> {
    let mut counts: Vec<u32> = Vec::new();
    let (mut number, mut characters) = (0i64, 0);
    for (at, &character) in text.iter().enumerate() {
        let wrong = |reason| MaskFault::Text { reason, at };
        let bits = character
            .checked_sub(ZERO)
            .filter(|&bits| bits < 2 * MORE)
            .ok_or_else(|| wrong("no character of COCO's text"))?;
        number |= i64::from(bits & 0x1f) << (5 * characters);
        characters += 1;
        if bits & MORE != 0 {
            if characters == MAX_CHARACTERS {
                return Err(wrong("a number without an end"));
            }
            continue;
        }
        if bits & SIGN != 0 {
            number -= 1 << (5 * characters);
        }
        if let [_, .., before, _] = counts[..] {
            number += i64::from(before);
        }
        let count = u32::try_from(number).map_err(|_| wrong("a run of no possible length"))?;
        counts.push(count);
        (number, characters) = (0, 0);
    }
    if characters > 0 {
        return Err(MaskFault::Text {
            reason: "the text ends within a number",
            at: text.len(),
        });
    }
    Ok(counts)
}

/// An RLE as it stands in COCO's JSON files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CocoRle {
    /// Height and width.
    size: [usize; 2],
    counts: CocoCounts,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum CocoCounts {
    Text(String),
    List(Vec<u32>),
}

impl Serialize for Rle {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let coco = CocoRle {
            size: [self.height(), self.width()],
            counts: CocoCounts::Text(self.coco_text()),
        };
        coco.serialize(serializer)
    }
}

impl TryFrom<&CocoRle> for Rle {
    type Error = MaskFault;

    fn try_from(coco: &CocoRle) -> Result<Self, MaskFault> {
        let [height, width] = coco.size;
        match &coco.counts {
            CocoCounts::Text(text) => Self::from_coco_text(height, width, text),
            CocoCounts::List(counts) => Self::from_counts(height, width, counts),
        }
    }
}

impl<'de> Deserialize<'de> for Rle {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let coco = CocoRle::deserialize(deserializer)?;
        Self::try_from(&coco).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rle::tests::masks;
    use super::*;

    #[test]
    fn texts_of_pycocotools_are_read_and_written() {
        for (height, width, pixels, text) in [
            (4, 5, vec![0; 20], "d0"),
            (4, 5, vec![1; 20], "0d0"),
            (
                5,
                5,
                (0..25).map(|i| u8::from(i % 6 == 0)).collect(),
                "0150000000",
            ),
            (2, 3, vec![1, 0, 0, 0, 0, 1], "0140"),
        ] {
            let mask = Rle::encode(height, width, &pixels).unwrap();
            assert_eq!(mask.coco_text(), text);
            assert_eq!(Rle::from_coco_text(height, width, text).unwrap(), mask);
        }
    }

    #[test]
    fn runs_of_length_0_join_their_neighbours() {
        let mask = Rle::from_counts(2, 4, &[1, 2, 0, 3, 1, 0, 1]).unwrap();
        assert_eq!(mask.counts(), [1, 5, 2]);
        assert_eq!(Rle::from_counts(0, 4, &[]).unwrap().counts(), [0]);
    }

    #[test]
    fn runs_that_do_not_fit_are_refused() {
        for (text, expected) in [
            ("d", "the text ends within a number at byte 1"),
            ("d0", "its runs cover 20 pixels, 5x3 has 15"),
            ("0", "its runs cover 0 pixels, 5x3 has 15"),
            ("", "its runs cover 0 pixels"),
            ("é", "no character of COCO's text at byte 0"),
            ("0\u{7f}", "no character of COCO's text at byte 1"),
            ("0P", "the text ends within a number at byte 2"),
            ("PPPPPPPPPPPPPPPPPP0", "a number without an end at byte 6"),
            ("O", "a run of no possible length at byte 0"),
        ] {
            let fault = Rle::from_coco_text(3, 5, text).unwrap_err().to_string();
            assert!(fault.contains(expected), "{text}: {fault}");
        }
        let long = Rle::from_counts(3, 5, &[u32::MAX; 9]).unwrap_err();
        assert!(matches!(long, MaskFault::Runs { .. }));
    }

    #[test]
    fn both_forms_of_json_are_read() {
        let mask = Rle::from_counts(2, 3, &[1, 2, 3]).unwrap();
        let json = serde_json::to_string(&mask).unwrap();
        assert_eq!(json, r#"{"size":[2,3],"counts":"123"}"#);
        for json in [&json[..], r#"{"counts":[1,2,3],"size":[2,3],"more":0}"#] {
            assert_eq!(serde_json::from_str::<Rle>(json).unwrap(), mask);
        }
        let error = serde_json::from_str::<Rle>(r#"{"size":[2,3],"counts":"12"}"#);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("its runs cover 3 pixels, 3x2 has 6"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn text_and_lists_come_back((height, width, pixels) in masks()) {
            let mask = Rle::encode(height, width, &pixels).unwrap();
            prop_assert_eq!(&Rle::from_counts(height, width, &mask.counts()).unwrap(), &mask);
            prop_assert_eq!(Rle::from_coco_text(height, width, &mask.coco_text()).unwrap(), mask);
        }

        #[test]
        fn long_runs_come_back(first in 0u32..100_000_000, second in 0u32..1000, third in 0u32..70_000_000) {
            let (height, width) = (13_000, 13_000);
            let rest = 169_000_000u32.saturating_sub(first + second + third);
            prop_assume!(first + second + third + rest == 169_000_000);
            let mask = Rle::from_counts(height, width, &[first, second, third, rest]).unwrap();
            prop_assert_eq!(Rle::from_coco_text(height, width, &mask.coco_text()).unwrap(), mask);
        }

        #[test]
        fn any_text_is_a_mask_or_a_fault(height in 0usize..9, width in 0usize..9, text in "[0-o]{0,12}") {
            if let Ok(mask) = Rle::from_coco_text(height, width, &text) {
                prop_assert_eq!(mask.decode().len(), height * width);
            }
        }
    }
}
