//! Walking tensors by strides: row-major strides, broadcasting, offsets in order.

/// Row-major strides of a dense tensor, in elements.
pub fn contiguous_strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    strides
}

/// The shape that `a` and `b` broadcast to, aligned at the last axis; `None` when they do not.
pub fn broadcast_dims(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], axis: usize| match (axis + dims.len()).checked_sub(rank) {
        Some(own_axis) => dims[own_axis],
        None => 1,
    };
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// Strides that read a dense tensor of `dims` as if it had the shape `target`: 0 on broadcast axes.
pub fn broadcast_strides(dims: &[usize], target: &[usize]) -> Vec<usize> {
    let own = contiguous_strides(dims);
    let missing = target.len() - dims.len();
    (0..target.len())
        .map(|axis| match axis.checked_sub(missing) {
            Some(own_axis) if dims[own_axis] != 1 => own[own_axis],
            _ => 0,
        })
        .collect()
}

/// Merges neighbouring axes that every operand walks as one, and drops axes of 1: fewer and longer runs.
pub fn collapse<const N: usize>(
    dims: &[usize],
    strides: [Vec<usize>; N],
) -> (Vec<usize>, [Vec<usize>; N]) {
    let mut merged_dims: Vec<usize> = Vec::with_capacity(dims.len());
    let mut merged: [Vec<usize>; N] = std::array::from_fn(|_| Vec::with_capacity(dims.len()));
    for axis in (0..dims.len()).filter(|&axis| dims[axis] != 1) {
        let joins = (0..N).all(|i| {
            merged[i]
                .last()
                .is_some_and(|&outer| outer == strides[i][axis] * dims[axis])
        });
        match merged_dims.last_mut() {
            Some(last) if joins => *last *= dims[axis],
            _ => merged_dims.push(dims[axis]),
        }
        for i in 0..N {
            if joins {
                merged[i].pop();
            }
            merged[i].push(strides[i][axis]);
        }
    }
    (merged_dims, merged)
}

/// The offsets of a strided tensor's elements in row-major order.
#[derive(Clone, Debug)]
pub struct Odometer {
    dims: Vec<usize>,
    strides: Vec<usize>,
    index: Vec<usize>,
    offset: usize,
    remaining: usize,
}

impl Odometer {
    /// An odometer over `dims`, starting at offset 0.
    pub fn new(dims: &[usize], strides: &[usize]) -> Self {
        Self::starting_at(0, dims, strides)
    }

    /// An odometer that starts at the `first`-th element and runs to the end.
    pub fn starting_at(first: usize, dims: &[usize], strides: &[usize]) -> Self {
        assert_eq!(dims.len(), strides.len(), "one stride per axis");
        let count: usize = dims.iter().product();
        let mut index = vec![0; dims.len()];
        let mut rest = first;
        for axis in (0..dims.len()).rev() {
            index[axis] = rest % dims[axis].max(1);
            rest /= dims[axis].max(1);
        }
        let offset = index
            .iter()
            .zip(strides)
            .map(|(i, stride)| i * stride)
            .sum();
        Self {
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            index,
            offset,
            remaining: count.saturating_sub(first),
        }
    }
}

impl Iterator for Odometer {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.remaining = self.remaining.checked_sub(1)?;
        let offset = self.offset;
        for axis in (0..self.dims.len()).rev() {
            self.index[axis] += 1;
            self.offset += self.strides[axis];
            if self.index[axis] < self.dims[axis] {
                break;
            }
            self.offset -= self.index[axis] * self.strides[axis];
            self.index[axis] = 0;
        }
        Some(offset)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Odometer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_from_the_last_axis() {
        assert_eq!(broadcast_dims(&[2, 3, 4], &[3, 1]), Some(vec![2, 3, 4]));
        assert_eq!(broadcast_dims(&[], &[5]), Some(vec![5]));
        assert_eq!(broadcast_dims(&[1], &[0]), Some(vec![0]));
        assert_eq!(broadcast_dims(&[2], &[3]), None);
        assert_eq!(broadcast_strides(&[3, 1], &[2, 3, 4]), [0, 1, 0]);
    }

    #[test]
    fn axes_that_run_on_are_merged() {
        let dense = contiguous_strides(&[2, 3, 1, 4]);
        let channel = broadcast_strides(&[3, 1, 1], &[2, 3, 1, 4]);
        let expected = (vec![2, 3, 4], [vec![12, 4, 1], vec![0, 1, 0]]);
        assert_eq!(collapse(&[2, 3, 1, 4], [dense.clone(), channel]), expected);
        assert_eq!(collapse(&[2, 3, 1, 4], [dense]), (vec![24], [vec![1]]));
    }

    #[test]
    fn an_odometer_counts_in_row_major_order_from_anywhere() {
        let all: Vec<_> = Odometer::new(&[2, 3], &[1, 10]).collect();
        assert_eq!(all, [0, 10, 20, 1, 11, 21]);
        let tail: Vec<_> = Odometer::starting_at(2, &[2, 3], &[1, 10]).collect();
        assert_eq!(tail, all[2..]);
        assert_eq!(Odometer::new(&[], &[]).collect::<Vec<_>>(), [0]);
        assert_eq!(Odometer::new(&[3, 0], &[0, 1]).count(), 0);
    }
}
