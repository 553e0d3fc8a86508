//! A town of the synthetic world, driven through on several days, where a user names no place.

use std::sync::{Mutex, PoisonError};

use percept_data::{Datum, POSITION, Sample, SampleError, Samples};
use percept_graph::Tensor;
use percept_kernels::Cpu;
use percept_models::Model;
use percept_models::intake::{Part, PartKind};
use percept_world::{CameraRig, Pass, PictureSize, World, WorldConfig, WorldKind};

use crate::error::OpenError;

/// A position as a part of a sample.
pub(crate) fn position(metres: [f64; 3]) -> Datum {
    Datum::Tensor(Tensor::from_values([3], metres.to_vec()).expect("three numbers"))
}

/// Frames of a world of places: the first pass is the database, later ones come by the same places. Pictures are taken in the
/// size that the network looks at, and only what it looks at is made.
pub struct Places {
    parts: Vec<Part>,
    rig: Option<CameraRig>,
    /// It keeps the town that was looked at last.
    world: Mutex<World>,
    cpu: Cpu,
    config: WorldConfig,
    count: usize,
}

impl Places {
    /// The frames of all passes, as samples of this network.
    pub fn new(network: &Model, config: WorldConfig, threads: usize) -> Result<Self, OpenError> {
        let config = WorldConfig {
            kind: WorldKind::Places,
            ..config
        };
        let parts = network.intake.parts().to_vec();
        let pictures = parts.iter().find(|part| part.kind == PartKind::Images);
        let rig = pictures.map(|part| {
            let size = network.sizes.get(part.name).copied().or(part.size);
            let [height, width] = size.unwrap_or([256, 704]);
            PictureSize::new(width, height).map(CameraRig::nuscenes)
        });
        let world = World::new(config);
        Ok(Self {
            parts,
            rig: rig.transpose()?,
            count: world.frames().unwrap_or(0),
            world: Mutex::new(world),
            cpu: Cpu::new(threads)?,
            config,
        })
    }

    /// The first frames only.
    pub(crate) fn first(mut self, count: usize) -> Self {
        self.count = self.count.min(count);
        self
    }

    /// Whether such a world has all parts of this network's samples.
    pub fn takes(network: &Model) -> bool {
        let is_seen = |part: &Part| matches!(part.kind, PartKind::Images | PartKind::Points(_));
        let parts = network.intake.parts();
        parts.iter().all(is_seen) && parts.iter().any(|part| part.kind == PartKind::Images)
    }

    /// The pass that a frame belongs to.
    pub fn pass(&self, index: usize) -> Pass {
        Pass::new(self.config.seed, index / self.config.frames_per_pass.max(1))
    }

    /// Where the vehicle is, in metres on the ground.
    pub fn position(&self, index: usize) -> [f64; 2] {
        let [x, y, _] = self.world().ego_to_world(index).translation;
        [x, y]
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        // A town is replaced whole, so one that somebody stopped at is still a town.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Samples for Places {
    fn len(&self) -> usize {
        self.count
    }

    fn name(&self, index: usize) -> String {
        let pass = self.pass(index).number;
        let frame = index % self.config.frames_per_pass.max(1);
        format!(
            "synthetic places, seed {}, pass {pass}, frame {frame}",
            self.config.seed
        )
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let mut world = self.world();
        let here = world.ego_to_world(index).translation;
        let mut sample = Sample::of(self.name(index), POSITION, position(here));
        for part in &self.parts {
            let datum = match (part.kind, &self.rig) {
                (PartKind::Images, Some(rig)) => {
                    let views = world.views(&self.cpu, index, rig).into_iter();
                    Datum::Images(views.map(|view| view.view.image).collect())
                }
                _ => Datum::Frame(Box::new(world.frame(&self.cpu, index))),
            };
            sample = sample.with(part.name, datum);
        }
        Ok(sample)
    }
}
