//! All tests of networks as one program: each would be linked with all of percept.

mod golden;
mod lidar;
mod stored;

mod centerpoint;
mod centerpoint_boxes;
mod centerpoint_detections;
mod centerpoint_points;
mod centerpoint_training;
mod elastic;
mod lcpr;
mod omama;
mod paco;
mod parity;
mod quantized;
mod randlanet;
mod slices;
mod state_dicts;
mod training;
mod zoo;
