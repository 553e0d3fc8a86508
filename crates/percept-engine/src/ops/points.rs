//! Neighbours in clouds of points.

use std::ops::Range;

use percept_graph::Knn;
use percept_kernels::Cpu;
use percept_kernels::points::{MAX_NEIGHBOURS, Numbering, PointTree};
use percept_kernels::reference::Real;

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// The rows of each cloud, which follow each other.
fn clouds(counts: impl Iterator<Item = f64>, points: usize) -> Result<Vec<Range<usize>>, String> {
    let mut clouds = Vec::new();
    let mut start = 0;
    for count in counts {
        let end = start + count.max(0.0) as usize;
        if count < 0.0 || end > points {
            return Err(format!("counts of clouds do not add up to {points} points"));
        }
        clouds.push(start..end);
        start = end;
    }
    match start == points {
        true => Ok(clouds),
        false => Err(format!("counts of clouds do not add up to {points} points")),
    }
}

fn search(
    cpu: &Cpu,
    op: Knn,
    points: &[[f32; 3]],
    cloud: Range<usize>,
    lists: &mut [i32],
) -> Result<(), String> {
    let (start, points) = (cloud.start as i32, &points[cloud]);
    let tree = PointTree::build(cpu, points, Numbering::Rows).map_err(|error| error.to_string())?;
    let k = tree.list_len(op.k);
    if k == op.k {
        tree.neighbours(cpu, k, lists, None);
        tree.give_back(cpu);
        if start > 0 {
            lists.iter_mut().for_each(|row| *row += start);
        }
        return Ok(());
    }
    let mut short = vec![0; points.len() * k];
    tree.neighbours(cpu, k, &mut short, None);
    tree.give_back(cpu);
    for (row, list) in lists.chunks_exact_mut(op.k).enumerate() {
        list.fill(start + row as i32);
        for (to, from) in list.iter_mut().zip(&short[row * k..][..k]) {
            *to = start + from;
        }
    }
    Ok(())
}

impl Execute for Knn {
    fn prepare(&self, _: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let op = *self;
        Ok(Kernel::new(move |cpu, io| {
            if op.k > MAX_NEIGHBOURS {
                return Err(format!("finds at most {MAX_NEIGHBOURS} neighbours"));
            }
            let (points, counts) = (io.read::<f32>(0)?, io.read::<i32>(1)?);
            let points = points.as_chunks::<3>().0;
            let clouds = clouds(counts.iter().map(|&count| f64::from(count)), points.len())?;
            let lists = io.write::<i32>(0)?;
            for cloud in clouds {
                let lists = &mut lists[cloud.start * op.k..cloud.end * op.k];
                search(cpu, op, points, cloud, lists)?;
            }
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (points, k) = (run.x().as_chunks::<3>().0, self.k);
        let clouds = clouds(run.arg(1).iter().map(|count| count.to_f64()), points.len())?;
        for cloud in clouds {
            for row in cloud.clone() {
                let mut others: Vec<(f64, usize)> = cloud
                    .clone()
                    .map(|other| {
                        let away =
                            |axis: usize| points[row][axis].to_f64() - points[other][axis].to_f64();
                        ((0..3).map(|axis| away(axis) * away(axis)).sum(), other)
                    })
                    .collect();
                others.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                let list = &mut run.y()[row * k..][..k];
                list.fill(T::from_f64(row as f64));
                for (to, (_, other)) in list.iter_mut().zip(others) {
                    *to = T::from_f64(other as f64);
                }
            }
        }
        Ok(())
    }
}
