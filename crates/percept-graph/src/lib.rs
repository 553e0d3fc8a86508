//! The language of percept: graphs, ops, shapes, names, costs and printing
