//! Times convolutions on bytes against floats: `cargo run --release -p percept-kernels --example byte_layers -- [threads] [repeats]`.
//!
//! Bytes to bytes with bias and ReLU, directly and by Winograd, and floats to floats with the same end by the algorithm that is
//! chosen for them. All of a layer take turns; medians of wall time in milliseconds.

use std::time::Instant;

use percept_kernels::conv::{ConvShape, Mode, PackedConv, choose_algorithm, conv2d};
use percept_kernels::int8::{
    ByteConv, ByteEpilogue, ByteOutput, ByteScale, ByteWeights, ByteWinograd, Rounding,
    byte_conv2d, byte_winograd, map_len, quantize_map,
};
use percept_kernels::{Activation, Cpu, Epilogue};

/// Inputs, outputs, side of the map, side of the kernel, stride.
const LAYERS: [[usize; 5]; 16] = [
    [128, 128, 180, 3, 1],
    [256, 256, 90, 3, 1],
    [64, 64, 180, 3, 1],
    [64, 64, 56, 3, 1],
    [128, 128, 28, 3, 1],
    [256, 256, 14, 3, 1],
    [512, 512, 7, 3, 1],
    [128, 128, 56, 3, 2],
    [64, 256, 56, 1, 1],
    [256, 64, 56, 1, 1],
    [512, 128, 28, 1, 1],
    [128, 512, 28, 1, 1],
    [1024, 256, 14, 1, 1],
    [256, 1024, 14, 1, 1],
    [512, 2048, 7, 1, 1],
    [2048, 512, 7, 1, 1],
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().map_or(Ok(1), |value| value.parse())?;
    let repeats: usize = arguments.next().map_or(Ok(15), |value| value.parse())?;
    let cpu = Cpu::new(threads)?;
    println!("{} {threads} threads, {repeats} repeats", cpu.isa());
    println!("layer                  floats    direct         winograd");
    for [inputs, outputs, side, kernel, stride] in LAYERS {
        let shape = ConvShape {
            batch: 1,
            in_channels: inputs,
            height: side,
            width: side,
            out_channels: outputs,
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [kernel / 2; 2],
            dilation: [1; 2],
            groups: 1,
        };
        let times = Layer::new(&cpu, &shape).times(&cpu, repeats);
        let name = format!("{kernel}x{kernel} s{stride} {inputs}->{outputs} @{side}");
        print!("{name:22} {:7.3}", times[0]);
        for &time in &times[1..] {
            print!("   {time:7.3} ({:4.2}x)", times[0] / time);
        }
        println!();
    }
    Ok(())
}

struct Layer {
    shape: ConvShape,
    x: Vec<f32>,
    bytes: Vec<i8>,
    bias: Vec<f32>,
    floats: PackedConv,
    direct: ByteConv,
    winograd: Option<ByteWinograd>,
}

const STEP: ByteScale = ByteScale {
    scale: 1.0 / 127.0,
    signed: false,
};

impl Layer {
    fn new(cpu: &Cpu, shape: &ConvShape) -> Self {
        let numbers =
            |len: usize, by: usize| (0..len).map(move |i| (i * by % 1009) as f32 / 1009.0);
        let reach = (3.0 / (shape.weight_len() / shape.out_channels) as f32).sqrt();
        let weight: Vec<f32> = numbers(shape.weight_len(), 389)
            .map(|w| (2.0 * w - 1.0) * reach)
            .collect();
        let x: Vec<f32> = numbers(shape.in_len(), 577).collect();
        let size = [1, shape.in_channels, shape.in_pixels()];
        let mut bytes = vec![0; map_len(size[0], size[1], size[2])];
        quantize_map(cpu, size, &x, STEP, &mut bytes);
        let integers = ByteWeights::quantize(shape.out_channels, &weight);
        let algorithm = choose_algorithm(shape, Mode::Fast, cpu.isa());
        Self {
            shape: *shape,
            bytes,
            bias: vec![0.01; shape.out_channels],
            floats: PackedConv::pack(cpu, shape, algorithm, &weight),
            direct: ByteConv::pack(cpu, shape, &integers, STEP.signed),
            winograd: ByteWinograd::supports(shape)
                .then(|| ByteWinograd::pack(cpu, shape, &integers)),
            x,
        }
    }

    /// Medians of each way, in turns.
    fn times(&self, cpu: &Cpu, repeats: usize) -> Vec<f64> {
        let shape = &self.shape;
        let mut y = vec![0.0; shape.out_len()];
        let mut bytes = vec![0; map_len(1, shape.out_channels, shape.out_pixels())];
        let ways = 2 + usize::from(self.winograd.is_some());
        let mut times = vec![Vec::new(); ways];
        // The first turn warms up.
        for turn in 0..=repeats {
            for (way, times) in times.iter_mut().enumerate() {
                let epilogue = ByteEpilogue {
                    input_scale: STEP.scale,
                    bias: Some(&self.bias),
                    residual: None,
                    activation: Activation::Relu,
                    rounding: Rounding::Fused,
                };
                let started = Instant::now();
                let output = ByteOutput::Bytes(&mut bytes, STEP);
                match (way, &self.winograd) {
                    (0, _) => {
                        let epilogue = Epilogue {
                            bias: Some(&self.bias),
                            residual: None,
                            residual_in_place: false,
                            activation: Activation::Relu,
                        };
                        conv2d(cpu, shape, &self.floats, &self.x, None, epilogue, &mut y);
                    }
                    (2, Some(weights)) => {
                        byte_winograd(cpu, shape, weights, &self.bytes, epilogue, output)
                    }
                    _ => byte_conv2d(cpu, shape, &self.direct, &self.bytes, epilogue, output),
                }
                if turn > 0 {
                    times.push(started.elapsed().as_secs_f64() * 1e3);
                }
            }
        }
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        times.into_iter().map(median).collect()
    }
}
