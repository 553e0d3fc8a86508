//! A pickle interpreter that executes nothing.
//!
//! It knows the operations that Python's pickle protocols 2 to 5 write. Globals stay names; calls go to
//! [`super::torch::call`], which knows the few that rebuild tensors and answers every other one with an
//! opaque value. Memory is bounded by the number of operations, which has a limit.

use std::collections::HashMap;

use super::fault::CheckpointFault;
use super::torch;
use super::value::{Global, Value, ValueId, Values};

/// A training checkpoint of a large network has some hundred thousand operations.
const MAX_OPERATIONS: usize = 8_000_000;

/// A pickle that was interpreted.
pub(crate) struct Loaded<'a> {
    pub(crate) values: Values<'a>,
    pub(crate) root: ValueId,
    /// Where it ends in the bytes that it was read from.
    pub(crate) end: usize,
}

/// Interprets the pickle at the start of `bytes`.
pub(crate) fn load(bytes: &[u8]) -> Result<Loaded<'_>, CheckpointFault> {
    load_at(bytes, 0)
}

/// Interprets the pickle that begins at byte `start`; errors count from the beginning of `bytes`.
pub(crate) fn load_at(bytes: &[u8], start: usize) -> Result<Loaded<'_>, CheckpointFault> {
    let mut machine = Machine {
        pickle: bytes,
        at: start,
        operation_at: 0,
        values: Values::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    for _ in 0..MAX_OPERATIONS {
        if let Some(root) = machine.step()? {
            return Ok(Loaded {
                values: machine.values,
                root,
                end: machine.at,
            });
        }
    }
    Err(CheckpointFault::TooLong {
        limit: MAX_OPERATIONS,
    })
}

struct Machine<'a> {
    pickle: &'a [u8],
    at: usize,
    /// Where the current operation stands, for errors.
    operation_at: usize,
    values: Values<'a>,
    stack: Vec<ValueId>,
    /// Stack heights at the open marks.
    marks: Vec<usize>,
    memo: HashMap<u64, ValueId>,
}

type Step<T = ()> = Result<T, CheckpointFault>;

impl<'a> Machine<'a> {
    /// Runs one operation; answers with the root when it was the last.
    fn step(&mut self) -> Step<Option<ValueId>> {
        self.operation_at = self.at;
        let opcode = self.byte()?;
        match opcode {
            b'.' => return self.pop().map(Some),
            0x80 => drop(self.byte()?),   // PROTO
            0x95 => drop(self.bytes(8)?), // FRAME
            b'(' => self.marks.push(self.stack.len()),
            b'0' => self.pop_or_mark()?,
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }

            b'N' | 0x88 | 0x89 => self.push(Value::Plain),
            b'G' => self.plain(8)?,
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(value.into()));
            }
            b'K' => {
                let value = self.byte()?;
                self.push(Value::Int(value.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(value.into()));
            }
            0x8a => {
                let length = self.byte()?.into();
                self.long(length)?;
            }
            0x8b => {
                let length = self.length32()?;
                self.long(length)?;
            }

            0x8c => {
                let length = self.byte()?.into();
                self.text(length)?;
            }
            b'X' => {
                let length = self.length32()?;
                self.text(length)?;
            }
            0x8d => {
                let length = self.length64()?;
                self.text(length)?;
            }
            b'U' => {
                let length = self.byte()?.into();
                self.python2_text(length)?;
            }
            b'T' => {
                let length = self.length32()?;
                self.python2_text(length)?;
            }
            b'C' => {
                let length = self.byte()?.into();
                self.plain(length)?;
            }
            b'B' => {
                let length = self.length32()?;
                self.plain(length)?;
            }
            0x8e | 0x96 => {
                let length = self.length64()?;
                self.plain(length)?;
            }

            b')' => self.push(Value::Tuple(Vec::new())),
            b']' => self.push(Value::List(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            0x8f => self.push(Value::Plain), // EMPTY_SET
            0x85..=0x87 => self.short_tuple(usize::from(opcode - 0x84))?,
            b't' => {
                let items = self.pop_to_mark()?;
                self.push(Value::Tuple(items));
            }
            0x91 => {
                self.pop_to_mark()?;
                self.push(Value::Plain); // FROZENSET
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.append(items)?;
            }
            0x90 => drop(self.pop_to_mark()?), // ADDITEMS: sets are not kept
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set_items(&items)?;
            }

            b'q' => {
                let index = self.byte()?.into();
                self.remember(index)?;
            }
            b'r' => {
                let index = self.length32()? as u64;
                self.remember(index)?;
            }
            0x94 => self.remember(self.memo.len() as u64)?,
            b'h' => {
                let index = self.byte()?.into();
                self.recall(index)?;
            }
            b'j' => {
                let index = self.length32()? as u64;
                self.recall(index)?;
            }

            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Value::Global(Global { module, name }));
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let parts = self.values.text(module).zip(self.values.text(name));
                let (module, name) =
                    parts.ok_or_else(|| self.fault("a global whose name is no text"))?;
                self.push(Value::Global(Global { module, name }));
            }
            b'Q' => {
                let description = self.pop()?;
                let value = torch::persistent(&self.values, description)
                    .ok_or_else(|| self.fault("a persistent id that describes no storage"))?;
                self.push(value);
            }
            b'R' | 0x81 => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                self.call(callable, arguments)?;
            }
            0x92 => {
                let (_keywords, arguments, class) = (self.pop()?, self.pop()?, self.pop()?);
                self.call(class, arguments)?;
            }
            // BUILD gives an object its attributes: dicts and tensors have none that matter, others are opaque.
            b'b' => {
                self.pop()?;
                self.top()?;
            }
            _ => {
                return Err(CheckpointFault::UnsupportedOpcode {
                    opcode,
                    at: self.operation_at,
                });
            }
        }
        Ok(None)
    }

    fn fault(&self, reason: &'static str) -> CheckpointFault {
        CheckpointFault::Pickle {
            at: self.operation_at,
            reason,
        }
    }

    fn bytes(&mut self, length: usize) -> Step<&'a [u8]> {
        let end = self.at.checked_add(length);
        let bytes = end.and_then(|end| self.pickle.get(self.at..end));
        let bytes = bytes.ok_or_else(|| self.fault("the pickle ends early"))?;
        self.at += length;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        let bytes = self.bytes(N)?;
        bytes
            .try_into()
            .map_err(|_| self.fault("the pickle ends early"))
    }

    fn byte(&mut self) -> Step<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn length32(&mut self) -> Step<usize> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn length64(&mut self) -> Step<usize> {
        usize::try_from(u64::from_le_bytes(self.array()?))
            .map_err(|_| self.fault("the pickle ends early"))
    }

    fn line(&mut self) -> Step<&'a str> {
        let rest = &self.pickle[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n');
        let line = end.and_then(|end| str::from_utf8(&rest[..end]).ok());
        let line = line.ok_or_else(|| self.fault("a line without end or not UTF-8"))?;
        self.at += line.len() + 1;
        Ok(line)
    }

    fn push(&mut self, value: Value<'a>) {
        let id = self.values.add(value);
        self.stack.push(id);
    }

    /// The part of the stack that the current operation may touch starts at the last open mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Step<ValueId> {
        if self.stack.len() <= self.floor() {
            return Err(self.fault("an operation finds the stack empty"));
        }
        self.stack
            .pop()
            .ok_or_else(|| self.fault("an operation finds the stack empty"))
    }

    fn top(&self) -> Step<ValueId> {
        let above_floor = self.stack.get(self.floor()..).and_then(<[_]>::last);
        above_floor
            .copied()
            .ok_or_else(|| self.fault("an operation finds the stack empty"))
    }

    fn pop_or_mark(&mut self) -> Step {
        if self.stack.len() > self.floor() {
            self.stack.pop();
        } else {
            self.marks
                .pop()
                .ok_or_else(|| self.fault("an operation finds the stack empty"))?;
        }
        Ok(())
    }

    fn pop_to_mark(&mut self) -> Step<Vec<ValueId>> {
        let mark = self
            .marks
            .pop()
            .ok_or_else(|| self.fault("an operation finds no mark"))?;
        Ok(self.stack.split_off(mark))
    }

    fn plain(&mut self, length: usize) -> Step {
        self.bytes(length)?;
        self.push(Value::Plain);
        Ok(())
    }

    fn long(&mut self, length: usize) -> Step {
        let bytes = self.bytes(length)?;
        if length > 8 {
            self.push(Value::Plain);
            return Ok(());
        }
        let negative = bytes.last().is_some_and(|&high| high & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..length].copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(wide)));
        Ok(())
    }

    fn text(&mut self, length: usize) -> Step {
        let bytes = self.bytes(length)?;
        let text = str::from_utf8(bytes).map_err(|_| self.fault("a text that is not UTF-8"))?;
        self.push(Value::Text(text));
        Ok(())
    }

    /// Python 2 wrote names and raw bytes alike.
    fn python2_text(&mut self, length: usize) -> Step {
        let bytes = self.bytes(length)?;
        self.push(str::from_utf8(bytes).map_or(Value::Plain, Value::Text));
        Ok(())
    }

    fn short_tuple(&mut self, length: usize) -> Step {
        let mut items = (0..length).map(|_| self.pop()).collect::<Step<Vec<_>>>()?;
        items.reverse();
        self.push(Value::Tuple(items));
        Ok(())
    }

    fn append(&mut self, items: Vec<ValueId>) -> Step {
        let target = self.top()?;
        match self.values.get_mut(target) {
            Value::List(list) => list.extend(items),
            Value::Opaque(_) | Value::Plain => {}
            _ => return Err(self.fault("items are appended to what is no list")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[ValueId]) -> Step {
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.fault("a key without a value"));
        }
        let target = self.top()?;
        match self.values.get_mut(target) {
            Value::Dict(dict) => dict.extend(pairs.iter().map(|&[key, value]| (key, value))),
            Value::Opaque(_) => {}
            _ => return Err(self.fault("items are set in what is no dict")),
        }
        Ok(())
    }

    fn remember(&mut self, index: u64) -> Step {
        let top = self.top()?;
        self.memo.insert(index, top);
        Ok(())
    }

    fn recall(&mut self, index: u64) -> Step {
        let known = self.memo.get(&index).copied();
        let id = known.ok_or_else(|| self.fault("a value is recalled that was never stored"))?;
        self.stack.push(id);
        Ok(())
    }

    fn call(&mut self, callable: ValueId, arguments: ValueId) -> Step {
        let result = match *self.values.get(callable) {
            Value::Global(global) => torch::call(&mut self.values, global, arguments)
                .ok_or_else(|| self.fault("a tensor is rebuilt from the wrong arguments"))?,
            // A call of something computed: its result is unknown too.
            _ => self.values.add(Value::Plain),
        };
        self.stack.push(result);
        Ok(())
    }
}
