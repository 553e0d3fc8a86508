//! Sizes: constants, symbols, and arithmetic on them.
//!
//! A [`Dim`] is a polynomial over *atoms* (symbols and floor divisions) kept in canonical form, so two
//! sizes that are computed on different ways through a network compare equal when they must be equal.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Mul, Sub};
use std::sync::Arc;

use crate::GraphError;

/// The value of each symbol.
pub type Bindings = BTreeMap<Arc<str>, usize>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Atom {
    Symbol(Arc<str>),
    /// floor(dim / divisor), where the division is not known to be exact.
    FloorDiv(Box<Dim>, i64),
}

impl Atom {
    fn depends_on(&self, symbol: &str) -> bool {
        match self {
            Atom::Symbol(name) => **name == *symbol,
            Atom::FloorDiv(dim, _) => dim.depends_on(symbol),
        }
    }
}

/// A size that may depend on symbols, such as `N`, `3`, or `floor((H + 5) / 2)`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dim {
    /// Monomial (sorted atoms, the empty one is the constant) -> coefficient, never zero.
    terms: BTreeMap<Vec<Atom>, i64>,
}

impl Dim {
    /// The symbol of this name.
    pub fn symbol(name: &str) -> Self {
        Self {
            terms: BTreeMap::from([(vec![Atom::Symbol(Arc::from(name))], 1)]),
        }
    }

    /// The constant value, when the size depends on no symbol.
    pub fn as_const(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    /// The symbol's name, when the size is one symbol and nothing else.
    pub fn as_symbol(&self) -> Option<&Arc<str>> {
        match self.terms.iter().next() {
            Some((atoms, 1)) if self.terms.len() == 1 => match atoms.as_slice() {
                [Atom::Symbol(name)] => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the size changes with a symbol.
    pub fn depends_on(&self, symbol: &str) -> bool {
        let mut atoms = self.terms.keys().flatten();
        atoms.any(|atom| atom.depends_on(symbol))
    }

    /// Whether the size is the same number for each one that a symbol counts, as 3*H*N is for N.
    pub fn is_proportional_to(&self, symbol: &str) -> bool {
        self.terms.keys().all(|atoms| {
            let mut found = atoms.iter().filter(|atom| atom.depends_on(symbol));
            matches!((found.next(), found.next()), (Some(Atom::Symbol(_)), None))
        })
    }

    /// floor(self / divisor) for a positive divisor.
    pub fn floor_div(&self, divisor: i64) -> Dim {
        assert!(divisor > 0, "a size is divided by {divisor}");
        if self
            .terms
            .values()
            .all(|coefficient| coefficient % divisor == 0)
        {
            let terms = self.terms.iter().map(|(m, c)| (m.clone(), c / divisor));
            return Dim {
                terms: terms.collect(),
            };
        }
        // What the divisor divides leaves the floor, so that sizes stay comparable: (2 H + 1) / 2 is H.
        let constant = self.terms.get(&Vec::new()).copied().unwrap_or(0);
        let symbolic = self.clone() - constant;
        if symbolic.terms.values().all(|c| c % divisor == 0) {
            return symbolic.floor_div(divisor) + constant.div_euclid(divisor);
        }
        let atom = Atom::FloorDiv(Box::new(self.clone()), divisor);
        Dim {
            terms: BTreeMap::from([(vec![atom], 1)]),
        }
    }

    /// The size for these symbol values; a negative or unbound size is an error.
    pub fn eval(&self, bindings: &Bindings) -> Result<usize, GraphError> {
        let value = self.eval_signed(bindings)?;
        usize::try_from(value).map_err(|_| GraphError::NegativeSize {
            size: self.to_string(),
            value,
        })
    }

    fn eval_signed(&self, bindings: &Bindings) -> Result<i64, GraphError> {
        let too_large = || GraphError::SizeOverflow {
            size: self.to_string(),
        };
        let mut sum: i64 = 0;
        for (atoms, &coefficient) in &self.terms {
            let mut product = coefficient;
            for atom in atoms {
                let factor = match atom {
                    Atom::Symbol(name) => {
                        let value =
                            bindings
                                .get(name)
                                .ok_or_else(|| GraphError::UnboundSymbol {
                                    symbol: name.to_string(),
                                })?;
                        i64::try_from(*value).map_err(|_| too_large())?
                    }
                    Atom::FloorDiv(dim, divisor) => dim.eval_signed(bindings)?.div_euclid(*divisor),
                };
                product = product.checked_mul(factor).ok_or_else(too_large)?;
            }
            sum = sum.checked_add(product).ok_or_else(too_large)?;
        }
        Ok(sum)
    }

    fn add_term(&mut self, atoms: Vec<Atom>, coefficient: i64) {
        let entry = self.terms.entry(atoms).or_insert(0);
        *entry += coefficient;
        self.terms.retain(|_, c| *c != 0);
    }
}

/// The product of some sizes (1 for none).
impl<'a> std::iter::Product<&'a Dim> for Dim {
    fn product<I: Iterator<Item = &'a Dim>>(dims: I) -> Dim {
        dims.fold(Dim::from(1), |product, dim| &product * dim)
    }
}

impl std::iter::Sum for Dim {
    fn sum<I: Iterator<Item = Dim>>(dims: I) -> Dim {
        dims.fold(Dim::default(), |sum, dim| sum + dim)
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        let mut dim = Dim::default();
        dim.add_term(Vec::new(), value);
        dim
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Self {
        Dim::from(i64::try_from(value).expect("a constant size fits in 63 bits"))
    }
}

impl From<i32> for Dim {
    fn from(value: i32) -> Self {
        Dim::from(i64::from(value))
    }
}

impl Add<&Dim> for &Dim {
    type Output = Dim;
    fn add(self, other: &Dim) -> Dim {
        let mut sum = self.clone();
        for (atoms, coefficient) in &other.terms {
            sum.add_term(atoms.clone(), *coefficient);
        }
        sum
    }
}

impl Mul<&Dim> for &Dim {
    type Output = Dim;
    fn mul(self, other: &Dim) -> Dim {
        let mut product = Dim::default();
        for (left, a) in &self.terms {
            for (right, b) in &other.terms {
                let mut atoms = [left.as_slice(), right.as_slice()].concat();
                atoms.sort();
                product.add_term(atoms, a * b);
            }
        }
        product
    }
}

impl<T: Into<Dim>> Add<T> for Dim {
    type Output = Dim;
    fn add(self, other: T) -> Dim {
        &self + &other.into()
    }
}

impl<T: Into<Dim>> Mul<T> for Dim {
    type Output = Dim;
    fn mul(self, other: T) -> Dim {
        &self * &other.into()
    }
}

impl<T: Into<Dim>> Sub<T> for Dim {
    type Output = Dim;
    fn sub(self, other: T) -> Dim {
        &self + &(other.into() * -1)
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(name) => f.write_str(name),
            Atom::FloorDiv(dim, divisor) => write!(f, "floor(({dim}) / {divisor})"),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // The constant is the first key (the empty monomial); people expect it last.
        let constant = self.terms.get(&Vec::new()).map(|c| (Vec::new(), *c));
        let symbolic = self.terms.iter().filter(|(m, _)| !m.is_empty());
        let ordered = symbolic.map(|(m, c)| (m.clone(), *c)).chain(constant);
        for (i, (atoms, coefficient)) in ordered.enumerate() {
            let sign = match (i, coefficient < 0) {
                (0, true) => "-",
                (0, false) => "",
                (_, true) => " - ",
                (_, false) => " + ",
            };
            f.write_str(sign)?;
            let names: Vec<String> = atoms.iter().map(Atom::to_string).collect();
            match (coefficient.abs(), names.is_empty()) {
                (magnitude, true) => write!(f, "{magnitude}")?,
                (1, false) => f.write_str(&names.join("*"))?,
                (magnitude, false) => write!(f, "{magnitude}*{}", names.join("*"))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bind(h: usize, w: usize) -> Bindings {
        Bindings::from([(Arc::from("H"), h), (Arc::from("W"), w)])
    }

    #[test]
    fn equal_sizes_by_different_ways_compare_equal() {
        let h = Dim::symbol("H");
        // A stride-1 convolution with padding keeps the size, whatever the kernel.
        let same = (h.clone() + 2 - 3).floor_div(1) + 1;
        assert_eq!(same, h);
        let half = |x: &Dim| (x.clone() + 2 - 3).floor_div(2) + 1;
        assert_eq!(half(&half(&h)), half(&half(&h)));
        assert_eq!((h.clone() * 14).floor_div(14), h);
        assert_eq!(h.clone() * Dim::symbol("W"), Dim::symbol("W") * h.clone());
        assert_eq!((h.clone() - h).as_const(), Some(0));
    }

    #[test]
    fn what_symbols_count_is_told_from_the_rest() {
        let (n, h) = (Dim::symbol("N"), Dim::symbol("H"));
        let half = |dim: &Dim| (dim.clone() + 1).floor_div(2);
        for dim in [
            n.clone(),
            n.clone() * 3 * half(&h),
            n.clone() * h.clone() + n.clone(),
        ] {
            assert!(dim.is_proportional_to("N") && dim.depends_on("N"), "{dim}");
        }
        let others = [
            n.clone() + 1,
            n.clone() * n.clone(),
            half(&n),
            half(&n) * n.clone(),
        ];
        for dim in others {
            assert!(!dim.is_proportional_to("N") && dim.depends_on("N"), "{dim}");
        }
        for dim in [Dim::from(3), h.clone(), half(&h)] {
            assert!(
                !dim.is_proportional_to("N") && !dim.depends_on("N"),
                "{dim}"
            );
        }
    }

    #[test]
    fn reads_like_a_formula() {
        let dim = (Dim::symbol("H") + 5).floor_div(2) * 3 + 1;
        assert_eq!(dim.to_string(), "3*floor((H + 5) / 2) + 1");
        assert_eq!(Dim::from(7).to_string(), "7");
        assert_eq!((Dim::from(1) - Dim::symbol("W")).to_string(), "-W + 1");
    }

    #[test]
    fn bad_sizes_are_errors() {
        let dim = Dim::symbol("H") - 10;
        assert!(matches!(
            dim.eval(&bind(3, 1)),
            Err(GraphError::NegativeSize { .. })
        ));
        assert!(matches!(
            Dim::symbol("Q").eval(&bind(3, 1)),
            Err(GraphError::UnboundSymbol { .. })
        ));
        let huge = Dim::symbol("H") * Dim::symbol("H") * Dim::symbol("H");
        assert!(matches!(
            huge.eval(&bind(1 << 40, 1)),
            Err(GraphError::SizeOverflow { .. })
        ));
    }

    proptest! {
        #[test]
        fn arithmetic_agrees_with_integers(h in 0i64..500, w in 0i64..500, a in -9i64..9, b in -9i64..9, d in 1i64..7) {
            let (hs, ws) = (Dim::symbol("H"), Dim::symbol("W"));
            let dim = (hs.clone() * a + ws.clone() * b + 3).floor_div(d) * hs.clone() + ws.clone() - 2;
            let expected = (h * a + w * b + 3).div_euclid(d) * h + w - 2;
            prop_assert_eq!(dim.eval_signed(&bind(h as usize, w as usize)).unwrap(), expected);
        }
    }
}
