//! Cache-line aligned memory: buffers, the arena that a program's tensors live in, and disjoint parallel writes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

use memmap2::MmapMut;
use thiserror::Error;

/// Alignment of every buffer: a cache line.
pub const LINE_BYTES: usize = 64;
/// Floats in a cache line.
pub const FLOATS_PER_LINE: usize = LINE_BYTES / size_of::<f32>();

/// Size of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A zeroed buffer that starts on a cache line and is a whole number of lines long.
///
/// Large ones lie on huge pages where the system grants them: kernels that walk several megabytes with strides spend up
/// to a third of their time on page tables otherwise.
#[derive(Debug)]
pub struct AlignedBuf {
    start: NonNull<u8>,
    len_bytes: usize,
    /// Holds the memory of a large buffer.
    mapping: Option<MmapMut>,
}

// SAFETY: it owns its memory, like a Box<[u8]>.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A zeroed buffer of at least `len_bytes` bytes, rounded up to whole cache lines.
    pub fn zeroed(len_bytes: usize) -> AlignedBuf {
        let len_bytes = len_bytes.next_multiple_of(LINE_BYTES);
        if len_bytes == 0 {
            return AlignedBuf::default();
        }
        if len_bytes >= HUGE_PAGE_BYTES
            && let Some(buffer) = AlignedBuf::mapped(len_bytes)
        {
            return buffer;
        }
        let layout = Self::layout(len_bytes);
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })
            .unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBuf {
            start,
            len_bytes,
            mapping: None,
        }
    }

    /// Memory straight from the system, zero by nature and not resident until it is touched.
    fn mapped(len_bytes: usize) -> Option<AlignedBuf> {
        // Room to start on a huge page; what lies before it is never touched.
        let mut mapping = MmapMut::map_anon(len_bytes + HUGE_PAGE_BYTES).ok()?;
        let before = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // Wishes: slower or larger without, not wrong. A huge page at the end would be resident beyond the buffer.
        #[cfg(target_os = "linux")]
        {
            let end = len_bytes % HUGE_PAGE_BYTES;
            let whole = len_bytes - end;
            let _ = mapping.advise_range(memmap2::Advice::HugePage, before, whole);
            let _ = mapping.advise_range(memmap2::Advice::NoHugePage, before + whole, end);
        }
        let start = NonNull::new(mapping.get_mut(before..before + len_bytes)?.as_mut_ptr())?;
        Some(AlignedBuf {
            start,
            len_bytes,
            mapping: Some(mapping),
        })
    }

    /// A zeroed buffer of at least `len` floats.
    pub fn zeroed_floats(len: usize) -> AlignedBuf {
        AlignedBuf::zeroed(len * size_of::<f32>())
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len_bytes` initialised bytes (or dangling, aligned and empty).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len_bytes) }
    }

    /// The bytes, writable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len_bytes) }
    }

    /// The contents as floats.
    pub fn floats(&self) -> &[f32] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The contents as floats, writable.
    pub fn floats_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    fn layout(len_bytes: usize) -> Layout {
        Layout::from_size_align(len_bytes, LINE_BYTES).expect("a buffer fits the address space")
    }
}

impl Default for AlignedBuf {
    fn default() -> AlignedBuf {
        AlignedBuf {
            start: NonNull::<Line>::dangling().cast(),
            len_bytes: 0,
            mapping: None,
        }
    }
}

#[repr(align(64))]
struct Line;

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.len_bytes > 0 && self.mapping.is_none() {
            // SAFETY: allocated in `zeroed` with this very layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len_bytes)) }
        }
    }
}

/// The memory that a program's tensors live in: one growing buffer, lent out as checked views.
#[derive(Debug, Default)]
pub struct Arena {
    buffer: AlignedBuf,
}

/// Why an [`Arena`] refused a set of views.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ArenaError {
    /// The range ends past the arena.
    #[error("arena view {range:?} does not fit {len} bytes")]
    OutOfBounds {
        /// The range asked for.
        range: Range<usize>,
        /// The arena's length in bytes.
        len: usize,
    },
    /// An output overlaps another view.
    #[error("arena output {output:?} overlaps {other:?}")]
    Overlap {
        /// The output's range.
        output: Range<usize>,
        /// The view it overlaps.
        other: Range<usize>,
    },
}

/// Read views and write views of one arena.
pub type ArenaViews<'a> = (Vec<&'a [u8]>, Vec<&'a mut [u8]>);

impl Arena {
    /// Grows to at least `len_bytes`. Growing forgets the contents.
    pub fn ensure(&mut self, len_bytes: usize) {
        if self.buffer.len() < len_bytes {
            self.buffer = AlignedBuf::default(); // freed first: never hold both
            self.buffer = AlignedBuf::zeroed(len_bytes);
        }
    }

    /// Grows to at least `len_bytes` and keeps the contents.
    pub fn grow(&mut self, len_bytes: usize) {
        if self.buffer.len() < len_bytes {
            let mut larger = AlignedBuf::zeroed(len_bytes);
            larger.bytes_mut()[..self.buffer.len()].copy_from_slice(self.buffer.bytes());
            self.buffer = larger;
        }
    }

    /// Bytes held.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Lends `inputs` for reading and `outputs` for writing at the same time.
    ///
    /// Ranges are in bytes. Inputs may overlap each other; an output overlaps nothing.
    pub fn views(
        &mut self,
        inputs: &[Range<usize>],
        outputs: &[Range<usize>],
    ) -> Result<ArenaViews<'_>, ArenaError> {
        let len = self.buffer.len();
        for range in inputs.iter().chain(outputs) {
            if range.start > range.end || range.end > len {
                return Err(ArenaError::OutOfBounds {
                    range: range.clone(),
                    len,
                });
            }
        }
        for (index, output) in outputs.iter().enumerate() {
            let others = inputs.iter().chain(&outputs[..index]);
            if let Some(other) = others.into_iter().find(|other| overlap(output, other)) {
                return Err(ArenaError::Overlap {
                    output: output.clone(),
                    other: other.clone(),
                });
            }
        }
        let start = self.buffer.start.as_ptr();
        // SAFETY: every range is inside the buffer, and this borrow of the arena is exclusive; inputs are only read.
        let read = |range: &Range<usize>| unsafe {
            std::slice::from_raw_parts(start.add(range.start), range.len())
        };
        // SAFETY: as above, and no output overlaps any other view.
        let write = |range: &Range<usize>| unsafe {
            std::slice::from_raw_parts_mut(start.add(range.start), range.len())
        };
        Ok((
            inputs.iter().map(read).collect(),
            outputs.iter().map(write).collect(),
        ))
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
}

/// One `&mut [T]` that parallel blocks write disjoint parts of.
#[derive(Debug)]
pub struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: like the `&mut [T]` that it stands for; disjointness is promised by the callers of `slice`.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Shares `slice` for its lifetime.
    pub fn new(slice: &'a mut [T]) -> SharedMut<'a, T> {
        SharedMut {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            owner: PhantomData,
        }
    }

    /// Length of the whole slice.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the whole slice is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element, for kernels that write by pointer. Writes must stay disjoint, as in [`SharedMut::slice`].
    pub fn as_mut_ptr(&self) -> *mut T {
        self.start
    }

    /// A part of the slice. Panics when the range is out of bounds.
    ///
    /// # Safety
    /// No other part that overlaps this range may be alive at the same time.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} of {} elements",
            self.len
        );
        // SAFETY: in bounds, and disjoint from other live parts by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_rounded() {
        for len in [0, 1, 64, 65, 1000, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 1] {
            let buffer = AlignedBuf::zeroed(len);
            assert_eq!(buffer.len(), len.next_multiple_of(64));
            assert!(buffer.bytes().as_ptr().addr().is_multiple_of(64));
            assert!(buffer.floats().iter().all(|&value| value == 0.0));
        }
    }

    #[test]
    fn arena_views_read_what_was_written() {
        let mut arena = Arena::default();
        arena.ensure(256);
        arena.views(&[], &[64..128]).unwrap().1[0].fill(7);
        let (inputs, mut outputs) = arena.views(&[64..128, 64..72], &[0..64, 128..256]).unwrap();
        outputs[1][..64].copy_from_slice(inputs[0]);
        assert_eq!(
            (inputs[1], outputs[1][63], outputs[1][64]),
            (&[7; 8][..], 7, 0)
        );
    }

    #[test]
    fn arena_refuses_bad_views() {
        let mut arena = Arena::default();
        arena.ensure(256);
        let overlap = |output, other| Err(ArenaError::Overlap { output, other });
        assert_eq!(
            arena.views(&[0..65], &[64..128]).map(drop),
            overlap(64..128, 0..65)
        );
        assert_eq!(
            arena.views(&[], &[0..128, 64..128]).map(drop),
            overlap(64..128, 0..128)
        );
        assert_eq!(
            arena.views(&[64..257], &[]).map(drop),
            Err(ArenaError::OutOfBounds {
                range: 64..257,
                len: 256
            })
        );
        assert!(arena.views(&[0..64, 0..64], &[64..64, 64..128]).is_ok());
    }
}
