//! From an op's configuration and the sizes of one run to the shapes that kernels take.

use percept_graph::{
    Activation, Attention, AvgPool2d, BinaryKind, Conv2d, ConvTranspose2d, MatMul, MaxPool2d,
    ReduceKind, Resize, ResizeMode, Rulebook, SparseConv3d, SparseToDense, Window3d,
};
use percept_kernels as kernels;
use percept_kernels::attention::AttentionShape;
use percept_kernels::conv::{ConvShape, ConvTransposeShape};
use percept_kernels::elementwise::BinaryOp;
use percept_kernels::gemm::MatmulShape;
use percept_kernels::norm::ChannelShape;
use percept_kernels::pool2d::Pool2dShape;
use percept_kernels::reduce::ReduceOp;
use percept_kernels::resize::ResizeShape;
use percept_kernels::sparse::{DenseShape, SparseConvShape, Window};

/// The kernel's form of a convolution on an input [N, C, H, W].
pub fn conv(conv: &Conv2d, x: &[usize]) -> ConvShape {
    ConvShape {
        batch: x[0],
        in_channels: conv.in_channels,
        height: x[2],
        width: x[3],
        out_channels: conv.out_channels,
        kernel: conv.kernel,
        stride: conv.stride,
        padding: conv.padding,
        dilation: conv.dilation,
        groups: conv.groups,
    }
}

/// The kernel's form of a transposed convolution on an input [N, C, H, W].
pub fn conv_transpose(op: &ConvTranspose2d, x: &[usize]) -> ConvTransposeShape {
    ConvTransposeShape {
        batch: x[0],
        in_channels: op.conv.in_channels,
        height: x[2],
        width: x[3],
        out_channels: op.conv.out_channels,
        kernel: op.conv.kernel,
        stride: op.conv.stride,
        padding: op.conv.padding,
        output_padding: op.output_padding,
        dilation: op.conv.dilation,
        groups: op.conv.groups,
    }
}

fn pool(x: &[usize], kernel: usize, stride: usize, padding: usize) -> Pool2dShape {
    Pool2dShape {
        batch: x[0],
        channels: x[1],
        height: x[2],
        width: x[3],
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [padding; 2],
        ceil_mode: false,
    }
}

/// The kernel's form of a maximum pooling.
pub fn max_pool(op: &MaxPool2d, x: &[usize]) -> Pool2dShape {
    pool(x, op.kernel, op.stride, op.padding)
}

/// The kernel's form of a mean pooling.
pub fn avg_pool(op: &AvgPool2d, x: &[usize]) -> Pool2dShape {
    pool(x, op.kernel, op.stride, op.padding)
}

/// [N, C, ..] seen as [batch, channels, area].
pub fn channels(x: &[usize]) -> ChannelShape {
    ChannelShape {
        batch: x[0],
        channels: x[1],
        area: x[2..].iter().product(),
    }
}

/// Self-attention on a packed projection [N, T, 3 D].
pub fn attention(op: &Attention, qkv: &[usize]) -> AttentionShape {
    AttentionShape::self_attention(qkv[0], qkv[1], op.heads, op.head_width())
}

/// The factor on q kᵀ.
pub fn attention_scale(op: &Attention) -> f64 {
    1.0 / (op.head_width() as f64).sqrt()
}

/// The kernel's form of a product, as its operands are read.
pub fn matmul(op: &MatMul, a: &[usize], b: &[usize]) -> MatmulShape {
    let rank = a.len();
    let (m, k) = if op.transpose_a {
        (a[rank - 1], a[rank - 2])
    } else {
        (a[rank - 2], a[rank - 1])
    };
    let n = if op.transpose_b {
        b[rank - 2]
    } else {
        b[rank - 1]
    };
    let batch = a[..rank - 2].iter().product();
    MatmulShape {
        batch,
        m,
        k,
        n,
        transpose_a: op.transpose_a,
        transpose_b: op.transpose_b,
    }
}

/// How a map [N, C, H, W] is resized, or `None` when it has the size already.
pub fn resize(
    op: &Resize,
    x: &[usize],
    y: &[usize],
) -> Option<(kernels::resize::Resize, ResizeShape)> {
    if x[2..] == y[2..] {
        return None;
    }
    use kernels::resize::Resize as Kernel;
    let how = match op.mode {
        ResizeMode::Nearest => Kernel::NEAREST,
        ResizeMode::Bilinear => Kernel::BILINEAR,
        ResizeMode::Bicubic => Kernel::BICUBIC,
        ResizeMode::BilinearAntialias => Kernel::ANTIALIASED_BILINEAR,
        ResizeMode::BicubicAntialias => Kernel::ANTIALIASED_BICUBIC,
    };
    let step = [op.step(x[2], y[2]), op.step(x[3], y[3])];
    let shape = ResizeShape {
        planes: x[0] * x[1],
        input: [x[2], x[3]],
        output: [y[2], y[3]],
    };
    Some((how.with_step(step), shape))
}

/// The kernel's form of a sparse window.
pub fn window(window: &Window3d) -> Window {
    Window {
        kernel: window.kernel,
        stride: window.stride,
        padding: window.padding,
    }
}

/// The kernel's form of a sparse convolution.
pub fn sparse_conv(op: &SparseConv3d) -> SparseConvShape {
    SparseConvShape {
        in_channels: op.in_channels,
        out_channels: op.out_channels,
        taps: op.window.taps(),
        block_rows: Rulebook::BLOCK_ROWS,
    }
}

/// The kernel's form of a dense map from features [S, C] of this many samples.
pub fn dense(op: &SparseToDense, x: &[usize], samples: &[usize]) -> DenseShape {
    DenseShape {
        samples: samples[0],
        channels: x[1],
        cells: op.cells,
    }
}

/// The kernel's name of an activation.
pub fn activation(op: Activation) -> kernels::Activation {
    match op {
        Activation::Relu => kernels::Activation::Relu,
        Activation::LeakyRelu { slope } => kernels::Activation::LeakyRelu(slope),
        Activation::Gelu => kernels::Activation::Gelu,
        Activation::Silu => kernels::Activation::Silu,
        Activation::Sigmoid => kernels::Activation::Sigmoid,
        Activation::Tanh => kernels::Activation::Tanh,
    }
}

/// The kernel's name of a binary operation.
pub fn binary(kind: BinaryKind) -> BinaryOp {
    match kind {
        BinaryKind::Add => BinaryOp::Add,
        BinaryKind::Sub => BinaryOp::Sub,
        BinaryKind::Mul => BinaryOp::Mul,
        BinaryKind::Div => BinaryOp::Div,
        BinaryKind::Max => BinaryOp::Max,
        BinaryKind::Min => BinaryOp::Min,
        BinaryKind::Greater => BinaryOp::Greater,
        BinaryKind::Equal => BinaryOp::Equal,
    }
}

/// The kernel's name of a reduction.
pub fn reduce(kind: ReduceKind) -> ReduceOp {
    match kind {
        ReduceKind::Sum => ReduceOp::Sum,
        ReduceKind::Mean => ReduceOp::Mean,
        ReduceKind::Max => ReduceOp::Max,
        ReduceKind::Min => ReduceOp::Min,
    }
}
