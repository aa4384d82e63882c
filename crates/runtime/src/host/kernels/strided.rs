//! Walking strided windows: copies between them and dense memory, run by run.
//!
//! Knows shapes and strides in elements only.

/// A shape with strides, neighbouring axes merged where one stride spans them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Outer axes: extent and stride, outermost first.
    outer: Vec<(usize, usize)>,
    /// Extent of the innermost axis.
    run: usize,
    /// Stride of the innermost axis.
    step: usize,
}

impl Walk {
    /// The walk over this shape in row-major order.
    pub fn new(shape: &[usize], strides: &[usize]) -> Walk {
        let mut axes: Vec<(usize, usize)> = vec![];
        for (&extent, &stride) in shape.iter().zip(strides) {
            match axes.last_mut() {
                _ if extent == 1 => {}
                Some((outer, outer_stride)) if *outer_stride == stride * extent => {
                    *outer *= extent;
                    *outer_stride = stride;
                }
                _ => axes.push((extent, stride)),
            }
        }
        let (run, step) = axes.pop().unwrap_or((1, 1));
        Walk { outer: axes, run, step }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.outer.iter().map(|axis| axis.0).product::<usize>() * self.run
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether elements follow one another without gaps.
    pub fn is_dense(&self) -> bool {
        self.outer.is_empty() && (self.step == 1 || self.run == 1)
    }

    /// Whether all elements are one and the same.
    pub fn is_constant(&self) -> bool {
        self.outer.is_empty() && self.step == 0
    }

    /// Calls `visit(position, length, offset)` for each run that lies in row-major elements `start..start + length`:
    /// `position` of its first element, its length, and its offset from `start`.
    #[inline(always)]
    pub fn runs(&self, start: usize, length: usize, mut visit: impl FnMut(usize, usize, usize)) {
        if length == 0 || self.is_empty() {
            return;
        }
        let mut index: Vec<usize> = vec![0; self.outer.len()];
        let (mut row, mut within) = (start / self.run, start % self.run);
        for (axis, &(extent, _)) in self.outer.iter().enumerate().rev() {
            index[axis] = row % extent;
            row /= extent;
        }
        let mut base: usize =
            index.iter().zip(&self.outer).map(|(i, (_, stride))| i * stride).sum();
        let mut done = 0;
        while done < length {
            let now = (self.run - within).min(length - done);
            visit(base + within * self.step, now, done);
            done += now;
            within = 0;
            for axis in (0..self.outer.len()).rev() {
                let (extent, stride) = self.outer[axis];
                index[axis] += 1;
                base += stride;
                if index[axis] < extent {
                    break;
                }
                index[axis] = 0;
                base -= extent * stride;
            }
        }
    }

    /// Copies elements `start..start + out.len()` in row-major order out of a window.
    pub fn gather<T: Copy>(&self, data: &[T], start: usize, out: &mut [T]) {
        self.runs(start, out.len(), |position, length, offset| {
            let out = &mut out[offset..offset + length];
            match self.step {
                1 => out.copy_from_slice(&data[position..position + length]),
                0 => out.fill(data[position]),
                step => {
                    let source = data[position..].iter().step_by(step);
                    out.iter_mut().zip(source).for_each(|(out, &value)| *out = value);
                }
            }
        });
    }

    /// Copies all elements of `values` in row-major order into a window.
    pub fn scatter<T: Copy>(&self, values: &[T], data: &mut [T]) {
        self.scatter_from(0, values, data);
    }

    /// Copies `values` in row-major order into a window from row-major element `start` on.
    pub fn scatter_from<T: Copy>(&self, start: usize, values: &[T], data: &mut [T]) {
        self.runs(start, values.len(), |position, length, offset| {
            let values = &values[offset..offset + length];
            if self.step == 1 {
                data[position..position + length].copy_from_slice(values);
            } else {
                let target = data[position..].iter_mut().step_by(self.step.max(1));
                target.zip(values).for_each(|(out, &value)| *out = value);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathering_and_scattering_any_range_agrees_with_positions() {
        let cases: [(&[usize], &[usize]); 6] = [
            (&[2, 3, 4], &[12, 4, 1]),
            (&[3, 2, 4], &[4, 12, 1]),
            (&[4, 3], &[1, 4]),
            (&[3, 4], &[0, 1]),
            (&[2, 3, 4], &[1, 0, 0]),
            (&[], &[]),
        ];
        let data: Vec<u32> = (0..100).collect();
        for (shape, strides) in cases {
            let walk = Walk::new(shape, strides);
            let elements: usize = shape.iter().product();
            assert_eq!(walk.len(), elements);
            let position = |index: usize| {
                let mut rest = index;
                let axes = shape.iter().zip(strides).rev();
                axes.map(|(&extent, &stride)| {
                    let i = rest % extent;
                    rest /= extent;
                    i * stride
                })
                .sum::<usize>() as u32
            };
            for start in 0..elements {
                for end in start..=elements {
                    let mut out = vec![u32::MAX; end - start];
                    walk.gather(&data, start, &mut out);
                    let expected: Vec<u32> = (start..end).map(position).collect();
                    assert_eq!(out, expected, "{shape:?} {strides:?} {start}..{end}");
                }
            }
            if !strides.contains(&0) {
                let values: Vec<u32> = (1000..1000 + elements as u32).collect();
                let mut target = data.clone();
                walk.scatter(&values, &mut target);
                let mut back = vec![0; elements];
                walk.gather(&target, 0, &mut back);
                assert_eq!(back, values);
            }
        }
    }
}
