//! The buffer plan: where each value lives in the arena, and for how long.
//!
//! Buffers are freed at their last use and their memory reused. Offsets are chosen offline, largest buffer first,
//! each at the lowest place that no buffer alive at the same time occupies.

use std::collections::BTreeMap;
use std::ops::Range;

use percept_graph::ValueId;
use percept_kernels::aligned::LINE_BYTES;

use crate::join::Joined;
use crate::options::Memory;

/// A value as the planner sees it.
#[derive(Clone, Debug)]
pub struct Lifetime {
    /// Whose.
    pub value: ValueId,
    /// Size.
    pub bytes: usize,
    /// The step that writes it.
    pub born: usize,
    /// The last step that reads it; `usize::MAX` when it must outlive the run.
    pub last_use: usize,
    /// A value that dies in the step that writes this one, and whose memory this one may take over.
    pub may_replace: Option<ValueId>,
}

/// A stretch of the arena, held for some steps by one value or by several that replace each other in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The values that live here, in order.
    pub values: Vec<ValueId>,
    /// Where.
    pub range: Range<usize>,
    /// First step.
    pub born: usize,
    /// Last step; `usize::MAX` when it outlives the run.
    pub last_use: usize,
}

impl Buffer {
    /// Whether the buffer is held while step `step` runs.
    pub fn is_live(&self, step: usize) -> bool {
        self.born <= step && step <= self.last_use
    }

    fn coexists(&self, other: &Buffer) -> bool {
        self.born <= other.last_use && other.born <= self.last_use
    }
}

/// Where every planned value lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// The same by where they start: a training step of new sizes places a thousand of them.
    by_start: Vec<usize>,
    /// Value -> its buffer.
    pub buffer_of: BTreeMap<ValueId, usize>,
    /// Where values stand that are written straight into a larger one, in bytes from its start.
    offset_of: BTreeMap<ValueId, usize>,
    /// Bytes of arena needed.
    pub arena_bytes: usize,
}

impl Plan {
    /// Plans `lifetimes` (in order of birth) around the buffers of `earlier` that are still alive. Joined values get no
    /// buffer: they live in another value's, which exists from the first of them on.
    pub fn extend(earlier: &Plan, lifetimes: &[Lifetime], joined: &Joined, memory: Memory) -> Plan {
        let mut plan = earlier.clone();
        let mut own: Vec<Lifetime> = Vec::new();
        for life in lifetimes
            .iter()
            .filter(|life| !joined.contains_key(&life.value))
        {
            let parts = joined.iter().filter(|(_, (host, _))| *host == life.value);
            let births = parts.filter_map(|(part, _)| {
                let part = lifetimes.iter().find(|life| life.value == *part)?;
                Some(part.born)
            });
            own.push(Lifetime {
                born: births.chain([life.born]).min().unwrap_or(life.born),
                ..life.clone()
            });
        }
        let mut open = assign_buffers(&own, memory);
        // Offsets are ranges starting at 0 until placed; ties keep the order of birth, so the plan is deterministic.
        open.sort_by_key(|buffer| (std::cmp::Reverse(buffer.range.end), buffer.born));
        for buffer in open {
            plan.place(buffer);
        }
        for (&part, &(host, offset)) in joined {
            plan.buffer_of.insert(part, plan.buffer_of[&host]);
            plan.offset_of.insert(part, offset);
        }
        plan
    }

    fn place(&mut self, mut buffer: Buffer) {
        let bytes = buffer.range.end;
        let mut offset = 0;
        for &other in &self.by_start {
            let other = &self.buffers[other];
            if !other.coexists(&buffer) {
                continue;
            }
            if offset + bytes <= other.range.start {
                break;
            }
            offset = offset.max(other.range.end);
        }
        buffer.range = offset..offset + bytes;
        self.arena_bytes = self.arena_bytes.max(offset + bytes);
        let starts_before = |other: &usize| self.buffers[*other].range.start <= offset;
        let place = self.by_start.partition_point(starts_before);
        self.by_start.insert(place, self.buffers.len());
        for &value in &buffer.values {
            self.buffer_of.insert(value, self.buffers.len());
        }
        self.buffers.push(buffer);
    }

    /// The arena range that a value starts in.
    pub fn range(&self, value: ValueId) -> Option<Range<usize>> {
        let range = &self.buffers[*self.buffer_of.get(&value)?].range;
        let offset = self.offset_of.get(&value).copied().unwrap_or(0);
        Some(range.start + offset..range.end)
    }

    /// Bytes held while step `step` runs.
    pub fn live_bytes(&self, step: usize) -> usize {
        self.buffers
            .iter()
            .filter(|buffer| buffer.is_live(step))
            .map(|buffer| buffer.range.len())
            .sum()
    }
}

fn assign_buffers(lifetimes: &[Lifetime], memory: Memory) -> Vec<Buffer> {
    let mut buffers: Vec<Buffer> = Vec::new();
    for life in lifetimes {
        let bytes = life.bytes.next_multiple_of(LINE_BYTES);
        let last_use = if memory == Memory::Keep {
            usize::MAX
        } else {
            life.last_use
        };
        let replaced = life.may_replace.filter(|_| memory == Memory::Frugal);
        let reusable = replaced.and_then(|value| {
            buffers.iter_mut().find(|buffer| {
                buffer.values.last() == Some(&value)
                    && buffer.last_use == life.born
                    && buffer.range.end == bytes
            })
        });
        match reusable {
            Some(buffer) => {
                buffer.values.push(life.value);
                buffer.last_use = last_use;
            }
            None => buffers.push(Buffer {
                values: vec![life.value],
                range: 0..bytes,
                born: life.born,
                last_use,
            }),
        }
    }
    buffers
}

#[cfg(test)]
mod tests {
    use super::*;
    use percept_graph::{Builder, Dim};
    use proptest::prelude::*;

    /// Value ids exist only in graphs: a graph with this many inputs has as many.
    fn value_ids(count: usize) -> Vec<ValueId> {
        let mut b = Builder::new("Ids");
        (0..count)
            .map(|i| b.input(&i.to_string(), [Dim::from(1)]))
            .collect()
    }

    fn life(value: ValueId, bytes: usize, born: usize, last_use: usize) -> Lifetime {
        Lifetime {
            value,
            bytes,
            born,
            last_use,
            may_replace: None,
        }
    }

    #[test]
    fn a_chain_needs_two_buffers_and_in_place_one() {
        let ids = value_ids(4);
        let mut chain: Vec<Lifetime> = ids
            .iter()
            .enumerate()
            .map(|(i, &id)| life(id, 1024, i, i + 1))
            .collect();
        let plan = |chain: &[Lifetime], memory| {
            Plan::extend(&Plan::default(), chain, &Joined::new(), memory)
        };
        assert_eq!(plan(&chain, Memory::Frugal).arena_bytes, 2 * 1024);
        assert_eq!(plan(&chain, Memory::Keep).arena_bytes, 4 * 1024);
        for i in 1..4 {
            chain[i].may_replace = Some(ids[i - 1]);
        }
        assert_eq!(plan(&chain, Memory::Frugal).arena_bytes, 1024);
        assert_eq!(plan(&chain, Memory::Keep).arena_bytes, 4 * 1024);
    }

    #[test]
    fn a_later_segment_plans_around_what_is_alive() {
        let ids = value_ids(3);
        let first = Plan::extend(
            &Plan::default(),
            &[life(ids[0], 640, 0, 5), life(ids[1], 64, 1, 2)],
            &Joined::new(),
            Memory::Frugal,
        );
        let both = Plan::extend(
            &first,
            &[life(ids[2], 64, 3, 4)],
            &Joined::new(),
            Memory::Frugal,
        );
        assert_eq!(both.range(ids[0]), first.range(ids[0]));
        assert_eq!(
            both.range(ids[2]),
            first.range(ids[1]),
            "the dead buffer's place is reused"
        );
    }

    #[test]
    fn joined_values_live_inside_their_host() {
        let ids = value_ids(4);
        let lives = [
            life(ids[0], 64, 0, 1),
            life(ids[1], 128, 1, 3),
            life(ids[2], 64, 2, 3),
            life(ids[3], 192, 3, 4),
        ];
        let joined = Joined::from([(ids[1], (ids[3], 0)), (ids[2], (ids[3], 128))]);
        let plan = Plan::extend(&Plan::default(), &lives, &joined, Memory::Frugal);
        let start = plan.range(ids[3]).unwrap().start;
        assert_eq!(plan.range(ids[1]).unwrap().start, start);
        assert_eq!(plan.range(ids[2]).unwrap().start, start + 128);
        assert_eq!(plan.buffers.len(), 2);
        assert_eq!(
            plan.live_bytes(1),
            64 + 192,
            "the host exists from its first part on"
        );
    }

    proptest! {
        #[test]
        fn values_alive_together_never_overlap(
            rows in prop::collection::vec((1usize..5000, 0usize..30, 0usize..10), 1..40)
        ) {
            let ids = value_ids(rows.len());
            let mut lives: Vec<Lifetime> =
                rows.iter().zip(&ids).map(|(&(bytes, born, span), &id)| life(id, bytes, born, born + span)).collect();
            lives.sort_by_key(|life| life.born);
            let plan = Plan::extend(&Plan::default(), &lives, &Joined::new(), Memory::Frugal);
            for (i, a) in plan.buffers.iter().enumerate() {
                prop_assert!(a.range.start % LINE_BYTES == 0 && a.range.end <= plan.arena_bytes);
                for b in &plan.buffers[..i] {
                    let overlap = a.range.start < b.range.end && b.range.start < a.range.end;
                    prop_assert!(!(overlap && a.coexists(b)), "{:?} and {:?}", a, b);
                }
            }
            let busiest = (0..40).map(|step| plan.live_bytes(step)).max().unwrap();
            prop_assert!(plan.arena_bytes >= busiest);
        }
    }
}
