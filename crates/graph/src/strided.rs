//! Strided element sets: how a logical tensor lies inside a flat buffer. Knows elements, not bytes and not buffers.

use serde::{Deserialize, Serialize};

use crate::Shape;

/// A strided view of a flat buffer, in elements. Element `(i0, i1, ..)` lies at
/// `offset + rank * per_rank + i0 * strides[0] + i1 * strides[1] + ..`, where `rank` is the rank that runs the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Strided {
    /// Elements before the first.
    pub offset: usize,
    /// Further elements per rank number: the rank stays symbolic in plans.
    pub per_rank: usize,
    /// Logical extents.
    pub shape: Shape,
    /// Elements between neighbours along each axis; 0 along broadcast axes.
    pub strides: Vec<usize>,
}

impl Strided {
    /// Row-major from the buffer's start.
    pub fn contiguous(shape: &Shape) -> Strided {
        Strided { offset: 0, per_rank: 0, strides: shape.strides(), shape: shape.clone() }
    }

    /// Whether elements are neighbours in row-major order (axes of extent 1 do not matter).
    pub fn is_contiguous(&self) -> bool {
        let dense = self.shape.strides();
        (0..self.shape.rank())
            .all(|axis| self.shape.0[axis] == 1 || self.strides[axis] == dense[axis])
    }

    /// Position of the element with this row-major index, for rank 0.
    pub fn position(&self, index: usize) -> usize {
        let (mut rest, mut position) = (index, self.offset);
        for axis in (0..self.shape.rank()).rev() {
            let extent = self.shape.0[axis];
            position += rest % extent * self.strides[axis];
            rest /= extent;
        }
        position
    }

    /// One past the highest position, for rank 0; `offset` where there are no elements.
    pub fn end(&self) -> usize {
        if self.shape.elements() == 0 {
            return self.offset;
        }
        let reach: usize = self
            .shape
            .0
            .iter()
            .zip(&self.strides)
            .map(|(extent, stride)| (extent - 1) * stride)
            .sum();
        self.offset + reach + 1
    }

    /// The window with axes in another order.
    pub fn permute(&self, axes: &[usize]) -> Strided {
        Strided {
            offset: self.offset,
            per_rank: self.per_rank,
            shape: Shape(axes.iter().map(|&axis| self.shape.0[axis]).collect()),
            strides: axes.iter().map(|&axis| self.strides[axis]).collect(),
        }
    }

    /// Elements `start .. start + length` along one axis.
    pub fn slice(&self, axis: usize, start: usize, length: usize) -> Strided {
        let mut window = self.clone();
        window.offset += start * self.strides[axis];
        window.shape.0[axis] = length;
        window
    }

    /// The window seen under a larger shape by NumPy's broadcasting rule: strides of new or widened axes are 0.
    pub fn broadcast_to(&self, shape: &Shape) -> Strided {
        let shift = shape.rank() - self.shape.rank();
        let strides = (0..shape.rank())
            .map(|axis| match axis.checked_sub(shift) {
                Some(own) if self.shape.0[own] == shape.0[axis] => self.strides[own],
                _ => 0,
            })
            .collect();
        Strided { offset: self.offset, per_rank: self.per_rank, shape: shape.clone(), strides }
    }

    /// The same elements in row-major order under another shape, or `None` where strides cannot express it.
    pub fn reshape(&self, shape: &Shape) -> Option<Strided> {
        if shape.elements() == 0 {
            let strides = shape.strides();
            return Some(Strided {
                offset: self.offset,
                per_rank: self.per_rank,
                shape: shape.clone(),
                strides,
            });
        }
        let old: Vec<(usize, usize)> = self
            .shape
            .0
            .iter()
            .copied()
            .zip(self.strides.iter().copied())
            .filter(|&(extent, _)| extent != 1)
            .collect();
        // Groups of old axes and of new axes with equally many elements, smallest first.
        let mut strides = vec![1; shape.rank()];
        let (mut old_start, mut new_start) = (0, 0);
        while old_start < old.len() && new_start < shape.rank() {
            let (mut old_end, mut new_end) = (old_start + 1, new_start + 1);
            let (mut old_size, mut new_size) = (old[old_start].0, shape.0[new_start]);
            while new_size != old_size {
                if new_size < old_size {
                    new_size *= shape.0[new_end];
                    new_end += 1;
                } else {
                    old_size *= old[old_end].0;
                    old_end += 1;
                }
            }
            // Old axes of one group must be mergeable: each stride spans the next axis exactly.
            let group = &old[old_start..old_end];
            if group.windows(2).any(|pair| pair[0].1 != pair[1].0 * pair[1].1) {
                return None;
            }
            let mut stride = old[old_end - 1].1;
            for axis in (new_start..new_end).rev() {
                strides[axis] = stride;
                stride *= shape.0[axis];
            }
            (old_start, new_start) = (old_end, new_end);
        }
        Some(Strided {
            offset: self.offset,
            per_rank: self.per_rank,
            shape: shape.clone(),
            strides,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(window: &Strided) -> Vec<usize> {
        (0..window.shape.elements()).map(|index| window.position(index)).collect()
    }

    #[test]
    fn reshaping_keeps_the_order_of_elements() {
        let packed = Strided::contiguous(&Shape::from([2, 3, 4, 6]));
        let windows = [
            packed.clone(),
            packed.slice(3, 2, 2),
            packed.permute(&[0, 2, 1, 3]),
            packed.slice(1, 1, 1),
            packed.slice(0, 1, 1).slice(3, 0, 3),
        ];
        let shapes: [&[usize]; 9] = [
            &[2, 3, 4, 6],
            &[24, 6],
            &[6, 4, 6],
            &[2, 12, 2],
            &[6, 4, 2],
            &[2, 1, 4, 6],
            &[8, 6],
            &[1, 12, 3],
            &[2, 3, 4, 2, 1],
        ];
        let mut expressed = 0;
        for window in &windows {
            for shape in shapes.iter().map(|&s| Shape::from(s)) {
                if shape.elements() != window.shape.elements() {
                    continue;
                }
                if let Some(reshaped) = window.reshape(&shape) {
                    assert_eq!(positions(&reshaped), positions(window), "{window:?} as {shape}");
                    expressed += 1;
                }
            }
        }
        assert!(expressed >= 8, "{expressed}");
        assert!(packed.permute(&[1, 0, 2, 3]).reshape(&Shape::from([6, 4, 6])).is_none());
    }
}
