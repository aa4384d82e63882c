//! The convolutions of ResNet-50 and the ways of feeding its stem. Knows sizes; measures nothing.

use bench::reference::Geometry;
use native::cudnn::Convolution;

/// A convolution of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Its place in the network.
    pub name: String,
    /// How often the network has it; 0 for other ways of running the stem.
    pub count: usize,
    /// Whether it is (a way of running) the stem: no data gradient, no normalised input.
    pub is_stem: bool,
    /// Sizes.
    pub geometry: Geometry,
    /// Padding, stride.
    pub convolution: Convolution,
}

impl Shape {
    /// Multiplications and additions.
    pub fn operations(&self) -> f64 {
        let g = &self.geometry;
        2.0 * (g.n * g.k * g.p * g.q * g.c * g.r * g.s) as f64
    }

    /// Elements of x.
    pub fn x(&self) -> usize {
        let g = &self.geometry;
        (g.n * g.c * g.h * g.w) as usize
    }

    /// Elements of w.
    pub fn w(&self) -> usize {
        let g = &self.geometry;
        (g.k * g.c * g.r * g.s) as usize
    }

    /// Elements of y.
    pub fn y(&self) -> usize {
        let g = &self.geometry;
        (g.n * g.k * g.p * g.q) as usize
    }
}

struct Sizes {
    channels: i64,
    filters: i64,
    filter: i64,
    stride: i64,
    size: i64,
    before: i64,
    after: i64,
}

fn shape(name: &str, count: usize, is_stem: bool, batch: i64, s: &Sizes) -> Shape {
    let out = (s.size + s.before + s.after - s.filter) / s.stride + 1;
    Shape {
        name: name.to_owned(),
        count,
        is_stem,
        geometry: Geometry {
            n: batch,
            c: s.channels,
            h: s.size,
            w: s.size,
            k: s.filters,
            r: s.filter,
            s: s.filter,
            p: out,
            q: out,
            before_h: s.before,
            before_w: s.before,
            stride: s.stride,
        },
        convolution: Convolution {
            padding_before: [s.before; 2],
            padding_after: [s.after; 2],
            stride: [s.stride; 2],
            dilation: [1; 2],
        },
    }
}

/// Ways of running the stem (7 x 7, stride 2, 3 channels, 64 filters at 224 x 224): as it is, with channels
/// padded by zeros, and with 2 x 2 pixels folded into channels. The folded filter is 8 x 8 with a zero row and column
/// in front: 4 x 4 over 12 channels (padded to 16), with two rows of padding before and one after.
fn stems(batch: i64) -> Vec<Shape> {
    let stem = |name: &str, count, channels, filter, stride, size, before, after| {
        let sizes = Sizes { channels, filters: 64, filter, stride, size, before, after };
        shape(name, count, true, batch, &sizes)
    };
    vec![
        stem("stem 7x7/2, 3 channels", 1, 3, 7, 2, 224, 3, 3),
        stem("stem 7x7/2, 4 channels", 0, 4, 7, 2, 224, 3, 3),
        stem("stem 7x7/2, 8 channels", 0, 8, 7, 2, 224, 3, 3),
        stem("stem folded 4x4, 16 channels", 0, 16, 4, 1, 112, 2, 1),
        stem("stem folded 4x4, 16 channels, padded input", 0, 16, 4, 1, 115, 0, 0),
    ]
}

/// Every convolution of ResNet-50 (stride in the 3 x 3 of a stage's first block) with the ways of running the stem.
pub fn resnet50(batch: i64) -> Vec<Shape> {
    let mut shapes = stems(batch);
    let (mut input, mut size) = (64, 56);
    for (stage, (width, blocks)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate()
    {
        let stride = if stage == 0 { 1 } else { 2 };
        let out = size / stride;
        let mut add = |name: &str, count, channels, filters, filter, stride, size| {
            let half = filter / 2;
            let (before, after) = (half, half);
            let sizes = Sizes { channels, filters, filter, stride, size, before, after };
            shapes.push(shape(&format!("stage {stage} {name}"), count, false, batch, &sizes));
        };
        add("first 1x1", 1, input, width, 1, 1, size);
        let threes = if stride == 1 { blocks } else { 1 };
        add(&format!("first 3x3/{stride}"), threes, width, width, 3, stride, size);
        add("last 1x1", blocks, width, 4 * width, 1, 1, out);
        add(&format!("shortcut 1x1/{stride}"), 1, input, 4 * width, 1, stride, size);
        add("inner 1x1", blocks - 1, 4 * width, width, 1, 1, out);
        if stride == 2 {
            add("inner 3x3", blocks - 1, width, width, 3, 1, out);
        }
        (input, size) = (4 * width, out);
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::resnet50;

    #[test]
    fn the_network_has_53_convolutions_and_4_1_gigaflops_an_image() {
        let shapes = resnet50(1);
        assert_eq!(shapes.iter().map(|s| s.count).sum::<usize>(), 53);
        assert_eq!(shapes.iter().filter(|s| !s.is_stem).count(), 23);
        let total: f64 = shapes.iter().map(|s| s.count as f64 * s.operations()).sum();
        assert!((total / 2e9 - 4.09).abs() < 0.01, "{total}");
        // The folded stem has the output of the plain one.
        let stems: Vec<i64> = shapes.iter().filter(|s| s.is_stem).map(|s| s.geometry.p).collect();
        assert_eq!(stems, [112; 5]);
    }
}
