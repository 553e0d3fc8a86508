//! `percept verify`: does a network still give the reference's answers?

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use percept_data::safetensors::Safetensors;
use percept_data::{Datum, Sample, TensorSource as _};
use percept_engine::{Program, run_reference};
use percept_graph::{Graph, GraphError, Input, Tensor};
use percept_kernels::Cpu;
use percept_models::{Model, nearest};
use percept_report::Table;
use serde_json::json;

use crate::fail::{Blame, Fail, Result};
use crate::inputs::InputArgs;
use crate::model::ModelArgs;
use crate::options::{Common, EngineArgs};
use crate::outcome::Outcome;

/// Compare a network with reference values, for outputs and for any scope
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept verify resnet50 --reference golden.safetensors
  percept verify dinov2-vitb14 --set registers=4 --reference golden.safetensors --mode exact \\
      --tolerance 2e-5

The reference is a safetensors file with `input.NAME` tensors (absent ones come from --input, or as in `percept run`) \
and `expect.NAME` tensors; NAME is an output or any scope (`layer1.0.conv2`). Weights are seeded unless --weights says \
otherwise. A part of a tensor is given as \
`expect.NAME.idx` (flat indices) and `expect.NAME.val`. The tolerance is in standard deviations of the expected \
values, so that it means the same for every tensor. Exit code 1 when a difference is past it.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    input: InputArgs,
    /// Reference tensors
    #[arg(long, value_name = "FILE")]
    reference: PathBuf,
    /// Largest difference that passes, in standard deviations of the expected values
    #[arg(long, value_name = "X", default_value_t = 1e-4, value_parser = parse_tolerance)]
    tolerance: f64,
    /// Number type; f64 runs the slow reference kernels
    #[arg(long, value_enum, default_value = "f32")]
    dtype: DTypeArg,
}

fn parse_tolerance(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(tolerance) if tolerance >= 0.0 => Ok(tolerance),
        _ => Err("expected a number of standard deviations, 0 or more, such as 1e-4".to_owned()),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum DTypeArg {
    F32,
    F64,
}

/// Expected values of one name.
struct Expected {
    name: String,
    /// Flat indices, when only a part is given.
    indices: Option<Vec<usize>>,
    shape: Option<Vec<usize>>,
    values: Vec<f64>,
}

struct Difference {
    absolute: f64,
    relative: f64,
    /// Flat index of the largest absolute difference, expected and got.
    at: (usize, f64, f64),
    scale: f64,
}

impl Difference {
    fn passes(&self, tolerance: f64) -> bool {
        self.absolute / self.scale <= tolerance
    }
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let chosen = args.model.or_seeded();
    let model = args.input.shape.sized(chosen.build()?)?;
    let file = Safetensors::open(&args.reference)?;
    let expectations = read_expectations(&file, &args.reference)?;
    let cpu = common.cpu()?;
    let inputs = read_inputs(args, &file, &model, &cpu, common)?;
    let mut graph = model.graph.clone();
    for expected in &expectations {
        let value = find(&model.graph, &expected.name)?;
        graph = graph.with_output(&format!("expect.{}", expected.name), value);
    }
    let weights = chosen.load(&model, common)?;
    let named: Vec<(&str, &Tensor<'_>)> = inputs
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let got: Vec<(String, Vec<usize>, Vec<f64>)> = match args.dtype {
        DTypeArg::F32 => {
            let mut program = Program::new(graph, weights, cpu, args.engine.options());
            let outputs = program.run(&named)?;
            outputs
                .iter()
                .map(|(name, tensor)| {
                    let (shape, values) = (tensor.shape().to_vec(), tensor.to_f64().into_owned());
                    (name.to_owned(), shape, values)
                })
                .collect()
        }
        DTypeArg::F64 => {
            let outputs = run_reference::<f64>(&graph, &*weights, &named)?;
            outputs
                .into_iter()
                .map(|(name, tensor)| (name, tensor.shape, tensor.data))
                .collect()
        }
    };
    let mut table = Table::new(&[
        "<name",
        "values",
        "largest difference",
        "in deviations",
        "relative",
        "<where",
        "<verdict",
    ]);
    let mut records = Vec::new();
    let mut passed = true;
    for expected in &expectations {
        let output = format!("expect.{}", expected.name);
        let (_, shape, values) = got
            .iter()
            .find(|(name, _, _)| *name == output)
            .expect("it was made an output");
        let difference = compare(expected, shape, values)?;
        let ok = difference.passes(args.tolerance);
        passed &= ok;
        let (at, want, came) = difference.at;
        let place = unravel(at, shape);
        table.row([
            expected.name.clone(),
            expected.values.len().to_string(),
            format!("{:.3e}", difference.absolute),
            format!("{:.3e}", difference.absolute / difference.scale),
            format!("{:.3e}", difference.relative),
            format!("{place:?}: expected {want}, got {came}"),
            if ok { "ok" } else { "PAST TOLERANCE" }.to_owned(),
        ]);
        records.push(json!({
            "name": expected.name, "values": expected.values.len(), "max_absolute": difference.absolute,
            "max_relative": difference.relative, "scale": difference.scale, "at": place, "expected": want,
            "got": came, "passed": ok,
        }));
    }
    let verdict = if passed { "verified" } else { "NOT verified" };
    let text = format!(
        "{}\n{verdict} within {:e}\n",
        table.render(),
        args.tolerance
    );
    let record = json!({
        "model": args.model.model, "reference": args.reference.display().to_string(), "tolerance": args.tolerance,
        "engine": args.engine.describe(), "passed": passed, "rows": records,
    });
    Ok(Outcome {
        text,
        record,
        passed,
    })
}

/// Finds a scope, naming the nearest when there is none.
pub fn find(graph: &Graph, name: &str) -> Result<percept_graph::ValueId> {
    graph.find(name).map_err(|error| {
        let fail = Fail::from(error.clone());
        match (&error, nearest(name, graph.findable_names())) {
            (GraphError::UnknownScope { .. }, Some(close)) => {
                fail.hint(format!("did you mean `{close}`?"))
            }
            _ => fail,
        }
    })
}

fn read_expectations(file: &Safetensors, path: &Path) -> Result<Vec<Expected>> {
    let wide =
        |name: &str| -> Result<Vec<f64>> { Ok(file.read(name).bad_input()?.to_f64().into_owned()) };
    let mut expectations = Vec::new();
    for stored in file.names() {
        let Some(name) = stored.strip_prefix("expect.") else {
            continue;
        };
        if let Some(name) = name.strip_suffix(".val") {
            let index_name = format!("expect.{name}.idx");
            if file.shape(&index_name).is_some() {
                let indices = wide(&index_name)?;
                let bad = |index: &f64| *index < 0.0 || index.fract() != 0.0;
                if let Some(index) = indices.iter().find(|index| bad(index)) {
                    return Err(Fail::bad_input(format!(
                        "{}: `{index_name}` holds {index}, which is no index",
                        path.display()
                    )));
                }
                let indices: Vec<usize> = indices.into_iter().map(|index| index as usize).collect();
                let values = wide(stored)?;
                if indices.len() != values.len() {
                    let message = format!(
                        "{}: `{index_name}` has {} indices, `{stored}` {} values",
                        path.display(),
                        indices.len(),
                        values.len()
                    );
                    return Err(Fail::bad_input(message));
                }
                expectations.push(Expected {
                    name: name.to_owned(),
                    indices: Some(indices),
                    shape: None,
                    values,
                });
                continue;
            }
        }
        if name
            .strip_suffix(".idx")
            .is_some_and(|base| file.shape(&format!("expect.{base}.val")).is_some())
        {
            continue;
        }
        let shape = file.shape(stored);
        expectations.push(Expected {
            name: name.to_owned(),
            indices: None,
            shape,
            values: wide(stored)?,
        });
    }
    if expectations.is_empty() {
        let message = format!(
            "{}: no tensor is named `expect.NAME`: there is nothing to verify",
            path.display()
        );
        return Err(Fail::bad_input(message).hint(
            "a reference is made outside of percept, with the model that is to be agreed with: \
             safetensors.torch.save_file({\"input.image\": x, \"expect.layer1\": y}, FILE)",
        ));
    }
    Ok(expectations)
}

/// The inputs that the reference gives; the others as the network is usually given them.
fn read_inputs(
    args: &Args,
    file: &Safetensors,
    model: &Model,
    cpu: &Cpu,
    common: &Common,
) -> Result<Vec<(String, Tensor<'static>)>> {
    let given: Vec<&str> = file
        .names()
        .into_iter()
        .filter(|name| name.starts_with("input."))
        .collect();
    let known = model.graph.inputs();
    let stored = |input: &Input| match given.as_slice() {
        // A network with one input takes the file's one input, whatever it is called there.
        [only] if known.len() == 1 => Some(*only),
        _ => {
            let stored = format!("input.{}", input.name);
            given.iter().copied().find(|name| *name == stored)
        }
    };
    let taken: Vec<&str> = known.iter().filter_map(stored).collect();
    if let Some(extra) = given.iter().find(|name| !taken.contains(name)) {
        let message = format!(
            "{}: the network has no input for `{extra}`",
            args.reference.display()
        );
        return Err(Fail::bad_input(message));
    }
    let usual = match taken.len() == known.len() {
        true => None,
        false => Some(args.input.example(model, cpu, common)?),
    };
    let mut sample = Sample {
        name: args.reference.display().to_string(),
        parts: Vec::new(),
    };
    for input in known {
        let tensor = match stored(input) {
            Some(name) => Some(file.read(name).bad_input()?.into_owned()),
            None => usual
                .as_ref()
                .and_then(|usual| usual.get(&input.name))
                .cloned(),
        };
        if let Some(tensor) = tensor {
            sample = sample.with(&input.name, Datum::Tensor(tensor));
        }
    }
    Ok(model.example(cpu, &sample)?.tensors)
}

fn compare(expected: &Expected, shape: &[usize], got: &[f64]) -> Result<Difference> {
    let name = &expected.name;
    if let Some(wanted) = expected
        .shape
        .as_ref()
        .filter(|wanted| wanted.as_slice() != shape)
    {
        return Err(Fail::bad_input(format!(
            "`expect.{name}` has shape {wanted:?}, the network gives {shape:?}"
        )));
    }
    let mut difference = Difference {
        absolute: 0.0,
        relative: 0.0,
        at: (0, f64::NAN, f64::NAN),
        scale: scale(&expected.values),
    };
    for (i, &want) in expected.values.iter().enumerate() {
        let index = expected.indices.as_ref().map_or(i, |indices| indices[i]);
        let &came = got.get(index).ok_or_else(|| {
            Fail::bad_input(format!(
                "`expect.{name}.idx` holds {index}, the network gives {} values",
                got.len()
            ))
        })?;
        let absolute = match (want.is_nan(), came.is_nan()) {
            (true, true) => 0.0,
            (false, false) => (want - came).abs(),
            _ => f64::INFINITY,
        };
        if i == 0 || absolute > difference.absolute {
            difference.absolute = absolute;
            difference.at = (index, want, came);
        }
        let relative = if absolute == 0.0 {
            0.0
        } else {
            absolute / want.abs().max(f64::MIN_POSITIVE)
        };
        difference.relative = difference.relative.max(relative);
    }
    Ok(difference)
}

/// What a difference is measured in: the standard deviation of the expected values, or their magnitude when they are
/// all alike, or 1 when they are all zero.
fn scale(values: &[f64]) -> f64 {
    let finite: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    let count = finite.len().max(1) as f64;
    let mean = finite.iter().sum::<f64>() / count;
    let deviation = (finite
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / count)
        .sqrt();
    let largest = finite
        .iter()
        .fold(0.0f64, |largest, value| largest.max(value.abs()));
    match (deviation, largest) {
        (_, 0.0) => 1.0,
        (deviation, largest) if deviation < 1e-6 * largest => largest,
        (deviation, _) => deviation,
    }
}

fn unravel(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (axis, &size) in shape.iter().enumerate().rev() {
        place[axis] = index % size.max(1);
        index /= size.max(1);
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(values: &[f64]) -> Expected {
        Expected {
            name: "y".to_owned(),
            indices: None,
            shape: Some(vec![values.len()]),
            values: values.to_vec(),
        }
    }

    #[test]
    fn the_largest_difference_is_found_and_placed() {
        let difference = compare(&expected(&[1.0, 2.0, -3.0]), &[3], &[1.0, 2.5, -3.1]).unwrap();
        assert_eq!(difference.at, (1, 2.0, 2.5));
        assert_eq!((difference.absolute, difference.relative), (0.5, 0.25));
        assert_eq!(unravel(5, &[2, 3]), [1, 2]);
    }

    #[test]
    fn a_nan_never_passes_unless_expected() {
        assert!(
            !compare(&expected(&[1.0]), &[1], &[f64::NAN])
                .unwrap()
                .passes(1e9)
        );
        assert!(
            !compare(&expected(&[f64::NAN]), &[1], &[1.0])
                .unwrap()
                .passes(1e9)
        );
        assert!(
            compare(&expected(&[f64::NAN]), &[1], &[f64::NAN])
                .unwrap()
                .passes(0.0)
        );
    }

    #[test]
    fn differences_count_in_standard_deviations() {
        for size in [1e-3, 1.0, 1e3] {
            let difference =
                compare(&expected(&[-size, size]), &[2], &[-size, 1.00005 * size]).unwrap();
            assert!(
                difference.passes(1e-4) && !difference.passes(1e-5),
                "{size}"
            );
        }
        assert_eq!(
            [scale(&[0.0, 0.0]), scale(&[5.0, 5.0]), scale(&[])],
            [1.0, 5.0, 1.0]
        );
    }
}
