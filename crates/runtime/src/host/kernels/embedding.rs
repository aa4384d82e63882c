//! embedding: rows of a table by id, and the gradient that adds rows back.
//!
//! Knows rows and ids only.

use super::{
    real::Real,
    rows::{Rows, RowsMut, rows_per_piece},
    workers::Workers,
};

/// Occurrences of one id that a partial sum of the gradient covers.
const RUN: usize = 64;

/// An id beyond the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadId {
    /// Its position in the batch.
    pub position: usize,
    /// Its value.
    pub id: i64,
}

/// `out[i] = table[ids[i]]`.
pub fn embedding<T: Real>(
    workers: &Workers,
    table: Rows<T>,
    ids: &[i64],
    out: RowsMut<T>,
) -> Result<(), BadId> {
    check(ids, table.count)?;
    let piece = rows_per_piece(table.width);
    let elements = ids.len() * table.width;
    let items: Vec<_> = out.groups(piece).into_iter().zip(ids.chunks(piece)).collect();
    workers.each(items, elements, |(mut out, ids)| {
        for (r, &id) in ids.iter().enumerate() {
            out.row(r).copy_from_slice(table.row(id as usize));
        }
    });
    Ok(())
}

/// `dtable[v] = sum of dy[i] over ids[i] = v`, in the order of i, runs of 64 first: the same bits for any distribution of
/// ids and any number of threads. Rows without an id are zero.
pub fn embedding_gradient<T: Real>(
    workers: &Workers,
    ids: &[i64],
    dy: Rows<T>,
    dtable: RowsMut<T>,
) -> Result<(), BadId> {
    let rows = dtable.count;
    check(ids, rows)?;
    // A counting sort by id that keeps the order of positions.
    let mut starts = vec![0usize; rows + 1];
    ids.iter().for_each(|&id| starts[id as usize + 1] += 1);
    for i in 0..rows {
        starts[i + 1] += starts[i];
    }
    let mut next = starts.clone();
    let mut positions = vec![0usize; ids.len()];
    for (position, &id) in ids.iter().enumerate() {
        positions[next[id as usize]] = position;
        next[id as usize] += 1;
    }
    let piece = rows_per_piece(dtable.width);
    let elements = (ids.len() + rows) * dtable.width;
    let items: Vec<_> = dtable.groups(piece).into_iter().enumerate().collect();
    workers.each(items, elements, |(index, mut dtable)| {
        let mut partial = vec![T::ZERO; dtable.width];
        for r in 0..dtable.count {
            let id = index * piece + r;
            let out = dtable.row(r);
            out.fill(T::ZERO);
            for run in positions[starts[id]..starts[id + 1]].chunks(RUN) {
                partial.fill(T::ZERO);
                for &position in run {
                    partial.iter_mut().zip(dy.row(position)).for_each(|(p, &dy)| *p += dy);
                }
                out.iter_mut().zip(&partial).for_each(|(out, &p)| *out += p);
            }
        }
    });
    Ok(())
}

fn check(ids: &[i64], rows: usize) -> Result<(), BadId> {
    let bad = ids.iter().position(|&id| !(0..rows as i64).contains(&id));
    bad.map_or(Ok(()), |position| Err(BadId { position, id: ids[position] }))
}
