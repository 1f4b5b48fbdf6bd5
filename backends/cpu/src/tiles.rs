//! Cuts a row-major matrix into tiles that threads may write at the same time.

use crate::arena::{self, Bump};
use std::mem::take;

/// A block of rows and columns of a matrix.
pub struct Tile<'a, 'b, T> {
    /// First row of the tile.
    pub row: usize,
    /// First column of the tile.
    pub column: usize,
    /// The part of each row that lies in the tile.
    pub rows: &'b mut [&'a mut [T]],
}

impl<T> Tile<'_, '_, T> {
    /// Its columns.
    pub fn width(&self) -> usize {
        self.rows[0].len()
    }
}

/// Cuts `matrix`, whose rows are `width` long, into tiles of at most `rows` by `columns`.
pub fn tiles<'a, 'b, T>(
    arena: &'b Bump,
    matrix: &'a mut [T],
    width: usize,
    rows: usize,
    columns: usize,
) -> impl Iterator<Item = Tile<'a, 'b, T>>
where
    'a: 'b,
{
    let blocks = matrix.chunks_mut((rows * width).max(1)).enumerate();
    blocks.flat_map(move |(block, matrix)| {
        let rest = arena::list(arena, matrix.chunks_exact_mut(width));
        (0..width).step_by(columns).map(move |column| {
            let part = columns.min(width - column);
            let cut = rest.iter_mut().map(|row| {
                let (own, others) = take(row).split_at_mut(part);
                *row = others;
                own
            });
            Tile {
                row: block * rows,
                column,
                rows: arena::list(arena, cut),
            }
        })
    })
}
