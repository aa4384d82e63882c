//! Arithmetic of symbols: `+ - * /` and negation, between symbols and with numbers.
//!
//! Knows only which operator each sign stands for.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::{
    Attributes,
    trace::{Scalar, Sym},
};

macro_rules! arithmetic {
    ($trait:ident, $method:ident, $operator:literal) => {
        impl $trait<&Sym> for &Sym {
            type Output = Sym;
            #[track_caller]
            fn $method(self, other: &Sym) -> Sym {
                self.apply($operator, Attributes::new(), &[other])
            }
        }
        impl $trait<Sym> for &Sym {
            type Output = Sym;
            #[track_caller]
            fn $method(self, other: Sym) -> Sym {
                self.apply($operator, Attributes::new(), &[&other])
            }
        }
        impl $trait<&Sym> for Sym {
            type Output = Sym;
            #[track_caller]
            fn $method(self, other: &Sym) -> Sym {
                self.apply($operator, Attributes::new(), &[other])
            }
        }
        impl $trait<Sym> for Sym {
            type Output = Sym;
            #[track_caller]
            fn $method(self, other: Sym) -> Sym {
                self.apply($operator, Attributes::new(), &[&other])
            }
        }
        impl $trait<Scalar> for &Sym {
            type Output = Sym;
            #[track_caller]
            fn $method(self, other: Scalar) -> Sym {
                let other = self.context().constant(other, self.dtype());
                self.apply($operator, Attributes::new(), &[&other])
            }
        }
        impl $trait<Scalar> for Sym {
            type Output = Sym;
            #[track_caller]
            fn $method(self, other: Scalar) -> Sym {
                let other = self.context().constant(other, self.dtype());
                self.apply($operator, Attributes::new(), &[&other])
            }
        }
        impl $trait<&Sym> for Scalar {
            type Output = Sym;
            #[track_caller]
            fn $method(self, other: &Sym) -> Sym {
                let own = other.context().constant(self, other.dtype());
                own.apply($operator, Attributes::new(), &[other])
            }
        }
        impl $trait<Sym> for Scalar {
            type Output = Sym;
            #[track_caller]
            fn $method(self, other: Sym) -> Sym {
                let own = other.context().constant(self, other.dtype());
                own.apply($operator, Attributes::new(), &[&other])
            }
        }
    };
}

arithmetic!(Add, add, "add");
arithmetic!(Sub, sub, "sub");
arithmetic!(Mul, mul, "mul");
arithmetic!(Div, div, "div");

impl Neg for &Sym {
    type Output = Sym;
    #[track_caller]
    fn neg(self) -> Sym {
        self.apply("neg", Attributes::new(), &[])
    }
}

impl Neg for Sym {
    type Output = Sym;
    #[track_caller]
    fn neg(self) -> Sym {
        self.apply("neg", Attributes::new(), &[])
    }
}
