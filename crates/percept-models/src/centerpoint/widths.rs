//! How wide and deep the network is.

/// Channels and layers of every part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Channels of the sparse stages, the finest first.
    pub stages: [usize; 4],
    /// Residual blocks of each sparse stage.
    pub blocks: usize,
    /// Channels of the map at its own resolution and at half of it.
    pub map: [usize; 2],
    /// Convolutions at each of these behind the first.
    pub map_depth: usize,
    /// Channels that each of these hands to the heads.
    pub map_out: usize,
    /// Channels of the heads' branches.
    pub head: usize,
}

impl Widths {
    /// OpenPCDet's: 8.9 million parameters.
    pub const PUBLIC: Widths = Widths {
        stages: [16, 32, 64, 128],
        blocks: 2,
        map: [128, 256],
        map_depth: 5,
        map_out: 256,
        head: 64,
    };

    /// Some 0.9 million parameters, for learning on a plain CPU.
    pub const SMALL: Widths = Widths {
        stages: [16, 16, 32, 48],
        blocks: 1,
        map: [64, 96],
        map_depth: 2,
        map_out: 48,
        head: 24,
    };

    /// Channels of the map that the sparse part makes: the last volume's heights stand on each other.
    pub(super) const fn bev(&self) -> usize {
        self.stages[3] * super::backbone_3d::BEV_HEIGHTS
    }
}
