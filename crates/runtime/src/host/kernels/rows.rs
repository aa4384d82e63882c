//! Tensors seen as rows: contiguous last axis, one stride for everything before it.
//!
//! The form that layer norm, softmax, losses, embedding and linear read and write. Knows no operators.

/// `count` rows of `width` elements, the beginnings `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, T> {
    /// Starts at the first row.
    pub data: &'a [T],
    /// Number of rows.
    pub count: usize,
    /// Elements of a row.
    pub width: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl<'a, T> Rows<'a, T> {
    /// Rows one after the other.
    pub fn dense(data: &'a [T], count: usize, width: usize) -> Rows<'a, T> {
        Rows { data, count, width, stride: width }
    }

    /// Row `index`.
    #[inline(always)]
    pub fn row(&self, index: usize) -> &'a [T] {
        &self.data[index * self.stride..index * self.stride + self.width]
    }
}

/// Rows to write.
#[derive(Debug)]
pub struct RowsMut<'a, T> {
    /// Starts at the first row.
    pub data: &'a mut [T],
    /// Number of rows.
    pub count: usize,
    /// Elements of a row.
    pub width: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl<'a, T> RowsMut<'a, T> {
    /// Rows one after the other.
    pub fn dense(data: &'a mut [T], count: usize, width: usize) -> RowsMut<'a, T> {
        RowsMut { data, count, width, stride: width }
    }

    /// Row `index`.
    #[inline(always)]
    pub fn row(&mut self, index: usize) -> &mut [T] {
        &mut self.data[index * self.stride..index * self.stride + self.width]
    }

    /// The rows in groups of `rows`: disjoint pieces for different threads.
    pub fn groups(self, rows: usize) -> Vec<RowsMut<'a, T>> {
        let RowsMut { data, count, width, stride } = self;
        if count == 0 || width == 0 {
            return vec![];
        }
        data.chunks_mut(stride * rows)
            .take(count.div_ceil(rows))
            .enumerate()
            .map(|(i, data)| RowsMut { data, count: rows.min(count - i * rows), width, stride })
            .collect()
    }
}

/// Rows of `width` elements that one piece of work covers: about 16 thousand elements.
pub fn rows_per_piece(width: usize) -> usize {
    (16_384 / width.max(1)).max(1)
}
