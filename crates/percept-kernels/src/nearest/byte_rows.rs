//! Rows as bytes, and what is known of what rounding took away.

use std::sync::{Mutex, PoisonError};

use crate::cpu::Cpu;
use crate::simd::LANES;

/// Rows that one thread looks at before it takes the next ones: enough that few of them are hopeful.
pub(super) const TASK_ROWS: usize = 16_384;
/// Numbers that are multiplied before the next ones come; rows are filled up to whole runs.
pub(super) const RUN: usize = 4 * LANES;
/// The largest byte.
const LARGEST: f32 = 127.0;

/// Rows of floats, rounded to bytes.
#[derive(Clone, Debug)]
pub struct ByteRows {
    pub(super) width: usize,
    /// Bytes from one row to the next, filled up with zeros.
    pub(super) stride: usize,
    pub(super) bytes: Vec<i8>,
    pub(super) rounded: Vec<Rounded>,
}

/// What is known of a row as bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rounded {
    /// What a step stands for.
    pub(super) scale: f32,
    /// The squared length of what the bytes stand for.
    pub(super) squared: f32,
    /// The length of what rounding took away, or more; infinite where the row is not finite.
    pub(super) error: f32,
}

impl Rounded {
    /// Rounds a row.
    fn of(row: &[f32], bytes: &mut [i8]) -> Self {
        let largest = row.iter().fold(0.0f32, |most, v| most.max(v.abs()));
        if !row.iter().all(|v| v.is_finite()) {
            bytes.fill(0);
            return Self {
                error: f32::INFINITY,
                ..Self::default()
            };
        }
        let scale = if largest > 0.0 {
            largest / LARGEST
        } else {
            1.0
        };
        let (mut squared, mut lost) = (0.0f64, 0.0f64);
        for (&value, byte) in row.iter().zip(bytes) {
            let rounded = (value / scale).clamp(-LARGEST, LARGEST).round_ties_even();
            *byte = rounded as i8;
            let stands_for = f64::from(rounded) * f64::from(scale);
            squared += stands_for * stands_for;
            lost += (f64::from(value) - stands_for).powi(2);
        }
        Self {
            scale,
            squared: squared as f32,
            error: (lost.sqrt() * (1.0 + 1e-6)) as f32,
        }
    }
}

impl ByteRows {
    /// No rows of so many numbers yet.
    pub fn new(width: usize) -> Self {
        assert!(width > 0, "rows of no numbers are all alike");
        Self {
            width,
            stride: width.next_multiple_of(RUN),
            bytes: Vec::new(),
            rounded: Vec::new(),
        }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rounded.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rounded.is_empty()
    }

    /// Bytes held.
    pub fn held_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.rounded[..])
    }

    /// Adds rows behind the others.
    pub fn extend(&mut self, cpu: &Cpu, rows: &[f32]) {
        let (width, stride, before) = (self.width, self.stride, self.len());
        assert!(rows.len().is_multiple_of(width), "whole rows");
        let count = rows.len() / width;
        self.bytes.resize((before + count) * stride, 0);
        self.rounded.resize(before + count, Rounded::default());
        let bytes = self.bytes[before * stride..].chunks_mut(TASK_ROWS * stride);
        let rounded = self.rounded[before..].chunks_mut(TASK_ROWS);
        type Task<'a> = Mutex<(&'a mut [i8], &'a mut [Rounded])>;
        let tasks: Vec<Task<'_>> = bytes.zip(rounded).map(Mutex::new).collect();
        cpu.parallel(tasks.len(), &|task, _| {
            let mut to = tasks[task].lock().unwrap_or_else(PoisonError::into_inner);
            let (bytes, rounded) = &mut *to;
            let rows = rows[task * TASK_ROWS * width..].chunks_exact(width);
            let to = bytes.chunks_exact_mut(stride).zip(rounded.iter_mut());
            for (row, (bytes, rounded)) in rows.zip(to) {
                *rounded = Rounded::of(row, &mut bytes[..width]);
            }
        });
    }
}
