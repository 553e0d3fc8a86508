//! Lists turned around: who refers to a row. Sums over them need no atomics and have a fixed order.

/// For each row, the places of a list that name it, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InverseLists {
    /// `rows + 1` starts into `places`.
    starts: Vec<u32>,
    places: Vec<u32>,
}

impl InverseLists {
    /// Turns a list of rows around.
    ///
    /// # Panics
    /// When it names a row that does not exist.
    pub fn new(rows: usize, list: &[i32]) -> InverseLists {
        let row = |&named: &i32| {
            let row = named.cast_unsigned() as usize;
            assert!(row < rows, "row {named} of {rows}");
            row
        };
        let mut starts = vec![0u32; rows + 2];
        for named in list {
            starts[row(named) + 2] += 1;
        }
        for at in 2..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut places = vec![0; list.len()];
        for (place, named) in list.iter().enumerate() {
            // The second start of a row moves on until it is where the next row begins.
            let next = &mut starts[row(named) + 1];
            places[*next as usize] = place as u32;
            *next += 1;
        }
        starts.pop();
        InverseLists { starts, places }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// The places that name a row, ascending.
    pub fn places(&self, row: usize) -> &[u32] {
        &self.places[self.starts[row] as usize..self.starts[row + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_place_is_found_at_its_row(rows in 1usize..9, list in prop::collection::vec(0i32..1000, 0..40)) {
            let list: Vec<i32> = list.into_iter().map(|row| row % rows as i32).collect();
            let turned = InverseLists::new(rows, &list);
            prop_assert_eq!(turned.rows(), rows);
            for row in 0..rows {
                let expected: Vec<u32> =
                    (0..list.len() as u32).filter(|&place| list[place as usize] == row as i32).collect();
                prop_assert_eq!(turned.places(row), &expected[..]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "row -1 of 3")]
    fn a_row_that_does_not_exist_is_refused() {
        InverseLists::new(3, &[0, -1]);
    }
}
