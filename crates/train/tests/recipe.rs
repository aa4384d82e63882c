//! Recipes as people write them, right and wrong: text in, values with origins or lines of mistakes out.

use std::path::Path;

use train::recipe::{Family, Field, Kind, Recipe, Value};

fn families() -> Vec<Family> {
    let integer = |key: &str, default| {
        Field::new(key, Kind::Integer { min: 1, max: 1 << 20 }, Value::Integer(default), "a size")
    };
    vec![Family {
        name: "gpt2".to_owned(),
        fields: vec![
            integer("model.layers", 2),
            integer("model.width", 64),
            integer("model.vocabulary", 256),
        ],
        presets: vec![("big".to_owned(), vec![("model.width".to_owned(), Value::Integer(512))])],
    }]
}

fn parse(text: &str, sets: &[&str]) -> Result<Recipe, String> {
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    Recipe::parse(Path::new("r/a.toml"), text, &sets, &families())
        .map_err(|error| error.to_string())
}

const GOOD: &str = "[model]\nfamily = \"gpt2\"\n[data]\ntrain = \"text.txt\"\n";

#[test]
fn every_mistake_is_one_line_with_place_key_found_expected_and_nearest_name() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "",
            &[],
            &[
                "r/a.toml: model.family: missing; expected one of \"gpt2\" (which model)",
                "r/a.toml: data.train: missing; expected a path or a list of paths (files to train on; relative paths start at the recipe's folder)",
            ],
        ),
        (
            "[model]\nfamily = \"gtp2\"\nlayers = 3\n[data]\ntrain = \"a\"\n",
            &[],
            &[
                "r/a.toml:2: model.family: found \"gtp2\" (nearest: \"gpt2\"), expected one of \"gpt2\"",
            ],
        ),
        (
            "[model]\nfamily = \"gpt2\"\n[data]\ntrain = \"a\"\n[train]\nsteps = \"ten\"\nbatchs = 4\n",
            &[],
            &[
                "r/a.toml:6: train.steps: found \"ten\" (a string), expected an integer of at least 1",
                "r/a.toml:7: train.batchs: no such key; nearest: train.batch",
            ],
        ),
        (
            "[model]\nfamily = \"gpt2\"\n[data]\ntrain = \"a\"\n[optimiser]\nlearning_rate = 0.1\n",
            &[],
            &["r/a.toml:6: optimiser.learning_rate: no such key; nearest: optimizer.learning_rate"],
        ),
        (
            GOOD,
            &["train.steps=0", "zzz=1", "nothing"],
            &[
                "--set nothing: expected KEY=VALUE",
                "--set train.steps=0: train.steps: found 0, expected an integer of at least 1",
                "--set zzz=1: zzz: no such key; sections are model, data, train, optimizer, schedule, parallel, precision, validation, checkpoint, output",
            ],
        ),
        (
            GOOD,
            &["train.batch=10", "parallel.ranks=4"],
            &[
                "--set train.batch=10: train.batch: found 10, expected a multiple of parallel.ranks x train.accumulation = 4 x 1 = 4",
            ],
        ),
        (
            GOOD,
            &["parallel=3"],
            &["--set parallel=3: parallel: found 3 (an integer), expected a section of keys"],
        ),
        (
            GOOD,
            &["optimizer.learning_rate=nan"],
            &[
                "--set optimizer.learning_rate=nan: optimizer.learning_rate: found nan, expected a number from 0 to 1000000",
            ],
        ),
        (
            GOOD,
            &["optimizer.groups=[{ ending = \"*\" }]"],
            &[
                "--set optimizer.groups=[{ ending = \"*\" }]: optimizer.groups: group 1: no such key ending; nearest: endings",
            ],
        ),
        (
            GOOD,
            &["optimizer.groups=[{ endings = [\".bias\"] }, { weight_decay = -1 }]"],
            &[
                "--set optimizer.groups=[{ endings = [\".bias\"] }, { weight_decay = -1 }]: optimizer.groups: group 2: weight_decay: found -1 (an integer), expected a number of at least 0",
            ],
        ),
        (
            GOOD,
            &["optimizer.groups=3"],
            &[
                "--set optimizer.groups=3: optimizer.groups: found 3 (an integer), expected a list of tables { endings, at_least_axes, weight_decay, learning_rate_scale }",
            ],
        ),
        (
            GOOD,
            &["train.steps=99999999999999999999"],
            &[
                "--set train.steps=99999999999999999999: train.steps: found 99999999999999999999, which is beyond 64 bits",
            ],
        ),
        (
            GOOD,
            &["data.train="],
            &[
                "--set data.train=: data.train: found \"\" (a string), expected a path or a list of paths",
            ],
        ),
        (
            "[model]\nfamily = \"gpt2\"\n[model.layers]\na = 1\n[data]\ntrain = \"a\"\n",
            &[],
            &[
                "r/a.toml:4: model.layers.a: model.layers takes an integer from 1 to 1048576, not a section",
            ],
        ),
        ("[train]\nsteps = 1\nsteps = 2\n", &[], &["r/a.toml:3: not valid TOML: duplicate key"]),
        ("steps = = 2\n", &[], &["r/a.toml:1: not valid TOML: extra `=`, expected nothing"]),
    ];
    for (text, sets, expected) in cases {
        let found = parse(text, sets).expect_err("a mistake");
        assert_eq!(found, expected.join("\n"), "recipe {text:?} with {sets:?}");
    }
}

#[test]
fn each_value_has_its_origin_and_the_print_is_a_recipe() {
    let recipe =
        parse(GOOD, &["train.steps=20", "optimizer.name=sgd", "data.train=a.txt"]).expect("good");
    let text = recipe.with_origins();
    for line in [
        "family = \"gpt2\" # r/a.toml:2",
        "layers = 2 # default",
        "steps = 20 # --set train.steps=20",
        "# clip_norm: not set # largest global norm of the gradient",
    ] {
        let spaced = |found: &str| found.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.lines().any(|found| spaced(found) == line), "no line {line:?} in\n{text}");
    }
    let again = parse(&text, &[]).expect("the print is a recipe");
    assert_eq!(again.train.steps, 20);
    assert_eq!(again.portable().replace("/r/", "/"), recipe.portable());
    assert_eq!(recipe.to_json()["train.steps"]["origin"], "--set train.steps=20");
}

#[test]
fn a_preset_gives_what_nobody_chose() {
    let recipe = parse(GOOD, &["model.preset=big", "model.layers=7"]).expect("good");
    let json = recipe.to_json();
    assert_eq!(json["model.width"]["value"], 512);
    assert_eq!(json["model.width"]["origin"], "preset big");
    assert_eq!(json["model.layers"]["value"], 7);
    assert_eq!(json["model.vocabulary"]["origin"], "default");
}

#[test]
fn paths_start_at_the_recipe_or_where_the_command_runs() {
    let recipe = parse(GOOD, &["data.validation=v.bin"]).expect("good");
    assert_eq!(recipe.data.train, [Path::new("r/text.txt")]);
    assert_eq!(recipe.data.validation, [Path::new("v.bin")]);
    assert_eq!(recipe.folder(), Path::new("runs/a"));
}

#[test]
fn schedules_follow_their_formula() {
    let at = |name: &str, step| {
        let sets = [
            "train.steps=10",
            "schedule.warmup=2",
            "schedule.final=0.1",
            &format!("schedule.name={name}"),
        ];
        parse(GOOD, &sets).expect("good").schedule.factor(step, 10)
    };
    for (name, step, expected) in [
        ("constant", 0, 0.5),
        ("constant", 9, 1.0),
        ("linear", 1, 1.0),
        ("linear", 2, 1.0),
        ("linear", 6, 0.55),
        ("cosine", 6, 0.55),
        ("cosine", 10, 0.1),
    ] {
        assert!((at(name, step) - expected).abs() < 1e-12, "{name} at {step}: {}", at(name, step));
    }
}
