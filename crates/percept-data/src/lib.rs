//! Files in and out: weights, images, point clouds, and the synthetic world
