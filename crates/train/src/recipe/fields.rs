//! The keys of a recipe outside `[model]`: one line each with kind, default and help. Knows no TOML.
// tidy: table

use super::schema::{Field, Kind, Value};

/// Every key outside `[model]`, in the order in which `counterpoint config` prints them.
pub fn fields() -> Vec<Field> {
    let integer = |min| Kind::Integer { min, max: i64::MAX };
    let at_most = |min, max| Kind::Integer { min, max };
    let number = |min, max| Kind::Number { min, max };
    let choice = Kind::choice;
    let text = |word: &str| Value::Text(word.to_owned());
    let int = Value::Integer;
    let num = Value::Number;
    let formats =
        Kind::Choice(crate::data::FORMATS.iter().map(|format| format.name().to_owned()).collect());
    vec![
        Field::new("data.format", formats, text("text-bytes"), "how the files hold tokens"),
        Field::required(
            "data.train",
            Kind::Paths,
            "files to train on; relative paths start at the recipe's folder",
        ),
        Field::optional(
            "data.validation",
            Kind::Paths,
            "files to validate on; without them the end of the training files",
        ),
        Field::new(
            "data.split",
            number(0.0, 0.5),
            num(0.1),
            "part of each training file kept for validation when data.validation is absent",
        ),
        Field::new(
            "data.shuffle",
            Kind::Boolean,
            Value::Boolean(true),
            "whether each epoch has an order of its own",
        ),
        Field::new(
            "data.prefetch",
            at_most(1, 1024),
            int(4),
            "micro-batches that the loader holds ready per rank",
        ),
        Field::new(
            "train.batch",
            at_most(1, 1 << 30),
            int(32),
            "samples per step over all ranks and micro-steps",
        ),
        Field::new("train.accumulation", at_most(1, 65536), int(1), "micro-steps per step"),
        Field::new("train.steps", integer(1), int(1000), "steps of the run"),
        Field::new(
            "train.seed",
            integer(0),
            int(1337),
            "seed of initial values, order of samples and dropout",
        ),
        Field::optional(
            "train.clip_norm",
            number(1e-12, 1e12),
            "largest global norm of the gradient",
        ),
        Field::new(
            "train.loss_mean",
            choice(&["global", "local"]),
            text("global"),
            "divide by the counted labels of all ranks, or of each rank and then by the ranks",
        ),
        Field::new(
            "train.nan",
            choice(&["stop", "skip"]),
            text("stop"),
            "what happens when a gradient or the loss is not finite",
        ),
        Field::new("optimizer.name", choice(&["adamw", "sgd"]), text("adamw"), "update rule"),
        Field::new(
            "optimizer.learning_rate",
            number(0.0, 1e6),
            num(1e-3),
            "highest learning rate of the schedule",
        ),
        Field::new(
            "optimizer.weight_decay",
            number(0.0, 1e6),
            num(0.1),
            "decay of parameters that no group names",
        ),
        Field::new(
            "optimizer.beta1",
            number(0.0, 0.999_999_9),
            num(0.9),
            "adamw: decay of the first moment",
        ),
        Field::new(
            "optimizer.beta2",
            number(0.0, 0.999_999_9),
            num(0.99),
            "adamw: decay of the second moment",
        ),
        Field::new(
            "optimizer.epsilon",
            number(0.0, 1.0),
            num(1e-8),
            "adamw: added outside the square root",
        ),
        Field::new("optimizer.momentum", number(0.0, 0.999_999_9), num(0.0), "sgd: momentum"),
        Field::new(
            "optimizer.nesterov",
            Kind::Boolean,
            Value::Boolean(false),
            "sgd: Nesterov's form",
        ),
        Field::new(
            "optimizer.groups",
            Kind::Groups,
            Value::Groups(vec![]),
            "values of their own for parameters by name ending and number of axes; the first match counts",
        ),
        Field::new(
            "schedule.name",
            choice(&["constant", "linear", "cosine"]),
            text("cosine"),
            "course of the learning rate after the warm-up",
        ),
        Field::new("schedule.warmup", integer(0), int(0), "steps of linear warm-up"),
        Field::new(
            "schedule.final",
            number(0.0, 1.0),
            num(0.1),
            "learning rate at the last step, as a part of the highest",
        ),
        Field::new("parallel.ranks", at_most(1, 64), int(1), "ranks in this process"),
        Field::new(
            "parallel.strategy",
            choice(&["none", "ddp", "zero1"]),
            text("ddp"),
            "what the ranks share: nothing, gradients, gradients and optimizer state",
        ),
        Field::new(
            "parallel.bucket_bytes",
            integer(256),
            int(25 << 20),
            "size of a gradient bucket",
        ),
        Field::new(
            "parallel.first_bucket_bytes",
            integer(256),
            int(1 << 20),
            "size of the bucket that is ready first",
        ),
        Field::new(
            "parallel.last_bucket_bytes",
            integer(256),
            int(25 << 20),
            "size of the bucket that is ready last",
        ),
        Field::new(
            "parallel.overlap",
            Kind::Boolean,
            Value::Boolean(true),
            "communication beside the backward pass; false: one bucket at the end",
        ),
        Field::new(
            "parallel.link.latency_us",
            number(0.0, 1e6),
            num(0.0),
            "latency of the modelled link between ranks; 0 with bytes_per_second 0: no model",
        ),
        Field::new(
            "parallel.link.bytes_per_second",
            number(0.0, 1e15),
            num(0.0),
            "throughput of the modelled link; 0: unlimited",
        ),
        Field::new(
            "precision.compute",
            choice(&["f32", "bf16", "f16"]),
            text("f32"),
            "type of matrix products and activations",
        ),
        Field::new(
            "precision.residual",
            choice(&["f32", "bf16", "f16"]),
            text("f32"),
            "type of the residual stream",
        ),
        Field::new(
            "precision.loss_scale",
            choice(&["none", "fixed", "dynamic"]),
            text("none"),
            "factor on the loss that keeps small gradients",
        ),
        Field::new(
            "precision.initial_scale",
            number(1.0, 1e30),
            num(65536.0),
            "the fixed, or the first dynamic, loss scale",
        ),
        Field::new(
            "validation.every",
            integer(0),
            int(100),
            "steps between validations; 0: only at the end",
        ),
        Field::new("validation.batches", at_most(1, 1 << 20), int(8), "batches per validation"),
        Field::new(
            "checkpoint.every",
            integer(0),
            int(0),
            "steps between checkpoints; 0: only at the end",
        ),
        Field::new("checkpoint.keep", integer(1), int(2), "checkpoints kept"),
        Field::optional(
            "output.folder",
            Kind::Text,
            "the run's folder; default runs/<name of the recipe>",
        ),
        Field::optional(
            "output.sample_prompt",
            Kind::Text,
            "text that the trained model continues at the end (text-bytes)",
        ),
        Field::new("output.sample_tokens", at_most(0, 1 << 20), int(200), "tokens of that sample"),
    ]
}
