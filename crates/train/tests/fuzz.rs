//! Readers of files that people and other programs write never panic: recipes, token files, safetensors, manifests.
//!
//! Each input is a real one with random damage. `COUNTERPOINT_FUZZ=1000000 cargo test --release -p train --test fuzz`
//! sets the number of inputs in all (default 4,000) and `COUNTERPOINT_FUZZ_SEED` the start.

use std::{collections::BTreeMap, fs, path::Path};

use graph::{DType, Type};
use train::{
    checkpoint,
    data::{Dataset, FORMATS, Part},
    recipe::{Family, Field, Kind, Recipe, Value},
    weights::{self, StoredTensor},
};

const RECIPE: &str = "[model]\nfamily = \"gpt2\"\nlayers = 3\n[data]\nformat = \"llm-c\"\ntrain = [\"a.bin\", 'b*.bin']\n\
    [train]\nbatch = 32\nclip_norm = 1.0\n[optimizer]\ngroups = [{ endings = [\".bias\"], weight_decay = 0.0 }]\n\
    [[optimizer.extra]]\nx = 1979-05-27\n[parallel]\nranks = 2\nlink = { latency_us = 5, bytes_per_second = 2e8 }\n";

/// xorshift64*: small, seeded, good enough to choose damage.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
    }
}

/// Between none and eight changes: flipped, inserted, removed, repeated and cut bytes, extreme numbers.
fn damaged(original: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..dice.roll(9) {
        let at = dice.roll(bytes.len() + 1);
        match dice.roll(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.roll(8),
            1 if at < bytes.len() => bytes[at] = dice.roll(256) as u8,
            2 => bytes.insert(at, b"\"'[]{}=.#\n0-9eE_+,:\\\0\xff"[dice.roll(22)]),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            5 => {
                let end = (at + dice.roll(40)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = dice.roll(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            6 => {
                let number = [0_u64, 1, u64::MAX, i64::MAX as u64, u64::from(u32::MAX), 1 << 40]
                    [dice.roll(6)];
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            7 => {
                let text: &[u8] = [
                    b"9223372036854775808".as_slice(),
                    b"-1",
                    b"1e999",
                    b"nan",
                    b"true",
                    b"[[[[[[",
                    b"a.b.c=",
                    b"18446744073709551615",
                ][dice.roll(8)];
                bytes.splice(at..at, text.iter().copied());
            }
            _ => {}
        }
    }
    bytes
}

fn families() -> Vec<Family> {
    let layers =
        Field::new("model.layers", Kind::Integer { min: 1, max: 96 }, Value::Integer(2), "blocks");
    vec![Family { name: "gpt2".to_owned(), fields: vec![layers], presets: vec![] }]
}

fn read_recipe(bytes: &[u8], _folder: &Path) {
    let text = String::from_utf8_lossy(bytes);
    // The last line serves as a `--set` argument as well.
    let set = text.lines().last().unwrap_or("").to_owned();
    if let Ok(recipe) = Recipe::parse(Path::new("r.toml"), &text, &[set], &families()) {
        let text = recipe.portable();
        Recipe::parse(Path::new("r.toml"), &text, &[], &families())
            .expect("what is printed can be read");
    }
}

fn read_tokens(bytes: &[u8], folder: &Path) {
    let path = folder.join("tokens.bin");
    fs::write(&path, bytes).expect("writes");
    for format in FORMATS {
        for part in [Part::Whole, Part::Without(0.3), Part::Last(0.3)] {
            if let Ok(set) = Dataset::open(*format, std::slice::from_ref(&path), part, 3, 40_000) {
                let (mut inputs, mut labels) = ([0; 3], [0; 3]);
                for index in [0, set.samples() - 1, u64::MAX] {
                    let _ = set.sample(index, &mut inputs, &mut labels);
                }
            }
        }
    }
}

fn read_weights(bytes: &[u8], _folder: &Path) {
    if let Ok(tensors) = weights::parse(bytes) {
        for tensor in tensors.values() {
            assert_eq!(tensor.ty.bytes(), tensor.bytes.len(), "{}", tensor.ty);
        }
    }
}

fn read_manifest(bytes: &[u8], _folder: &Path) {
    if let Ok(manifest) = checkpoint::parse_manifest(bytes) {
        let _ = manifest.difference(&BTreeMap::new());
    }
}

#[test]
fn damaged_inputs_give_errors_and_no_panic() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (count, seed) = (number("COUNTERPOINT_FUZZ", 4_000), number("COUNTERPOINT_FUZZ_SEED", 1));
    let folder = tempfile::tempdir().expect("a folder");
    let ty = Type::new(DType::F32, [2, 3]);
    let tensors = ["wte.weight", "h.0.ln_1.bias"]
        .map(|name| (name.to_owned(), StoredTensor { ty: ty.clone(), bytes: vec![1; 24] }));
    let path = folder.path().join("a.safetensors");
    weights::write(&path, &tensors.into_iter().collect(), &BTreeMap::new()).expect("writes");
    let mut shard: Vec<u8> =
        [20_240_520_u32, 1, 20].iter().flat_map(|word| word.to_le_bytes()).collect();
    shard.resize(1024 + 40, 7);
    let manifest = br#"{"format":1,"step":3,"position":96,"seed":1,"model":{"width":64},"files":{"model.safetensors":{"bytes":1,"sha256":"00"},"state.safetensors":{"bytes":1,"sha256":"00"}}}"#;
    type Reader = fn(&[u8], &Path);
    let targets: [(&str, Vec<u8>, Reader); 4] = [
        ("recipe", RECIPE.as_bytes().to_vec(), read_recipe),
        ("tokens", shard, read_tokens),
        ("weights", fs::read(&path).expect("reads"), read_weights),
        ("manifest", manifest.to_vec(), read_manifest),
    ];
    for (name, original, reader) in &targets {
        for index in 0..count / targets.len() as u64 {
            let mut dice =
                Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index * 2 + 1));
            let input = damaged(original, &mut dice);
            let result = std::panic::catch_unwind(|| reader(&input, folder.path()));
            assert!(result.is_ok(), "{name}: input {index} of seed {seed} panics: {input:?}");
        }
    }
}
