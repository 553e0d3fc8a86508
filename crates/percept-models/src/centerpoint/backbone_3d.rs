//! VoxelResBackBone8x: residual blocks of submanifold convolutions, shrunk three times by strided ones.

use percept_graph::{
    ActiveSites, BatchNorm, Builder, Rulebook, SparseConv3d, SparseToDense, ValueId, Window3d,
};

use super::{CenterPoint, Widths};

/// Heights of the last volume, which become channels of the map.
pub(super) const BEV_HEIGHTS: usize = 2;

/// The stages that begin with a strided convolution: name, geometry.
const STAGES: [(&str, Window3d); 3] = [
    ("conv2", halving([1, 1, 1])),
    ("conv3", halving([1, 1, 1])),
    ("conv4", halving([0, 1, 1])),
];
const CONV_OUT: Window3d = Window3d {
    kernel: [3, 1, 1],
    stride: [2, 1, 1],
    padding: [0; 3],
};

const fn halving(padding: [usize; 3]) -> Window3d {
    Window3d {
        kernel: [3; 3],
        stride: [2; 3],
        padding,
    }
}

/// Heights that remain of `layers`.
pub(super) fn output_heights(layers: usize) -> usize {
    let windows = STAGES.iter().map(|(_, window)| window);
    let cells = windows.fold([layers, 8, 8], |cells, window| window.output_cells(cells));
    CONV_OUT.output_cells(cells)[0]
}

/// Features on active sites of a grid.
#[derive(Clone, Copy)]
pub(super) struct Volume {
    features: ValueId,
    sites: ValueId,
    cells: [usize; 3],
}

impl Volume {
    /// The map seen from above, heights as channels.
    pub(super) fn to_dense(self, b: &mut Builder, samples: ValueId) -> ValueId {
        let op = SparseToDense { cells: self.cells };
        b.call("dense", op, &[self.features, self.sites, samples])
    }
}

/// The pairs of a convolution, with the sites that come out.
#[derive(Clone, Copy)]
struct Book {
    window: Window3d,
    sites: ValueId,
    pairs: ValueId,
    starts: ValueId,
}

/// Voxel features to the last volume.
pub(super) fn backbone(
    b: &mut Builder,
    widths: &Widths,
    features: ValueId,
    sites: ValueId,
    cells: [usize; 3],
) -> Volume {
    let mut volume = Volume {
        features,
        sites,
        cells,
    };
    let [first, .., last] = widths.stages;
    b.module("backbone_3d", "VoxelResBackBone8x", |b| {
        let mut book = None;
        volume.features = b.module("conv_input", "SparseSequential", |b| {
            let own = submanifold_book(b, "voxels.pairs", &volume);
            book = Some(own);
            conv_bn_relu(b, &volume, own, [CenterPoint::POINT_CHANNELS, first])
        });
        let book = book.expect("the module above has set it");
        volume.features = b.module("conv1", "SparseSequential", |b| {
            (0..widths.blocks).fold(volume.features, |x, block| {
                basic_block(b, &block.to_string(), x, book, first)
            })
        });
        for ((stage, window), channels) in STAGES.into_iter().zip(widths.stages.windows(2)) {
            let channels = [channels[0], channels[1]];
            b.module(stage, "SparseSequential", |b| {
                b.module("0", "SparseSequential", |b| {
                    volume = shrink(b, stage, &volume, window, channels);
                    volume.features
                });
                let book = submanifold_book(b, &format!("{stage}.pairs"), &volume);
                for block in 1..=widths.blocks {
                    let name = block.to_string();
                    volume.features = basic_block(b, &name, volume.features, book, channels[1]);
                }
                volume.features
            });
        }
        b.module("conv_out", "SparseSequential", |b| {
            volume = shrink(b, "conv_out", &volume, CONV_OUT, [last; 2]);
            volume.features
        })
    });
    volume
}

/// A strided convolution, its normalisation and ReLU.
fn shrink(
    b: &mut Builder,
    stage: &str,
    volume: &Volume,
    window: Window3d,
    channels: [usize; 2],
) -> Volume {
    let cells = volume.cells;
    let sites = ActiveSites {
        window,
        cells,
        symbol: format!("{stage}.sites"),
    };
    let sites = b.call("sites", sites, &[volume.sites]);
    let book = rulebook(
        b,
        window,
        cells,
        format!("{stage}.0.pairs"),
        [volume.sites, sites],
    );
    let features = conv_bn_relu(b, volume, book, channels);
    Volume {
        features,
        sites,
        cells: window.output_cells(cells),
    }
}

fn submanifold_book(b: &mut Builder, symbol: &str, volume: &Volume) -> Book {
    let (window, sites) = (Window3d::centred(3), volume.sites);
    rulebook(b, window, volume.cells, symbol.to_owned(), [sites, sites])
}

fn rulebook(
    b: &mut Builder,
    window: Window3d,
    cells: [usize; 3],
    symbol: String,
    sites: [ValueId; 2],
) -> Book {
    let op = Rulebook {
        window,
        cells,
        symbol,
    };
    let outputs = b.call_many("rulebook", op, &sites);
    Book {
        window,
        sites: sites[1],
        pairs: outputs[0],
        // After an error the builder gives one output only, and keeps the error.
        starts: outputs.last().copied().unwrap_or(outputs[0]),
    }
}

fn conv_bn_relu(b: &mut Builder, volume: &Volume, book: Book, channels: [usize; 2]) -> ValueId {
    let x = conv(b, "0", volume.features, book, channels, false);
    let x = b.batch_norm("1", x, norm(channels[1]));
    b.relu("2", x)
}

/// relu(bn(conv(relu(bn(conv(x))))) + x)
fn basic_block(b: &mut Builder, name: &str, x: ValueId, book: Book, channels: usize) -> ValueId {
    b.module(name, "SparseBasicBlock", |b| {
        let y = conv(b, "conv1", x, book, [channels; 2], true);
        let y = b.batch_norm("bn1", y, norm(channels));
        let y = b.relu("relu", y);
        let y = conv(b, "conv2", y, book, [channels; 2], true);
        let y = b.batch_norm("bn2", y, norm(channels));
        let y = b.add("add", y, x);
        b.relu("relu", y)
    })
}

fn conv(
    b: &mut Builder,
    name: &str,
    x: ValueId,
    book: Book,
    [in_channels, out_channels]: [usize; 2],
    bias: bool,
) -> ValueId {
    let conv = SparseConv3d {
        in_channels,
        out_channels,
        window: book.window,
        bias,
        submanifold: book.window.stride == [1; 3],
    };
    b.leaf(name, conv, &[x, book.sites, book.pairs, book.starts])
}

fn norm(channels: usize) -> BatchNorm {
    BatchNorm {
        eps: 1e-3,
        momentum: 0.01,
        ..BatchNorm::rows(channels)
    }
}
