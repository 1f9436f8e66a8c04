//! Matrices over the field: the rows of a code, and which rows give the data back.

use crate::field::{inverse, mul, power};

/// Rows of equal length, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    columns: usize,
    cells: Vec<u8>,
}

impl Matrix {
    /// None: there are no cells, or the last row is not whole.
    pub fn new(columns: usize, cells: Vec<u8>) -> Option<Self> {
        let whole = columns > 0 && !cells.is_empty() && cells.len() % columns == 0;
        whole.then_some(Self { columns, cells })
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    pub fn rows(&self) -> usize {
        self.cells.len() / self.columns
    }

    pub fn row(&self, n: usize) -> &[u8] {
        &self.cells[n * self.columns..(n + 1) * self.columns]
    }

    /// Row r is 1, r, r^2, ...: as long as there are not more than 256 rows, any of them as many as there are columns are
    /// independent.
    fn vandermonde(rows: usize, columns: usize) -> Self {
        let cell = |n: usize| power((n / columns) as u8, n % columns);
        Self {
            columns,
            cells: (0..rows * columns).map(cell).collect(),
        }
    }

    /// k + m rows for k data units, the first k of which are the data as it is; any k of them are independent.
    ///
    /// A Vandermonde matrix times the inverse of its own upper square: a change of the columns' base leaves independent rows
    /// independent. `k + m` is at most 256.
    pub(crate) fn reed_solomon(k: usize, m: usize) -> Option<Self> {
        let rows = Self::vandermonde(k + m, k);
        let first: Vec<usize> = (0..k).collect();
        Some(rows.times(&rows.inverse_of(&first)?))
    }

    fn times(&self, right: &Self) -> Self {
        let mut cells = Vec::with_capacity(self.rows() * right.columns);
        for n in 0..self.rows() {
            cells.extend(combine(self.row(n), right));
        }
        Self {
            columns: right.columns,
            cells,
        }
    }

    /// The first of `candidates` that are independent of those before them, as many as there are columns. None: there are not
    /// enough.
    pub(crate) fn independent(&self, candidates: &[usize]) -> Option<Vec<usize>> {
        let mut chosen = Vec::new();
        // Rows reduced by one another, each with the column of its first cell that is not 0, where it is 1.
        let mut reduced: Vec<(usize, Vec<u8>)> = Vec::new();
        for n in candidates {
            let mut row = self.row(*n).to_vec();
            for (pivot, with) in &reduced {
                let times = row[*pivot];
                add_times(&mut row, with, times);
            }
            let Some((pivot, scale)) = first_cell(&row) else {
                continue;
            };
            row.iter_mut().for_each(|c| *c = mul(*c, scale));
            reduced.push((pivot, row));
            chosen.push(*n);
            if chosen.len() == self.columns {
                return Some(chosen);
            }
        }
        None
    }

    /// The inverse of the square of these rows, as many as there are columns. None: they are not independent.
    pub(crate) fn inverse_of(&self, rows: &[usize]) -> Option<Self> {
        let k = self.columns;
        let mut left: Vec<Vec<u8>> = rows.iter().map(|n| self.row(*n).to_vec()).collect();
        let unit = |n: usize| (0..k).map(|c| u8::from(c == n)).collect();
        let mut right: Vec<Vec<u8>> = (0..k).map(unit).collect();
        for column in 0..k {
            let pivot = (column..k).find(|n| left[*n][column] != 0)?;
            left.swap(column, pivot);
            right.swap(column, pivot);
            let scale = inverse(left[column][column])?;
            for row in [&mut left[column], &mut right[column]] {
                row.iter_mut().for_each(|c| *c = mul(*c, scale));
            }
            let (with_left, with_right) = (left[column].clone(), right[column].clone());
            for n in (0..k).filter(|n| *n != column) {
                let times = left[n][column];
                add_times(&mut left[n], &with_left, times);
                add_times(&mut right[n], &with_right, times);
            }
        }
        Some(Self {
            columns: k,
            cells: right.concat(),
        })
    }
}

/// The row that is the sum of the matrix's rows, each times one of `row`.
pub(crate) fn combine(row: &[u8], of: &Matrix) -> Vec<u8> {
    let mut sum = vec![0; of.columns];
    for (n, times) in row.iter().enumerate() {
        add_times(&mut sum, of.row(n), *times);
    }
    sum
}

fn add_times(row: &mut [u8], with: &[u8], times: u8) {
    for (cell, w) in row.iter_mut().zip(with) {
        *cell ^= mul(*w, times);
    }
}

/// Column of the first cell that is not 0, and what makes it 1.
fn first_cell(row: &[u8]) -> Option<(usize, u8)> {
    row.iter().enumerate().find_map(|(n, c)| Some((n, inverse(*c)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rows_are_the_data_itself() {
        for (k, m) in [(1, 1), (2, 1), (4, 2), (8, 3), (32, 16)] {
            let rows = Matrix::reed_solomon(k, m).unwrap();
            assert_eq!((rows.rows(), rows.columns()), (k + m, k));
            for n in 0..k {
                let want: Vec<u8> = (0..k).map(|c| u8::from(c == n)).collect();
                assert_eq!(rows.row(n), want);
            }
        }
    }

    #[test]
    fn dependent_rows_are_passed_over() {
        // Three rows of which the second is twice the first.
        let rows = Matrix::new(2, vec![1, 3, 2, 6, 0, 1]).unwrap();
        assert_eq!(rows.independent(&[0, 1, 2]), Some(vec![0, 2]));
        assert_eq!(rows.independent(&[0, 1]), None);
        assert_eq!(rows.inverse_of(&[0, 1]), None);
        assert_eq!(rows.independent(&[0, 0]), None);
    }

    #[test]
    fn a_matrix_has_whole_rows() {
        assert_eq!(Matrix::new(0, vec![1]), None);
        assert_eq!(Matrix::new(2, vec![]), None);
        assert_eq!(Matrix::new(2, vec![1, 2, 3]), None);
    }
}
