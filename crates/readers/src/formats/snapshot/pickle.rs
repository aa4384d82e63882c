//! Pickles of plain data: numbers, texts, lists, tuples and dictionaries. An instruction that would name, build or call
//! anything ends the reading.
//!
//! Objects lie in one list and refer to one another by number, so that no nesting is too deep. Knows no snapshot.

/// More objects than this are damage or not for us.
const MOST_NODES: usize = 12_000_000;
/// Objects inside others, counted wherever they are named: the same one may be in many.
const MOST_ITEMS: usize = 32_000_000;
/// Keys of a dictionary that are looked at: those of a snapshot have twenty.
const MOST_KEYS: usize = 64;

/// One object.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `None`.
    Nothing,
    /// A truth value.
    Bool(bool),
    /// A whole number; saturated where it has more than 64 bits.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text or bytes: where they lie.
    Text(std::ops::Range<usize>),
    /// A list, tuple or set.
    List(Vec<u32>),
    /// A dictionary.
    Dict(Vec<(u32, u32)>),
}

/// A pickle that was read.
#[derive(Debug)]
pub struct Document<'b> {
    bytes: &'b [u8],
    nodes: Vec<Node>,
    root: u32,
}

impl<'b> Document<'b> {
    /// Reads a pickle.
    ///
    /// # Errors
    /// What it holds that is no plain data, or where it is damaged.
    pub fn read(bytes: &'b [u8]) -> Result<Document<'b>, String> {
        let mut machine = Machine {
            bytes,
            at: 0,
            nodes: vec![],
            stack: vec![],
            marks: vec![],
            memo: vec![],
            items: 0,
        };
        let root = machine.run()?;
        Ok(Document { bytes, nodes: machine.nodes, root })
    }

    /// The outermost object.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// An object.
    pub fn node(&self, object: u32) -> &Node {
        &self.nodes[object as usize]
    }

    /// The value of a dictionary's key.
    pub fn get(&self, object: u32, key: &str) -> Option<u32> {
        let Node::Dict(entries) = self.node(object) else { return None };
        let found =
            entries.iter().rev().take(MOST_KEYS).find(|(own, _)| self.text(*own) == key.as_bytes());
        found.map(|&(_, value)| value)
    }

    /// The items of a list; none where it is no list.
    pub fn items(&self, object: u32) -> &[u32] {
        match self.node(object) {
            Node::List(items) => items,
            _ => &[],
        }
    }

    /// A whole number.
    pub fn int(&self, object: u32) -> Option<i64> {
        match self.node(object) {
            Node::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A text; empty where it is none.
    pub fn text(&self, object: u32) -> &'b [u8] {
        match self.node(object) {
            Node::Text(range) => &self.bytes[range.clone()],
            _ => b"",
        }
    }
}

struct Machine<'b> {
    bytes: &'b [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<u32>,
    marks: Vec<usize>,
    memo: Vec<u32>,
    /// Objects put inside others so far.
    items: usize,
}

const CUT: &str = "the pickle is cut off or damaged";

impl Machine<'_> {
    fn run(&mut self) -> Result<u32, String> {
        loop {
            let instruction = self.take(1)?[0];
            if instruction == b'.' {
                return self.stack.pop().ok_or_else(|| CUT.to_owned());
            }
            self.step(instruction)?;
            let held = self.nodes.len().max(self.stack.len()).max(self.marks.len());
            if held > MOST_NODES || self.items > MOST_ITEMS {
                return Err(format!("more than {MOST_NODES} objects"));
            }
        }
    }

    fn step(&mut self, instruction: u8) -> Result<(), String> {
        match instruction {
            0x80 => self.take(1).map(drop)?,
            0x95 => self.take(8).map(drop)?,
            b'N' => self.push(Node::Nothing),
            0x88 => self.push(Node::Bool(true)),
            0x89 => self.push(Node::Bool(false)),
            b'K' => self.int(1, false)?,
            b'M' => self.int(2, false)?,
            b'J' => self.int(4, true)?,
            0x8a => {
                let length = self.size(1)?;
                self.int(length, true)?;
            }
            b'G' => {
                let bytes: [u8; 8] = self.take(8)?.try_into().map_err(|_| CUT.to_owned())?;
                self.push(Node::Float(f64::from_be_bytes(bytes)));
            }
            0x8c | b'C' | b'U' => self.text(1)?,
            b'X' | b'B' | b'T' => self.text(4)?,
            0x8d | 0x8e => self.text(8)?,
            b']' | b')' | 0x8f => self.push(Node::List(vec![])),
            b'}' => self.push(Node::Dict(vec![])),
            b'(' => self.marks.push(self.stack.len()),
            b't' | b'l' => {
                let items = self.marked()?;
                self.push(Node::List(items));
            }
            0x85..=0x87 => {
                let count = usize::from(instruction - 0x84);
                let start = self.stack.len().checked_sub(count).ok_or(CUT)?;
                let items = self.stack.split_off(start);
                self.push(Node::List(items));
            }
            b'a' => {
                let item = self.stack.pop().ok_or(CUT)?;
                self.append(&[item])?;
            }
            b'e' | 0x90 => {
                let items = self.marked()?;
                self.append(&items)?;
            }
            b's' => {
                let (value, key) = (self.stack.pop().ok_or(CUT)?, self.stack.pop().ok_or(CUT)?);
                self.insert(&[key, value])?;
            }
            b'u' => {
                let items = self.marked()?;
                self.insert(&items)?;
            }
            b'd' => {
                let items = self.marked()?;
                self.push(Node::Dict(vec![]));
                self.insert(&items)?;
            }
            b'0' => drop(self.stack.pop()),
            b'1' => drop(self.marked()?),
            b'2' => {
                let top = *self.stack.last().ok_or(CUT)?;
                self.stack.push(top);
            }
            0x94 => self.remember(self.memo.len())?,
            b'q' | b'r' => {
                let place = self.size(if instruction == b'q' { 1 } else { 4 })?;
                self.remember(place)?;
            }
            b'h' | b'j' => {
                let place = self.size(if instruction == b'h' { 1 } else { 4 })?;
                let object = *self.memo.get(place).filter(|&&o| o != u32::MAX).ok_or(CUT)?;
                self.stack.push(object);
            }
            b'c' | 0x93 | b'R' | b'b' | b'i' | b'o' | 0x81 | 0x92 | b'P' | b'Q' | 0x82..=0x84 => {
                return Err("the pickle would name or call code: refused".to_owned());
            }
            other => return Err(format!("unknown instruction {other:#04x} in the pickle")),
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&[u8], String> {
        let end = self.at.checked_add(count).ok_or(CUT)?;
        let taken = self.bytes.get(self.at..end).ok_or(CUT)?;
        self.at = end;
        Ok(taken)
    }

    /// A length or place of this many bytes, little endian.
    fn size(&mut self, bytes: usize) -> Result<usize, String> {
        let value =
            self.take(bytes)?.iter().rev().fold(0_u64, |value, &b| (value << 8) | u64::from(b));
        usize::try_from(value).map_err(|_| CUT.to_owned())
    }

    fn push(&mut self, node: Node) {
        if let Node::List(items) = &node {
            self.items += items.len();
        }
        self.stack.push(self.nodes.len() as u32);
        self.nodes.push(node);
    }

    fn int(&mut self, count: usize, signed: bool) -> Result<(), String> {
        let bytes = self.take(count)?;
        let negative = signed && bytes.last().is_some_and(|&byte| byte >= 0x80);
        let fill = if negative { 0xff } else { 0 };
        let fits = bytes.iter().skip(8).all(|&byte| byte == fill);
        let mut padded = [fill; 8];
        padded.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
        let value = i64::from_le_bytes(padded);
        let value = match (fits && (value < 0) == negative, negative) {
            (true, _) => value,
            (false, true) => i64::MIN,
            (false, false) => i64::MAX,
        };
        self.push(Node::Int(value));
        Ok(())
    }

    fn text(&mut self, bytes: usize) -> Result<(), String> {
        let length = self.size(bytes)?;
        let start = self.at;
        self.take(length)?;
        self.push(Node::Text(start..start + length));
        Ok(())
    }

    /// Everything above the last mark.
    fn marked(&mut self) -> Result<Vec<u32>, String> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len()).ok_or(CUT)?;
        Ok(self.stack.split_off(mark))
    }

    fn append(&mut self, items: &[u32]) -> Result<(), String> {
        self.items += items.len();
        let list = *self.stack.last().ok_or(CUT)?;
        match &mut self.nodes[list as usize] {
            Node::List(own) => own.extend_from_slice(items),
            _ => return Err(CUT.to_owned()),
        }
        Ok(())
    }

    fn insert(&mut self, items: &[u32]) -> Result<(), String> {
        self.items += items.len();
        let dict = *self.stack.last().ok_or(CUT)?;
        match &mut self.nodes[dict as usize] {
            Node::Dict(own) => own.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
            _ => return Err(CUT.to_owned()),
        }
        Ok(())
    }

    fn remember(&mut self, place: usize) -> Result<(), String> {
        let top = *self.stack.last().ok_or(CUT)?;
        if place > self.nodes.len() {
            return Err(CUT.to_owned());
        }
        if self.memo.len() <= place {
            self.memo.resize(place + 1, u32::MAX);
        }
        self.memo[place] = top;
        Ok(())
    }
}
