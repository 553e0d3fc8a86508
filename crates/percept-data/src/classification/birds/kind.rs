//! What makes a class: five parts in four forms each.
//!
//! The forms of a class are a word of an error-correcting code (an arc of five points in the plane over the field of
//! four elements): the first 16 classes differ from each other in four parts, all 64 in at least three. So no
//! single part tells a class, and a class can be told when a leaf hides one of its parts.

use std::fmt;

/// How many classes the code has.
pub const MOST_CLASSES: usize = 64;

macro_rules! forms {
    ($(#[$doc:meta])* $name:ident { $($form:ident = $words:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum $name { $($form),* }

        impl $name {
            const ALL: [Self; 4] = [$(Self::$form),*];
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$form => $words),* })
            }
        }
    };
}

forms! {
    /// The beak, by form and colour.
    Beak { Cone = "orange cone", Needle = "dark needle", Hook = "pale hook", Wedge = "red wedge" }
}
forms! {
    /// The top of the head.
    Crown { Plain = "plain crown", Cap = "black cap", Patch = "red crown", Crest = "crest" }
}
forms! {
    /// Marks on the wing.
    Wing { Plain = "plain wing", Bar = "one bar", Bars = "two bars", Patch = "yellow patch" }
}
forms! {
    /// The tail.
    Tail { Plain = "plain tail", Tip = "white tip", Band = "dark band", Fork = "forked tail" }
}
forms! {
    /// The eye and what is around it.
    Eye { Plain = "plain eye", Ring = "white ring", Iris = "yellow iris", Stripe = "eye stripe" }
}

/// The parts of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Kind {
    pub beak: Beak,
    pub crown: Crown,
    pub wing: Wing,
    pub tail: Tail,
    pub eye: Eye,
}

impl Kind {
    /// The parts of class 0 to 63.
    pub(super) fn of_class(class: usize) -> Self {
        let [beak, crown, wing, tail, eye] = code_word(class);
        Self {
            beak: Beak::ALL[beak],
            crown: Crown::ALL[crown],
            wing: Wing::ALL[wing],
            tail: Tail::ALL[tail],
            eye: Eye::ALL[eye],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            beak,
            crown,
            wing,
            tail,
            eye,
        } = self;
        write!(f, "{beak}, {crown}, {wing}, {tail}, {eye}")
    }
}

/// The polynomial a + bx + cx² over the field of four elements at its four points, and b.
fn code_word(class: usize) -> [usize; 5] {
    let [a, b, c] = [class % 4, class / 4 % 4, class / 16 % 4];
    let at = |x: usize| a ^ times(b, x) ^ times(c, times(x, x));
    [at(0), at(1), at(2), at(3), b]
}

/// Multiplication in the field of four elements, whose sum is the exclusive or.
fn times(a: usize, b: usize) -> usize {
    const TABLE: [[usize; 4]; 4] = [[0, 0, 0, 0], [0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2]];
    TABLE[a][b]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts_that_differ(a: usize, b: usize) -> usize {
        let pairs = code_word(a).into_iter().zip(code_word(b));
        pairs.filter(|(a, b)| a != b).count()
    }

    #[test]
    fn classes_differ_in_many_parts() {
        for a in 0..MOST_CLASSES {
            for b in 0..a {
                assert!(parts_that_differ(a, b) >= 3, "{a} {b}");
                if a < 16 {
                    assert_eq!(parts_that_differ(a, b), 4, "{a} {b}");
                }
            }
        }
    }

    #[test]
    fn no_part_tells_a_class() {
        for classes in [16, 32, 64] {
            for part in 0..5 {
                for form in 0..4 {
                    let with = (0..classes).filter(|&class| code_word(class)[part] == form);
                    assert_eq!(with.count(), classes / 4, "{part} {form}");
                }
            }
        }
    }

    #[test]
    fn a_kind_says_its_parts() {
        assert_eq!(
            Kind::of_class(0).to_string(),
            "orange cone, plain crown, plain wing, plain tail, plain eye"
        );
    }
}
