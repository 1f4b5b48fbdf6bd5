//! Cuts a row-major matrix into tiles that threads may write at the same time.

/// A block of rows and columns of a matrix.
pub struct Tile<'a, T> {
    /// First row of the tile.
    pub row: usize,
    /// First column of the tile.
    pub column: usize,
    /// The part of each row that lies in the tile.
    pub rows: Vec<&'a mut [T]>,
}

/// Cuts `matrix`, whose rows are `width` long, into tiles of at most `rows` by `columns`.
pub fn tiles<T>(matrix: &mut [T], width: usize, rows: usize, columns: usize) -> Vec<Tile<'_, T>> {
    if matrix.is_empty() {
        return Vec::new();
    }
    let mut tiles = Vec::new();
    for (block, matrix) in matrix.chunks_mut(rows * width).enumerate() {
        let first = tiles.len();
        for row in matrix.chunks_exact_mut(width) {
            for (c, part) in row.chunks_mut(columns).enumerate() {
                if tiles.len() == first + c {
                    tiles.push(Tile {
                        row: block * rows,
                        column: c * columns,
                        rows: Vec::with_capacity(rows),
                    });
                }
                tiles[first + c].rows.push(part);
            }
        }
    }
    tiles
}
