//! The operations of a graph, one method each. Knows their attributes, not which combinations engines support.

use cudarc::cudnn::sys::{
    cudnnBackendAttributeType_t as Type, cudnnBackendDescriptor_t, cudnnPointwiseMode_t as Mode,
};

use super::{
    descriptor::{Attribute, Class, Descriptor},
    graph::{Graph, Tensor},
};
use crate::{DataType, Result};

/// A two-dimensional cross-correlation (what networks call convolution), accumulated in fp32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Zeros above and left.
    pub padding_before: [i64; 2],
    /// Zeros below and right.
    pub padding_after: [i64; 2],
    /// Step of the filter.
    pub stride: [i64; 2],
    /// Distance between the filter's elements.
    pub dilation: [i64; 2],
}

impl Convolution {
    /// The same padding on all sides and the same stride both ways.
    pub fn square(padding: i64, stride: i64) -> Convolution {
        Convolution {
            padding_before: [padding; 2],
            padding_after: [padding; 2],
            stride: [stride; 2],
            dilation: [1; 2],
        }
    }
}

/// Element by element, in fp32; a dimension of size 1 is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pointwise {
    /// x + b
    Add,
    /// x - b
    Subtract,
    /// x b
    Multiply,
    /// x / b
    Divide,
    /// e^x
    Exponential,
    /// ln x
    Logarithm,
    /// max(0, x)
    Relu,
    /// GELU with tanh
    GeluTanh,
    /// x, in the output's type
    Identity,
}

impl Pointwise {
    fn mode(self) -> Mode {
        match self {
            Pointwise::Add => Mode::CUDNN_POINTWISE_ADD,
            Pointwise::Subtract => Mode::CUDNN_POINTWISE_SUB,
            Pointwise::Multiply => Mode::CUDNN_POINTWISE_MUL,
            Pointwise::Divide => Mode::CUDNN_POINTWISE_DIV,
            Pointwise::Exponential => Mode::CUDNN_POINTWISE_EXP,
            Pointwise::Logarithm => Mode::CUDNN_POINTWISE_LOG,
            Pointwise::Relu => Mode::CUDNN_POINTWISE_RELU_FWD,
            Pointwise::GeluTanh => Mode::CUDNN_POINTWISE_GELU_APPROX_TANH_FWD,
            Pointwise::Identity => Mode::CUDNN_POINTWISE_IDENTITY,
        }
    }
}

/// How a reduction combines elements along the dimensions that its output has as 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Sum.
    Add,
    /// Greatest.
    Maximum,
}

/// Tensors of the statistics part of batch normalisation's gradient. All are fp32, one value a channel.
///
/// The input's gradient is then `dy_scale * dy + x_scale * x + bias`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchNormGradient {
    /// Batch mean.
    pub mean: Tensor,
    /// 1 / sqrt(batch variance + epsilon).
    pub inverse_deviation: Tensor,
    /// Learned scale.
    pub scale: Tensor,
    /// Gradient of the scale, written.
    pub scale_gradient: Tensor,
    /// Gradient of the bias, written.
    pub bias_gradient: Tensor,
    /// Factor of the output's gradient, written.
    pub dy_scale: Tensor,
    /// Factor of the input, written.
    pub x_scale: Tensor,
    /// Constant, written.
    pub bias: Tensor,
}

impl Graph {
    /// `y = x * w` (x: N C H W, w: K C R S, y: N K P Q).
    pub fn convolution(&mut self, x: Tensor, w: Tensor, y: Tensor, c: &Convolution) -> Result<()> {
        use Attribute as A;
        let class = Class::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
        let mut op = Descriptor::new(class)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y)?;
        let geometry = self.geometry(c)?;
        op.set_descriptors(A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &[geometry])?;
        op.set(A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, &[1f32])?;
        op.set(A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, &[0f32])?;
        self.push(op)
    }

    /// The gradient of `x` in [`Graph::convolution`].
    pub fn convolution_data_gradient(
        &mut self,
        dy: Tensor,
        w: Tensor,
        dx: Tensor,
        c: &Convolution,
    ) -> Result<()> {
        use Attribute as A;
        let class = Class::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
        let mut op = Descriptor::new(class)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx)?;
        let geometry = self.geometry(c)?;
        op.set_descriptors(A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, &[geometry])?;
        op.set(A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, &[1f32])?;
        op.set(A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, &[0f32])?;
        self.push(op)
    }

    /// The gradient of `w` in [`Graph::convolution`].
    pub fn convolution_weight_gradient(
        &mut self,
        x: Tensor,
        dy: Tensor,
        dw: Tensor,
        c: &Convolution,
    ) -> Result<()> {
        use Attribute as A;
        let class = Class::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
        let mut op = Descriptor::new(class)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw)?;
        let geometry = self.geometry(c)?;
        op.set_descriptors(A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, &[geometry])?;
        op.set(A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, &[1f32])?;
        op.set(A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, &[0f32])?;
        self.push(op)
    }

    fn geometry(&mut self, c: &Convolution) -> Result<cudnnBackendDescriptor_t> {
        use Attribute as A;
        const CROSS_CORRELATION: i32 = 1;
        let mut d = Descriptor::new(Class::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
        d.set_data_type(A::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, DataType::F32)?;
        let mode = Type::CUDNN_TYPE_CONVOLUTION_MODE;
        d.set_as(A::CUDNN_ATTR_CONVOLUTION_CONV_MODE, mode, &[CROSS_CORRELATION])?;
        d.set(A::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2i64])?;
        d.set(A::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &c.padding_before)?;
        d.set(A::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &c.padding_after)?;
        d.set(A::CUDNN_ATTR_CONVOLUTION_DILATIONS, &c.dilation)?;
        d.set(A::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &c.stride)?;
        self.keep(d)
    }

    /// `y = operation(x)` or `operation(x, b)`.
    pub fn pointwise(
        &mut self,
        operation: Pointwise,
        x: Tensor,
        b: Option<Tensor>,
        y: Tensor,
    ) -> Result<()> {
        self.pointwise_mode(operation.mode(), DataType::F32, None, x, b, None, y)
    }

    /// `dx = dy` where `x > 0`, else 0; `x` is ReLU's input or output.
    pub fn relu_gradient(&mut self, dy: Tensor, x: Tensor, dx: Tensor) -> Result<()> {
        use Attribute as A;
        let mode = self.mode(Mode::CUDNN_POINTWISE_RELU_BWD, DataType::F32, None)?;
        let mut op = Descriptor::new(Class::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
        op.set_descriptors(A::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[mode])?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx)?;
        self.push(op)
    }

    /// `y` holds each element's index along `axis` of `like`.
    pub(super) fn index(&mut self, axis: i64, like: Tensor, y: Tensor) -> Result<()> {
        let mode = Mode::CUDNN_POINTWISE_GEN_INDEX;
        self.pointwise_mode(mode, DataType::I32, Some(axis), like, None, None, y)
    }

    /// `y = a >= b`.
    pub(super) fn at_least(&mut self, a: Tensor, b: Tensor, y: Tensor) -> Result<()> {
        let mode = Mode::CUDNN_POINTWISE_CMP_GE;
        self.pointwise_mode(mode, DataType::Boolean, None, a, Some(b), None, y)
    }

    /// `y = a` where `mask`, else `b`.
    pub(super) fn select(&mut self, a: Tensor, b: Tensor, mask: Tensor, y: Tensor) -> Result<()> {
        let mode = Mode::CUDNN_POINTWISE_BINARY_SELECT;
        self.pointwise_mode(mode, DataType::F32, None, a, Some(b), Some(mask), y)
    }

    #[expect(clippy::too_many_arguments, reason = "the attributes of one operation")]
    fn pointwise_mode(
        &mut self,
        mode: Mode,
        precision: DataType,
        axis: Option<i64>,
        x: Tensor,
        b: Option<Tensor>,
        t: Option<Tensor>,
        y: Tensor,
    ) -> Result<()> {
        use Attribute as A;
        let mode = self.mode(mode, precision, axis)?;
        let mut op = Descriptor::new(Class::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
        op.set_descriptors(A::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[mode])?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)?;
        if let Some(b) = b {
            self.point(&mut op, A::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)?;
        }
        if let Some(t) = t {
            self.point(&mut op, A::CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t)?;
        }
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)?;
        self.push(op)
    }

    fn mode(
        &mut self,
        mode: Mode,
        precision: DataType,
        axis: Option<i64>,
    ) -> Result<cudnnBackendDescriptor_t> {
        use Attribute as A;
        let mut d = Descriptor::new(Class::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        d.set_as(A::CUDNN_ATTR_POINTWISE_MODE, Type::CUDNN_TYPE_POINTWISE_MODE, &[mode])?;
        d.set_data_type(A::CUDNN_ATTR_POINTWISE_MATH_PREC, precision)?;
        if let Some(axis) = axis {
            d.set(A::CUDNN_ATTR_POINTWISE_AXIS, &[axis])?;
        }
        if matches!(mode, Mode::CUDNN_POINTWISE_RELU_FWD | Mode::CUDNN_POINTWISE_RELU_BWD) {
            d.set(A::CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, &[0f64])?;
            d.set(A::CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, &[f64::from(f32::MAX)])?;
            d.set(A::CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, &[0f64])?;
        }
        self.keep(d)
    }

    /// Per-channel sum and sum of squares of `x` in fp32.
    pub fn statistics(&mut self, x: Tensor, sum: Tensor, squares: Tensor) -> Result<()> {
        use Attribute as A;
        const SUM_AND_SQUARES: i32 = 0;
        let mut op = Descriptor::new(Class::CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x)?;
        let mode = Type::CUDNN_TYPE_GENSTATS_MODE;
        op.set_as(A::CUDNN_ATTR_OPERATION_GENSTATS_MODE, mode, &[SUM_AND_SQUARES])?;
        op.set_data_type(A::CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, DataType::F32)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares)?;
        self.push(op)
    }

    /// The reductions of batch normalisation's gradient over `dy` and its input `x`.
    pub fn batch_norm_gradient(
        &mut self,
        dy: Tensor,
        x: Tensor,
        g: &BatchNormGradient,
    ) -> Result<()> {
        use Attribute as A;
        let mut op = Descriptor::new(Class::CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR)?;
        op.set_data_type(A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, DataType::F32)?;
        for (name, tensor) in [
            (A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, dy),
            (A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x),
            (A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, g.mean),
            (A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, g.inverse_deviation),
            (A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, g.scale),
            (A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, g.scale_gradient),
            (A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, g.bias_gradient),
            (A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, g.dy_scale),
            (A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, g.x_scale),
            (A::CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, g.bias),
        ] {
            self.point(&mut op, name, tensor)?;
        }
        self.push(op)
    }

    /// `c = a b` over the last two dimensions, accumulated in fp32.
    pub fn matmul(&mut self, a: Tensor, b: Tensor, c: Tensor) -> Result<()> {
        use Attribute as A;
        let mut d = Descriptor::new(Class::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?;
        d.set_data_type(A::CUDNN_ATTR_MATMUL_COMP_TYPE, DataType::F32)?;
        let d = self.keep(d)?;
        let mut op = Descriptor::new(Class::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)?;
        op.set_descriptors(A::CUDNN_ATTR_OPERATION_MATMUL_DESC, &[d])?;
        self.push(op)
    }

    /// `y` reduces `x` along the dimensions that `y` has as 1.
    pub fn reduce(&mut self, reduction: Reduction, x: Tensor, y: Tensor) -> Result<()> {
        use Attribute as A;
        let operator = match reduction {
            Reduction::Add => 0i32,
            Reduction::Maximum => 3,
        };
        let mut d = Descriptor::new(Class::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?;
        d.set_data_type(A::CUDNN_ATTR_REDUCTION_COMP_TYPE, DataType::F32)?;
        let kind = Type::CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
        d.set_as(A::CUDNN_ATTR_REDUCTION_OPERATOR, kind, &[operator])?;
        let d = self.keep(d)?;
        let mut op = Descriptor::new(Class::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)?;
        op.set_descriptors(A::CUDNN_ATTR_OPERATION_REDUCTION_DESC, &[d])?;
        self.push(op)
    }

    /// The same elements under other dimensions or strides.
    pub fn reshape(&mut self, x: Tensor, y: Tensor) -> Result<()> {
        use Attribute as A;
        let mut op = Descriptor::new(Class::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x)?;
        self.point(&mut op, A::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y)?;
        self.push(op)
    }

    fn point(&self, operation: &mut Descriptor, name: Attribute, tensor: Tensor) -> Result<()> {
        operation.set_descriptors(name, &[self.raw(tensor)?])
    }
}
