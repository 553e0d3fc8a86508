//! The few Python globals that weights are made of. Nothing else has a meaning here, and nothing is executed:
//! a "call" of a known name builds the value that it stands for, of any other name an opaque one.

use super::value::{ElementType, Global, Storage, TensorView, Value, ValueId, Values};
use percept_graph::DType;

/// What `global(*arguments)` gives; none when a known global gets arguments that it cannot take.
pub(crate) fn call<'a>(
    values: &mut Values<'a>,
    global: Global<'a>,
    arguments: ValueId,
) -> Option<ValueId> {
    // Tensors with attributes wrap the call that rebuilds them in one more.
    if (global.module, global.name) == ("torch._tensor", "_rebuild_from_type_v2") {
        let (&function, _class, &arguments) = match values.items(arguments)? {
            [function, class, arguments, ..] => (function, class, arguments),
            _ => return None,
        };
        return match *values.get(function) {
            Value::Global(function) => call_directly(values, function, arguments),
            _ => None,
        };
    }
    call_directly(values, global, arguments)
}

fn call_directly<'a>(
    values: &mut Values<'a>,
    global: Global<'a>,
    arguments: ValueId,
) -> Option<ValueId> {
    let made = match (global.module, global.name) {
        ("collections", "OrderedDict" | "defaultdict") | ("builtins" | "__builtin__", "dict") => {
            Value::Dict(pairs(values, arguments).unwrap_or_default())
        }
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3") => {
            Value::Tensor(Box::new(tensor_view(values, arguments)?))
        }
        ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state")
        | ("torch", "Size") => {
            return values.items(arguments)?.first().copied();
        }
        _ => Value::Opaque(global),
    };
    Some(values.add(made))
}

/// The pairs of `dict([(key, value), ...])`, as Python 2 pickled ordered dicts.
fn pairs(values: &Values<'_>, arguments: ValueId) -> Option<Vec<(ValueId, ValueId)>> {
    let list = *values.items(arguments)?.first()?;
    let pairs = values
        .items(list)?
        .iter()
        .map(|&pair| match values.items(pair)? {
            &[key, value] => Some((key, value)),
            _ => None,
        });
    pairs.collect()
}

/// `(storage, offset, shape, strides, requires_grad, hooks[, dtype])`
fn tensor_view<'a>(values: &Values<'a>, arguments: ValueId) -> Option<TensorView<'a>> {
    let arguments = values.items(arguments)?;
    let &[storage, offset, shape, strides, ..] = arguments else {
        return None;
    };
    let Value::Storage(mut storage) = *values.get(storage) else {
        return None;
    };
    let dtype = arguments.get(6).map(|&dtype| values.get(dtype));
    if let Some(&Value::Global(Global {
        module: "torch",
        name,
    })) = dtype
    {
        storage = retyped(storage, dtype_named(name).ok_or(name));
    }
    let mut offset = values.size(offset)?;
    if let Some((first, elements)) = storage.window {
        let end = first.checked_add(elements)? as u64;
        if end > storage.elements {
            return None;
        }
        storage.elements = end;
        offset = offset.checked_add(first)?;
    }
    Some(TensorView {
        storage,
        offset,
        shape: values.sizes(shape)?,
        strides: values.sizes(strides)?,
    })
}

/// An untyped storage counts bytes; the tensor says what they are.
fn retyped<'a>(storage: Storage<'a>, element_type: ElementType<'a>) -> Storage<'a> {
    let element_bytes = element_type.map_or(1, DType::size_bytes) as u64;
    Storage {
        element_type,
        elements: storage.elements / element_bytes,
        ..storage
    }
}

/// What a persistent id stands for: `("storage", class, key, location, elements[, window])`, or in old files
/// `("module", class, file, source)` for the class of a module.
pub(crate) fn persistent<'a>(values: &Values<'a>, description: ValueId) -> Option<Value<'a>> {
    let items = values.items(description)?;
    let &[tag, class, ..] = items else {
        return None;
    };
    let Value::Global(class) = *values.get(class) else {
        return None;
    };
    match values.text(tag)? {
        "storage" => storage(values, class, items).map(Value::Storage),
        "module" => Some(Value::Global(class)),
        _ => None,
    }
}

fn storage<'a>(
    values: &Values<'a>,
    class: Global<'a>,
    description: &[ValueId],
) -> Option<Storage<'a>> {
    let &[_tag, _class, key, _location, elements, ..] = description else {
        return None;
    };
    if class.module != "torch" && !class.module.starts_with("torch.") {
        return None;
    }
    // `(key of the window, first element, elements)`, or None as in almost every file.
    let window = match description.get(5).map(|&window| values.get(window)) {
        Some(Value::Tuple(window)) => match window.as_slice() {
            &[_key, first, elements] => Some((values.size(first)?, values.size(elements)?)),
            _ => return None,
        },
        _ => None,
    };
    Some(Storage {
        element_type: storage_type(class.name).ok_or(class.name),
        key: values.text(key)?,
        elements: values.size(elements)? as u64,
        window,
    })
}

/// How many bytes an element takes, also for types that percept does not read; none when that is not known.
pub(crate) fn element_bytes(element_type: ElementType<'_>) -> Option<usize> {
    Some(match element_type {
        Ok(dtype) => dtype.size_bytes(),
        Err("QInt8Storage" | "QUInt8Storage") => 1,
        Err("QInt32Storage") => 4,
        Err("ComplexFloatStorage") => 8,
        Err("ComplexDoubleStorage") => 16,
        Err(_) => return None,
    })
}

fn storage_type(class: &str) -> Option<DType> {
    Some(match class {
        "DoubleStorage" => DType::F64,
        "FloatStorage" => DType::F32,
        "HalfStorage" => DType::F16,
        "BFloat16Storage" => DType::BF16,
        "CharStorage" => DType::I8,
        "ByteStorage" | "UntypedStorage" => DType::U8,
        "ShortStorage" => DType::I16,
        "IntStorage" => DType::I32,
        "LongStorage" => DType::I64,
        "BoolStorage" => DType::Bool,
        _ => return None,
    })
}

fn dtype_named(name: &str) -> Option<DType> {
    Some(match name {
        "float64" | "double" => DType::F64,
        "float32" | "float" => DType::F32,
        "float16" | "half" => DType::F16,
        "bfloat16" => DType::BF16,
        "int8" => DType::I8,
        "uint8" => DType::U8,
        "int16" | "short" => DType::I16,
        "int32" | "int" => DType::I32,
        "int64" | "long" => DType::I64,
        "bool" => DType::Bool,
        _ => return None,
    })
}
