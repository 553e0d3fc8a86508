//! Features for other networks.

use percept_graph::Tensor;

use super::{Answer, AnswerError, AnswerKind, Head, Ran};

/// What a network makes of one sample, for others to read.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// The outputs, each [1, ..] where it has rows for each sample, and whole where it has not, such as a loss.
    pub tensors: Vec<(String, Tensor<'static>)>,
}

/// Gives the outputs as they are.
#[derive(Clone, Copy, Debug)]
pub struct FeatureHead;

impl Head for FeatureHead {
    fn kind(&self) -> AnswerKind {
        AnswerKind::Features
    }

    fn read(&self, ran: &Ran<'_>) -> Result<Vec<Answer>, AnswerError> {
        let samples = ran.samples.len();
        let answer = |sample: usize| {
            let of_sample = |(name, tensor): &(&str, Tensor<'_>)| {
                Ok(((*name).to_owned(), rows_of(tensor, sample, samples)?))
            };
            let tensors = ran.outputs.iter().map(of_sample);
            let tensors = tensors.collect::<Result<_, AnswerError>>()?;
            Ok(Answer::Features(Features { tensors }))
        };
        (0..samples).map(answer).collect()
    }
}

fn rows_of(
    tensor: &Tensor<'_>,
    sample: usize,
    samples: usize,
) -> Result<Tensor<'static>, AnswerError> {
    let [rows, inner @ ..] = tensor.shape() else {
        return Ok(tensor.clone().into_owned());
    };
    if *rows != samples {
        return Ok(tensor.clone().into_owned());
    }
    let length = tensor.bytes().len() / samples;
    let bytes = tensor.bytes()[sample * length..(sample + 1) * length].to_vec();
    let shape: Vec<usize> = [1].into_iter().chain(inner.iter().copied()).collect();
    Ok(Tensor::new(tensor.dtype(), shape, bytes)?)
}

#[cfg(test)]
mod tests {
    use percept_data::{Example, Sample};

    use super::*;

    #[test]
    fn each_sample_gets_its_rows() {
        let outputs = [
            (
                "y",
                Tensor::from_values([2, 2], vec![1f32, 2.0, 3.0, 4.0]).unwrap(),
            ),
            ("loss", Tensor::scalar(7f32)),
        ];
        let inputs = Example::of_one::<String>([]);
        let samples = ["a", "b"].map(|name| Sample {
            name: name.to_owned(),
            parts: Vec::new(),
        });
        let classes = [].into();
        let ran = Ran {
            outputs: &outputs,
            inputs: &inputs,
            samples: &samples,
            classes: &classes,
        };
        let answers = FeatureHead.read(&ran).unwrap();
        let [_, Answer::Features(second)] = answers.as_slice() else {
            panic!("two answers");
        };
        assert_eq!(second.tensors[0].1.shape(), [1, 2]);
        assert_eq!(*second.tensors[0].1.to_f32(), [3.0, 4.0]);
        assert_eq!(*second.tensors[1].1.to_f32(), [7.0]);
    }
}
