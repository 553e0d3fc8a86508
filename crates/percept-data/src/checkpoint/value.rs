//! What a pickle builds: values in one arena, referring to each other by index, so that shared and
//! cyclic structures cost nothing and nothing is ever copied or dropped recursively.

use percept_graph::DType;

/// A value's place in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueId(u32);

/// A Python value; texts are lent from the pickle.
#[derive(Clone, Debug)]
pub(crate) enum Value<'a> {
    /// None, True, False, a float, bytes, a set, a long integer: nothing that weights depend on.
    Plain,
    Int(i64),
    Text(&'a str),
    Tuple(Vec<ValueId>),
    List(Vec<ValueId>),
    Dict(Vec<(ValueId, ValueId)>),
    /// A class or function by name. It is never looked up, only compared.
    Global(Global<'a>),
    Storage(Storage<'a>),
    Tensor(Box<TensorView<'a>>),
    /// The object that calling an unknown global would have made.
    Opaque(Global<'a>),
}

/// The name of a Python class or function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Global<'a> {
    pub(crate) module: &'a str,
    pub(crate) name: &'a str,
}

/// The element type as PyTorch names it, when percept has no such type.
pub(crate) type ElementType<'a> = Result<DType, &'a str>;

/// A storage: a run of elements in the file, or (in old files) a part of such a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage<'a> {
    pub(crate) element_type: ElementType<'a>,
    /// Its name in the file.
    pub(crate) key: &'a str,
    /// How many elements are stored.
    pub(crate) elements: u64,
    /// The first element and the number of elements, where only a part of them is meant (PyTorch up to 0.3).
    pub(crate) window: Option<(usize, usize)>,
}

/// A tensor: a strided view of a storage. Not yet checked against it.
#[derive(Clone, Debug)]
pub(crate) struct TensorView<'a> {
    pub(crate) storage: Storage<'a>,
    pub(crate) offset: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

/// All values of a pickle.
#[derive(Debug, Default)]
pub(crate) struct Values<'a> {
    values: Vec<Value<'a>>,
}

impl<'a> Values<'a> {
    pub(crate) fn add(&mut self, value: Value<'a>) -> ValueId {
        self.values.push(value);
        // The interpreter's operation limit lies far below u32::MAX values.
        ValueId((self.values.len() - 1) as u32)
    }

    pub(crate) fn get(&self, id: ValueId) -> &Value<'a> {
        &self.values[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: ValueId) -> &mut Value<'a> {
        &mut self.values[id.0 as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Value<'a>> {
        self.values.iter()
    }

    pub(crate) fn text(&self, id: ValueId) -> Option<&'a str> {
        match self.get(id) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn size(&self, id: ValueId) -> Option<usize> {
        match self.get(id) {
            Value::Int(value) => usize::try_from(*value).ok(),
            _ => None,
        }
    }

    pub(crate) fn items(&self, id: ValueId) -> Option<&[ValueId]> {
        match self.get(id) {
            Value::Tuple(items) | Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// A tuple of sizes: a shape or strides.
    pub(crate) fn sizes(&self, id: ValueId) -> Option<Vec<usize>> {
        self.items(id)?
            .iter()
            .map(|&item| self.size(item))
            .collect()
    }
}
